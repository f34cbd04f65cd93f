//! What the server tells of itself, at `/metrics` beside what the families tell ([`families::Family::sample`]).
//!
//! Requests, commits and decisions are counted where they happen with relaxed atomics and nothing else; everything that
//! can be looked up instead (objects, the queue, memory) is looked up when somebody asks. Labels come from bounded sets:
//! a name that a client makes up is counted as `other`.
//!
//! Start reading at [`Metrics`]; [`names`] lists every metric, [`requests`] knows whose they are.

pub mod names;
mod process;
mod requests;
mod store;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::store::Usage;
use families::Families;
use families::metrics::Samples;
use parking_lot::Mutex;

use crate::core::{Cache, Decided};
use crate::registry::Registry;
pub use families::instruments::{Counter, Gauge, Histogram, Up};
pub use requests::Asked;
use requests::Requests;
pub use store::MeasuredStore;

/// How a call of a webhook ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WebhookOutcome {
    Allowed,
    Denied,
    /// It could not be asked, and the request was refused for that.
    Failed,
    /// It could not be asked, and does not mind.
    Ignored,
}

const WEBHOOK_OUTCOMES: [&str; 4] = ["allowed", "denied", "failed", "ignored"];
const WEBHOOK_KINDS: [&str; 2] = ["mutating", "validating"];
const DECISIONS: [&str; 3] = ["granted", "denied", "queued"];
const WORK: [&str; 2] = ["read", "write"];

/// Everything that is counted while the server runs. One for the whole server, shared.
pub struct Metrics {
    requests: Requests,
    /// Reads, writes.
    in_flight: [Gauge; 2],
    watches: Gauge,
    commits: Histogram,
    commit_bytes: Counter,
    commit_rows: Counter,
    /// By family, then granted, denied, queued.
    decisions: Vec<(&'static str, [Counter; 3])>,
    /// Mutating and validating.
    webhooks: [WebhookCounters; 2],
    audits: Counter,
    audit_differences: Counter,
    doubts: Counter,
    /// Known once a store is measured.
    usage: OnceLock<Usage>,
    dropped_bytes: Counter,
    lost_writes: Counter,
    /// Of the API of organizations.
    pub orgs: crate::orgs::Counts,
    /// Scrapes look at everything; one at a time is enough.
    scraping: Mutex<()>,
    started: Duration,
}

#[derive(Default)]
struct WebhookCounters {
    outcomes: [Counter; 4],
    durations: Histogram,
}

/// What a scrape looks up instead of having it counted.
pub struct Seen<'a> {
    pub cache: &'a Cache,
    /// Commands that wait to be decided.
    pub commands_waiting: usize,
}

impl Metrics {
    pub fn new(registry: Arc<Registry>, families: &Families) -> Metrics {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Metrics {
            requests: Requests::new(registry),
            in_flight: Default::default(),
            watches: Gauge::default(),
            commits: Histogram::default(),
            commit_bytes: Counter::default(),
            commit_rows: Counter::default(),
            decisions: families.iter().map(|family| (family.manifest().name, Default::default())).collect(),
            webhooks: Default::default(),
            audits: Counter::default(),
            audit_differences: Counter::default(),
            doubts: Counter::default(),
            usage: OnceLock::new(),
            dropped_bytes: Counter::default(),
            lost_writes: Counter::default(),
            orgs: crate::orgs::Counts::default(),
            scraping: Mutex::default(),
            started: since.unwrap_or_default(),
        }
    }

    /// Where a request belongs, before it is known how it ends.
    pub fn asked(&self, info: &crate::request::RequestInfo) -> Asked {
        self.requests.asked(info)
    }

    /// Where a request belongs that could not even be read.
    pub fn unreadable(&self) -> Asked {
        self.requests.unreadable()
    }

    /// One more request under way, until the answer is dropped.
    pub fn in_flight(&self, writes: bool) -> Up {
        self.in_flight[usize::from(writes)].up()
    }

    pub fn watch(&self) -> Up {
        self.watches.up()
    }

