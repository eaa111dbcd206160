//! Errors of the real system calls of a real store: `strace` makes the n-th write, flush or
//! submission of a child process fail. The child must stop acknowledging and go on reading; the
//! parent then mounts what is left and compares it with the model.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use lodestore::{MountOptions, Store, Transaction};
use lodestore_aio::Engine as IoEngine;

use crate::check::{self, Dump};
use crate::generate::{Gen, Shape};
use crate::kill::{say, states};
use crate::model::{ErrKind, Model};
use crate::realstore;

/// Names the work of a child; its presence makes a process one.
const CHILD_ENV: &str = "LODESTORE_FAILING_CHILD";
/// Transactions of a child.
const TRANSACTIONS: u64 = 100;
/// Of them, in flight at a time.
const IN_FLIGHT: usize = 4;

/// An error for strace to inject.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    /// How the store moves its bytes.
    pub engine: IoEngine,
    /// The system call that fails.
    pub call: &'static str,
    /// The files it must be about, any if none: RocksDB's own calls are left alone.
    pub files: &'static [&'static str],
    /// Name of the errno.
    pub errno: &'static str,
    /// Whether the store must stop; it must not, if the call is to be repeated.
    pub fatal: bool,
}

const BOTH: &[&str] = &["log", "data.0"];

/// Everything injected. Results of `io_getevents` cannot be: those are tested with a kernel of the
/// test's own, in the crate `aio`.
pub const INJECTIONS: &[Injection] = &[
    Injection { engine: IoEngine::Sync, call: "fdatasync", files: BOTH, errno: "EIO", fatal: true },
    Injection { engine: IoEngine::Sync, call: "pwrite64", files: &["log"], errno: "EIO", fatal: true },
    Injection { engine: IoEngine::Sync, call: "pwrite64", files: &["data.0"], errno: "ENOSPC", fatal: true },
    Injection { engine: IoEngine::Sync, call: "pwrite64", files: BOTH, errno: "EINTR", fatal: false },
    Injection { engine: IoEngine::Threads(2), call: "fdatasync", files: BOTH, errno: "EIO", fatal: true },
    Injection { engine: IoEngine::Threads(2), call: "pwrite64", files: BOTH, errno: "EIO", fatal: true },
    Injection { engine: IoEngine::Libaio, call: "fdatasync", files: BOTH, errno: "EIO", fatal: true },
    Injection { engine: IoEngine::Libaio, call: "io_submit", files: &[], errno: "EIO", fatal: true },
    Injection { engine: IoEngine::Libaio, call: "io_submit", files: &[], errno: "EAGAIN", fatal: false },
];

/// What came of an injection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Calls that strace made fail.
    pub injected: u64,
    /// Transactions acknowledged.
    pub acked: u64,
    /// Whether the mount was refused.
    pub refused: bool,
    /// Whether the store stopped at work.
    pub stopped: bool,
}

fn options(engine: IoEngine) -> MountOptions {
    MountOptions { engine, ..realstore::options() }
}

fn start() -> Model {
    let mut model = Model::new();
    model.apply(&Gen::setup()).expect("the setup applies");
    model
}

/// Runs as a child if the environment says so; then it never returns.
pub fn child_if_asked() {
    let Ok(text) = std::env::var(CHILD_ENV) else { return };
    let mut lines = text.lines();
    let mut line = || lines.next().expect("three lines");
    let (dir, engine, seed) = (line(), line().parse().expect("an engine"), line().parse().expect("a seed"));
    match Store::mount(Path::new(dir), &options(engine)) {
        Err(e) => say(&format!("refused {e}")),
        Ok(store) => {
            if let Err(e) = work(&store, seed) {
                say(&format!("bad {e}"));
            }
            if store.umount().is_err() {
                say("stopped");
            }
        }
    }
    say("end");
    std::process::exit(0);
}

