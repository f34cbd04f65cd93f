//! What is counted of this API, by endpoint as it is written in the table.

use std::time::Duration;

use families::metrics::{Metric, Samples};
use families::orgs::commands::{Op, Told};
use families::orgs::dimensions::{COUNT, Dimension};
use kinds::fields::text;

use super::table::{Action, ENDPOINTS};
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

pub static ALLOCATIONS: Metric = Metric::counter(
    "bursar_scheduler_allocations_total",
    &["result"],
    "Allocations of instances that were asked for, by what came of them.",
);
pub static DRAINS: Metric =
    Metric::counter("bursar_scheduler_drains_total", &["reason"], "Instances that were told to drain, by why.");
pub static ROLLOUTS: Metric =
    Metric::counter("bursar_rollouts_total", &["mode", "result"], "Rollouts that have ended, by how they went.");
pub static DOWNGRADES: Metric = Metric::counter(
    "bursar_rollout_downgrades_total",
    &["dimension"],
    "Rollouts that went on without a surge, by the limit that left no room for it; none where the nodes had none.",
);

const REASONS: [&str; 7] = ["scale_down", "rollout_replace", "node_draining", "node_offline", "failed", "forced", ""];
const MODES: [&str; 3] = ["surge", "drain_first", "in_place"];
const ENDS: [&str; 2] = ["succeeded", "failed"];
const RESULTS: [&str; 4] = ["ok", "quota_exceeded", "refused", "failed"];

pub struct Counts {
    exceeded: Vec<[Counter; COUNT]>,
    results: Vec<[Counter; RESULTS.len()]>,
    /// What waited for nothing but a place, and what waited for quota, too.
    placed: [Histogram; 2],
    drains: [Counter; REASONS.len()],
    rollouts: [[Counter; ENDS.len()]; MODES.len()],
    /// By dimension; the last is for want of memory on the nodes.
    downgrades: [Counter; COUNT + 1],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            exceeded: ENDPOINTS.iter().map(|_| Default::default()).collect(),
            results: ENDPOINTS.iter().map(|_| Default::default()).collect(),
            placed: Default::default(),
            drains: Default::default(),
            rollouts: Default::default(),
            downgrades: Default::default(),
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

    /// Counts what an event tells, once it is durable.
    pub fn told(&self, told: &Told) {
        let place = |words: &[&str], word: &str| words.iter().position(|one| *one == word);
        match told.event_type.as_str() {
            "instance.desired_state_changed" => {
                let event = told.read();
                if event["new"]["desired_state"] == "draining" {
                    let reason = place(&REASONS, text(&event, &["payload", "reason"]));
                    self.drains[reason.unwrap_or(REASONS.len() - 1)].add(1);
                }
            }
            "deploy.status_changed" => {
                let event = &told.read();
                let own = event["new"]["processes"].as_object().into_iter().flatten();
                let modes: Vec<&str> = own.map(|(_, process)| text(process, &["mode"])).collect();
                let mode = MODES.iter().position(|mode| modes.contains(mode)).unwrap_or(MODES.len() - 1);
                if let Some(end) = place(&ENDS, text(event, &["new", "state"])) {
                    self.rollouts[mode][end].add(1);
                } else if event["payload"]["mode"] == "drain_first" {
                    let message = text(event, &["new", "message"]);
                    let named = |one: &Dimension| message.contains(&format!("org_quota_exceeded:{}", one.name()));
                    let dimension = Dimension::ALL.iter().position(named);
                    self.downgrades[dimension.unwrap_or(COUNT)].add(1);
                }
            }
            _ => {}
        }
    }

    /// Only what has happened: there are many endpoints and dimensions, and most never meet.
    pub fn sample(&self, out: &mut Samples) {
        for (histogram, within) in self.placed.iter().zip(["true", "false"]) {
            histogram.sample(&TIME_TO_SCHEDULE, &[within], out);
        }
        let mut put = |metric: &'static Metric, labels: &[&str], counter: &Counter| {
            if counter.get() > 0 {
                out.put(metric, labels, counter.get());
            }
        };
        for (reason, counter) in REASONS.iter().zip(&self.drains) {
            put(&DRAINS, &[if reason.is_empty() { "operator" } else { reason }], counter);
        }
        for (mode, counters) in MODES.iter().zip(&self.rollouts) {
            for (end, counter) in ENDS.iter().zip(counters) {
                put(&ROLLOUTS, &[mode, end], counter);
            }
        }
        let dimensions = Dimension::ALL.iter().map(|one| one.name()).chain(["none"]);
        for (dimension, counter) in dimensions.zip(&self.downgrades) {
            put(&DOWNGRADES, &[dimension], counter);
        }
        let allocations = ENDPOINTS.iter().zip(&self.results);
        for (_, results) in allocations.filter(|(one, _)| matches!(one.action, Action::Run(Op::AllocateInstance))) {
            for (result, counter) in RESULTS.iter().zip(results) {
                put(&ALLOCATIONS, &[result], counter);
            }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_events_tell_is_counted_once_by_what_it_was() {
        let counts = Counts::default();
        let drain = |state: &str| {
            json!({"event_type": "instance.desired_state_changed", "new": {"desired_state": state},
                "payload": {"reason": "scale_down"}})
        };
        let deploy = |state: &str, mode: &str, message: &str| {
            json!({"event_type": "deploy.status_changed", "payload": {"mode": mode},
                "new": {"state": state, "message": message, "processes": {"a": {"mode": "in_place"}, "b": {"mode": "surge"}}}})
        };
        for event in [
            drain("draining"),
            drain("stopped"),
            deploy("rolling", "", ""),
            deploy("rolling", "drain_first", "reason=org_quota_exceeded:max_instances; web"),
            deploy("rolling", "drain_first", "reason=no_capacity_memory; web"),
            deploy("succeeded", "", ""),
        ] {
            let event_type = text(&event, &["event_type"]).to_owned();
            counts.told(&Told { event_type, line: event.to_string().into_bytes() });
        }
        let mut out = Samples::default();
        counts.sample(&mut out);
        let text = out.text();
        for line in [
            "bursar_scheduler_drains_total{reason=\"scale_down\"} 1",
            "bursar_rollouts_total{mode=\"surge\",result=\"succeeded\"} 1",
            "bursar_rollout_downgrades_total{dimension=\"max_instances\"} 1",
            "bursar_rollout_downgrades_total{dimension=\"none\"} 1",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.matches("bursar_rollouts_total{").count(), 1);
    }
}
