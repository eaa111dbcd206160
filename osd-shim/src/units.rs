//! Sizes and times as people write them. Parsing is strict: what is not understood is refused, not
//! guessed.

use std::time::Duration;

const SIZE_UNITS: [(char, u32); 4] = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
const TIME_UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Bytes: a whole number, with `k`, `m`, `g` or `t` for powers of 1024.
pub fn size(s: &str) -> Result<u64, String> {
    let nonsense =
        || format!("'{s}' is no size; write bytes or a whole number with k, m, g or t, such as 4096, 128k or 16g");
    let last = s.chars().last().ok_or_else(nonsense)?.to_ascii_lowercase();
    let (digits, shift) = match SIZE_UNITS.iter().find(|(c, _)| *c == last) {
        Some((_, shift)) => (&s[..s.len() - 1], *shift),
        None => (s, 0),
    };
    let n = whole(digits).ok_or_else(nonsense)?;
    n.checked_mul(1 << shift).ok_or_else(|| format!("'{s}' is more than 16 exbibytes"))
}

/// A time: a whole number with `ns`, `us`, `ms`, `s`, `m` or `h`; `0` needs no unit.
pub fn time(s: &str) -> Result<Duration, String> {
    let nonsense =
        || format!("'{s}' is no time; write a whole number with ns, us, ms, s, m or h, such as 250us or 10s");
    let split = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let (digits, unit) = s.split_at(split);
    let n = whole(digits).ok_or_else(nonsense)?;
    let ns = match TIME_UNITS.iter().find(|(u, _)| *u == unit) {
        Some((_, ns)) => *ns,
        None if n == 0 && unit.is_empty() => 0,
        None => return Err(nonsense()),
    };
    n.checked_mul(ns).map(Duration::from_nanos).ok_or_else(|| format!("'{s}' is more than 584 years"))
}

/// A share above nothing, in percent with or without the sign, as a fraction: `7%` is 0.07.
pub fn percent(s: &str) -> Result<f64, String> {
    let nonsense = || format!("'{s}' is no percentage above 0; write a number such as 7% or 28%");
    let digits = s.strip_suffix('%').unwrap_or(s);
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let n = plain.then(|| digits.parse::<f64>().ok()).flatten().filter(|n| *n > 0.0).ok_or_else(nonsense)?;
    Ok(n / 100.0)
}

/// A number of things.
pub fn count(s: &str) -> Result<u64, String> {
    whole(s).ok_or_else(|| format!("'{s}' is no whole number"))
}

/// Digits only: the standard parser takes a sign.
fn whole(s: &str) -> Option<u64> {
    s.chars().all(|c| c.is_ascii_digit()).then(|| s.parse().ok())?
}

/// Exactly, where a unit divides it: `128k`, `4m`; else plain bytes.
pub fn exact(bytes: u64) -> String {
    let unit = SIZE_UNITS.iter().rev().find(|(_, shift)| bytes >= 1 << shift && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((c, shift)) => format!("{}{c}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// To three figures: `1.50 GiB`.
pub fn about(bytes: u64) -> String {
    let (mut n, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if n < 1000.0 {
            break;
        }
        (n, unit) = (n / 1024.0, next);
    }
    match n {
        _ if unit == "B" => format!("{bytes} B"),
        n if n < 10.0 => format!("{n:.2} {unit}"),
        n if n < 100.0 => format!("{n:.1} {unit}"),
        n => format!("{n:.0} {unit}"),
    }
}

/// With a comma between thousands.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (s, n) in
            [("0", 0), ("4096", 4096), ("128k", 128 << 10), ("4M", 4 << 20), ("16g", 16 << 30), ("2t", 2 << 40)]
        {
            assert_eq!(size(s), Ok(n), "{s}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for s in ["", "k", "-1", "+1", "1.5m", "12q", "4 k", "4kk", "4kib", "0x10", "１k", "4µ"] {
            assert!(size(s).unwrap_err().contains("is no size"), "{s}");
        }
        assert!(size("17000000t").unwrap_err().contains("exbibytes"));
        assert!(size("18446744073709551616").unwrap_err().contains("is no size"));
    }

    #[test]
    fn times_have_units() {
        for (s, ns) in
            [("250us", 250_000), ("10s", 10_000_000_000), ("5ms", 5_000_000), ("1m", 60_000_000_000), ("0", 0)]
        {
            assert_eq!(time(s), Ok(Duration::from_nanos(ns)), "{s}");
        }
        for s in ["", "10", "s", "1.5s", "-1s", "10 s", "10sec", "1d"] {
            assert!(time(s).unwrap_err().contains("is no time"), "{s}");
        }
    }

    #[test]
    fn percentages_are_shares() {
        assert_eq!([percent("7%"), percent("12.5"), percent("100%")], [Ok(0.07), Ok(0.125), Ok(1.0)]);
        for s in ["", "%", "0%", "-7%", "7%%", "1e3", "inf", "1.2.3", "7 %"] {
            assert!(percent(s).unwrap_err().contains("no percentage"), "{s}");
        }
    }

    #[test]
    fn sizes_are_printed_short_and_unambiguous() {
        assert_eq!(
            [exact(131072), exact(4096), exact(1536), exact(5 << 30), exact(0)],
            ["128k", "4k", "1536", "5g", "0"]
        );
        assert_eq!(
            [about(0), about(1023), about(1536), about(3 << 30), about(1 << 40)],
            ["0 B", "1.00 KiB", "1.50 KiB", "3.00 GiB", "1.00 TiB"]
        );
        assert_eq!([thousands(0), thousands(999), thousands(1234567)], ["0", "999", "1,234,567"]);
    }
}
