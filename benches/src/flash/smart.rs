//! What a drive counts itself, by way of nvme-cli.
//!
//! Host bytes are *data units written* of the health log that every NVMe drive has; media bytes
//! are *physical media units written* of log page 0xC0, which drives after the Open Compute
//! Project's specification have. Both logs need the rights of the administrator, and so does
//! nvme-cli.

use std::process::Command;

use serde_json::Value;

/// A data unit of the health log: a thousand units of 512 bytes, by the NVMe specification.
const DATA_UNIT_BYTES: u64 = 512_000;

/// Runs nvme with arguments and gives what it printed.
type Run = dyn Fn(&[&str]) -> Result<Vec<u8>, String>;

/// Bytes since the drive was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SmartBytes {
    pub host: u64,
    /// `None` where a drive does not tell.
    pub media: Option<u64>,
}

/// The drives under a store.
#[derive(Debug)]
pub(super) struct Smart {
    drives: Vec<String>,
}

impl Smart {
    /// Finds out whether every one of these disks, by their names in `/sys/block`, tells what its
    /// host wrote; says why not.
    pub fn of(disks: &[&str]) -> Result<(Smart, SmartBytes), String> {
        Self::with(disks, &nvme)
    }

    fn with(disks: &[&str], run: &Run) -> Result<(Smart, SmartBytes), String> {
        if disks.is_empty() {
            return Err("it is not known which disk the store lies on".into());
        }
        if let Some(other) = disks.iter().find(|d| !d.starts_with("nvme")) {
            return Err(format!("{other} is no NVMe drive"));
        }
        let smart = Smart { drives: disks.iter().map(|d| format!("/dev/{d}")).collect() };
        let now = smart.read_with(run)?;
        Ok((smart, now))
    }

    /// The counters of all drives together, now.
    pub fn read(&self) -> Result<SmartBytes, String> {
        self.read_with(&nvme)
    }

    fn read_with(&self, run: &Run) -> Result<SmartBytes, String> {
        let mut sum = SmartBytes { host: 0, media: Some(0) };
        for drive in &self.drives {
            let health = run(&["smart-log", drive, "--output-format=json"])?;
            sum.host += host_bytes(&health).map_err(|e| format!("health log of {drive}: {e}"))?;
            // That a drive has no such log is no failure.
            let media = run(&["ocp", "smart-add-log", drive, "--output-format=json"]).ok();
            sum.media = sum.media.zip(media.and_then(|m| media_bytes(&m))).map(|(a, b)| a + b);
        }
        Ok(sum)
    }
}

fn nvme(arguments: &[&str]) -> Result<Vec<u8>, String> {
    match Command::new("nvme").args(arguments).output() {
        Err(e) => Err(format!("nvme (package nvme-cli) cannot be run: {e}")),
        Ok(o) if o.status.success() => Ok(o.stdout),
        Ok(o) => Err(format!("nvme {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&o.stderr).trim())),
    }
}

/// Data units written, as bytes. The number is a string where it may not fit a double.
fn host_bytes(json: &[u8]) -> Result<u64, String> {
    let log: Value = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    let units = log.get("data_units_written").and_then(integer).ok_or("it has no data_units_written")?;
    units.checked_mul(DATA_UNIT_BYTES).ok_or_else(|| format!("{units} data units are more than 16 EiB"))
}

/// Physical media units written; they are bytes. The name differs between versions of the output.
fn media_bytes(json: &[u8]) -> Option<u64> {
    let log: Value = serde_json::from_slice(json).ok()?;
    let units = log.get("Physical media units written").or_else(|| log.get("physical_media_units_written"))?;
    match (units.get("hi").and_then(integer), units.get("lo").and_then(integer)) {
        (Some(0), Some(lo)) => Some(lo),
        _ => None,
    }
}

fn integer(v: &Value) -> Option<u64> {
    v.as_u64().or_else(|| v.as_str()?.replace(',', "").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTH: &str = r#"{ "critical_warning" : 0, "temperature" : 301, "percent_used" : 15,
        "data_units_read" : 499296134, "data_units_written" : 1474968593, "media_errors" : 0 }"#;
    const OCP: &str = r#"{ "Physical media units written": {"hi": 0, "lo": 1527805403860992},
        "Physical media units read": {"hi": 0, "lo": 467772386381824}, "Bad user nand blocks - Raw": 0 }"#;

    /// Answers as two drives would, the second without the vendor's log if `second` says so.
    fn answers(second: bool) -> impl Fn(&[&str]) -> Result<Vec<u8>, String> {
        move |a| match (a[0], a[1]) {
            ("smart-log", _) => Ok(HEALTH.into()),
            ("ocp", "smart-add-log") if second || a[2] == "/dev/nvme0n1" => Ok(OCP.into()),
            _ => Err("NVMe status: Invalid Log Page".into()),
        }
    }

    #[test]
    fn both_logs_are_understood_and_drives_are_added() {
        let (smart, now) = Smart::with(&["nvme0n1", "nvme1n1"], &answers(true)).unwrap();
        assert_eq!(smart.drives, ["/dev/nvme0n1", "/dev/nvme1n1"]);
        assert_eq!(now, SmartBytes { host: 2 * 1474968593 * 512_000, media: Some(2 * 1527805403860992) });
    }

    #[test]
    fn one_drive_without_the_vendors_log_leaves_media_bytes_unknown() {
        let (_, now) = Smart::with(&["nvme0n1", "nvme1n1"], &answers(false)).unwrap();
        assert_eq!((now.host, now.media), (2 * 1474968593 * 512_000, None));
    }

    #[test]
    fn other_spellings_are_understood() {
        assert_eq!(host_bytes(br#"{"data_units_written":"1,474,968,593"}"#), Ok(1474968593 * 512_000));
        assert_eq!(media_bytes(br#"{"physical_media_units_written":{"hi":0,"lo":7}}"#), Some(7));
    }

    #[test]
    fn nonsense_is_not_a_number() {
        assert!(host_bytes(b"{}").unwrap_err().contains("no data_units_written"));
        assert!(host_bytes(b"smart log").is_err());
        assert!(host_bytes(br#"{"data_units_written": 18446744073709551615}"#).unwrap_err().contains("EiB"));
        for json in
            ["{}", r#"{"Physical media units written": 3}"#, r#"{"Physical media units written":{"hi":1,"lo":3}}"#]
        {
            assert_eq!(media_bytes(json.as_bytes()), None, "{json}");
        }
    }

    #[test]
    fn other_disks_say_why_not() {
        let why = |disks: &[&str]| Smart::with(disks, &answers(true)).unwrap_err();
        assert_eq!(why(&["nvme0n1", "vda"]), "vda is no NVMe drive");
        assert!(why(&[]).contains("not known"));
        let refused = Smart::with(&["nvme0n1"], &|_| Err("permission denied".into())).unwrap_err();
        assert_eq!(refused, "permission denied");
    }
}
