//! Whether a store has room for what is about to be run, before anything in it is changed.

use lodestore::{Error, Read, Store};

use crate::error::BenchError;
use crate::names;
use crate::workload::Workload;

const BLOCK: u64 = 4096;
/// Objects of an earlier run looked at by one request.
const PAGE: usize = 1000;

/// Bytes of new blocks that overwrites in flight may take before old ones are free again.
fn in_flight(runs: &[Workload]) -> u64 {
    let writing = runs.iter().filter(|w| w.op.writes());
    writing.map(|w| w.io_size.next_multiple_of(BLOCK).saturating_mul(w.depth as u64)).max().unwrap_or(0)
}

/// Refuses runs over objects that are to be filled (or, with `kept`, are there already) for which
/// the store is too small.
pub(crate) fn check(store: &Store, runs: &[Workload], kept: bool) -> Result<(), BenchError> {
    let Some(w) = runs.first() else { return Ok(()) };
    let object = w.object_size.next_multiple_of(BLOCK);
    let spare = in_flight(runs);
    let objects = if kept { 0 } else { w.objects.saturating_mul(object) };
    let needed = objects.saturating_add(spare);
    let mut available = store.statfs()?.available;
    if needed > available && !kept {
        available += replaced(store)?;
    }
    if needed <= available {
        return Ok(());
    }
    let objects_max = if kept { w.objects } else { available.saturating_sub(spare) / object };
    Err(BenchError::NoRoom { needed, available, spare, objects_max })
}

/// Bytes of the objects of an earlier run, which filling removes first.
fn replaced(store: &Store) -> Result<u64, BenchError> {
    let c = names::collection();
    let (mut bytes, mut start) = (0, None);
    loop {
        let (found, next) = match store.list(c, start, None, PAGE) {
            Err(Error::NoCollection(_)) => return Ok(0),
            other => other?,
        };
        let replies: Vec<_> = found.into_iter().map(|oid| store.query(Read::Stat(c, oid))).collect();
        for reply in replies {
            if let lodestore::Answer::Stat(s) = reply.wait()? {
                bytes += s.mapped;
            }
        }
        match next {
            Some(_) => start = next,
            None => return Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mix;

    #[test]
    fn only_overwrites_need_room_in_flight() {
        let w = Workload { io_size: 5000, depth: 3, ..Default::default() };
        let read = Workload { op: Mix::Read, io_size: 1 << 20, ..w.clone() };
        assert_eq!(in_flight(&[w.clone(), read.clone()]), 3 * 8192);
        assert_eq!(in_flight(&[read]), 0);
    }
}
