# `make bench` and `make test` are all that is needed on a fresh Debian machine with a Rust toolchain.
# Everything is built in the release profile, so that RocksDB is compiled once.

.PHONY: help packages build bench test check fmt clippy docs against-fio million-objects

help:
	@echo 'make bench            build, run the main job on a temporary store, print the table'
	@echo 'make test             every test'
	@echo 'make check            formatting, lints, documentation'
	@echo 'make against-fio      the store and fio by turns, with ratios'
	@echo 'make million-objects  memory, mount times and throughput with 1,000,000 objects'

packages:
	@.ci/packages

build: packages
	cargo build --release -p lodestore-osd-shim

bench: build
	@cargo run --release --quiet -p lodestore-osd-shim -- bench

test: packages
	@tests/run

check: fmt clippy docs

fmt:
	cargo fmt --all --check

clippy: packages
	cargo clippy --release --workspace --all-targets --all-features -- -D warnings

docs: packages
	RUSTDOCFLAGS=-Dwarnings cargo doc --release --workspace --lib --no-deps

against-fio: build
	@benches/against-fio

million-objects: build
	@benches/million-objects