    pub fn committed(&self, rows: usize, bytes: usize, took: Duration) {
        self.commits.observe(took);
        self.commit_rows.add(rows as u64);
        self.commit_bytes.add(bytes as u64);
    }

    /// Takes over what the engine decided in one group.
    pub fn decided(&self, decided: &Decided) {
        for ((_, counters), counts) in self.decisions.iter().zip(decided.by_family()) {
            for (counter, count) in counters.iter().zip(counts) {
                counter.add(*count);
            }
        }
    }

    pub fn webhook_called(&self, mutating: bool, outcome: WebhookOutcome, took: Duration) {
        let counters = &self.webhooks[usize::from(!mutating)];
        counters.outcomes[outcome as usize].add(1);
        counters.durations.observe(took);
    }

    /// This replica did not know whether it still led.
    pub fn doubted(&self) {
        self.doubts.add(1);
    }

    /// What the start left out at the end of the log.
    pub fn dropped(&self, dropped: &::store::Dropped) {
        self.dropped_bytes.add(dropped.bytes);
        self.lost_writes.add(dropped.lost);
    }

    pub fn audited(&self, differences: usize) {
        self.audits.add(1);
        self.audit_differences.add(differences as u64);
    }

    /// Writes down everything, the families' own metrics included. Takes as long as reading every policy does.
    pub fn scrape(&self, seen: &Seen<'_>, families: impl FnOnce(&mut Samples)) -> String {
        let _one = self.scraping.lock();
        let mut out = Samples::default();
        self.sample(seen, &mut out);
        families(&mut out);
        out.text()
    }

    fn sample(&self, seen: &Seen<'_>, out: &mut Samples) {
        out.put(&names::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
        process::sample(self.started, out);
        self.requests.sample(out);
        for (work, gauge) in WORK.iter().zip(&self.in_flight) {
            out.put(&names::REQUESTS_IN_FLIGHT, &[work], gauge.get());
        }
        out.put(&names::WATCHES, &[], self.watches.get());
        self.commits.sample(&names::COMMIT_DURATION, &[], out);
        out.put(&names::COMMIT_BYTES, &[], self.commit_bytes.get());
        out.put(&names::COMMIT_ROWS, &[], self.commit_rows.get());
        out.put(&names::COMMANDS_WAITING, &[], seen.commands_waiting);
        for (family, counters) in &self.decisions {
            for (decision, counter) in DECISIONS.iter().zip(counters) {
                out.put(&names::DECISIONS, &[decision, family], counter.get());
            }
        }
        for (kind, counters) in WEBHOOK_KINDS.iter().zip(&self.webhooks) {
            for (outcome, counter) in WEBHOOK_OUTCOMES.iter().zip(&counters.outcomes) {
                out.put(&names::WEBHOOK_CALLS, &[outcome, kind], counter.get());
            }
            counters.durations.sample(&names::WEBHOOK_DURATION, &[kind], out);
        }
        out.put(&names::AUDITS, &[], self.audits.get());
        out.put(&names::AUDIT_DIFFERENCES, &[], self.audit_differences.get());
        out.put(&names::DOUBTS, &[], self.doubts.get());
        // An embedded store is as large as its folder, which others measure better.
        if let Some(usage) = self.usage.get().filter(|usage| usage.bytes_max() > 0) {
            out.put(&names::STORE_BYTES, &[], usage.bytes());
            out.put(&names::STORE_BYTES_IN_USE, &[], usage.bytes_in_use());
            out.put(&names::STORE_BYTES_MAX, &[], usage.bytes_max());
            out.put(&names::STORE_COMPACTIONS, &[], usage.compactions());
        }
        out.put(&names::DROPPED_BYTES, &[], self.dropped_bytes.get());
        out.put(&names::LOST_WRITES, &[], self.lost_writes.get());
        self.orgs.sample(out);
        out.put(&names::REVISION, &[], seen.cache.revision());
        for (resource, count) in seen.cache.counts() {
            out.put(&names::OBJECTS, &[&resource.group, &resource.resource], count);
        }
    }
}
