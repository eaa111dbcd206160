//! What the conformance cases are written against, and a [`Pair`] of such a subject and a model
//! that must agree on every step.

use lodestore::{Answer, CollectionId, ObjectId, OmapRange, Read, StatFs, Transaction};

use crate::check::{self, Dump};
use crate::model::{ErrKind, Model};

/// A store under test.
pub trait Subject {
    /// Submits a transaction without waiting for it.
    fn submit(&mut self, t: Transaction);
    /// Waits for everything submitted; results in order of submission.
    fn settle(&mut self) -> Vec<Result<(), ErrKind>>;
    /// Asks a question and waits for the answer.
    fn query(&mut self, read: Read) -> Result<Answer, ErrKind>;
    /// Unmounts cleanly and mounts again.
    fn remount(&mut self);
    /// Unmounts, runs the deep check, mounts again. What it found wrong, in words.
    fn fsck(&mut self) -> Vec<String>;
    /// Whether the largest cases are scaled down on it.
    fn is_scaled_down(&self) -> bool;

    /// Submits a transaction and waits for it.
    fn apply(&mut self, t: Transaction) -> Result<(), ErrKind> {
        self.submit(t);
        self.settle().pop().expect("one transaction has one result")
    }
}

/// The collection that most cases use: every hash belongs to it.
pub const C: CollectionId = CollectionId { pool: 1, seed: 0 };

/// An object of the default namespace.
pub fn oid(name: impl Into<Vec<u8>>) -> ObjectId {
    ObjectId::new(name)
}

/// `len` bytes that differ for every `seed`, never zero.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&(x | 0x0101_0101_0101_0101).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A transaction made in place.
pub fn txn(build: impl FnOnce(&mut Transaction) -> &mut Transaction) -> Transaction {
    let mut t = Transaction::new();
    build(&mut t);
    t
}

/// A subject and the model of what it must hold.
pub struct Pair<'a> {
    /// The store under test.
    pub subject: &'a mut dyn Subject,
    /// What it must hold.
    pub model: Model,
}

impl<'a> Pair<'a> {
    /// A pair whose collection [`C`] has been made.
    pub fn new(subject: &'a mut dyn Subject) -> Self {
        let mut pair = Pair { subject, model: Model::new() };
        pair.ok(|t| t.make_collection(C, 0));
        pair
    }

    /// Applies a transaction to both; they must agree. Returns what they agreed on.
    #[track_caller]
    pub fn apply(&mut self, t: Transaction) -> Result<(), ErrKind> {
        let want = self.model.apply(&t);
        let got = self.subject.apply(t.clone());
        assert_eq!(got, want, "store and model disagree on {:?}", summary(&t));
        want
    }

    /// Applies a transaction that must succeed.
    #[track_caller]
    pub fn ok(&mut self, build: impl FnOnce(&mut Transaction) -> &mut Transaction) {
        let result = self.apply(txn(build));
        assert_eq!(result, Ok(()), "a transaction that must succeed was refused");
    }

    /// Applies a transaction that must be refused, and checks that it changed nothing.
    #[track_caller]
    pub fn refused(&mut self, kind: ErrKind, build: impl FnOnce(&mut Transaction) -> &mut Transaction) {
        let result = self.apply(txn(build));
        assert_eq!(result, Err(kind));
        self.compare();
    }

    /// Submits a transaction that must succeed without waiting; the model takes it at once.
    #[track_caller]
    pub fn later(&mut self, build: impl FnOnce(&mut Transaction) -> &mut Transaction) {
        let t = txn(build);
        assert_eq!(self.model.apply(&t), Ok(()), "a transaction that must succeed was refused by the model");
        self.subject.submit(t);
    }

    /// Submits a transaction that must be refused, behind those in flight, and settles.
    #[track_caller]
    pub fn refused_in_flight(&mut self, kind: ErrKind, build: impl FnOnce(&mut Transaction) -> &mut Transaction) {
        let t = txn(build);
        assert_eq!(self.model.apply(&t), Err(kind));
        self.subject.submit(t);
        let mut results = self.subject.settle();
        assert_eq!(results.pop(), Some(Err(kind)));
        assert!(results.iter().all(Result::is_ok), "those in flight before it failed: {results:?}");
    }

    /// Applies a transaction that the store refuses for a limit of its own, which the model does
    /// not know.
    #[track_caller]
    pub fn subject_refuses(&mut self, kind: ErrKind, build: impl FnOnce(&mut Transaction) -> &mut Transaction) {
        assert_eq!(self.subject.apply(txn(build)), Err(kind));
        self.compare();
    }

