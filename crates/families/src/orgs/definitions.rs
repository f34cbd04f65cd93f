//! The kinds of this family as CustomResourceDefinitions: a field list each, and the columns that `kubectl get` shows.

use serde_json::{Map, Value, json};

use super::names::*;
use crate::Plural;

/// A field of a spec: name, type, meaning. `any` is an object whose fields the meaning tells.
pub type Field = (&'static str, &'static str, &'static str);

struct Shape {
    plural: Plural,
    short: &'static [&'static str],
    about: &'static str,
    fields: &'static [Field],
    /// Columns by title and field of the spec.
    columns: &'static [(&'static str, &'static str)],
}

const VERSION_FIELD: Field = ("version", "integer", "Counts the changes that commands made to it.");

const SHAPES: [Shape; 18] = [
    Shape {
        plural: TIERS,
        short: &[],
        about: "What an organization gets by the name of its tier.",
        fields: &[
            ("limits", "any", "A number for each dimension, or \"unlimited\"."),
            ("surge_policy", "string", "drain_first or reject: what becomes of a rollout without room for its surge."),
            (
                "event_bytes_per_hour",
                "number or word",
                "Bytes of events that may be told of it in an hour, or \"unlimited\".",
            ),
        ],
        columns: &[("Instances", "limits.max_instances"), ("Memory", "limits.max_total_memory_bytes")],
    },
    Shape {
        plural: NODES,
        short: &[],
        about: "A machine that runs instances.",
        fields: &[
            ("state", "string", "active, draining, disabled, degraded or offline."),
            ("reason", "string", "Why it was put in this state."),
            ("allocatable_memory_bytes", "integer", "What instances may take together."),
            ("cpu_cores", "integer", "Cores; vCPUs are overcommitted."),
            ("ipv6_prefix", "string", "Where its instances get their addresses."),
            ("addresses_max", "integer", "How many addresses there are to give."),
            VERSION_FIELD,
        ],
        columns: &[("State", "state"), ("Memory", "allocatable_memory_bytes"), ("Cores", "cpu_cores")],
    },
    Shape {
        plural: HOSTNAMES,
        short: &[],
        about: "A hostname that a route has; no two routes have one.",
        fields: &[("org", "string", "Whose it is."), ("route", "string", "Which route has it.")],
        columns: &[("Org", "org"), ("Route", "route")],
    },
    Shape {
        plural: ORGS,
        short: &[],
        about: "An organization and its limits.",
        fields: &[
            ("tier", "string", "Where its limits come from."),
            ("overrides", "any", "Limits of its own by dimension: limit, reason, set_by, updated_at, expires_at."),
            ("reservations", "string", "exact: what is accepted is charged; check: commands only look."),
            ("surge_policy", "string", "drain_first or reject, where it is not the tier's."),
            ("display_name", "string", "For people."),
            ("warned", "any", "By dimension, the percentage of its limit that usage was last told to have reached."),
            ("limits_told", "any", "By dimension, the limit that was last told to be in force."),
            ("events_from", "integer", "Where its events begin: those before are of an earlier one of its name."),
            ("audit_from", "integer", "Where what was refused it begins."),
            VERSION_FIELD,
        ],
        columns: &[("Tier", "tier"), ("Reservations", "reservations")],
    },
    Shape {
        plural: APPS,
        short: &[],
        about: "An application of an organization.",
        fields: &[
            ("app", "string", "Its name."),
            ("releases", "integer", "The highest number of its releases, where that one was deleted."),
            VERSION_FIELD,
        ],
        columns: &[("App", "app")],
    },
    Shape {
        plural: ENVS,
        short: &[],
        about: "An environment of an application: what runs, how often, and how it is reached.",
        fields: &[
            ("app", "string", "Of which app."),
            ("env", "string", "Its name."),
            (
                "processes",
                "any",
                "By process type: desired, release, unit, rollout; desired_before of one that the release has no more.",
            ),
            ("ipv4", "any", "enabled, and the allocation."),
            ("secrets_version", "integer", "Which secrets instances see."),
            ("secret_keys", "list", "What those are called."),
            ("changed_seq", "integer", "When what is desired last changed, as a number that grows."),
            ("held", "any", "What it takes of the organization's limits: instances, memory_bytes, cpu."),
            VERSION_FIELD,
        ],
        columns: &[("App", "app"), ("Env", "env"), ("Held", "held.instances")],
    },
    Shape {
        plural: RELEASES,
        short: &[],
        about: "What can be deployed: process types and what one instance of each takes.",
        fields: &[
            ("app", "string", "Of which app."),
            ("number", "integer", "The app's n-th."),
            (
                "processes",
                "any",
                "By process type: cpu, memory_bytes, vmm_overhead_bytes, ephemeral_disk_bytes, command.",
            ),
            VERSION_FIELD,
        ],
        columns: &[("App", "app"), ("Number", "number")],
    },
    Shape {
        plural: DEPLOYS,
        short: &[],
        about: "A rollout of a release in an environment.",
        fields: &[
            ("app", "string", "Of which app."),
            ("env", "string", "Where."),
            ("kind", "string", "deploy, rollback or secrets."),
            ("release", "string", "What is rolled out."),
            ("processes", "any", "By process type: mode (surge, drain_first, in_place), from, replicas."),
            ("state", "string", "queued, rolling, succeeded or failed."),
            ("message", "string", "Which way it goes, and why."),
            ("started_at_ms", "integer", "When it was asked for."),
            ("ended_at", "string", "When it ended."),
            ("env_version", "integer", "The version of the environment that it made."),
            VERSION_FIELD,
        ],
        columns: &[("App", "app"), ("Env", "env"), ("Release", "release"), ("State", "state"), ("Message", "message")],
    },
    Shape {
        plural: INSTANCES,
        short: &[],
        about: "One microVM of one process type of an environment.",
        fields: &[
            ("app", "string", "Of which app."),
            ("env", "string", "Of which environment."),
            ("process_type", "string", "Of which process type."),
            ("node", "string", "Where it runs."),
            ("desired_state", "string", "running, draining or stopped."),
            ("drain_reason", "string", "scale_down, rollout_replace, node_draining, node_offline or failed."),
            ("drain_until_ms", "integer", "When it is stopped, drained or not."),
            ("release", "string", "What it runs."),
            ("deploy", "string", "Which rollout made it."),
            ("replaces", "string", "Whose slot it came into."),
            ("secrets_version", "integer", "Which secrets it sees."),
            ("resources", "any", "As they were when it was allocated."),
            ("overlay_ipv6", "string", "Its address."),
            ("volumes", "list", "What it mounts."),
            ("spec_hash", "string", "What all of its group have in common."),
            (
                "reported",
                "any",
                "What its node last said: status, reason, at_ms; failed_at_ms and failed_for if it ever failed.",
            ),
            ("allocated_at_ms", "integer", "When it was allocated."),
            VERSION_FIELD,
        ],
        columns: &[
            ("App", "app"),
            ("Env", "env"),
            ("Process", "process_type"),
            ("Node", "node"),
            ("Desired", "desired_state"),
            ("Status", "reported.status"),
        ],
    },
    Shape {
        plural: ROUTES,
        short: &[],
        about: "How an environment is reached.",
        fields: &[
            ("app", "string", "Of which app."),
            ("env", "string", "Of which environment."),
            ("process_type", "string", "Whose instances it leads to."),
            ("hostname", "string", "For TLS routes; empty for raw TCP."),
            ("listen_port", "integer", "The public port."),
            ("target_port", "integer", "The instances' port."),
            ("ipv4_required", "boolean", "Whether it is reached at the environment's own IPv4 address, too."),
            ("charged_bindings", "list", "The addresses and ports that this route is counted for."),
            VERSION_FIELD,
        ],
        columns: &[("App", "app"), ("Env", "env"), ("Hostname", "hostname"), ("Port", "listen_port")],
    },
    Shape {
        plural: SECRET_BUNDLES,
        short: &[],
        about: "Which secrets an environment has; the values are in a Secret.",
        fields: &[
            ("app", "string", "Of which app."),
            ("env", "string", "Of which environment."),
            ("keys", "list", "The names, never the values."),
            ("secret", "string", "The Secret with the values."),
            VERSION_FIELD,
        ],
        columns: &[("App", "app"), ("Env", "env"), ("Version", "version")],
    },
    Shape {
        plural: VOLUMES,
        short: &[],
        about: "A volume of an organization, on one node.",
        fields: &[
            ("name", "string", "For people."),
            ("size_bytes", "integer", "What is provisioned."),
            ("filesystem", "string", "ext4."),
            ("state", "string", "creating, available, in_use, deleting or error."),
            ("home_node", "string", "Where it is."),
            ("source_snapshot", "string", "What it was restored from."),
            ("snapshots_max", "any", "How many snapshots may be under way, where that is limited."),
            ("snapshots_expires_at_ms", "integer", "When that is looked up again, because an override ends."),
            VERSION_FIELD,
        ],
        columns: &[("Name", "name"), ("Size", "size_bytes"), ("State", "state"), ("Node", "home_node")],
    },
    Shape {
        plural: ATTACHMENTS,
        short: &[],
        about: "A volume where an environment's process type mounts it.",
        fields: &[
            ("volume", "string", "Which volume."),
            ("app", "string", "Of which app."),
            ("env", "string", "Of which environment."),
            ("process_type", "string", "Whose instance mounts it."),
            ("mount_path", "string", "Where."),
            VERSION_FIELD,
        ],
        columns: &[("Volume", "volume"), ("App", "app"), ("Env", "env"), ("Process", "process_type")],
    },
    Shape {
        plural: SNAPSHOTS,
        short: &[],
        about: "A snapshot of a volume.",
        fields: &[
            ("volume", "string", "Of which volume."),
            ("size_bytes", "integer", "How large the volume was."),
            ("status", "string", "queued, running, succeeded or failed."),
            VERSION_FIELD,
        ],
        columns: &[("Volume", "volume"), ("Status", "status")],
    },
    Shape {
        plural: RESTORE_JOBS,
        short: &[],
        about: "A restore of a snapshot into a new volume.",
        fields: &[
            ("source_volume", "string", "What the snapshot is of."),
            ("snapshot", "string", "What is restored."),
            ("target_volume", "string", "The new volume."),
            ("status", "string", "queued, running, succeeded or failed."),
            VERSION_FIELD,
        ],
        columns: &[("Snapshot", "snapshot"), ("Volume", "target_volume"), ("Status", "status")],
    },
    Shape {
        plural: EXEC_SESSIONS,
        short: &[],
        about: "A session in an instance.",
        fields: &[
            ("instance", "string", "In which instance."),
            ("app", "string", "Of which app."),
            ("env", "string", "Of which environment."),
            ("state", "string", "granted, connected or ended."),
            ("end_reason", "string", "Why it ended."),
            ("granted_at_ms", "integer", "Since when it is counted by the hour."),
            ("expires_at_ms", "integer", "By when it has to be connected, or connected again to be renewed."),
            VERSION_FIELD,
        ],
        columns: &[("Instance", "instance"), ("State", "state")],
    },
    Shape {
        plural: LOG_STREAMS,
        short: &[],
        about: "An open log stream, as a lease: it counts until it expires.",
        fields: &[
            ("app", "string", "Of which app."),
            ("env", "string", "Of which environment."),
            ("holder", "string", "Who reads it."),
            ("expires_at_ms", "integer", "Until when it counts, unless it is renewed."),
            ("granted_at_ms", "integer", "Since when."),
        ],
        columns: &[("App", "app"), ("Env", "env"), ("Holder", "holder")],
    },
    Shape {
        plural: IDEMPOTENCY_KEYS,
        short: &[],
        about: "A command that succeeded under a key of its sender, with its answer.",
        fields: &[
            ("request_hash", "string", "What was asked for."),
            ("status", "integer", "How it was answered."),
            ("answer", "any", "What was answered."),
            ("expires_at_ms", "integer", "Until when the key is known."),
        ],
        columns: &[],
    },
];

