//! The workload generator of lodestore: fills objects, drives a store with a stream of writes and
//! reads, and measures what it costs, down to every byte that the block device saw.
//!
//! A [`Job`] is a store under load: [`Job::prepare`] fills the objects, [`Job::run`] measures one
//! [`Workload`] and gives a [`Report`], [`Job::verify`] reads everything back.
#![forbid(unsafe_code)]

mod client;
mod embedded;
mod error;
mod fill;
pub mod flash;
mod format;
mod job;
mod live;
pub mod measure;
mod names;
mod pool;
mod room;
mod run;
mod verify;
mod workload;

pub use embedded::Embedded;
pub use error::BenchError;
pub use fill::{Filled, Found};
pub use job::{Driver, Job, JobOptions};
pub use live::{Live, Stage};
pub use lodestore_aio::Engine as IoEngine;
pub use measure::report::{Amplification, Latency, Memory, Report, Side};
pub use names::{collection, object};
pub use verify::{Mismatch, Verified};
pub use workload::{Mix, Pattern, Until, Workload};
