//! A trace of writes as text that other programs replay.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lodestore_flash::{CLASSES, Class};

/// A longer write is several lines: programs that replay it have a buffer of the longest.
const LINE_BYTES_MAX: u64 = 1 << 20;

const SECTOR: u64 = 512;

/// The text's form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TraceFormat {
    /// Version 3 of fio's log, times in microseconds: `fio --read_iolog`. A file a class, each at
    /// its place in one address space, so that they can be replayed to one device as well.
    #[default]
    Fio,
    /// A line of blkparse's default form for each completed write: device, processor, number,
    /// seconds, process, action, kind, first sector `+` sectors, and the class for a name.
    Blkparse,
}

impl FromStr for TraceFormat {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "fio" => Ok(TraceFormat::Fio),
            "blkparse" => Ok(TraceFormat::Blkparse),
            _ => Err(format!("'{s}' is no form of a trace; choose fio or blkparse")),
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TraceFormat::Fio => "fio",
            TraceFormat::Blkparse => "blkparse",
        })
    }
}

/// A trace being written.
#[derive(Debug)]
pub(super) struct TraceFile<W: Write> {
    out: W,
    format: TraceFormat,
    number: u64,
    last_us: u64,
}

impl TraceFile<BufWriter<File>> {
    /// Makes or replaces the file at `path`.
    pub fn create(path: &Path, format: TraceFormat) -> io::Result<Self> {
        Self::new(BufWriter::new(File::create(path)?), format)
    }
}

impl<W: Write> TraceFile<W> {
    fn new(mut out: W, format: TraceFormat) -> io::Result<Self> {
        if format == TraceFormat::Fio {
            writeln!(out, "fio version 3 iolog")?;
            for action in ["add", "open"] {
                for class in CLASSES {
                    writeln!(out, "0 {} {action}", class.name())?;
                }
            }
        }
        Ok(TraceFile { out, format, number: 0, last_us: 0 })
    }

    /// A write of `bytes`, complete at `time_us`.
    pub fn write(&mut self, time_us: u64, class: Class, bytes: Range<u64>) -> io::Result<()> {
        // Two threads may have taken their times in one order and a lock in the other.
        self.last_us = self.last_us.max(time_us);
        let (name, us) = (class.name(), self.last_us);
        let mut at = bytes.start;
        while at < bytes.end {
            let len = (bytes.end - at).min(LINE_BYTES_MAX);
            match self.format {
                TraceFormat::Fio => writeln!(self.out, "{us} {name} write {at} {len}")?,
                TraceFormat::Blkparse => {
                    self.number += 1;
                    let (number, s, ns) = (self.number, us / 1_000_000, us % 1_000_000 * 1000);
                    let (sector, sectors) = (at / SECTOR, len / SECTOR);
                    writeln!(
                        self.out,
                        "  0,0    0 {number:>8} {s:>5}.{ns:09}     0  C   W {sector} + {sectors} [{name}]"
                    )?;
                }
            }
            at += len;
        }
        Ok(())
    }

    /// Writes what waits, and the end.
    pub fn finish(mut self) -> io::Result<()> {
        if self.format == TraceFormat::Fio {
            for class in CLASSES {
                writeln!(self.out, "{} {} close", self.last_us, class.name())?;
            }
        }
        self.out.flush()
    }
}

/// Where a trace goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceTo {
    /// The file, made or replaced.
    pub path: PathBuf,
    /// Its form.
    pub format: TraceFormat,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: TraceFormat) -> String {
        let mut out = Vec::new();
        let mut t = TraceFile::new(&mut out, format).unwrap();
        t.write(1_000_250, Class::Data, 4096..8192).unwrap();
        t.write(1_000_240, Class::KvFlush, (1 << 30)..(1 << 30) + (1 << 20) + 4096).unwrap();
        t.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fio_gets_files_by_class_and_times_that_do_not_go_back() {
        let text = text(TraceFormat::Fio);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "fio version 3 iolog");
        assert_eq!((lines[1], lines[7]), ("0 data add", "0 data open"));
        assert_eq!(
            lines[13..16],
            [
                "1000250 data write 4096 4096",
                "1000250 kv_flush write 1073741824 1048576",
                "1000250 kv_flush write 1074790400 4096"
            ]
        );
        assert_eq!((lines[16], lines.len()), ("1000250 data close", 22));
    }

    #[test]
    fn blkparse_lines_have_sectors() {
        let text = text(TraceFormat::Blkparse);
        let fields: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(fields[0], ["0,0", "0", "1", "1.000250000", "0", "C", "W", "8", "+", "8", "[data]"]);
        assert_eq!(fields[2][7..], ["2099200", "+", "8", "[kv_flush]"]);
    }
}
