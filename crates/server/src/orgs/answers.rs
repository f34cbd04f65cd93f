//! What is answered, as the OpenAPI document tells it: rows of the kinds as they are defined, and the few answers that are none.

use families::Plural;
use families::orgs::commands::{DERIVED, Op};
use families::orgs::fields_of;
use families::orgs::names::*;
use serde_json::{Map, Value, json};

use super::table::{Action, Endpoint};

/// Types of JSON; what is not set is null.
fn typed(of: &str) -> Value {
    match of {
        "any" => json!({"type": ["object", "null"]}),
        "list" => json!({"type": ["array", "null"], "items": {"type": "string"}}),
        "amount" => json!({"type": ["number", "null"]}),
        "word" => json!({"type": "string"}),
        "number" => json!({"type": "number"}),
        "flag" => json!({"type": "boolean"}),
        "anything" | "number or word" => json!({}),
        plain => json!({"type": [plain, "null"]}),
    }
}

/// An object with these fields and no others; those that may be missing have a `?`.
fn object(fields: &[(&str, &str)]) -> Value {
    let name = |field: &str| field.trim_end_matches('?').to_owned();
    let properties: Map<String, Value> = fields.iter().map(|(field, of)| (name(field), typed(of))).collect();
    let required: Vec<String> =
        fields.iter().filter(|(field, _)| !field.ends_with('?')).map(|(f, _)| name(f)).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// A row of a kind: its id, when it was made, and what its object says that follows from nothing else.
fn row(plural: Plural) -> Value {
    let mut row = object(&[("id", "word"), ("created_at", "string")]);
    for (field, of, about) in fields_of(plural).iter().filter(|(field, ..)| !DERIVED.contains(field)) {
        row["properties"][*field] = typed(of);
        row["properties"][*field]["description"] = json!(about);
    }
    row
}

fn list_of(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

/// One page of something.
fn page(items: &Value) -> Value {
    let mut page = object(&[("next", "string")]);
    page["properties"]["items"] = list_of(items);
    page["required"] = json!(["items", "next"]);
    page
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The schemas that answers refer to.
pub fn components() -> Map<String, Value> {
    let mut all: Map<String, Value> = KINDS.iter().map(|(kind, plural)| ((*kind).to_owned(), row(*plural))).collect();
    let mut would = object(&[("dry_run", "flag"), ("would", "anything")]);
    would["properties"]["events"] = list_of(&json!({"type": "string"}));
    all.insert("Would".into(), would);
    all.insert(
        "Limit".into(),
        object(&[
            ("org_id", "word"),
            ("dimension", "word"),
            ("limit", "amount"),
            ("limit_source", "word"),
            ("limit_value", "anything"),
            ("updated_at", "string"),
            ("set_by", "string"),
            ("reason", "string"),
            ("expires_at", "string"),
        ]),
    );
    all.insert(
        "LimitSet".into(),
        object(&[
            ("org_id", "word"),
            ("dimension", "word"),
            ("old_limit", "anything"),
            ("new_limit", "anything"),
            ("effective_before", "amount"),
            ("effective_after", "amount"),
            ("limit_source_after", "word"),
            ("usage_at_change", "amount"),
            ("reserved_at_change", "amount"),
            ("over_limit_after", "flag"),
            ("reason", "word"),
            ("expires_at", "string"),
            ("ticket", "string"),
            ("changed_at", "word"),
            ("version", "integer"),
        ]),
    );
    all.insert(
        "Usage".into(),
        object(&[
            ("org_id", "word"),
            ("tier", "word"),
            ("dimension", "word"),
            ("key?", "word"),
            ("counted", "number"),
            ("reserved", "number"),
            ("usage", "number"),
            ("limit", "amount"),
            ("limit_source?", "word"),
            ("headroom?", "amount"),
            ("over_limit", "flag"),
        ]),
    );
    all.insert(
        "Group".into(),
        object(&[
            ("process_type", "word"),
            ("desired", "number"),
            ("matching", "number"),
            ("ready", "number"),
            ("status", "word"),
            ("degraded_reason?", "string"),
            ("unschedulable_reason", "string"),
            ("unschedulable_dimension", "string"),
            ("details", "object"),
            ("since", "string"),
            ("attempts", "number"),
            ("next_retry_at", "string"),
            ("unmet_replicas", "number"),
            ("rollout_mode", "string"),
            ("last_deploy_id", "string"),
        ]),
    );
    all.insert(
        "Event".into(),
        object(&[
            ("event_id", "number"),
            ("occurred_at", "word"),
            ("occurred_at_ms", "number"),
            ("aggregate_type", "word"),
            ("aggregate_id", "word"),
            ("aggregate_seq", "number"),
            ("event_type", "word"),
            ("event_version", "number"),
            ("actor_type", "word"),
            ("actor_id", "word"),
            ("org_id", "string"),
            ("app_id", "string"),
            ("env_id", "string"),
            ("request_id", "word"),
            ("idempotency_key", "string"),
            ("correlation_id?", "string"),
            ("payload", "any"),
            ("old", "any"),
            ("new", "any"),
        ]),
    );
    all.insert(
        "Denial".into(),
        object(&[
            ("event_id", "number"),
            ("timestamp", "word"),
            ("request_id", "word"),
            ("actor_type", "word"),
            ("actor_id", "word"),
            ("org_id", "word"),
            ("action", "word"),
            ("resource_type", "word"),
            ("resource_id?", "word"),
            ("resource_path", "any"),
            ("user_agent?", "word"),
            ("source_ip?", "string"),
            ("decision", "word"),
            ("result", "word"),
            ("error_class", "word"),
            ("reason", "word"),
            ("details", "any"),
        ]),
    );
    all.insert("View".into(), object(&[("kind", "word"), ("org_id", "word"), ("id", "word"), ("state", "any")]));
    all
}

/// The kind whose row a command is answered with.
fn shown(op: Op) -> Option<Plural> {
    Some(match op {
        Op::CreateOrg | Op::SetTier | Op::SetPolicy | Op::TellThresholds => ORGS,
        Op::CreateApp => APPS,
        Op::CreateRelease => RELEASES,
        Op::CreateEnv | Op::SetScale | Op::EnableIpv4 | Op::DisableIpv4 => ENVS,
        Op::CreateDeploy | Op::CreateRollback | Op::CreateReplacement | Op::SetDeployState | Op::SetSecrets => DEPLOYS,
        Op::CreateRoute | Op::UpdateRoute => ROUTES,
        Op::CreateVolume => VOLUMES,
        Op::CreateAttachment => ATTACHMENTS,
        Op::CreateSnapshot | Op::SetSnapshotStatus => SNAPSHOTS,
        Op::CreateRestore | Op::SetRestoreStatus => RESTORE_JOBS,
        Op::GrantExec | Op::ConnectExec | Op::EndExec => EXEC_SESSIONS,
        Op::AllocateInstance | Op::SetInstanceState | Op::ReportInstance => INSTANCES,
        Op::RegisterNode | Op::SetNodeState => NODES,
        Op::OpenLogStream | Op::RenewLogStream => LOG_STREAMS,
        Op::SetQuota | Op::DeleteQuota => return None,
        Op::DeleteOrg | Op::DeleteApp | Op::DeleteRelease | Op::DeleteEnv | Op::DeleteRoute => return None,
        Op::DeleteVolume | Op::DeleteAttachment | Op::DeleteSnapshot | Op::DeleteRestore | Op::CloseLogStream => {
            return None;
        }
        Op::RemoveInstance => return None,
    })
}

/// What an endpoint answers where it succeeds with a document; and with the one of status 200, what would happen.
pub fn schema(endpoint: &Endpoint) -> Value {
    let with_items = |fields: &[(&str, &str)], name: &str, items: &str| {
        let mut whole = object(fields);
        whole["properties"][name] = list_of(&reference(items));
        whole
    };
    match endpoint.action {
        Action::Run(Op::SetQuota) => json!({"anyOf": [reference("LimitSet"), reference("Would")]}),
        // Where there was no limit of its own, the organization is answered as it is.
        Action::Run(Op::DeleteQuota) => {
            json!({"anyOf": [reference("LimitSet"), reference("Would"), reference("Org")]})
        }
        Action::Run(op) => match shown(op) {
            Some(plural) => json!({"anyOf": [reference(kind_of(plural)), reference("Would")]}),
            None => reference("Would"),
        },
        Action::List(plural) => page(&reference(kind_of(plural))),
        Action::Get(plural, _) => reference(kind_of(plural)),
        Action::ListOrgs => page(&reference("Org")),
        Action::GetOrg => reference("Org"),
        Action::Quotas => with_items(&[("org_id", "word"), ("tier", "word")], "items", "Limit"),
        Action::Usage => with_items(&[("org_id", "word"), ("tier", "word")], "items", "Usage"),
        Action::Events | Action::AllEvents => page(&reference("Event")),
        Action::Audit | Action::AllAudit => page(&reference("Denial")),
        Action::Views => {
            let fields = [("now_ms", "number"), ("as_of_event_id", "integer"), ("next", "string")];
            with_items(&fields, "items", "View")
        }
        Action::Inventory => with_items(&[("as_of_event_id", "number"), ("next", "string")], "items", "View"),
        Action::EnvStatus => with_items(&[("env_id", "word")], "groups", "Group"),
        Action::Stream | Action::Heartbeat | Action::OpenApi => json!({"type": "object"}),
    }
}
