//! How the program ends: an exit code and, unless all is well, a sentence.

use lodestore::Error;
use lodestore_benches::BenchError;

use crate::units;

/// Exit codes, as `--help` documents them.
pub mod code {
    pub const OK: u8 = 0;
    pub const FAILURE: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const DAMAGE: u8 = 3;
    pub const MISMATCH: u8 = 4;
    pub const INTERRUPTED: u8 = 130;
}

/// The end of `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    all is well
  1    failure: the store, the file system or the device refused; a sentence says what
  2    usage: options that make no sense; nothing was done
  3    damage: what is stored is not what was written, whichever command found it
       (of fsck --repair: not all of it could be mended)
  4    bench --verify read something else than was written
  130  interrupted; what was temporary or half made is removed";

/// What to do where O_DIRECT is refused.
pub const NO_DIRECT: &str =
    "the file system refuses O_DIRECT: choose another one, or --engine threads:8, which does without";

/// Why the program ends with something else than 0.
#[derive(Debug)]
pub struct Failure {
    /// Its exit code.
    pub code: u8,
    /// For people; empty if everything was said.
    pub sentence: String,
}

impl Failure {
    /// Options that make no sense.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Failure { code: code::USAGE, sentence: sentence.into() }
    }

    /// Anything else that went wrong.
    pub fn other(sentence: impl Into<String>) -> Self {
        Failure { code: code::FAILURE, sentence: sentence.into() }
    }

    /// Nothing to say.
    pub fn silent(code: u8) -> Self {
        Failure { code, sentence: String::new() }
    }
}

/// What to do about a failure, as far as it can be told.
fn advice(e: &Error) -> &'static str {
    let errno = match e {
        Error::Io(io) if io.is_direct_refused() => return NO_DIRECT,
        Error::Io(io) if io.is_full() => return "choose a smaller size or another file system",
        Error::Io(io) if io.what == "io_setup" && io.errno == libc::EAGAIN => {
            return "the system's limit of asynchronous requests is reached: raise fs.aio-max-nr by sysctl, or take --engine threads:8";
        }
        Error::NoSpace { .. } => return "the objects and room to overwrite them need a larger store",
        Error::Io(io) => io.errno,
        _ => return "",
    };
    match errno {
        libc::EBUSY => "it is mounted, or in use by another store or program: end that first",
        libc::EACCES | libc::EPERM => "run the program as a user who may do this, or choose another place",
        libc::EROFS => "the file system is mounted read-only",
        libc::EMFILE | libc::ENFILE => "raise the limit of open files (ulimit -n)",
        libc::EIO => "the device failed; the kernel's log (dmesg) says more",
        _ => "",
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let code = match &e {
            e if e.is_damage() => code::DAMAGE,
            Error::Invalid(_) | Error::TooLarge { .. } => code::USAGE,
            _ => code::FAILURE,
        };
        let advice = advice(&e);
        let e = match e {
            Error::Invalid(s) => s,
            e => e.to_string(),
        };
        let separator = if advice.is_empty() { "" } else { "; " };
        Failure { code, sentence: format!("{e}{separator}{advice}") }
    }
}

impl From<BenchError> for Failure {
    fn from(e: BenchError) -> Self {
        match e {
            BenchError::Store(e) => e.into(),
            BenchError::Usage(s) => Failure::usage(s),
            BenchError::Verify(m) => Failure { code: code::MISMATCH, sentence: m.to_string() },
            BenchError::Stopped => Failure { code: code::INTERRUPTED, sentence: "interrupted".into() },
            BenchError::NoRoom { needed, available, spare, objects_max } => Failure::other(format!(
                "no space: {} are needed ({} of it for overwrites in flight), the store has room for {}; nothing was \
                 changed. Take at most {objects_max} such objects (--objects), smaller ones (--object-size), less in \
                 flight (--depth), or a larger store (mkfs --size)",
                units::about(needed),
                units::about(spare),
                units::about(available),
            )),
            e @ BenchError::System { .. } => Failure::other(e.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        match e.kind() {
            // Whoever read the output has seen enough.
            std::io::ErrorKind::BrokenPipe => Failure::silent(code::OK),
            _ => Failure::other(format!("writing the output: {e}")),
        }
    }
}
