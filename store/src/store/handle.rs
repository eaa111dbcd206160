//! The handle: what an application holds. Cheap to clone, usable from any thread.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use lodestore_aio::EventFd;
use lodestore_kv::KvStats;
use threadpool::ThreadPool;
use tokio::sync::oneshot;

use super::dir::{self, MkfsOptions, MkfsReport, MountOptions};
use super::looper::{Doorbell, Loop, Pool, Request, Waiter, Waiting};
use crate::engine::{FsckReport, LOOKUP_THREADS};
use crate::error::Error;
use crate::ledger::{Counters, Ledger};
use crate::read::{Answer, OmapRange, Read};
use crate::txn::Transaction;
use crate::types::*;

/// A mounted store.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tmp = tempfile::tempdir_in(".")?;
/// # let dir = tmp.path().join("store");
/// use lodestore::{CollectionId, MkfsOptions, MountOptions, ObjectId, Store, Transaction};
///
/// Store::mkfs(&dir, &MkfsOptions { size: 64 << 20, ..Default::default() }, &mut |_, _, _| {})?;
/// let store = Store::mount(&dir, &MountOptions::default())?;
///
/// let (c, o) = (CollectionId::new(1, 0), ObjectId::new("greeting"));
/// let mut t = Transaction::new();
/// t.make_collection(c, 0).write(c, o.clone(), 0, "hello");
/// store.apply(t)?; // durable when it returns
///
/// assert_eq!(store.read(c, &o, 0, 100)?, "hello");
/// store.umount()?;
/// # Ok(()) }
/// ```
///
/// A transaction is a future as well:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tmp = tempfile::tempdir_in(".")?;
/// # let dir = tmp.path().join("store");
/// # use lodestore::*;
/// # Store::mkfs(&dir, &MkfsOptions { size: 64 << 20, ..Default::default() }, &mut |_, _, _| {})?;
/// # let store = Store::mount(&dir, &MountOptions::default())?;
/// # let (c, o) = (CollectionId::new(1, 0), ObjectId::new("greeting"));
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut t = Transaction::new();
/// t.make_collection(c, 0).write(c, o.clone(), 0, "hello");
/// let lsn = store.submit(t).await?;
/// assert_eq!(lsn, 1);
/// assert_eq!(store.read_async(c, &o, 1, 3).await?, "ell");
/// # Ok::<(), Error>(()) })?;
/// # store.umount()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requests: Sender<Request>,
    doorbell: Arc<Doorbell>,
}

/// What a store did since it was mounted.
#[derive(Clone, Debug)]
pub struct Stats {
    /// How often each path was taken.
    pub counters: Counters,
    /// Bytes by class.
    pub ledger: Ledger,
    /// The key-value store's own counts.
    pub kv: KvStats,
    /// Space.
    pub space: StatFs,
    /// Times a request passed from one thread to another on its way to being decided: from a
    /// caller to the loop, and, with engines that use threads, from the loop to them and back.
    pub handoffs: u64,
    /// Why the store is read-only, if it is.
    pub poisoned: Option<Arc<str>>,
}

/// A submitted transaction: a future of its LSN, ready when it is durable. Dropping it does not
/// take the transaction back.
#[derive(Debug)]
pub struct Commit(oneshot::Receiver<Result<Lsn, Error>>);

/// A submitted read: a future of its answer.
#[derive(Debug)]
pub struct Reply(oneshot::Receiver<Result<Answer, Error>>);

impl Commit {
    /// Waits for the outcome. Not to be called on an async runtime's thread: `await` it there.
    pub fn wait(self) -> Result<Lsn, Error> {
        self.0.blocking_recv().unwrap_or(Err(Error::Unmounted))
    }
}

impl Future for Commit {
    type Output = Result<Lsn, Error>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|r| r.unwrap_or(Err(Error::Unmounted)))
    }
}

impl Reply {
    /// Waits for the answer. Not to be called on an async runtime's thread: `await` it there.
    pub fn wait(self) -> Result<Answer, Error> {
        self.0.blocking_recv().unwrap_or(Err(Error::Unmounted))
    }
}

impl Future for Reply {
    type Output = Result<Answer, Error>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|r| r.unwrap_or(Err(Error::Unmounted)))
    }
}

/// Takes the one kind of answer that a read has.
macro_rules! expect {
    ($answer:expr, $variant:ident) => {
        match $answer? {
            Answer::$variant(v) => Ok(v),
            other => unreachable!("answered by {other:?}"),
        }
    };
}

