//! The clock that leases are counted by.
//!
//! `std::time::Instant` stands still while a virtual machine is suspended, and etcd's clock does not: a leader that was
//! asleep for an hour would believe in its lease for another second. Linux counts suspended time in its boot-time clock.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock is the nearest there is.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// What tells the time: the machine, or a simulation in its place.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> Moment;

    /// The time that people have, which may be wrong and go back.
    fn wall(&self) -> SystemTime;

    fn since(&self, earlier: Moment) -> Duration {
        self.now().since(earlier)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Moment {
        Moment::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A point in time of this machine's life, times of sleep included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Moment {
        let now = clock_gettime(CLOCK);
        // The clock begins at zero with the machine, so neither part is negative.
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Moment(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// So long after the beginning.
    pub fn at(time: Duration) -> Moment {
        Moment(time)
    }

    /// Zero when `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }

    /// Whole milliseconds since the machine started.
    pub(crate) fn milliseconds(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn time_asleep_is_counted_as_the_kernel_counts_uptime() {
        let before = Moment::now();
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = text.split(' ').next().unwrap().parse().unwrap();
        let after = Moment::now();
        // The file has hundredths of a second.
        assert!(
            before.0.as_secs_f64() - 0.02 <= uptime && uptime <= after.0.as_secs_f64() + 0.02,
            "{uptime} {before:?}"
        );
    }
}