/// Works on a store, says what is acknowledged, and checks that one which stops stays stopped and
/// can be read.
fn work(store: &Store, seed: u64) -> Result<(), String> {
    let mut generator = Gen::new(seed, Shape::default());
    let mut models = vec![start()];
    let mut window = VecDeque::new();
    let (mut acked, mut stopped) = (0, false);
    for i in 0..TRANSACTIONS + IN_FLIGHT as u64 {
        if i < TRANSACTIONS {
            let mut next = models.last().expect("never empty").clone();
            let t = generator.transaction(&next);
            let wanted = next.apply(&t);
            models.push(next);
            say(&format!("s {}", i + 1));
            window.push_back((store.submit(t), wanted));
        }
        if window.len() < IN_FLIGHT && i < TRANSACTIONS {
            continue;
        }
        let Some((commit, wanted)) = window.pop_front() else { break };
        match commit.wait().map(drop).map_err(|e| ErrKind::from(&e)) {
            Err(ErrKind::Poisoned) => stopped = true,
            got if got != wanted => return Err(format!("answered {got:?}, expected {wanted:?}")),
            // A refusal need not wait for those before it.
            Err(_) if stopped => {}
            Ok(()) if stopped => return Err("a transaction was acknowledged after a lost one".into()),
            _ => {
                acked += 1;
                say(&format!("a {acked}"));
            }
        }
    }
    if !stopped {
        return Ok(());
    }
    say("stopped");
    if store.apply(Transaction::new()).is_ok() {
        return Err("a store that stopped took a transaction".into());
    }
    let got = Dump::take(&mut |r| store.query(r).wait().map_err(|e| ErrKind::from(&e))).map_err(|e| e.to_string())?;
    match got.difference(&Dump::of(&models[acked])) {
        Some(d) => Err(format!("a store that stopped reads otherwise than acknowledged: {d}")),
        None => Ok(()),
    }
}

/// Makes a store, lets a child work on it while its calls fail from the `n`-th on as `what` says
/// (once if that is fatal), and checks what is left. `child_test` is the test of the calling binary
/// that calls [`child_if_asked`].
pub fn inject(what: &Injection, n: u64, child_test: &str) -> Outcome {
    let dir = realstore::temp_dir();
    realstore::mkfs(dir.path(), 24 << 20, 1 << 20);
    let store = realstore::mount(dir.path()).expect("a fresh store mounts");
    store.apply(Gen::setup()).expect("the setup applies");
    store.umount().expect("a fresh store unmounts");

    let context = format!("{what:?}, occasion {n}");
    let (real, report) = (dir.path().canonicalize().expect("it is there"), dir.path().join("strace"));
    // What may be repeated fails again and again, but never twice in a row for long.
    let when = if what.fatal { n.to_string() } else { format!("{n}+3") };
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "signal=none", "-o"]).arg(&report);
    what.files.iter().for_each(|f| _ = command.arg("-P").arg(real.join(f)));
    command
        .args(["-e", &format!("trace={}", what.call)])
        .args(["-e", &format!("inject={}:error={}:when={when}", what.call, what.errno)])
        .arg(std::env::current_exe().expect("a test knows its binary"))
        .args(["--exact", child_test, "--nocapture"])
        .env(CHILD_ENV, format!("{}\n{}\n{n}", real.display(), what.engine))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("strace cannot be started: {e}; .ci/packages installs what the tests need"));
    let (mut outcome, mut submitted, mut ended, mut said) = (Outcome::default(), 0, false, String::new());
    for line in BufReader::new(child.stderr.take().expect("stderr is piped")).lines().map_while(Result::ok) {
        match line.strip_prefix('@').map(|l| l.split_once(' ').unwrap_or((l, ""))) {
            Some(("s", n)) => submitted = n.parse().expect("a number"),
            Some(("a", n)) => outcome.acked = n.parse().expect("a number"),
            Some(("refused", _)) => outcome.refused = true,
            Some(("stopped", _)) => outcome.stopped = true,
            Some(("end", _)) => ended = true,
            Some(("bad", why)) => panic!("{context}: {why}"),
            _ => said.push_str(&line),
        }
    }
    let status = child.wait().expect("strace can be waited for");
    assert!(ended && status.success(), "{context}: {status}: {said}");
    let trace = std::fs::read_to_string(&report).unwrap_or_else(|e| panic!("{context}: no report of strace: {e}"));
    outcome.injected = trace.lines().filter(|l| l.contains("(INJECTED)")).count() as u64;
    std::fs::remove_file(&report).expect("it was read");
    let failed = outcome.refused || outcome.stopped;
    assert_eq!(failed, what.fatal && outcome.injected > 0, "{context}: {outcome:?}: {said}");
    verify(dir.path(), n, &outcome, submitted, &context);
    outcome
}

/// Mounts what is left without any error, and compares.
fn verify(dir: &Path, seed: u64, outcome: &Outcome, submitted: u64, context: &str) {
    let all = states(&start(), seed, submitted);
    let store = realstore::mount(dir).unwrap_or_else(|e| panic!("{context}: does not mount: {e}"));
    let mut query = |r| store.query(r).wait().map_err(|e| ErrKind::from(&e));
    let kept = check::prefix(&mut query, &all, outcome.acked as usize).unwrap_or_else(|e| panic!("{context}: {e}"));
    let whole = outcome.refused || outcome.stopped || kept as u64 == submitted;
    assert!(whole, "{context}: nothing failed, and {kept} of {submitted} transactions are there");
    store.umount().unwrap_or_else(|e| panic!("{context}: does not unmount: {e}"));
    assert_eq!(realstore::fsck(dir), [""; 0], "{context}");
}