/// One method that blocks and one that does not, for each kind of read.
macro_rules! reads {
    ($($(#[$doc:meta])* $name:ident, $async_name:ident($($arg:ident: $type:ty),*) -> $out:ty = $read:expr, |$answer:ident| $take:expr;)*) => {
        impl Store {
            $(
                $(#[$doc])*
                pub fn $name(&self, $($arg: $type),*) -> Result<$out, Error> {
                    let $answer = self.query($read).wait();
                    $take
                }

                $(#[$doc])*
                pub async fn $async_name(&self, $($arg: $type),*) -> Result<$out, Error> {
                    let $answer = self.query($read).await;
                    $take
                }
            )*
        }
    };
}

reads! {
    /// Whether the object exists.
    exists, exists_async(c: CollectionId, oid: &ObjectId) -> bool = Read::Stat(c, oid.clone()), |a| match a {
        Ok(_) => Ok(true),
        Err(Error::NoObject(..)) => Ok(false),
        Err(e) => Err(e),
    };
    /// Size and other facts of an object.
    stat, stat_async(c: CollectionId, oid: &ObjectId) -> ObjectStat = Read::Stat(c, oid.clone()), |a| expect!(a, Stat);
    /// Bytes from `offset` on: `len` of them, fewer at the end of the object.
    read, read_async(c: CollectionId, oid: &ObjectId, offset: u64, len: u64) -> Bytes =
        Read::Data(c, oid.clone(), vec![(offset, len)]), |a| expect!(a, Data).map(|mut v: Vec<Bytes>| v.remove(0));
    /// Several ranges, each as [`Store::read`] would return it.
    readv, readv_async(c: CollectionId, oid: &ObjectId, ranges: &[(u64, u64)]) -> Vec<Bytes> =
        Read::Data(c, oid.clone(), ranges.to_vec()), |a| expect!(a, Data);
    /// Mapped parts of a range, as `(offset, length)`.
    extents, extents_async(c: CollectionId, oid: &ObjectId, offset: u64, len: u64) -> Vec<(u64, u64)> =
        Read::Extents(c, oid.clone(), offset, len), |a| expect!(a, Extents);
    /// One attribute.
    attr, attr_async(c: CollectionId, oid: &ObjectId, name: &[u8]) -> Vec<u8> =
        Read::Attr(c, oid.clone(), name.to_vec()), |a| expect!(a, Attr);
    /// Every attribute, in order of the names.
    attrs, attrs_async(c: CollectionId, oid: &ObjectId) -> Vec<(Vec<u8>, Vec<u8>)> =
        Read::Attrs(c, oid.clone()), |a| match a? { Answer::Entries(v, _) => Ok(v), other => unreachable!("answered by {other:?}") };
    /// The omap header, empty if none was set.
    omap_header, omap_header_async(c: CollectionId, oid: &ObjectId) -> Vec<u8> =
        Read::OmapHeader(c, oid.clone()), |a| expect!(a, Attr);
    /// Those of the keys that are in the omap, with their values.
    omap_values, omap_values_async(c: CollectionId, oid: &ObjectId, keys: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> =
        Read::OmapValues(c, oid.clone(), keys.to_vec()), |a| match a? { Answer::Entries(v, _) => Ok(v), other => unreachable!("answered by {other:?}") };
    /// A page of the omap, and whether there is more behind it.
    omap, omap_async(c: CollectionId, oid: &ObjectId, range: OmapRange) -> (Vec<(Vec<u8>, Vec<u8>)>, bool) =
        Read::Omap(c, oid.clone(), range), |a| match a? { Answer::Entries(v, more) => Ok((v, more)), other => unreachable!("answered by {other:?}") };
    /// A page of the collection's objects in order, and where the next begins.
    list, list_async(c: CollectionId, start: Option<ObjectId>, end: Option<ObjectId>, max: usize) -> (Vec<ObjectId>, Option<ObjectId>) =
        Read::List(c, start, end, max), |a| match a? { Answer::Objects(v, next) => Ok((v, next)), other => unreachable!("answered by {other:?}") };
    /// Every collection with its number of hash bits.
    collections, collections_async() -> Vec<(CollectionId, u8)> = Read::Collections, |a| expect!(a, Collections);
    /// Space.
    statfs, statfs_async() -> StatFs = Read::StatFs, |a| expect!(a, Space);
}

impl Store {
    /// Makes a store in directory `dir`, which must be empty or absent. `progress` is told what is
    /// being written, how much of it, and how much there is, in bytes. Returns what was made. If it
    /// fails, what was made is removed and nothing else.
    pub fn mkfs(dir: &Path, o: &MkfsOptions, progress: &mut dyn FnMut(&str, u64, u64)) -> Result<MkfsReport, Error> {
        dir::mkfs(dir, o, progress)
    }

    /// Mounts the store in `dir`: replays its log, then starts the loop thread.
    pub fn mount(dir: &Path, o: &MountOptions) -> Result<Store, Error> {
        let mounted = dir::mount(dir, o)?;
        let mount_error = |e: std::io::Error| Error::Mount(format!("{}: {e}", dir.display()));
        let wake = match mounted.engine.waker() {
            Some(ring) => ring,
            None => EventFd::new().map_err(mount_error)?,
        };
        let doorbell = Arc::new(Doorbell {
            asleep: AtomicBool::new(false),
            wake,
            submitted_bytes: AtomicU64::new(0),
            submitted_bytes_max: o.config.submitted_bytes_max,
        });
        let (requests, receiver) = mpsc::channel();
        let looper = Loop {
            mounted,
            requests: receiver,
            itself: requests.clone(),
            doorbell: doorbell.clone(),
            next_token: 0,
            waiting: Waiting::default(),
            flushes: Vec::new(),
            pool: Pool(ThreadPool::with_name("lodestore-kv".into(), 1 + LOOKUP_THREADS)),
            handoffs: 0,
            owed: 0,
        };
        let spawned = thread::Builder::new().name("lodestore-loop".into()).spawn(|| looper.run());
        spawned.map_err(mount_error)?;
        Ok(Store { inner: Arc::new(Inner { requests, doorbell }) })
    }

    /// Checks the store in `dir`, which must not be mounted.
    pub fn fsck(dir: &Path, o: &MountOptions, deep: bool, repair: bool) -> Result<FsckReport, Error> {
        dir::fsck(dir, o, deep, repair)
    }

    /// Submits a transaction. Transactions take effect in the order of these calls.
    pub fn submit(&self, t: Transaction) -> Commit {
        let (receiver, waiter) = self.inner.waiter(t.user_bytes());
        if let Some(w) = waiter {
            self.inner.send(Request::Submit(t, w));
        }
        Commit(receiver)
    }

    /// Submits a transaction and waits until it is durable.
    pub fn apply(&self, t: Transaction) -> Result<Lsn, Error> {
        self.submit(t).wait()
    }

    /// Submits a read.
    pub fn query(&self, r: Read) -> Reply {
        let bytes = match &r {
            Read::Data(_, _, ranges) => ranges.iter().map(|(_, len)| *len).fold(0, u64::saturating_add),
            _ => 0,
        };
        let (receiver, waiter) = self.inner.waiter(bytes);
        if let Some(w) = waiter {
            self.inner.send(Request::Read(r, w));
        }
        Reply(receiver)
    }

    /// Flushes the key-value store, writes deferred contents in place and trims the log, for
    /// everything applied before the call. Durability does not need it; counting bytes does.
    pub fn flush(&self) -> Result<(), Error> {
        let (reply, receiver) = mpsc::channel();
        self.inner.send(Request::Flush(reply));
        receiver.recv().unwrap_or(Err(Error::Unmounted))
    }

    /// Counters since the mount.
    pub fn stats(&self) -> Result<Stats, Error> {
        let (reply, receiver) = mpsc::channel();
        self.inner.send(Request::Stats(reply));
        receiver.recv().map_err(|_| Error::Unmounted)
    }

    /// Completes what was submitted, writes everything that waits and closes the store, also for
    /// other handles of it. A store whose last handle is merely dropped is unmounted as well, but
    /// nobody hears of errors then.
    pub fn umount(self) -> Result<(), Error> {
        self.inner.umount()
    }
}

/// What every request counts for besides its data.
const REQUEST_BYTES: u64 = 4096;

impl Inner {
    /// A place to wait for a result, and, unless too much is under way already, who fills it.
    fn waiter<T>(&self, bytes: u64) -> (oneshot::Receiver<Result<T, Error>>, Option<Waiter<T>>) {
        let (reply, receiver) = oneshot::channel();
        let (d, bytes) = (&self.doorbell, bytes.min(READ_LEN_MAX) + REQUEST_BYTES);
        let now = d.submitted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A single request larger than the bound is let through when nothing else is under way.
        if now > d.submitted_bytes_max && now > bytes {
            d.submitted_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let _ = reply.send(Err(Error::Busy { bytes: now, max: d.submitted_bytes_max }));
            return (receiver, None);
        }
        (receiver, Some(Waiter { reply, bytes, doorbell: d.clone() }))
    }

    fn send(&self, r: Request) {
        // Without a loop the reply's sender is dropped here, and the caller hears `Unmounted`.
        let _ = self.requests.send(r);
        self.doorbell.ring();
    }

    fn umount(&self) -> Result<(), Error> {
        let (reply, receiver) = mpsc::channel();
        self.send(Request::Umount(reply));
        receiver.recv().unwrap_or(Err(Error::Unmounted))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Waits, so that the directory is free when the last handle is gone.
        let _ = self.umount();
    }
}
