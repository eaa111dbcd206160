//! How the program ends: an exit code and, unless all is well, a sentence.

use lodestore::Error;
use lodestore_benches::BenchError;

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
  3    fsck found damage (and, with --repair, could not mend all of it)
  4    bench --verify read something else than was written
  130  interrupted; temporary stores are removed";

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

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let advice = match &e {
            Error::Io(io) if io.is_direct_refused() => format!("; {NO_DIRECT}"),
            Error::Io(io) if io.is_full() => "; choose a smaller size or another file system".into(),
            Error::NoSpace { .. } => "; the objects and room to overwrite them need a larger store".into(),
            _ => String::new(),
        };
        let code = if matches!(e, Error::Invalid(_) | Error::TooLarge { .. }) { code::USAGE } else { code::FAILURE };
        Failure { code, sentence: format!("{e}{advice}") }
    }
}

impl From<BenchError> for Failure {
    fn from(e: BenchError) -> Self {
        match e {
            BenchError::Store(e) => e.into(),
            BenchError::Usage(s) => Failure::usage(s),
            BenchError::Verify(m) => Failure { code: code::MISMATCH, sentence: m.to_string() },
            BenchError::Stopped => Failure { code: code::INTERRUPTED, sentence: "interrupted".into() },
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
