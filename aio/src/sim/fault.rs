//! Errors on request.

/// Kinds of operation that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpKind {
    /// `IoOp::Read`.
    Read,
    /// `IoOp::Write`.
    Write,
    /// `IoOp::Sync`; it matches if any of its files does.
    Sync,
    /// `Disk::create`.
    Create,
    /// `Disk::open`.
    Open,
}

type Predicate = Box<dyn Fn(&str) -> bool + Send>;

struct Fault {
    kind: OpKind,
    files: Predicate,
    /// Matching operations until the first failure, that one included.
    countdown: u64,
    /// Failures left.
    failures: u64,
    errno: i32,
}

/// The faults ordered and not yet delivered.
#[derive(Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, kind: OpKind, files: Predicate, nth: u64, failures: u64, errno: i32) {
        assert!(nth > 0, "operations are counted from 1");
        self.0.push(Fault { kind, files, countdown: nth, failures, errno });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts an operation; the errno with which it must fail, if it must.
    pub(crate) fn check<'a>(&mut self, kind: OpKind, files: impl Iterator<Item = &'a str> + Clone) -> Option<i32> {
        let mut errno = None;
        for f in &mut self.0 {
            if f.kind != kind || !files.clone().any(|name| (f.files)(name)) {
                continue;
            }
            f.countdown = f.countdown.saturating_sub(1);
            if f.countdown == 0 && f.failures > 0 && errno.is_none() {
                f.failures -= 1;
                errno = Some(f.errno);
            }
        }
        self.0.retain(|f| f.failures > 0);
        errno
    }
}
