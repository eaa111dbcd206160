//! The contract of `Kv`, held against both stores, and what only RocksDB can do wrong.
#![allow(missing_docs)]

mod contract {
    pub mod batches;
    pub mod crash;
    pub mod errors;
    pub mod file_trace;
    pub mod model;
    pub mod statistics;
    pub mod support;
}
