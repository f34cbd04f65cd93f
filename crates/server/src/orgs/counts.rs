//! What is counted of this API, by endpoint as it is written in the table.

use std::time::Duration;

use families::metrics::{Metric, Samples};
use families::orgs::dimensions::{COUNT, Dimension};

use super::table::ENDPOINTS;
use crate::metrics::{Counter, Histogram};

pub static EXCEEDED: Metric = Metric::counter(
    "bursar_org_quota_exceeded_total",
    &["dimension", "endpoint"],
    "Commands of organizations that were refused for quota, by the first dimension that refused.",
);
pub static COMMANDS: Metric = Metric::counter(
    "bursar_org_commands_total",
    &["endpoint", "result"],
    "Requests to the API of organizations that were answered.",
);

pub static TIME_TO_SCHEDULE: Metric = Metric::histogram(
    "bursar_scheduler_time_to_schedule_seconds",
    &["within_quota"],
    "Time from the scale or deploy that wanted an instance until it was allocated.",
);

const RESULTS: [&str; 4] = ["ok", "quota_exceeded", "refused", "failed"];

pub struct Counts {
    exceeded: Vec<[Counter; COUNT]>,
    results: Vec<[Counter; RESULTS.len()]>,
    /// What waited for nothing but a place, and what waited for quota, too.
    placed: [Histogram; 2],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            exceeded: ENDPOINTS.iter().map(|_| Default::default()).collect(),
            results: ENDPOINTS.iter().map(|_| Default::default()).collect(),
            placed: Default::default(),
        }
    }
}

impl Counts {
    pub fn exceeded(&self, endpoint: usize, dimension: Dimension) {
        if let Some(counters) = self.exceeded.get(endpoint) {
            counters[dimension.at()].add(1);
        }
    }

    pub fn answered(&self, endpoint: usize, result: &str) {
        let place = RESULTS.iter().position(|one| *one == result).unwrap_or(RESULTS.len() - 1);
        if let Some(counters) = self.results.get(endpoint) {
            counters[place].add(1);
        }
    }

    pub fn placed(&self, took: Duration, within_quota: bool) {
        self.placed[usize::from(!within_quota)].observe(took);
    }

    /// Only what has happened: there are many endpoints and dimensions, and most never meet.
    pub fn sample(&self, out: &mut Samples) {
        for (histogram, within) in self.placed.iter().zip(["true", "false"]) {
            histogram.sample(&TIME_TO_SCHEDULE, &[within], out);
        }
        for ((endpoint, exceeded), results) in ENDPOINTS.iter().zip(&self.exceeded).zip(&self.results) {
            let name = format!("{} {}", endpoint.method, endpoint.path);
            for (dimension, counter) in Dimension::ALL.into_iter().zip(exceeded) {
                if counter.get() > 0 {
                    out.put(&EXCEEDED, &[dimension.name(), &name], counter.get());
                }
            }
            for (result, counter) in RESULTS.iter().zip(results) {
                if counter.get() > 0 {
                    out.put(&COMMANDS, &[&name, result], counter.get());
                }
            }
        }
    }
}
