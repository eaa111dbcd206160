//! Kills a real store: a child process works on a directory and says over a pipe what it submits
//! and what is acknowledged; the parent kills it, or the child aborts at a fail point; then the
//! parent mounts the directory and compares it with the model.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lodestore::Transaction;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::check;
use crate::generate::{Gen, Shape};
use crate::model::{ErrKind, Model};
use crate::realstore;
use crate::subject::summary;

/// Names the work of a child; its presence makes a process one.
pub const CHILD_ENV: &str = "LODESTORE_KILL_CHILD";

/// Transactions of one child, at most.
const TRANSACTIONS_MAX: u64 = 400;

/// Fail points of the engine at which a child may abort.
pub const POINTS: &[&str] = &[
    "engine::before_plan",
    "engine::after_append",
    "engine::before_sync",
    "engine::after_sync",
    "engine::before_apply",
    "engine::before_kv_flush",
    "engine::after_kv_flush",
    "engine::before_trim",
    "engine::deferred_written",
    "mount::before_restart",
];

/// What a child is to do.
#[derive(Clone, Debug)]
struct Work {
    dir: String,
    seed: u64,
    /// Work of the children before it: seed, and how many of its transactions survived.
    history: Vec<(u64, u64)>,
    /// Fail point and how often it is passed first.
    point: Option<(String, u64)>,
}

impl Work {
    fn encode(&self) -> String {
        let history: Vec<String> = self.history.iter().map(|(s, k)| format!("{s}:{k}")).collect();
        let point = self.point.as_ref().map(|(p, n)| format!("{p}={n}")).unwrap_or_default();
        format!("{}\n{}\n{}\n{point}", self.dir, self.seed, history.join(","))
    }

    fn decode(text: &str) -> Work {
        let mut lines = text.split('\n');
        let mut line = || lines.next().expect("four lines");
        let (dir, seed, history, point) = (line().to_owned(), line().parse().expect("a seed"), line(), line());
        let pair = |s: &str| {
            let (a, b) = s.split_once(':').expect("seed:count");
            (a.parse().expect("a seed"), b.parse().expect("a count"))
        };
        Work {
            dir,
            seed,
            history: history.split(',').filter(|s| !s.is_empty()).map(pair).collect(),
            point: point.split_once('=').map(|(p, n)| (p.to_owned(), n.parse().expect("a count"))),
        }
    }

    /// The model before this work.
    fn model(&self) -> Model {
        let mut model = Model::new();
        model.apply(&Gen::setup()).expect("the setup applies");
        for (seed, kept) in &self.history {
            model = states(&model, *seed, *kept).pop().expect("at least the state before");
        }
        model
    }
}

/// The states after 0 to `n` transactions of `seed`.
pub(crate) fn states(start: &Model, seed: u64, n: u64) -> Vec<Model> {
    let mut generator = Gen::new(seed, Shape::default());
    let mut all = vec![start.clone()];
    for _ in 0..n {
        let mut next = all.last().expect("never empty").clone();
        let t = generator.transaction(&next);
        // A refused one changes nothing, here as there.
        let _ = next.apply(&t);
        all.push(next);
    }
    all
}

/// Tells the parent something.
pub(crate) fn say(line: &str) {
    // One system call for each line, so that a kill leaves whole lines.
    std::io::stderr().write_all(format!("@{line}\n").as_bytes()).expect("the parent listens");
}

/// Runs as a child if the environment says so; then it never returns.
pub fn child_if_asked() {
    let Ok(text) = std::env::var(CHILD_ENV) else { return };
    let work = Work::decode(&text);
    let mut model = work.model();
    if let Some((point, after)) = &work.point {
        let (left, name) = (AtomicU64::new(*after), point.clone());
        fail::cfg_callback(point, move || {
            if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                say(&format!("point {name}"));
                std::process::abort();
            }
        })
        .expect("fail points are compiled in");
    }
    let store = realstore::mount(Path::new(&work.dir)).expect("the parent left a store");
    let mut generator = Gen::new(work.seed, Shape::default());
    let mut window: VecDeque<(u64, _, Result<(), ErrKind>, Transaction)> = VecDeque::new();
    let depth = 1 + (work.seed % 16) as usize;
    for i in 0..TRANSACTIONS_MAX + depth as u64 {
        if i < TRANSACTIONS_MAX {
            let t = generator.transaction(&model);
            let want = model.apply(&t);
            say(&format!("s {}", i + 1));
            window.push_back((i + 1, store.submit(t.clone()), want, t));
        }
        if (window.len() > depth || i >= TRANSACTIONS_MAX)
            && let Some((number, commit, want, t)) = window.pop_front()
        {
            let got = commit.wait().map(drop).map_err(|e| ErrKind::from(&e));
            if got != want {
                say(&format!("bad transaction {number} {:?} answered {got:?}, expected {want:?}", summary(&t)));
                std::process::abort();
            }
            say(&format!("a {number}"));
        }
    }
    say("end");
    std::process::abort();
}