/// What objects of a kind say: each field with its type and what it means.
pub fn fields_of(plural: Plural) -> &'static [Field] {
    SHAPES.iter().find(|shape| shape.plural == plural).map_or(&[], |shape| shape.fields)
}

pub fn definitions() -> Vec<Value> {
    SHAPES.iter().map(definition).collect()
}

fn schema(kind: &str, about: &str) -> Value {
    match kind {
        "any" => json!({"description": about, "type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        "list" => json!({"description": about, "type": "array", "items": {"type": "string"}}),
        "integer" => json!({"description": about, "type": "integer", "format": "int64"}),
        "number or word" => json!({"description": about, "x-kubernetes-int-or-string": true}),
        plain => json!({"description": about, "type": plain}),
    }
}

/// What clients call one of them. A singular goes before the short name of another kind, and `deploy` is how everybody calls a Deployment.
fn singular(plural: Plural) -> String {
    if plural == DEPLOYS { "orgdeploy".to_owned() } else { kind_of(plural).to_lowercase() }
}

fn definition(shape: &Shape) -> Value {
    let (kind, plural) = (kind_of(shape.plural), shape.plural.1);
    let mut properties: Map<String, Value> =
        shape.fields.iter().map(|(name, of, about)| ((*name).to_owned(), schema(of, about))).collect();
    if shape.plural == VOLUMES {
        // A number, or nothing.
        properties.insert("snapshots_max".into(), json!({"x-kubernetes-preserve-unknown-fields": true}));
    }
    let mut columns: Vec<Value> = shape
        .columns
        .iter()
        .map(|(title, path)| {
            let field = shape.fields.iter().find(|(name, ..)| name == path);
            let kind = if field.is_some_and(|(_, kind, _)| *kind == "integer") { "integer" } else { "string" };
            json!({"name": title, "type": kind, "jsonPath": format!(".spec.{path}")})
        })
        .collect();
    columns.push(json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}));
    let mut names =
        json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular(shape.plural)});
    if !shape.short.is_empty() {
        names["shortNames"] = json!(shape.short);
    }
    let scope = if is_global(shape.plural) { "Cluster" } else { "Namespaced" };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "names": names, "scope": scope, "versions": [{
            "name": VERSION,
            "served": true,
            "storage": true,
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "description": shape.about,
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": {"type": "object", "properties": properties},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            }},
            "subresources": {"status": {}},
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_defined_once() {
        let defined: Vec<String> =
            definitions().iter().map(|one| one["spec"]["names"]["plural"].as_str().unwrap().to_owned()).collect();
        let named: Vec<String> = KINDS.iter().map(|(_, plural)| plural.1.to_owned()).collect();
        assert_eq!(defined, named);
    }
}
