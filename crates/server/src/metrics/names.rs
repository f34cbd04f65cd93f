//! Every metric of the server itself: name, labels, what it means. docs/metrics.md lists the same; a test compares.

use families::metrics::Metric;

const OF_REQUEST: &[&str] = &["group", "resource", "verb"];

pub static BUILD_INFO: Metric = Metric::gauge("bursar_build_info", &["version"], "Always 1; the version is a label.");
pub static REQUESTS: Metric = Metric::counter(
    "bursar_requests_total",
    &["code", "group", "resource", "verb"],
    "Requests from the network that were answered, refused ones included.",
);
pub static REQUEST_DURATION: Metric = Metric::histogram(
    "bursar_request_duration_seconds",
    OF_REQUEST,
    "Time from a request's headers to its answer's; watches are left out.",
);
pub static REQUESTS_IN_FLIGHT: Metric =
    Metric::gauge("bursar_requests_in_flight", &["work"], "Requests being worked on, watches left out.");
pub static WATCHES: Metric = Metric::gauge("bursar_watches", &[], "Open watches.");
pub static COMMIT_DURATION: Metric = Metric::histogram(
    "bursar_commit_duration_seconds",
    &[],
    "Time to make one group of writes durable; one sync each on the embedded store.",
);
pub static COMMIT_BYTES: Metric =
    Metric::counter("bursar_commit_bytes_total", &[], "Bytes of the rows in committed groups.");
pub static COMMIT_ROWS: Metric = Metric::counter("bursar_commit_rows_total", &[], "Rows in committed groups.");
pub static COMMANDS_WAITING: Metric = Metric::gauge("bursar_commands_waiting", &[], "Writes that wait to be decided.");
pub static DECISIONS: Metric = Metric::counter(
    "bursar_decisions_total",
    &["decision", "family"],
    "Writes that accounts of a family granted, denied or put in line.",
);
pub static WEBHOOK_CALLS: Metric = Metric::counter(
    "bursar_webhook_calls_total",
    &["outcome", "type"],
    "Calls of admission webhooks that users registered.",
);
pub static WEBHOOK_DURATION: Metric =
    Metric::histogram("bursar_webhook_duration_seconds", &["type"], "Time that calls of admission webhooks took.");
pub static AUDITS: Metric = Metric::counter(
    "bursar_audits_total",
    &[],
    "Audits of ledger, kept objects and statuses against the stored objects.",
);
pub static AUDIT_DIFFERENCES: Metric = Metric::counter(
    "bursar_audit_differences_total",
    &[],
    "What audits found not to be as the stored objects add up: each is a bug.",
);
pub static DOUBTS: Metric = Metric::counter(
    "bursar_leadership_doubts_total",
    &[],
    "Times this replica did not know whether it still leads; etcd store only.",
);
pub static STORE_BYTES: Metric =
    Metric::gauge("bursar_store_bytes", &[], "Size of the fullest etcd member's file; etcd store only.");
pub static STORE_BYTES_IN_USE: Metric = Metric::gauge(
    "bursar_store_in_use_bytes",
    &[],
    "What of it is in use; far below the size, defragmentation gives the rest back.",
);
pub static STORE_BYTES_MAX: Metric =
    Metric::gauge("bursar_store_quota_bytes", &[], "The size at which etcd refuses every write.");
pub static STORE_COMPACTIONS: Metric =
    Metric::counter("bursar_store_compactions_total", &[], "Times the leader had etcd drop its history.");
pub static DROPPED_BYTES: Metric = Metric::gauge(
    "bursar_store_dropped_bytes",
    &[],
    "Bytes at the end of the log that this start left out: a write that was cut off before anybody was told of it.",
);
pub static LOST_WRITES: Metric = Metric::gauge(
    "bursar_store_lost_writes",
    &[],
    "Acknowledged writes that are missing and that this start was told to go on without.",
);
pub static REVISION: Metric = Metric::gauge("bursar_revision", &[], "The revision up to which writes are visible.");
pub static OBJECTS: Metric = Metric::gauge("bursar_objects", &["group", "resource"], "Stored objects.");
pub static PROCESS_START: Metric =
    Metric::gauge("process_start_time_seconds", &[], "When the server started, in seconds since 1970.");
pub static PROCESS_CPU: Metric =
    Metric::counter("process_cpu_seconds_total", &[], "CPU time of the process, in seconds.");
pub static PROCESS_MEMORY: Metric =
    Metric::gauge("process_resident_memory_bytes", &[], "Memory of the process that is in RAM.");
pub static PROCESS_FILES: Metric = Metric::gauge("process_open_fds", &[], "Open files and sockets.");

pub static ALL: &[&Metric] = &[
    &BUILD_INFO,
    &REQUESTS,
    &REQUEST_DURATION,
    &REQUESTS_IN_FLIGHT,
    &WATCHES,
    &COMMIT_DURATION,
    &COMMIT_BYTES,
    &COMMIT_ROWS,
    &COMMANDS_WAITING,
    &DECISIONS,
    &WEBHOOK_CALLS,
    &WEBHOOK_DURATION,
    &AUDITS,
    &AUDIT_DIFFERENCES,
    &DOUBTS,
    &STORE_BYTES,
    &STORE_BYTES_IN_USE,
    &STORE_BYTES_MAX,
    &STORE_COMPACTIONS,
    &DROPPED_BYTES,
    &LOST_WRITES,
    &crate::orgs::EXCEEDED,
    &crate::orgs::COMMANDS,
    &crate::orgs::TIME_TO_SCHEDULE,
    &crate::orgs::ALLOCATIONS,
    &crate::orgs::DRAINS,
    &crate::orgs::ROLLOUTS,
    &crate::orgs::DOWNGRADES,
    &REVISION,
    &OBJECTS,
    &PROCESS_START,
    &PROCESS_CPU,
    &PROCESS_MEMORY,
    &PROCESS_FILES,
];
