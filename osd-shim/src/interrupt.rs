//! Ctrl-C and its relatives: what is temporary or half made is removed, what can still give a
//! result is asked to end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lodestore_benches::Live;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, code};

/// What is removed on the way out.
#[derive(Default)]
struct State {
    /// A directory that exists only for this process.
    temporary: Option<PathBuf>,
    /// Files and directories that are being made.
    made: Vec<PathBuf>,
    /// Directories that were empty and are being filled.
    filled: Vec<PathBuf>,
    /// Directories that are being made on the way to others, deepest first.
    parents: Vec<PathBuf>,
    /// Whether a first signal came, which only asks what is being done to stop.
    asked: bool,
}

impl State {
    fn clean(&self) {
        for dir in &self.filled {
            for e in fs::read_dir(dir).into_iter().flatten().flatten().filter(|e| e.file_name() != LOST_AND_FOUND) {
                remove(&e.path());
            }
        }
        self.made.iter().chain(&self.temporary).for_each(|p| remove(p));
        for p in &self.parents {
            // Unless somebody has put something there meanwhile.
            let _ = fs::remove_dir(p);
        }
    }
}

/// Made by the file system, and nothing of ours.
const LOST_AND_FOUND: &str = "lost+found";

/// On the way out nothing can be done about what resists.
fn remove(p: &Path) {
    let _ = if p.is_dir() && !p.is_symlink() { fs::remove_dir_all(p) } else { fs::remove_file(p) };
}

/// Handles SIGINT, SIGTERM and SIGHUP from when it is made.
#[derive(Clone)]
pub struct Interrupt {
    state: Arc<Mutex<State>>,
    live: Arc<Live>,
}

impl Interrupt {
    /// Starts to listen.
    pub fn listen() -> Result<Self, Failure> {
        let i = Interrupt { state: Arc::default(), live: Arc::default() };
        let failed = |e: std::io::Error| Failure::other(format!("listening for signals: {e}"));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let listener = i.clone();
        let listen = move || {
            for _ in signals.forever() {
                listener.live.stop();
                if std::mem::replace(&mut listener.lock().asked, true) {
                    listener.leave();
                }
            }
        };
        thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
        Ok(i)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a job shares with its watchers; stopped by the first signal.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Removes what is temporary or half made and ends the process. Best called by the thread that
    /// makes it, so that nothing new appears meanwhile; a second signal does not wait for that.
    pub fn leave(&self) -> ! {
        self.lock().clean();
        std::process::exit(i32::from(code::INTERRUPTED))
    }

    /// A directory that exists only for this process.
    pub fn remove_temporary(&self, dir: &Path) {
        self.lock().temporary = Some(dir.to_owned());
    }

    /// A file or directory that is being made: does nothing to one that holds something already.
    /// Directories on the way to it that are missing are taken for made as well.
    pub fn remove_if_new(&self, path: &Path) {
        let mut state = self.lock();
        let is_absent = |p: &Path| !p.as_os_str().is_empty() && fs::symlink_metadata(p).is_err();
        if is_absent(path) {
            state.made.push(path.to_owned());
            state.parents.extend(path.ancestors().skip(1).take_while(|p| is_absent(p)).map(Path::to_owned));
        } else if let Ok(entries) = fs::read_dir(path)
            && entries.flatten().all(|e| e.file_name() == LOST_AND_FOUND)
        {
            state.filled.push(path.to_owned());
        }
    }

    /// What was being made is complete, or was removed.
    pub fn keep(&self) {
        let mut state = self.lock();
        state.made.clear();
        state.filled.clear();
        state.parents.clear();
    }
}
