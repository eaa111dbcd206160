//! What file systems say of themselves: bytes they wrote to their journals. It is the one part of a
//! file system's share that somebody counts.

use std::fs;

/// Bytes of a block in XFS's statistics of its log.
const XFS_LOG_BLOCK: u64 = 512;
/// Bytes of a block of ext4 on any device large enough for a store.
const EXT4_BLOCK: u64 = 4096;

/// Bytes that the file system on block device `device` wrote to its journal since it was mounted;
/// `None` if it has none or does not say.
pub fn written_bytes(device: &str) -> Option<u64> {
    if let Ok(stats) = fs::read_to_string(format!("/sys/fs/xfs/{device}/stats/stats")) {
        return xfs(&stats);
    }
    let prefix = format!("{device}-");
    let journals = fs::read_dir("/proc/fs/jbd2").ok()?;
    let journal = journals.flatten().find(|e| e.file_name().to_string_lossy().starts_with(&prefix))?;
    ext4(&fs::read_to_string(journal.path().join("info")).ok()?)
}

/// The second number of the line `log`: blocks.
fn xfs(stats: &str) -> Option<u64> {
    let line = stats.lines().find_map(|l| l.strip_prefix("log "))?;
    Some(line.split(' ').nth(1)?.parse::<u64>().ok()? * XFS_LOG_BLOCK)
}

/// Transactions, and the average number of blocks logged for each, which the kernel rounds down; a
/// commit block is not among them.
fn ext4(info: &str) -> Option<u64> {
    let transactions: u64 = info.split(' ').next()?.parse().ok()?;
    let line = info.lines().find(|l| l.ends_with(" logged blocks per transaction"))?;
    let blocks: u64 = line.trim().split(' ').next()?.parse().ok()?;
    Some(transactions * (blocks + 1) * EXT4_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_counted_by_what_their_file_systems_say() {
        let stats = "trans 3 4 5\nig 1 2 3 4 5 6 7\nlog 10 640 0 12 8\npush_ail 1 2 3\n";
        assert_eq!(xfs(stats), Some(640 * 512));
        assert_eq!(xfs("trans 3 4 5\n"), None);
        let info = "7 transactions (5 requested), each up to 4096 blocks\naverage: \n  0ms waiting for transaction\n  \
                    12 handles per transaction\n  5 blocks per transaction\n  6 logged blocks per transaction\n";
        assert_eq!(ext4(info), Some(7 * 7 * 4096));
        assert_eq!(ext4(""), None);
    }
}
