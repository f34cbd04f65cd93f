//! Requests by resource, verb and code.
//!
//! Counters are found through a table that is read without a lock and only grows when a resource is asked for the first
//! time. Only what is served gets a place in it, so that nobody can fill it with made-up names.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use families::metrics::Samples;
use http::StatusCode;
use parking_lot::Mutex;
use rules::GroupResource;

use super::names;
use super::{Counter, Histogram};
use crate::registry::Registry;
use crate::request::RequestInfo;

/// Resources with counters of their own; those of definitions that came and went stay. A large cluster serves some
/// hundreds.
const RESOURCES_MAX: usize = 2_048;

const VERBS: [&str; 9] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "other"];
const OTHER_VERB: usize = VERBS.len() - 1;
const WATCH: usize = 2;

/// The codes we answer with; others are counted together.
const CODES: [u16; 20] =
    [200, 201, 202, 304, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 500, 501, 503, 504];

/// What a resource that is not served is called.
const OTHER: &str = "other";

type Table = HashMap<Box<str>, HashMap<Box<str>, Arc<Slot>>>;

pub struct Requests {
    registry: Arc<Registry>,
    table: ArcSwap<Table>,
    growing: Mutex<()>,
    /// Requests about resources that are not served.
    other: Arc<Slot>,
    /// Requests about no resource: health, discovery, metrics.
    paths: Arc<Slot>,
}

/// The counters of one resource.
#[derive(Default)]
struct Slot {
    /// Parsed when a verb is first used: most resources see two or three.
    verbs: [OnceLock<Box<VerbCounters>>; VERBS.len()],
}

#[derive(Default)]
struct VerbCounters {
    codes: [Counter; CODES.len() + 1],
    durations: Histogram,
}

/// Where a request will be counted.
pub struct Asked {
    slot: Arc<Slot>,
    verb: usize,
}

impl Asked {
    /// Counts it.
    pub fn answered(&self, code: StatusCode, took: Duration) {
        let counters = self.slot.verbs[self.verb].get_or_init(Default::default);
        let code = CODES.binary_search(&code.as_u16()).unwrap_or(CODES.len());
        counters.codes[code].add(1);
        if self.verb != WATCH {
            counters.durations.observe(took);
        }
    }
}

impl Requests {
    pub fn new(registry: Arc<Registry>) -> Requests {
        Requests {
            registry,
            table: ArcSwap::default(),
            growing: Mutex::default(),
            other: Arc::default(),
            paths: Arc::default(),
        }
    }

    pub fn asked(&self, info: &RequestInfo) -> Asked {
        let verb = VERBS.iter().position(|verb| *verb == info.verb).unwrap_or(OTHER_VERB);
        let slot = match info.is_resource {
            false => self.paths.clone(),
            true => {
                let known = find(&self.table.load(), &info.group, &info.resource);
                known.unwrap_or_else(|| self.grow(&info.group, &info.resource))
            }
        };
        Asked { slot, verb }
    }

    pub fn unreadable(&self) -> Asked {
        Asked { slot: self.other.clone(), verb: OTHER_VERB }
    }

    /// A place for a resource that is asked for the first time, if it is served.
    fn grow(&self, group: &str, resource: &str) -> Arc<Slot> {
        if self.registry.snapshot().of(&GroupResource::new(group, resource)).is_none() {
            return self.other.clone();
        }
        let _one = self.growing.lock();
        let table = self.table.load_full();
        if let Some(slot) = find(&table, group, resource) {
            return slot;
        }
        if table.values().map(HashMap::len).sum::<usize>() >= RESOURCES_MAX {
            return self.other.clone();
        }
        let mut table = Table::clone(&table);
        let slot = Arc::new(Slot::default());
        table.entry(group.into()).or_default().insert(resource.into(), slot.clone());
        self.table.store(Arc::new(table));
        slot
    }

    pub fn sample(&self, out: &mut Samples) {
        let table = self.table.load_full();
        for (group, resources) in &*table {
            for (resource, slot) in resources {
                slot.sample(group, resource, out);
            }
        }
        self.other.sample("", OTHER, out);
        self.paths.sample("", "", out);
    }
}

fn find(table: &Table, group: &str, resource: &str) -> Option<Arc<Slot>> {
    table.get(group)?.get(resource).cloned()
}

impl Slot {
    fn sample(&self, group: &str, resource: &str, out: &mut Samples) {
        for (at, verb) in VERBS.iter().enumerate() {
            let Some(counters) = self.verbs[at].get() else { continue };
            let codes = CODES.map(|code| code.to_string());
            let codes = codes.iter().map(String::as_str).chain([OTHER]);
            for (code, counter) in codes.zip(&counters.codes).filter(|(_, counter)| counter.get() > 0) {
                out.put(&names::REQUESTS, &[code, group, resource, verb], counter.get());
            }
            if at != WATCH {
                counters.durations.sample(&names::REQUEST_DURATION, &[group, resource, verb], out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::*;

    fn ask(requests: &Requests, method: Method, path: &str) -> Asked {
        let uri: Uri = path.parse().expect("a path");
        requests.asked(&RequestInfo::parse(&method, &uri).expect("a request"))
    }

    #[test]
    fn made_up_names_share_one_place() {
        let requests = Requests::new(Arc::new(Registry::new()));
        for n in 0..100 {
            let path = format!("/apis/made.up/v1/things{n}");
            ask(&requests, Method::GET, &path).answered(StatusCode::NOT_FOUND, Duration::from_millis(1));
        }
        ask(&requests, Method::POST, "/api/v1/namespaces/a/pods").answered(StatusCode::CREATED, Duration::ZERO);
        ask(&requests, Method::POST, "/api/v1/namespaces/a/pods").answered(StatusCode::IM_A_TEAPOT, Duration::ZERO);
        ask(&requests, Method::GET, "/healthz").answered(StatusCode::OK, Duration::ZERO);
        ask(&requests, Method::GET, "/api/v1/pods?watch=1").answered(StatusCode::OK, Duration::ZERO);
        assert_eq!(requests.table.load().values().map(HashMap::len).sum::<usize>(), 1);
        let mut out = Samples::default();
        requests.sample(&mut out);
        let text = out.text();
        let counted: Vec<&str> = text.lines().filter(|line| line.starts_with("bursar_requests_total")).collect();
        assert_eq!(
            counted,
            [
                "bursar_requests_total{code=\"200\",group=\"\",resource=\"pods\",verb=\"watch\"} 1",
                "bursar_requests_total{code=\"201\",group=\"\",resource=\"pods\",verb=\"create\"} 1",
                "bursar_requests_total{code=\"other\",group=\"\",resource=\"pods\",verb=\"create\"} 1",
                "bursar_requests_total{code=\"404\",group=\"\",resource=\"other\",verb=\"list\"} 100",
                "bursar_requests_total{code=\"200\",group=\"\",resource=\"\",verb=\"get\"} 1",
            ]
        );
        assert!(!text.contains("verb=\"watch\",le="), "{text}");
    }
}
