//! How far a read or write has come, and what its last result means: the same rules for every
//! ring over real files.

use crate::seam::BLOCK;

/// Results in a row that bring nothing (EINTR, EAGAIN, less than a block) before giving up.
pub(crate) const STALLS_MAX: u8 = 16;

/// Which way bytes move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// What to do after a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Everything has moved.
    Done,
    /// Ask again for the bytes from [`Transfer::start`] on.
    Resume,
    /// It failed with this errno.
    Failed(i32),
}

/// A read or write of `len` bytes, under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    direction: Direction,
    len: usize,
    start: usize,
    stalls: u8,
}

impl Transfer {
    pub(crate) fn new(direction: Direction, len: usize) -> Self {
        Transfer { direction, len, start: 0, stalls: 0 }
    }

    /// Bytes that have moved; a multiple of [`BLOCK`], because direct I/O can resume nowhere else.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Judges a result: bytes moved from `start` on, or a negated errno.
    ///
    /// A read that ends early is at the end of the file: the file is shorter than the caller
    /// believes, which is an error (ENODATA) and never a buffer filled up with zeros.
    pub(crate) fn step(&mut self, result: i64) -> Step {
        let nothing = match self.direction {
            Direction::Read => libc::ENODATA,
            Direction::Write => libc::EIO,
        };
        let Ok(moved) = usize::try_from(result) else {
            let errno = i32::try_from(-result).unwrap_or(libc::EIO);
            return if errno == libc::EINTR || errno == libc::EAGAIN { self.stall(errno) } else { Step::Failed(errno) };
        };
        if moved == 0 {
            return Step::Failed(nothing);
        }
        if moved > self.len - self.start {
            return Step::Failed(libc::EIO);
        }
        if self.start + moved == self.len {
            return Step::Done;
        }
        let whole = (self.start + moved) / BLOCK * BLOCK;
        if whole == self.start {
            return self.stall(nothing);
        }
        self.start = whole;
        self.stalls = 0;
        Step::Resume
    }

    fn stall(&mut self, errno: i32) -> Step {
        self.stalls += 1;
        if self.stalls > STALLS_MAX { Step::Failed(errno) } else { Step::Resume }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: i64 = BLOCK as i64;

    #[test]
    fn a_short_result_resumes_at_the_last_whole_block() {
        let mut t = Transfer::new(Direction::Write, 4 * BLOCK);
        assert_eq!(t.step(B + 512), Step::Resume);
        assert_eq!(t.start(), BLOCK);
        assert_eq!(t.step(3 * B), Step::Done);
    }

    #[test]
    fn a_read_that_never_gets_past_half_a_block_ends_with_enodata() {
        let mut t = Transfer::new(Direction::Read, BLOCK);
        for _ in 0..STALLS_MAX {
            assert_eq!(t.step(512), Step::Resume);
        }
        assert_eq!(t.step(512), Step::Failed(libc::ENODATA));
    }

    #[test]
    fn nothing_read_is_enodata_and_nothing_written_is_eio() {
        assert_eq!(Transfer::new(Direction::Read, BLOCK).step(0), Step::Failed(libc::ENODATA));
        assert_eq!(Transfer::new(Direction::Write, BLOCK).step(0), Step::Failed(libc::EIO));
    }

    #[test]
    fn more_than_was_asked_for_is_an_error() {
        assert_eq!(Transfer::new(Direction::Read, BLOCK).step(B + 1), Step::Failed(libc::EIO));
    }

    #[test]
    fn interruptions_are_retried_but_not_for_ever_and_other_errors_not_at_all() {
        let mut t = Transfer::new(Direction::Write, BLOCK);
        for _ in 0..STALLS_MAX {
            assert_eq!(t.step(-i64::from(libc::EINTR)), Step::Resume);
        }
        assert_eq!(t.step(-i64::from(libc::EAGAIN)), Step::Failed(libc::EAGAIN));
        assert_eq!(Transfer::new(Direction::Write, BLOCK).step(-i64::from(libc::EIO)), Step::Failed(libc::EIO));
    }
}
