//! A model of a flash drive, to tell how many bytes reach its cells for each byte written to it.
//!
//! [`Drive`] is a page-mapped translation layer with greedy garbage collection. It is fed with
//! writes of byte ranges, each with a [`Class`], and counts what the host wrote and what the cells
//! took, by class. It holds no data, knows no time and draws no random numbers: the same writes
//! give the same counts. [`theory`] has the published results that it is tested against, and
//! `docs/flash.md` says what it leaves out.
#![forbid(unsafe_code)]

mod class;
mod counts;
mod drive;
mod error;
mod geometry;
#[cfg(test)]
mod tests;
pub mod theory;
mod victims;

pub use class::{CLASSES, Class};
pub use counts::{Bytes, Counts};
pub use drive::Drive;
pub use error::FlashError;
pub use geometry::Geometry;
