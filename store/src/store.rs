//! A store on real files: a directory, and a thread that drives the [`Engine`].

mod claim;
mod dir;
mod handle;
mod looper;
mod probe;

pub use dir::{MkfsOptions, MkfsReport, MountGuard, MountOptions, mount_engine};
pub use handle::{Commit, Reply, Stats, Store};