    /// Waits for everything submitted by [`Pair::later`]; all of it must have succeeded.
    #[track_caller]
    pub fn settle(&mut self) {
        for (i, result) in self.subject.settle().into_iter().enumerate() {
            assert_eq!(result, Ok(()), "transaction {i} of those in flight failed");
        }
    }

    /// Asks both; they must agree.
    #[track_caller]
    pub fn ask(&mut self, read: Read) -> Result<Answer, ErrKind> {
        let want = self.model.query(&read);
        let got = self.subject.query(read.clone());
        let agreed = check::agree(&got, &want);
        assert!(
            agreed,
            "{} answered {}, expected {}",
            check::describe(&read),
            check::shorten(&got),
            check::shorten(&want)
        );
        want
    }

    /// Bytes of an object.
    #[track_caller]
    pub fn read(&mut self, o: &ObjectId, offset: u64, len: u64) -> Vec<u8> {
        match self.ask(Read::Data(C, o.clone(), vec![(offset, len)])) {
            Ok(Answer::Data(d)) => d[0].to_vec(),
            other => panic!("read of {o} answered {other:?}"),
        }
    }

    /// Logical size of an object.
    #[track_caller]
    pub fn size(&mut self, o: &ObjectId) -> u64 {
        match self.ask(Read::Stat(C, o.clone())) {
            Ok(Answer::Stat(s)) => s.size,
            other => panic!("stat of {o} answered {other:?}"),
        }
    }

    /// Whether an object is there.
    #[track_caller]
    pub fn exists(&mut self, o: &ObjectId) -> bool {
        self.ask(Read::Stat(C, o.clone())) != Err(ErrKind::NoObject)
    }

    /// One page of a listing: objects, and whether there are more.
    #[track_caller]
    pub fn list(
        &mut self,
        c: CollectionId,
        start: Option<ObjectId>,
        end: Option<ObjectId>,
        max: usize,
    ) -> (Vec<ObjectId>, Option<ObjectId>) {
        let read = Read::List(c, start, end, max);
        let (Ok(Answer::Objects(want, more)), Ok(Answer::Objects(got, next))) =
            (self.model.query(&read), self.subject.query(read))
        else {
            panic!("listing {c} failed");
        };
        assert_eq!(got, want);
        assert_eq!(next.is_some(), more.is_some(), "the cursor tells whether there is more");
        (got, next)
    }

    /// One page of an omap.
    #[track_caller]
    pub fn omap(&mut self, o: &ObjectId, range: OmapRange) -> (Vec<check::Entry>, bool) {
        match self.ask(Read::Omap(C, o.clone(), range)) {
            Ok(Answer::Entries(e, more)) => (e, more),
            other => panic!("omap of {o} answered {other:?}"),
        }
    }

    /// The store's account of its space.
    #[track_caller]
    pub fn statfs(&mut self) -> StatFs {
        match self.subject.query(Read::StatFs) {
            Ok(Answer::Space(s)) => s,
            other => panic!("statfs answered {other:?}"),
        }
    }

    /// Compares everything both hold, space included.
    #[track_caller]
    pub fn compare(&mut self) {
        let subject = &mut self.subject;
        let dump = match Dump::take(&mut |r| subject.query(r)) {
            Ok(d) => d,
            Err(e) => panic!("{e}"),
        };
        if let Some(difference) = dump.difference(&Dump::of(&self.model)) {
            panic!("{difference}");
        }
        if let Err(e) = check::space(&mut |r| subject.query(r), &self.model) {
            panic!("{e}");
        }
    }

    /// Compares, remounts, compares, checks the disk deeply, compares.
    #[track_caller]
    pub fn check(&mut self) {
        self.settle();
        self.compare();
        self.subject.remount();
        self.compare();
        let found = self.subject.fsck();
        assert!(found.is_empty(), "the deep check found {found:?}");
        self.compare();
    }
}

/// A transaction in words short enough for a message.
pub fn summary(t: &Transaction) -> Vec<String> {
    let short = |op: &lodestore::Op| match op {
        lodestore::Op::Write { oid, offset, data } => format!("write {oid} {offset}+{}", data.len()),
        lodestore::Op::OmapSet { oid, entries } => format!("omap_set {oid} {} keys", entries.len()),
        other => {
            let text = format!("{other:?}");
            text.chars().take(300).collect()
        }
    };
    t.ops().iter().map(|(c, op)| format!("{c} {}", short(op))).collect()
}
