//! The simulated disk: a medium with a volatile cache, on which everything that may go wrong can
//! be made to, and nothing depends on anything but the seed and the order of calls.
//!
//! - A completed write is readable at once, but volatile until a sync of its file (each file on
//!   its own) or its own `dsync`.
//! - Completions are reordered; `reap(Wait::No)` brings a random number of them, possibly none.
//! - Bugs of the engine panic: unaligned requests, writes that overlap one in flight.
//! - Faults: [`SimDisk::fail_nth`], [`SimDisk::set_capacity`], [`SimDisk::delay`],
//!   [`SimDisk::flip`], [`SimDisk::swap_blocks`], [`SimDisk::revert_block`],
//!   [`SimDisk::truncate`], [`SimDisk::poke`].
//! - [`SimDisk::start_recording`] notes every write and sync; the [`Recording`] then yields, for
//!   each moment, every disk a power failure may leave.

mod crash;
mod disk;
mod fault;
mod image;
mod medium;
mod ring;
mod states;

pub use crash::{Event, Recording};
pub use disk::{SimCounters, SimDisk};
pub use fault::OpKind;
pub use states::{Limits, States};
