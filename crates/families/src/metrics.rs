//! Metrics as families (and the server) tell them: a constant says what a metric is, [`Samples`] gathers the values of one
//! scrape and writes them in Prometheus' text format.
//!
//! The text is written here and not by a metrics library because amounts are exact: libraries take a value as a float,
//! and print it as one.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use rules::GroupResource;
use serde_json::Value;

use crate::Balances;

/// What a metric is.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: MetricKind,
    /// Names of its labels, sorted.
    pub labels: &'static [&'static str],
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

impl Metric {
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, help, kind: MetricKind::Counter, labels }
    }

    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, help, kind: MetricKind::Gauge, labels }
    }

    pub const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, help, kind: MetricKind::Histogram, labels }
    }
}

/// What a family may look at while it is measured: stored objects with the status last published, and usage as it is.
pub trait Survey: Balances {
    /// Every object of a resource, in whatever namespace, by namespace and name.
    fn each(&self, resource: &GroupResource, look: &mut dyn FnMut(&Value));

    /// What a family made of each of them, made once for each state of an object.
    fn each_parsed(
        &self,
        resource: &GroupResource,
        make: &dyn Fn(&Value) -> crate::Parsed,
        look: &mut dyn FnMut(&crate::Parsed),
    ) {
        self.each(resource, &mut |object| look(&make(object)));
    }
}

/// The values of one scrape.
#[derive(Default)]
pub struct Samples {
    /// Lines of each metric: the format wants them together.
    pages: BTreeMap<&'static str, (&'static Metric, String)>,
}

impl Samples {
    /// Adds one value. `labels` are the values of the metric's labels, in their order.
    pub fn put(&mut self, metric: &'static Metric, labels: &[&str], value: impl Display) {
        self.line(metric, "", labels, None, value);
    }

    /// Adds one histogram: how many observations were at most each bound (the bounds rising, `+Inf` left out), how many
    /// there were in all, and their sum.
    pub fn put_histogram<B: Display>(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        buckets: impl IntoIterator<Item = (B, u64)>,
        count: u64,
        sum: impl Display,
    ) {
        for (bound, at_most) in buckets {
            self.line(metric, "_bucket", labels, Some(&bound), at_most);
        }
        self.line(metric, "_bucket", labels, Some(&"+Inf"), count);
        self.line(metric, "_sum", labels, None, sum);
        self.line(metric, "_count", labels, None, count);
    }

    fn line(
        &mut self,
        metric: &'static Metric,
        suffix: &str,
        labels: &[&str],
        bound: Option<&dyn Display>,
        value: impl Display,
    ) {
        debug_assert_eq!(labels.len(), metric.labels.len(), "labels of {}", metric.name);
        let (_, out) = self.pages.entry(metric.name).or_insert_with(|| (metric, String::new()));
        out.push_str(metric.name);
        out.push_str(suffix);
        let mut before = '{';
        for (name, value) in metric.labels.iter().zip(labels) {
            out.push(before);
            before = ',';
            out.push_str(name);
            out.push_str("=\"");
            escape(out, value);
            out.push('"');
        }
        // Writing to a text cannot fail.
        if let Some(bound) = bound {
            let _ = write!(out, "{before}le=\"{bound}\"");
            before = ',';
        }
        if before == ',' {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }

    /// Everything, by name, in Prometheus' text format.
    pub fn text(self) -> String {
        let mut out = String::with_capacity(self.pages.values().map(|(_, lines)| lines.len() + 128).sum());
        for (metric, lines) in self.pages.values() {
            let Metric { name, help, kind, .. } = metric;
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
            out.push_str(lines);
        }
        out
    }
}

/// The content type of [`Samples::text`].
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

fn escape(out: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLAIN: Metric = Metric::gauge("b_plain", &[], "Without labels.");
    static LABELLED: Metric = Metric::counter("a_total", &["name", "where"], "With two.");
    static TIMES: Metric = Metric::histogram("c_seconds", &["verb"], "Times.");
    static BARE: Metric = Metric::histogram("d_seconds", &[], "Times of everything.");

    #[test]
    fn lines_of_a_metric_stand_together_and_values_are_escaped() {
        let mut samples = Samples::default();
        samples.put(&LABELLED, &["x", ""], 1);
        samples.put(&PLAIN, &[], "0.5");
        samples.put(&LABELLED, &["a\"b\\c\nd", "y"], 2);
        samples.put_histogram(&TIMES, &["get"], [("0.1", 3), ("1", 4)], 5, "7.25");
        samples.put_histogram(&BARE, &[], [("0.1", 0)], 0, "0");
        assert_eq!(
            samples.text(),
            "# HELP a_total With two.\n# TYPE a_total counter\na_total{name=\"x\",where=\"\"} 1\n\
             a_total{name=\"a\\\"b\\\\c\\nd\",where=\"y\"} 2\n\
             # HELP b_plain Without labels.\n# TYPE b_plain gauge\nb_plain 0.5\n\
             # HELP c_seconds Times.\n# TYPE c_seconds histogram\nc_seconds_bucket{verb=\"get\",le=\"0.1\"} 3\n\
             c_seconds_bucket{verb=\"get\",le=\"1\"} 4\nc_seconds_bucket{verb=\"get\",le=\"+Inf\"} 5\n\
             c_seconds_sum{verb=\"get\"} 7.25\nc_seconds_count{verb=\"get\"} 5\n\
             # HELP d_seconds Times of everything.\n# TYPE d_seconds histogram\nd_seconds_bucket{le=\"0.1\"} 0\n\
             d_seconds_bucket{le=\"+Inf\"} 0\nd_seconds_sum 0\nd_seconds_count 0\n"
        );
    }
}
