//! Where the log begins and ends, and whether everything between is whole.

use lodestore_aio::{AlignedBuf, BLOCK, FileId, Io, IoOp, Ring, Wait, run};

use super::{Cursor, Reader, Tail, load};
use crate::error::WalError;
use crate::format::{BatchFault, BatchHeader, SEGMENTS_OFFSET, salt};
use crate::segment::{batch_at, first_header_from, header_at};

/// Reads of first blocks in flight.
const PROBES_IN_FLIGHT: usize = 32;

impl Reader {
    /// Looks at the first block of every slot, and at the last of the file (is it all there?).
    /// Returns the newest segment of the epoch.
    pub(super) fn probe(&mut self, ring: &mut dyn Ring) -> Result<Option<u64>, WalError> {
        let (count, len) = (u64::from(self.header.segment_count), self.header.segment_len);
        let last_block = SEGMENTS_OFFSET + count * len - BLOCK as u64;
        read_block(ring, self.file, last_block)?;
        let (mut pushed, mut newest, mut failed) = (0, None, None);
        let mut done = Vec::new();
        let depth = ring.capacity().min(PROBES_IN_FLIGHT);
        while ring.in_flight() > 0 || (pushed < count && failed.is_none()) {
            while pushed < count && ring.in_flight() < depth && failed.is_none() {
                let offset = SEGMENTS_OFFSET + pushed * len;
                let op = IoOp::Read { file: self.file, offset, buf: AlignedBuf::zeroed(BLOCK) };
                if ring.push(Io { token: pushed, op }).is_err() {
                    break;
                }
                pushed += 1;
            }
            ring.submit()?;
            ring.reap(Wait::For(1), &mut done)?;
            for d in done.drain(..) {
                let probed = match (d.result, d.buf) {
                    (Ok(()), Some(block)) => self.probe_block(d.token, &block).map_err(|e| failed = Some(e)),
                    (Ok(()), None) => unreachable!("a read returns its buffer"),
                    (Err(e), _) => {
                        failed = Some(e.into());
                        continue;
                    }
                };
                newest = newest.max(probed.unwrap_or(None));
            }
        }
        failed.map_or(Ok(newest), Err)
    }

    fn probe_block(&mut self, slot: u64, block: &[u8]) -> Result<Option<u64>, WalError> {
        let Ok(h) = BatchHeader::decode(block) else {
            return Ok(None);
        };
        if h.seq % u64::from(self.header.segment_count) != slot || h.offset != 0 {
            return Ok(None);
        }
        if h.epoch > self.header.epoch && h.salt == salt(&self.header.uuid, h.epoch) {
            // Both slots are written before anything of an epoch is.
            let what = format!("a batch of epoch {} is newer than the log's header ({})", h.epoch, self.header.epoch);
            return Err(self.damaged(h.seq, 0, what));
        }
        if h.seq < self.header.start_seq || header_at(&self.header, block, h.seq, 0).is_err() {
            return Ok(None);
        }
        self.lsn_max = self.lsn_max.max(h.next_lsn() - 1);
        Ok(Some(h.seq))
    }

    /// The newest valid batch: in the newest segment or, if only its first batch was begun and is
    /// not whole, in the one before.
    pub(super) fn newest_batch(&mut self, ring: &mut dyn Ring) -> Result<Option<BatchHeader>, WalError> {
        let Some(newest) = self.newest_seq else {
            return Ok(None);
        };
        for seq in [newest, newest.saturating_sub(1)] {
            if let Some(batch) = self.last_batch(ring, seq)? {
                return Ok(Some(batch));
            }
            if seq == self.header.start_seq {
                return Ok(None);
            }
        }
        let what = format!("no batch begins here, but segment {newest} follows");
        Err(self.damaged(newest - 1, 0, what))
    }

    fn last_batch(&mut self, ring: &mut dyn Ring, seq: u64) -> Result<Option<BatchHeader>, WalError> {
        let mut last = None;
        self.cursor = Cursor { seq, offset: 0, expected: None };
        while let Some((batch, _)) = self.advance(ring, seq)? {
            last = Some(batch);
        }
        Ok(last)
    }

    /// Walks from the oldest segment needed to the newest valid batch.
    pub(super) fn check_all(&mut self, ring: &mut dyn Ring, newest: &BatchHeader) -> Result<(), WalError> {
        let start = newest.start_seq;
        if start < self.header.start_seq || start > newest.seq || newest.seq - start >= self.header.segment_count.into()
        {
            let what = format!("the batch asks for segments from {start} on, which cannot be");
            return Err(self.damaged(newest.seq, newest.offset.into(), what));
        }
        let expected = (start == self.header.start_seq).then_some((1, self.header.start_lsn));
        let first = Cursor { seq: start, offset: 0, expected };
        self.cursor = first;
        while let Some((batch, _)) = self.advance(ring, newest.seq)? {
            self.counters.batches += 1;
            self.trim = self.trim.max(batch.trim);
            self.acked = self.acked.max(batch.acked);
            self.lsn_max = self.lsn_max.max(batch.next_lsn() - 1);
        }
        self.start = first;
        self.end = self.cursor;
        Ok(())
    }

