//! The test harness of lodestore: an executable model of its contract, generators of biased random
//! work, the engine on a simulated disk, and checks that compare the two.
#![forbid(unsafe_code)]

pub mod alphabet;
pub mod cases;
pub mod check;
pub mod crash;
pub mod drive;
pub mod failing;
pub mod faults;
pub mod fixture;
pub mod gauntlet;
pub mod generate;
pub mod kill;
pub mod killed;
pub mod ledger;
pub mod model;
pub mod modelstore;
pub mod panics;
pub mod parallel;
pub mod random;
pub mod realstore;
pub mod repair;
pub mod simstore;
pub mod subject;
pub mod tracekv;
