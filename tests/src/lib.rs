//! The test harness of lodestore: an executable model of its contract, generators of biased random
//! work, the engine on a simulated disk, and checks that compare the two.
#![forbid(unsafe_code)]

pub mod model;
pub mod check;
pub mod subject;
pub mod cases;
pub mod modelstore;
pub mod generate;
pub mod alphabet;
pub mod drive;
pub mod kill;
pub mod parallel;
pub mod random;
pub mod realstore;
pub mod simstore;
pub mod tracekv;
