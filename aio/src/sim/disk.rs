//! The simulated disk itself.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::crash::{Event, Recorder, Recording};
use super::fault::{Faults, OpKind};
use super::image::{Image, mix};
use super::medium::Medium;
use super::ring::SimRing;
use super::states::{Limits, SECTOR, States};
use crate::seam::{BLOCK, DEPTH_MAX, Disk, FILES_MAX, FileId, IoError, Ring};

const PAGE: u64 = BLOCK as u64;

/// What a simulated disk has been asked to do. Lengths in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimCounters {
    /// Reads completed, failed ones included.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Writes completed, failed ones included.
    pub writes: u64,
    /// Bytes they asked for.
    pub write_bytes: u64,
    /// Syncs completed, failed ones included.
    pub syncs: u64,
    /// Operations that failed on request.
    pub faults: u64,
}

/// A handle on a simulated disk: clones share the disk, but each has its own open files, like two
/// processes (a new one starts with [`SimDisk::reopened`]).
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    opened: Vec<usize>,
}

pub(crate) struct State {
    pub(crate) rng: SmallRng,
    pub(crate) medium: Medium,
    /// What reads see: the durable bytes and every completed write. One per file.
    current: Vec<Image>,
    /// Each page as it was before its last write. One per file.
    before: Vec<Image>,
    pub(crate) completions: u64,
    next_id: u64,
    faults: Faults,
    capacity: u64,
    pub(crate) delay: u64,
    recorder: Option<Recorder>,
    counters: SimCounters,
}

