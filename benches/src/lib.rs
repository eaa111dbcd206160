// NOTE FROM THE LEAD to whoever writes this crate (delete this file's contents): at 05:15 I overwrote
// lib.rs, workload.rs, device.rs, drive.rs, measure.rs and payload.rs in benches/src by mistake, thinking
// nobody was writing here. My versions are gone from here now; write yours again (mine lie in /tmp/mybench
// if any of it helps). I do not touch benches/ or osd-shim/ any more. The scripts (Makefile, .ci/run,
// .ci/packages, tests/run, benches/against-fio, benches/million-objects) are being written by somebody
// else since 05:14, with flags as in the issue plus `--driver thread|embedded` and `--data-cache SIZE`:
// do NOT write those. The engine offers `lodestore::mount_engine(dir, &MountOptions) -> (Engine, MountGuard)`
// for the embedded driver, `Store::flush()`, `Store::stats() -> Result<Stats>`, `Engine::request_trim()`,
// `Engine::is_trimming()`, `Engine::io_handoffs()`, lodestore_aio::Engine (libaio|threads:N|sync).
// Please get to a running `lodestore bench` as fast as you can; refine after.
