//! The kinds of this family, by name. Each organization has a namespace of its own, of the same name, with all its objects.

use crate::Plural;

pub const GROUP: &str = "orgs.bursar.dev";
pub const VERSION: &str = "v1";

pub const TIERS: Plural = Plural(GROUP, "tiers");
pub const NODES: Plural = Plural(GROUP, "nodes");
pub const HOSTNAMES: Plural = Plural(GROUP, "hostnames");
pub const ORGS: Plural = Plural(GROUP, "orgs");
pub const APPS: Plural = Plural(GROUP, "apps");
pub const ENVS: Plural = Plural(GROUP, "envs");
pub const RELEASES: Plural = Plural(GROUP, "releases");
pub const DEPLOYS: Plural = Plural(GROUP, "deploys");
pub const INSTANCES: Plural = Plural(GROUP, "instances");
pub const ROUTES: Plural = Plural(GROUP, "routes");
pub const SECRET_BUNDLES: Plural = Plural(GROUP, "secretbundles");
pub const VOLUMES: Plural = Plural(GROUP, "volumes");
pub const ATTACHMENTS: Plural = Plural(GROUP, "volumeattachments");
pub const SNAPSHOTS: Plural = Plural(GROUP, "snapshots");
pub const RESTORE_JOBS: Plural = Plural(GROUP, "restorejobs");
pub const EXEC_SESSIONS: Plural = Plural(GROUP, "execsessions");
pub const LOG_STREAMS: Plural = Plural(GROUP, "logstreams");
pub const IDEMPOTENCY_KEYS: Plural = Plural(GROUP, "idempotencykeys");

/// Each organization lives in one.
pub const NAMESPACES: Plural = Plural("", "namespaces");

/// What defines kinds.
pub const DEFINITIONS: Plural = Plural("apiextensions.k8s.io", "customresourcedefinitions");

/// Every kind with its plural, in the order in which they are defined.
pub const KINDS: [(&str, Plural); 18] = [
    ("Tier", TIERS),
    ("Node", NODES),
    ("Hostname", HOSTNAMES),
    ("Org", ORGS),
    ("App", APPS),
    ("Env", ENVS),
    ("Release", RELEASES),
    ("Deploy", DEPLOYS),
    ("Instance", INSTANCES),
    ("Route", ROUTES),
    ("SecretBundle", SECRET_BUNDLES),
    ("Volume", VOLUMES),
    ("VolumeAttachment", ATTACHMENTS),
    ("Snapshot", SNAPSHOTS),
    ("RestoreJob", RESTORE_JOBS),
    ("ExecSession", EXEC_SESSIONS),
    ("LogStream", LOG_STREAMS),
    ("IdempotencyKey", IDEMPOTENCY_KEYS),
];

/// The kind of a plural.
pub fn kind_of(plural: Plural) -> &'static str {
    KINDS.iter().find(|(_, one)| *one == plural).map_or("", |(kind, _)| kind)
}

/// Whether objects of this kind belong to no organization.
pub fn is_global(plural: Plural) -> bool {
    [TIERS, NODES, HOSTNAMES].contains(&plural)
}

/// The name of an environment's object. Names of apps and of environments hold no dot.
pub fn env_name(app: &str, env: &str) -> String {
    format!("{app}.{env}")
}
