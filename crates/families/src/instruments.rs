//! Counters that many threads add to without waiting for each other. A scrape may see one of two related numbers a
//! moment before the other; no number is ever lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use quantity::{Amount, Decimal};

use crate::metrics::{Metric, Samples};

/// A number that only rises.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of something there are now.
#[derive(Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// One more, until the answer is dropped.
    pub fn up(&self) -> Up {
        self.0.fetch_add(1, Ordering::Relaxed);
        Up(self.0.clone())
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of what a [`Gauge`] counts.
pub struct Up(Arc<AtomicI64>);

impl Drop for Up {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Upper bounds of the buckets in microseconds, and as seconds. A read takes tens of microseconds, a durable write a
/// few milliseconds, and nothing longer than the minute after which a request is given up.
const BOUNDS: [(u64, &str); 16] = [
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (10_000_000, "10"),
    (60_000_000, "60"),
];

/// How long things took.
#[derive(Default)]
pub struct Histogram {
    /// Observations by bucket; those beyond the last bound come last.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub fn sample(&self, metric: &'static Metric, labels: &[&str], out: &mut Samples) {
        let mut count = 0;
        let mut at_most = Vec::with_capacity(BOUNDS.len());
        for ((_, bound), bucket) in BOUNDS.iter().zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            at_most.push((*bound, count));
        }
        count += self.buckets[BOUNDS.len()].load(Ordering::Relaxed);
        let sum = Amount::from_nanos(i128::from(self.sum_us.load(Ordering::Relaxed)) * 1_000);
        out.put_histogram(metric, labels, at_most, count, Decimal(sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TIMES: Metric = Metric::histogram("times_seconds", &[], "Times.");

    #[test]
    fn buckets_are_cumulative_and_their_bounds_belong_to_them() {
        let histogram = Histogram::default();
        for us in [0, 100, 101, 60_000_000, 60_000_001] {
            histogram.observe(Duration::from_micros(us));
        }
        let mut out = Samples::default();
        histogram.sample(&TIMES, &[], &mut out);
        let text = out.text();
        for line in [
            "times_seconds_bucket{le=\"0.0001\"} 2",
            "times_seconds_bucket{le=\"0.00025\"} 3",
            "times_seconds_bucket{le=\"10\"} 3",
            "times_seconds_bucket{le=\"60\"} 4",
            "times_seconds_bucket{le=\"+Inf\"} 5",
            "times_seconds_sum 120.000202",
            "times_seconds_count 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_gauge_falls_when_what_it_counts_is_gone() {
        let gauge = Gauge::default();
        let first = gauge.up();
        let second = gauge.up();
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert_eq!(gauge.get(), 1);
        drop(second);
        assert_eq!(gauge.get(), 0);
    }
}