    /// Moves the cursor over the next batch, up to segment `last_seq`; `None` where the valid batches
    /// end. Anything else that a crash cannot explain is damage.
    pub(super) fn advance(
        &mut self,
        ring: &mut dyn Ring,
        last_seq: u64,
    ) -> Result<Option<(BatchHeader, u64)>, WalError> {
        let Cursor { seq, offset, expected } = self.cursor;
        let mut fault = BatchFault::NoMagic;
        if offset < self.header.segment_len {
            let segment = load(&mut self.segment, &mut self.segment_seq, ring, self.file, &self.header, seq)?;
            match batch_at(&self.header, segment, seq, offset) {
                Ok(batch) => return self.step(batch, seq, offset).map(Some),
                Err(f) => fault = f,
            }
            // The torn batch's own payload is skipped: bytes of users are no batches.
            let begun = header_at(&self.header, &segment[offset as usize..], seq, offset);
            let behind = offset + begun.map_or(BLOCK as u64, |h| h.disk_len());
            if let Some(h) = first_header_from(&self.header, segment, seq, behind) {
                let what = format!("{fault}, but a later batch follows at offset {} of the segment", h.offset);
                return Err(self.damaged(seq, offset, what));
            }
        }
        if seq >= last_seq {
            return Ok(None);
        }
        if offset == 0 {
            return Err(self.damaged(seq, 0, format!("{fault}, but a later batch follows")));
        }
        // A later segment exists, so the next one must begin with the batch that follows.
        let segment = load(&mut self.segment, &mut self.segment_seq, ring, self.file, &self.header, seq + 1)?;
        let batch = match batch_at(&self.header, segment, seq + 1, 0) {
            Ok(batch) => batch,
            Err(f) => {
                return Err(self.damaged(seq + 1, 0, format!("{f}, but a later batch follows")));
            }
        };
        if let Some((ordinal, _)) = expected.filter(|(o, _)| batch.ordinal > *o) {
            let what = format!("{fault}; {}", BatchFault::Order(batch.ordinal, ordinal));
            return Err(self.damaged(seq, offset.min(self.header.segment_len - 1), what));
        }
        self.step(batch, seq + 1, 0).map(Some)
    }

    fn step(&mut self, batch: BatchHeader, seq: u64, offset: u64) -> Result<(BatchHeader, u64), WalError> {
        if let Some((ordinal, lsn)) = self.cursor.expected
            && (batch.ordinal, batch.first_lsn) != (ordinal, lsn)
        {
            let what = format!(
                "batch {} with LSN {} is here, batch {ordinal} with LSN {lsn} was expected",
                batch.ordinal, batch.first_lsn
            );
            return Err(self.damaged(seq, offset, what));
        }
        let expected = Some((batch.ordinal + 1, batch.next_lsn()));
        self.cursor = Cursor { seq, offset: offset + batch.disk_len(), expected };
        Ok((batch, seq))
    }

    /// Behind the last valid batch there may be one that was begun, and nothing else.
    pub(super) fn check_end(&mut self, ring: &mut dyn Ring) -> Result<(), WalError> {
        let Cursor { seq, offset, expected } = self.end;
        let (ordinal, lsn) = expected.unwrap_or((1, self.header.start_lsn));
        if let Some(end) = self.header.end {
            if (ordinal - 1, lsn - 1) != (end.batches, end.lsn) {
                let what = format!(
                    "the log was closed after {} batches and LSN {}, but {} batches up to LSN {} are valid",
                    end.batches,
                    end.lsn,
                    ordinal - 1,
                    lsn - 1
                );
                // The first batch missing is the last of its segment or the first of the next.
                let here = offset < self.header.segment_len && end.seq <= seq;
                let (seq, offset) = if here { (seq, offset) } else { (seq + 1, 0) };
                return Err(self.damaged(seq, offset, what));
            }
            self.acked = self.acked.max(end.lsn);
            self.lsn_max = self.lsn_max.max(end.lsn);
            return Ok(());
        }
        let mut begun = None;
        for (seq, offset) in [(seq, offset), (seq + 1, 0)] {
            if offset == self.header.segment_len {
                continue;
            }
            let segment = load(&mut self.segment, &mut self.segment_seq, ring, self.file, &self.header, seq)?;
            let here = header_at(&self.header, &segment[offset as usize..], seq, offset).ok();
            let behind = offset + here.as_ref().map_or(BLOCK as u64, BatchHeader::disk_len);
            let later = first_header_from(&self.header, segment, seq, behind);
            // In flight was one batch, the next one.
            if let Some(h) = later.or(here.clone().filter(|h| begun.is_some() || h.ordinal != ordinal)) {
                let what = format!("batch {ordinal} is not valid, but batch {} follows", h.ordinal);
                let at = if h.offset == 0 {
                    (self.end.seq, self.end.offset.min(self.header.segment_len - 1))
                } else {
                    (seq, offset)
                };
                return Err(self.damaged(at.0, at.1, what));
            }
            if let Some(h) = here {
                self.lsn_max = self.lsn_max.max(h.next_lsn() - 1);
                self.newest_seq = self.newest_seq.max(Some(seq));
                let offset = self.header.file_offset(seq, offset);
                begun = Some(Tail::Torn { offset, bytes: h.disk_len() });
            }
        }
        if let Some(tail) = begun {
            self.tail = tail;
            self.counters.torn_tails = 1;
        }
        Ok(())
    }

    pub(super) fn damaged(&self, seq: u64, offset: u64, what: String) -> WalError {
        WalError::Damaged { file: self.name.clone(), offset: self.header.file_offset(seq, offset), what }
    }
}

fn read_block(ring: &mut dyn Ring, file: FileId, offset: u64) -> Result<(), WalError> {
    run(ring, IoOp::Read { file, offset, buf: AlignedBuf::zeroed(BLOCK) })?;
    Ok(())
}
