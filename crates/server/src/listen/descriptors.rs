//! How many connections this process can have: each takes a file descriptor, and so does every file of the store. A crowd of
//! strangers must not use up what the next write needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors kept for everything else: the store's files, etcd, webhooks, backups.
pub const FILES_KEPT: u64 = 256;

/// Raises the limit of open files to the most that may be had, and says how many of `wanted` connections fit.
pub fn connections(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let Rlimit { current, maximum } = limit;
    let raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let Some(files) = (if raised { maximum } else { current }) else { return wanted };
    let fit = fitting(files);
    if fit < wanted {
        tracing::warn!(
            files,
            connections = fit,
            wanted,
            "fewer connections than configured: the limit of open files is low"
        );
    }
    wanted.min(fit)
}

/// Beside every eight connections there may be one that waits to be told that there is no room.
fn fitting(files: u64) -> usize {
    let free = files - FILES_KEPT.min(files / 2);
    usize::try_from(free / 9 * 8).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_keeps_its_descriptors() {
        for (files, connections) in [(0, 1), (64, 24), (256, 112), (1024, 680), (1 << 20, 931_840)] {
            assert_eq!(fitting(files), connections, "{files}");
            // Those who are told to come back, too.
            assert!(connections as u64 * 9 / 8 + FILES_KEPT.min(files / 2) <= files.max(1), "{files}");
        }
        assert_eq!(connections(3), 3);
    }
}