pub(crate) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A panic with the lock held is an assertion about the caller, made before any change.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimDisk {
    /// An empty disk without bounds.
    pub fn new(seed: u64) -> Self {
        SimDisk::with_files(Vec::new(), seed)
    }

    /// A disk with these files, all durable.
    pub(crate) fn with_files(files: Vec<(Arc<str>, Image)>, seed: u64) -> Self {
        let current: Vec<Image> = files.iter().map(|(_, image)| image.clone()).collect();
        let mut medium = Medium::default();
        for (name, image) in files {
            medium.create(&name, 0);
            medium.files.last_mut().expect("just made").durable = image;
        }
        let state = State {
            rng: SmallRng::seed_from_u64(seed),
            medium,
            before: current.iter().map(|i| Image::new(i.len())).collect(),
            current,
            completions: 0,
            next_id: 0,
            faults: Faults::default(),
            capacity: u64::MAX,
            delay: 0,
            recorder: None,
            counters: SimCounters::default(),
        };
        SimDisk { state: Arc::new(Mutex::new(state)), opened: Vec::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A handle on the same disk with no file open, for a mount of its own.
    pub fn reopened(&self) -> SimDisk {
        SimDisk { state: Arc::clone(&self.state), opened: Vec::new() }
    }

    /// A disk of its own with what reads see here, all durable. Shares bytes, so it is cheap.
    pub fn fork(&self, seed: u64) -> SimDisk {
        let s = self.state();
        SimDisk::with_files(
            s.medium.files.iter().zip(&s.current).map(|(f, i)| (Arc::clone(&f.name), i.clone())).collect(),
            seed,
        )
    }

    /// A disk of its own with what is durable here: a power failure that loses all it may.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let files = self.state().medium.files.iter().map(|f| (Arc::clone(&f.name), f.durable.clone())).collect();
        SimDisk::with_files(files, seed)
    }

    /// Every disk that a power failure now may leave, within `limits`.
    pub fn crash_states(&self, limits: &Limits) -> States {
        States::new(&self.state().medium, limits, 0)
    }

    /// One random disk that a power failure now may leave.
    pub fn crash_random(&self, seed: u64) -> SimDisk {
        States::random(&self.state().medium, seed)
    }

    /// Makes the `n`-th operation of a kind from now on (the next is 1) on a file whose name
    /// satisfies `files` fail with `errno`.
    ///
    /// A failed write leaves each of its sectors old or new. A failed write, and what a failed
    /// sync covered, is never made durable by a later sync.
    pub fn fail_nth(&self, kind: OpKind, files: impl Fn(&str) -> bool + Send + 'static, n: u64, errno: i32) {
        self.state().faults.add(kind, Box::new(files), n, 1, errno);
    }

    /// The same for the `n`-th and every later one.
    pub fn fail_from(&self, kind: OpKind, files: impl Fn(&str) -> bool + Send + 'static, n: u64, errno: i32) {
        self.state().faults.add(kind, Box::new(files), n, u64::MAX, errno);
    }

    /// Calls off every failure not yet delivered.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Bounds the sum of the files' lengths; `create` beyond it fails with ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Withholds the completion of requests submitted from now on for this many `reap(Wait::No)`.
    /// Waiting with `Wait::For` makes the time pass.
    pub fn delay(&self, reaps: u64) {
        self.state().delay = reaps;
    }

    /// Inverts one bit (0 to 7) of the byte at `offset`, on the medium and as read.
    pub fn flip(&self, file: &str, offset: u64, bit: u8) {
        let byte = self.peek(file, offset, 1)[0];
        self.poke(file, offset, &[byte ^ (1 << bit)]);
    }

    /// Exchanges two blocks (offsets are multiples of [`BLOCK`]): two misdirected writes.
    pub fn swap_blocks(&self, file: &str, a: u64, b: u64) {
        self.damage(file, |s, f| {
            let (a, b) = (page_of(a), page_of(b));
            let (x, y) = (s.current[f].page(a), s.current[f].page(b));
            s.replace_page(f, a, y);
            s.replace_page(f, b, x);
        });
    }

    /// Puts back what a block was before its last write: a lost write. Whether that differs.
    pub fn revert_block(&self, file: &str, offset: u64) -> bool {
        self.damage(file, |s, f| {
            let page = page_of(offset);
            let old = s.before[f].page(page);
            let differs = old != s.current[f].page(page);
            s.replace_page(f, page, old);
            differs
        })
    }

    /// Shortens a file, or lengthens it with zeros.
    pub fn truncate(&self, file: &str, len: u64) {
        self.damage(file, |s, f| {
            for page in len / PAGE..s.current[f].len().div_ceil(PAGE) {
                s.medium.files[f].forget(page);
            }
            s.current[f].truncate(len);
            s.medium.files[f].durable.truncate(len);
        });
    }

    /// Overwrites bytes, on the medium and as read.
    pub fn poke(&self, file: &str, offset: u64, bytes: &[u8]) {
        self.damage(file, |s, f| {
            let end = offset + bytes.len() as u64;
            for page in offset / PAGE..end.div_ceil(PAGE) {
                let (start, mut content) = (page * PAGE, s.current[f].page(page).to_vec());
                let (from, to) = (offset.max(start), end.min(start + PAGE));
                content[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
                s.replace_page(f, page, content.into());
            }
        });
    }

    /// Bytes as read; zeros beyond the end.
    pub fn peek(&self, file: &str, offset: u64, len: usize) -> Vec<u8> {
        let s = self.state();
        let mut buf = vec![0; len];
        s.current[s.existing(file)].read(offset, &mut buf);
        buf
    }

    /// Bytes as they are on the medium for certain; zeros beyond the end.
    pub fn peek_durable(&self, file: &str, offset: u64, len: usize) -> Vec<u8> {
        let s = self.state();
        let mut buf = vec![0; len];
        s.medium.files[s.existing(file)].durable.read(offset, &mut buf);
        buf
    }

    /// Names and lengths of the files, in order of creation.
    pub fn files(&self) -> Vec<(String, u64)> {
        let s = self.state();
        s.medium.files.iter().zip(&s.current).map(|(f, i)| (f.name.to_string(), i.len())).collect()
    }

    /// A number that is the same for the same files with the same readable and durable bytes.
    pub fn hash(&self) -> u64 {
        let s = self.state();
        let mut h = 0;
        for (f, current) in s.medium.files.iter().zip(&s.current) {
            h = f.name.bytes().fold(mix(h), |h, b| mix(h ^ u64::from(b)));
            h = mix(mix(h ^ current.hash()) ^ f.durable.hash());
        }
        h
    }

    /// Writes that are not durable: completed ones, and those in flight.
    pub fn volatile(&self) -> (usize, usize) {
        let s = self.state();
        let pending = || s.medium.files.iter().flat_map(|f| &f.pending);
        let completed = pending().filter(|p| p.completed.is_some()).count();
        (completed, pending().count() - completed)
    }

    /// What it has been asked to do so far.
    pub fn counters(&self) -> SimCounters {
        self.state().counters
    }

    /// Begins to note events, from the present state on. An earlier recording is dropped.
    pub fn start_recording(&self) {
        let mut s = self.state();
        s.recorder = Some(Recorder::new(&s.medium));
    }

    /// Inserts a mark in the recording, if there is one: an acknowledgement, a step of the test.
    pub fn mark(&self, mark: u64) {
        self.state().record(|| Event::Mark(mark));
    }

    /// Ends the recording. Panics if none was begun.
    pub fn stop_recording(&self) -> Recording {
        self.state().recorder.take().expect("a recording was begun").finish()
    }

    fn damage<T>(&self, file: &str, change: impl FnOnce(&mut State, usize) -> T) -> T {
        let mut s = self.state();
        let f = s.existing(file);
        let result = change(&mut s, f);
        let s = &mut *s;
        if let Some(r) = &mut s.recorder {
            r.damaged(&s.medium);
        }
        result
    }

    fn remember(&mut self, file: usize) -> Result<FileId, IoError> {
        if let Some(known) = self.opened.iter().position(|&f| f == file) {
            return Ok(FileId(known as u8));
        }
        if self.opened.len() == FILES_MAX {
            return Err(named_error("open", &self.state().medium.files[file].name, libc::EMFILE));
        }
        self.opened.push(file);
        Ok(FileId((self.opened.len() - 1) as u8))
    }
}

impl Disk for SimDisk {
    fn create(&mut self, name: &str, len: u64) -> Result<FileId, IoError> {
        let mut s = self.state();
        let error = |errno| Err(named_error("create", name, errno));
        if let Some(errno) = s.faults.check(OpKind::Create, [name].into_iter()) {
            s.counters.faults += 1;
            return error(errno);
        }
        if s.medium.position(name).is_some() {
            return error(libc::EEXIST);
        }
        let used: u64 = s.current.iter().map(Image::len).sum();
        if used.saturating_add(len) > s.capacity {
            return error(libc::ENOSPC);
        }
        let name: Arc<str> = name.into();
        s.medium.create(&name, len);
        s.current.push(Image::new(len));
        s.before.push(Image::new(len));
        let file = s.current.len() - 1;
        s.record(|| Event::Created { file: name, len });
        drop(s);
        self.remember(file)
    }

    fn open(&mut self, name: &str) -> Result<FileId, IoError> {
        let mut s = self.state();
        if let Some(errno) = s.faults.check(OpKind::Open, [name].into_iter()) {
            s.counters.faults += 1;
            return Err(named_error("open", name, errno));
        }
        let Some(file) = s.medium.position(name) else { return Err(named_error("open", name, libc::ENOENT)) };
        drop(s);
        self.remember(file)
    }

    fn len(&self, file: FileId) -> u64 {
        self.state().current[self.opened[usize::from(file.0)]].len()
    }

    fn ring(&self, depth: usize) -> Result<Box<dyn Ring>, IoError> {
        assert!((1..=DEPTH_MAX).contains(&depth), "a ring of {depth} requests; 1 to {DEPTH_MAX} are possible");
        Ok(Box::new(SimRing::new(Arc::clone(&self.state), self.opened.clone(), depth)))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("files", &self.files()).field("volatile", &self.volatile()).finish()
    }
}

impl State {
    fn existing(&self, file: &str) -> usize {
        self.medium.position(file).unwrap_or_else(|| panic!("the simulated disk has no file {file:?}"))
    }

    fn record(&mut self, event: impl FnOnce() -> Event) {
        if let Some(r) = &mut self.recorder {
            r.note(event(), &self.medium);
        }
    }

    /// Counts an operation; the errno with which it must fail, if it must.
    pub(crate) fn fault(&mut self, kind: OpKind, files: &[usize]) -> Option<i32> {
        let names = files.iter().map(|&f| &*self.medium.files[f].name);
        let errno = self.faults.check(kind, names);
        self.counters.faults += u64::from(errno.is_some());
        errno
    }

    fn error(&self, what: &'static str, file: usize, offset: u64, len: u64, errno: i32) -> IoError {
        IoError { what, file: self.medium.files[file].name.to_string(), offset, len, errno }
    }

    /// Reads what is complete; where a write is in flight, each sector is old or new.
    pub(crate) fn read(
        &mut self,
        file: usize,
        offset: u64,
        buf: &mut [u8],
        failure: Option<i32>,
    ) -> Result<(), IoError> {
        let len = buf.len() as u64;
        self.counters.reads += 1;
        self.counters.read_bytes += len;
        let beyond = (offset + len > self.current[file].len()).then_some(libc::ENODATA);
        if let Some(errno) = failure.or(beyond) {
            return Err(self.error("read", file, offset, len, errno));
        }
        self.current[file].read(offset, buf);
        for p in
            self.medium.files[file].pending.iter().filter(|p| p.completed.is_none() && p.overlaps(offset, offset + len))
        {
            for at in (p.offset.max(offset)..p.end().min(offset + len)).step_by(SECTOR) {
                if self.rng.random() {
                    let (from, to) = ((at - p.offset) as usize, (at - offset) as usize);
                    buf[to..to + SECTOR].copy_from_slice(&p.data[from..from + SECTOR]);
                }
            }
        }
        Ok(())
    }

    /// Puts a write under way; its id.
    pub(crate) fn write_submitted(&mut self, file: usize, offset: u64, data: Bytes) -> u64 {
        let end = offset + data.len() as u64;
        let f = &mut self.medium.files[file];
        if let Some(other) = f.pending.iter().find(|p| p.completed.is_none() && p.overlaps(offset, end)) {
            panic!(
                "write of {} at {offset}..{end} overlaps one in flight at {}..{}",
                f.name,
                other.offset,
                other.end()
            );
        }
        let id = self.next_id;
        self.next_id += 1;
        f.submitted(id, offset, data.clone());
        let name = Arc::clone(&f.name);
        self.record(|| Event::WriteSubmitted { id, file: name, offset, data });
        id
    }

    pub(crate) fn write_completed(
        &mut self,
        id: u64,
        file: usize,
        offset: u64,
        len: u64,
        dsync: bool,
        failure: Option<i32>,
    ) -> Result<(), IoError> {
        self.counters.writes += 1;
        self.counters.write_bytes += len;
        self.completions += 1;
        let parts: Vec<(u64, Bytes)> =
            self.medium.files[file].pending.iter().filter(|p| p.id == id).map(|p| (p.offset, p.data.clone())).collect();
        self.medium.files[file].completed(id, self.completions);
        for (offset, data) in parts {
            let data = if failure.is_some() { self.mixture(file, offset, &data) } else { data };
            for at in (0..data.len()).step_by(BLOCK) {
                let page = (offset + at as u64) / PAGE;
                let old = self.current[file].page(page);
                self.before[file].set_page(page, old);
                self.current[file].set_page(page, data.slice(at..at + BLOCK));
            }
        }
        if let Some(errno) = failure {
            self.medium.files[file].stranded(&[id]);
            self.record(|| Event::WriteFailed { id });
            return Err(self.error("write", file, offset, len, errno));
        }
        if dsync {
            self.make_durable(file, vec![id]);
        }
        self.record(|| Event::WriteCompleted { id });
        Ok(())
    }

    /// What a failed write of `data` leaves: each sector old or new.
    fn mixture(&mut self, file: usize, offset: u64, data: &[u8]) -> Bytes {
        let mut mixed = vec![0; data.len()];
        self.current[file].read(offset, &mut mixed);
        for (to, from) in mixed.chunks_exact_mut(SECTOR).zip(data.chunks_exact(SECTOR)) {
            if self.rng.random() {
                to.copy_from_slice(from);
            }
        }
        mixed.into()
    }

    /// Ends a sync of `files` that was pushed after so many completions. They are synced one by
    /// one in a random order.
    pub(crate) fn sync_completed(
        &mut self,
        files: &mut [usize],
        completions: u64,
        failure: Option<i32>,
    ) -> Result<(), IoError> {
        self.counters.syncs += 1;
        files.shuffle(&mut self.rng);
        for &mut file in files.iter_mut() {
            let ids = self.medium.files[file].covered(completions);
            if failure.is_some() {
                self.medium.files[file].stranded(&ids);
            } else if !ids.is_empty() {
                self.make_durable(file, ids);
            }
        }
        match (failure, files.first()) {
            (Some(errno), Some(&file)) => Err(self.error("sync", file, 0, 0, errno)),
            _ => Ok(()),
        }
    }

    fn make_durable(&mut self, file: usize, ids: Vec<u64>) {
        let f = &mut self.medium.files[file];
        f.synced(&ids);
        let name = Arc::clone(&f.name);
        self.record(|| Event::Synced { file: name, ids });
    }

    /// Replaces a page behind everybody's back; the file stays as long as it is.
    fn replace_page(&mut self, file: usize, page: u64, content: Bytes) {
        self.medium.files[file].forget(page);
        for image in [&mut self.medium.files[file].durable, &mut self.current[file]] {
            let len = image.len();
            image.set_page(page, content.clone());
            image.truncate(len);
        }
    }
}

fn page_of(offset: u64) -> u64 {
    assert!(offset.is_multiple_of(PAGE), "offset {offset} is not that of a block");
    offset / PAGE
}

fn named_error(what: &'static str, name: &str, errno: i32) -> IoError {
    IoError { what, file: name.to_owned(), offset: 0, len: 0, errno }
}
