//! The driver over a [`Store`]: client threads, each of which sleeps until its operations are done.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use lodestore::{Commit, Reply, Store};

use crate::client::{Client, Outcome, Request, Shared, Tally, Transport, answered, written};
use crate::error::BenchError;
use crate::measure::process;

/// Runs the workload on `store`; returns when it began and what the clients did.
pub(crate) fn run(store: &Store, shared: &Shared<'_>) -> Result<(Instant, Tally), BenchError> {
    let n = shared.workload.threads;
    let barrier = Barrier::new(n + 1);
    thread::scope(|s| {
        let mut clients = Vec::with_capacity(n);
        for i in 0..n {
            let barrier = &barrier;
            let client = thread::Builder::new().name(format!("client-{i}")).spawn_scoped(s, move || {
                let client = Client::new(shared, i);
                barrier.wait();
                let mut tally = match shared.workload.depth_of(i) {
                    1 => client.run(&mut Waiting { store, pending: None }),
                    depth => client.run(&mut Woken::new(store, depth)),
                }?;
                tally.switches = process::switches_of_this_thread();
                Ok(tally)
            });
            // Clients already there would wait for ever for one that cannot be started.
            clients.push(client.expect("the system has room for a thread"));
        }
        barrier.wait();
        let begin = Instant::now();
        let mut sum = Tally::new();
        let mut result: Result<(), BenchError> = Ok(());
        for c in clients {
            match c.join().expect("a client reports failures and does not panic") {
                Ok(t) => sum.merge(t),
                Err(e) => result = result.and(Err(e)),
            }
        }
        result.map(|()| (begin, sum))
    })
}

enum Pending {
    Commit(Commit),
    Reply(Reply),
}

impl Pending {
    fn new(store: &Store, r: Request) -> Self {
        match r {
            Request::Write(t) => Pending::Commit(store.submit(t)),
            Request::Read(r) => Pending::Reply(store.query(r)),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        match self {
            Pending::Commit(c) => Pin::new(c).poll(cx).map(written),
            Pending::Reply(r) => Pin::new(r).poll(cx).map(answered),
        }
    }
}

/// One operation at a time: submit and wait.
struct Waiting<'a> {
    store: &'a Store,
    pending: Option<Pending>,
}

impl Transport for Waiting<'_> {
    fn submit(&mut self, _slot: usize, r: Request) {
        self.pending = Some(Pending::new(self.store, r));
    }

    fn wait(&mut self, done: &mut Vec<(usize, Outcome)>) {
        let outcome = match self.pending.take().expect("waits for what was submitted") {
            Pending::Commit(c) => written(c.wait()),
            Pending::Reply(r) => answered(r.wait()),
        };
        done.push((0, outcome));
    }
}

/// Which slots are complete: a bit each, set by the store's thread, which then unparks the client.
struct Ready {
    words: Vec<AtomicU64>,
    client: Thread,
}

struct Bell {
    slot: usize,
    ready: Arc<Ready>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.words[self.slot / 64].fetch_or(1 << (self.slot % 64), Ordering::Release);
        self.ready.client.unpark();
    }
}

/// Many operations at a time, each a future with a waker of its own.
struct Woken<'a> {
    store: &'a Store,
    slots: Vec<Option<Pending>>,
    wakers: Vec<Waker>,
    ready: Arc<Ready>,
    /// Complete when they were first looked at.
    at_once: Vec<(usize, Outcome)>,
}

impl<'a> Woken<'a> {
    fn new(store: &'a Store, depth: usize) -> Self {
        let words = (0..depth.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let ready = Arc::new(Ready { words, client: thread::current() });
        let wakers = (0..depth).map(|slot| Waker::from(Arc::new(Bell { slot, ready: ready.clone() }))).collect();
        Woken { store, slots: (0..depth).map(|_| None).collect(), wakers, ready, at_once: Vec::new() }
    }

    /// Looks at a slot; a future that is not ready keeps its waker.
    fn look(&mut self, slot: usize) -> Option<Outcome> {
        let pending = self.slots[slot].as_mut()?;
        match pending.poll(&mut Context::from_waker(&self.wakers[slot])) {
            Poll::Pending => None,
            Poll::Ready(outcome) => {
                self.slots[slot] = None;
                Some(outcome)
            }
        }
    }
}

impl Transport for Woken<'_> {
    fn submit(&mut self, slot: usize, r: Request) {
        self.slots[slot] = Some(Pending::new(self.store, r));
        if let Some(outcome) = self.look(slot) {
            self.at_once.push((slot, outcome));
        }
    }

    fn wait(&mut self, done: &mut Vec<(usize, Outcome)>) {
        done.append(&mut self.at_once);
        loop {
            for w in 0..self.ready.words.len() {
                let mut bits = self.ready.words[w].swap(0, Ordering::Acquire);
                while bits != 0 {
                    let slot = w * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    if let Some(outcome) = self.look(slot) {
                        done.push((slot, outcome));
                    }
                }
            }
            if !done.is_empty() {
                return;
            }
            // A bell rung since the look above makes this return at once.
            thread::park();
        }
    }
}
