//! One module a subcommand.

pub mod bench;
pub mod fsck;
pub mod mkfs;
pub mod stat;