/// What a child said before it died.
#[derive(Debug, Default)]
struct Said {
    submitted: u64,
    acked: u64,
    at_point: bool,
    ended: bool,
    bad: Option<String>,
    rest: String,
}

fn listen(mut child: Child, kill_after: Option<(u64, Duration)>) -> Said {
    let pipe = child.stderr.take().expect("stderr is piped");
    let mut said = Said::default();
    for line in BufReader::new(pipe).lines() {
        let Ok(line) = line else { break };
        match line.strip_prefix('@').map(|l| l.split_once(' ').unwrap_or((l, ""))) {
            Some(("s", n)) => said.submitted = n.parse().expect("a number"),
            Some(("a", n)) => said.acked = n.parse().expect("a number"),
            Some(("point", _)) => said.at_point = true,
            Some(("end", _)) => said.ended = true,
            Some(("bad", what)) => said.bad = Some(what.to_owned()),
            _ => {
                said.rest.push_str(&line);
                said.rest.push('\n');
            }
        }
        if let Some((n, delay)) = kill_after
            && said.submitted == n
        {
            std::thread::sleep(delay);
            // It may have died of itself meanwhile.
            let _ = child.kill();
        }
    }
    let _ = child.kill();
    child.wait().expect("the child can be waited for");
    said
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kills {
    /// Children that died while they worked.
    pub kills: u64,
    /// Of them, at a fail point.
    pub at_points: u64,
    /// Transactions acknowledged before a kill.
    pub acked: u64,
    /// Transactions not acknowledged that survived whole.
    pub survived: u64,
}

/// Kills children on one directory `kills` times and checks the store after each. `child_test` is
/// the test of the calling binary that calls [`child_if_asked`].
pub fn kill_repeatedly(dir: &Path, seed: u64, kills: u64, child_test: &str) -> Kills {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut totals = Kills::default();
    // So small that the log goes round and trims while a child works.
    realstore::mkfs(dir, 64 << 20, 1 << 20);
    let store = realstore::mount(dir).expect("a fresh store mounts");
    store.apply(Gen::setup()).expect("the setup applies");
    store.umount().expect("a fresh store unmounts");
    let mut history = Vec::new();
    for i in 0..kills {
        let point = rng
            .random_bool(0.5)
            .then(|| POINTS[rng.random_range(0..POINTS.len())])
            // A mount passes its point once.
            .map(|p| (p.to_owned(), if p.starts_with("mount") { 0 } else { rng.random_range(0..40) }));
        let after = rng.random_range(1..TRANSACTIONS_MAX);
        let work = Work {
            dir: dir.to_str().expect("a UTF-8 path").to_owned(),
            seed: seed ^ (i + 1) << 32,
            history: history.clone(),
            point,
        };
        let mut command = Command::new(std::env::current_exe().expect("a test knows its binary"));
        command
            .args(["--exact", child_test, "--nocapture"])
            .env(CHILD_ENV, work.encode())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("the test binary can be started again");
        let delay = Duration::from_micros(rng.random_range(0..3000));
        let said = listen(child, Some((after, delay)));
        assert!(said.bad.is_none(), "seed {seed}, kill {i}: {:?}", said.bad);
        let strange = said.rest.contains("panicked");
        assert!(!strange, "seed {seed}, kill {i}: the child panicked: {}", said.rest);
        let kept = verify(dir, &work, &said, seed, i);
        totals.kills += u64::from(!said.ended);
        totals.at_points += u64::from(said.at_point);
        totals.acked += said.acked;
        totals.survived += kept - said.acked;
        history.push((work.seed, kept));
    }
    totals
}

/// Mounts, finds the state the store is in among those it may be in, checks the disk. How many of
/// the child's transactions survived.
fn verify(dir: &Path, work: &Work, said: &Said, seed: u64, kill: u64) -> u64 {
    let context =
        || format!("seed {seed}, kill {kill} ({:?}), acked {}, submitted {}", work.point, said.acked, said.submitted);
    let all = states(&work.model(), work.seed, said.submitted);
    let store = match realstore::mount(dir) {
        Ok(s) => s,
        Err(e) => panic!("{}: does not mount: {e}", context()),
    };
    let mut query = |r| store.query(r).wait().map_err(|e| ErrKind::from(&e));
    let kept = check::prefix(&mut query, &all, said.acked as usize).unwrap_or_else(|e| panic!("{}: {e}", context()));
    store.umount().unwrap_or_else(|e| panic!("{}: does not unmount: {e}", context()));
    let found = realstore::fsck(dir);
    assert!(found.is_empty(), "{}: the deep check found {found:?}", context());
    kept as u64
}
