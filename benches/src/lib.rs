//! lodestore-benches
