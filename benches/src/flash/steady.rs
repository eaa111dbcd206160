//! Whether a run was long enough for its figure to stay what it is.

use lodestore_flash::Bytes;

/// Points of the curve for each time that the host writes as much as it can address.
const POINTS: u64 = 64;

/// The last two quarters of a steady run differ by no more than this share.
const SAME: f64 = 0.05;

/// Host and media bytes as they grow, from the moment the drive was full.
#[derive(Debug, Default)]
pub(super) struct Curve(Vec<Bytes>);

/// What a run's curve says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Steadiness {
    /// Amplification in the third and in the last quarter of the run's host bytes; `None` where
    /// the host wrote too little to tell.
    pub quarters: Option<(f64, f64)>,
    /// How often the host had written the whole drive when the second half of the run began.
    pub drives_written: f64,
    /// Both say that the figure will stay.
    pub steady: bool,
    /// Host bytes of a run from which on it might be steady.
    pub run_bytes_needed: u64,
}

impl Curve {
    /// Takes the counters, often enough.
    pub fn note(&mut self, now: Bytes, capacity: u64) {
        let last = self.0.last().map_or(0, |b| b.host);
        if now.host >= last + capacity / POINTS {
            self.0.push(now);
        }
    }

    /// Looks at a run that began when the host had written `begin` bytes and is over `now`.
    ///
    /// Steady needs both: that the drive was written over once before the second half began, so
    /// that nothing is left of the order in which it was filled, and that the last two quarters
    /// agree.
    pub fn judge(&self, begin: u64, now: Bytes, capacity: u64) -> Steadiness {
        let len = now.host - begin;
        let at = |share: u64| begin + len / 4 * share;
        let step = capacity / POINTS;
        let wa = |from: u64, to: u64| (self.media_at(to, now) - self.media_at(from, now)) / (to - from) as f64;
        let quarters = (len / 4 > step && step > 0).then(|| (wa(at(2), at(3)), wa(at(3), now.host)));
        let drives_written = at(2) as f64 / capacity.max(1) as f64;
        let agree = quarters.is_some_and(|(a, b)| (a - b).abs() <= SAME * a.max(b));
        Steadiness {
            quarters,
            drives_written,
            steady: agree && drives_written >= 1.0,
            run_bytes_needed: (capacity.saturating_sub(begin) * 2).max(8 * step),
        }
    }

    /// Media bytes when the host had written so many, on the line between two points.
    fn media_at(&self, host: u64, now: Bytes) -> f64 {
        let i = self.0.partition_point(|b| b.host < host);
        let before = i.checked_sub(1).map_or(Bytes::default(), |i| self.0[i]);
        let after = self.0.get(i).copied().unwrap_or(now);
        let share = (host - before.host) as f64 / (after.host - before.host).max(1) as f64;
        before.media as f64 + share * (after.media - before.media) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 6400;

    /// A curve whose amplification is `wa` of the host bytes so far; and its last point.
    fn curve(host: u64, wa: impl Fn(u64) -> u64) -> (Curve, Bytes) {
        let (mut c, mut now) = (Curve::default(), Bytes::default());
        while now.host < host {
            now = Bytes { host: now.host + 10, media: now.media + 10 * wa(now.host) };
            c.note(now, CAPACITY);
        }
        (c, now)
    }

    #[test]
    fn an_even_curve_is_steady_once_the_drive_is_written_over() {
        let (c, now) = curve(2 * CAPACITY, |_| 3);
        let s = c.judge(0, now, CAPACITY);
        assert_eq!((s.quarters, s.steady), (Some((3.0, 3.0)), true));
        assert_eq!(s.drives_written, 1.0);
        let (c, now) = curve(CAPACITY, |_| 3);
        let s = c.judge(0, now, CAPACITY);
        assert_eq!((s.quarters, s.steady, s.drives_written), (Some((3.0, 3.0)), false, 0.5));
        assert_eq!(s.run_bytes_needed, 2 * CAPACITY);
    }

    #[test]
    fn what_was_written_before_the_run_counts_towards_it() {
        let (c, now) = curve(2 * CAPACITY, |_| 3);
        let s = c.judge(CAPACITY, now, CAPACITY);
        assert!(s.steady && s.drives_written == 1.5);
        assert_eq!(s.run_bytes_needed, CAPACITY / 8);
    }

    #[test]
    fn a_rising_curve_is_not_steady() {
        let (c, now) = curve(4 * CAPACITY, |host| if host < 3 * CAPACITY { 2 } else { 3 });
        let s = c.judge(0, now, CAPACITY);
        assert_eq!((s.quarters, s.steady), (Some((2.0, 3.0)), false));
    }

    #[test]
    fn a_few_writes_say_nothing() {
        let (c, now) = curve(2 * CAPACITY + 300, |_| 3);
        let s = c.judge(2 * CAPACITY, now, CAPACITY);
        assert_eq!((s.quarters, s.steady), (None, false));
        assert_eq!(Curve::default().judge(0, Bytes::default(), 0).quarters, None);
    }
}
