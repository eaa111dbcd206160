//! The `lodestore` program.
#![forbid(unsafe_code)]

mod cmd;
mod failure;
mod flash_args;
mod flash_table;
mod interrupt;
mod output;
mod progress;
mod table;
mod temporary;
mod units;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{EXIT_CODES, Failure, code};

/// A transactional object store in user space: make, check, look at and measure one.
///
/// Sizes are bytes, or whole numbers with k, m, g or t (powers of 1024); times have ns, us, ms, s,
/// m or h.
#[derive(Parser)]
#[command(name = "lodestore", version, after_help = EXIT_CODES, max_term_width = 110, infer_subcommands = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(cmd::mkfs::Args),
    Fsck(cmd::fsck::Args),
    Stat(cmd::stat::Args),
    Bench(Box<cmd::bench::Args>),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Mkfs(a) => cmd::mkfs::run(&a),
        Command::Fsck(a) => cmd::fsck::run(&a),
        Command::Stat(a) => cmd::stat::run(&a),
        Command::Bench(a) => cmd::bench::run(&a),
    };
    let Failure { code, sentence } = match result {
        Ok(()) => Failure::silent(code::OK),
        Err(f) => f,
    };
    if !sentence.is_empty() {
        // With standard error closed there is nobody to tell; the exit code says enough.
        let _ = writeln!(std::io::stderr(), "lodestore: {sentence}");
    }
    ExitCode::from(code)
}
