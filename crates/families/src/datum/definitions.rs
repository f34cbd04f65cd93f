//! The family's kinds as CustomResourceDefinitions. What the proposal's printed manifests leave out or contradict is
//! told in the family's manual.

use serde_json::{Value, json};

use super::schemas::{
    Names, age, amount, column, conditions, definition, dimensions, limits, list, ready_columns, reference, selector,
    text,
};
use super::{GROUP, RESOURCES_GROUP};

pub fn definitions() -> Vec<Value> {
    let mut all = vec![service_quota_definition(), claim(), grant(), effective(), organization(), project()];
    all.extend(super::policy_definitions::definitions());
    all
}

fn generation() -> Value {
    json!({"type": "integer", "format": "int64"})
}

fn usage_source() -> Value {
    let time =
        |description: &str| json!({"type": "string", "description": description, "pattern": "^[0-9]+(ms|s|m|h)$"});
    json!({
        "type": "object",
        "description": "Who measures usage; the ledger itself where this is absent.",
        "properties": {
            "type": {"type": "string", "enum": ["Ledger", "Prometheus", "Amberflo", "OpenMeter"]},
            "endpoint": text("The address of the service."),
            "meter": text("The metric or meter."),
            "entityLabel": text("The label, dimension or subject that names the project."),
            "organizationLabel": text("The one that names the organization; where absent, nobody is asked about organizations."),
            "dimensionLabels": dimensions("The meter's names of dimensions."),
            "lag": time("How far the meter is behind."),
            "maxAge": time("For how long an answer counts."),
            "timeout": time("How long is waited for an answer."),
            "emptyIs": {"type": "string", "enum": ["Unavailable", "Zero"]},
            "onUnavailable": {"type": "string", "enum": ["Pend", "Deny", "LedgerOnly"]},
            "cache": {
                "type": "string", "enum": ["Enabled", "Disabled"],
                "description": "Whether the status of grants shows what was measured; `Enabled` where absent.",
            },
            "credentialsRef": {
                "type": "object", "required": ["namespace", "name"],
                "description": "The secret whose key opens the service.",
                "properties": {"namespace": text(""), "name": text(""), "key": text("`token` where absent.")},
            },
        },
    })
}

fn usage_sink() -> Value {
    let source = usage_source();
    let field = |name: &str| source["properties"][name].clone();
    json!({
        "type": "object", "required": ["type", "endpoint", "meter"],
        "description": "Who is told what was granted, scaled and released; nobody where this is absent.",
        "properties": {
            "type": {"type": "string", "enum": ["Amberflo", "OpenMeter"]},
            "endpoint": field("endpoint"), "meter": text("The meter, or the type of the events."),
            "dimensionLabels": field("dimensionLabels"), "timeout": field("timeout"),
            "credentialsRef": field("credentialsRef"),
        },
    })
}

fn service_quota_definition() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["serviceRef", "resourceName", "unit"],
        "properties": {
            "serviceRef": reference("The service that owns the definition.", &["name"]),
            "resourceName": text("Fully qualified: compute.datumapis.com/instances/cpu."),
            "description": {"type": "string", "maxLength": 500},
            "defaultLimit": {
                "type": "object", "required": ["value"],
                "properties": {"value": amount("What every project has of it where no grant says otherwise.")},
            },
            "unit": text("What a number without a suffix counts: cores, GiB, count."),
            "allowedDimensions": list("The dimensions of requests and buckets.", json!({"type": "string"})),
            "category": text("Under what it is shown."),
            "usageSource": usage_source(),
            "usageSink": usage_sink(),
        },
    });
    let status = json!({
        "type": "object", "properties": {"observedGeneration": generation(), "conditions": conditions()},
    });
    let [ready, reason] = ready_columns("Ready", ["Ready", "Reason"]);
    let columns = json!([
        column("Resource", "string", ".spec.resourceName", "What is limited"),
        column("Unit", "string", ".spec.unit", "What is counted"),
        column("Default", "string", ".spec.defaultLimit.value", "What everybody has of it"),
        ready,
        reason,
        age(),
    ]);
    let names = Names {
        group: GROUP,
        kind: "ServiceQuotaDefinition",
        plural: "servicequotadefinitions",
        short: &["sqd"],
        scope: "Cluster",
    };
    definition(&names, spec, status, columns)
}

fn claim() -> Value {
    let resource = json!({
        "type": "object",
        "required": ["name", "quantity"],
        "properties": {
            "name": text("The resource, as its definition calls it."), "quantity": amount("How much of it."),
            "dimensions": dimensions("What this is asked for: location, type."),
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["resourceRef", "resources"],
        "properties": {
            "resourceRef": reference("The object that will consume.", &["kind", "name"]),
            "resources": list("What is asked for: all of it or nothing.", resource),
            "dimensions": dimensions("Dimensions of all resources that do not say otherwise."),
            "grantRef": {
                "type": "object", "required": ["name"],
                "description": "The grant to claim from: one of the project's or of its organization's.",
                "properties": {"namespace": text("The claim's own where absent."), "name": text("")},
            },
        },
    });
    let granted = json!({
        "type": "object",
        "properties": {
            "name": text(""), "quantity": text(""), "unit": text("What a number without a suffix counted."),
            "dimensions": dimensions(""),
            "bucket": {"type": "object", "properties": {"entity": text(""), "selector": selector()}},
        },
    });
    let status = json!({
        "type": "object",
        "properties": {
            "phase": {"type": "string", "enum": ["Pending", "Granted", "Denied"]},
            "reason": text("Why it is so, in a word."), "message": text("The same in a sentence."),
            "grantedResources": list("What was granted.", granted),
            "project": text("Whose it is, once it is granted."),
            "observedGeneration": generation(), "conditions": conditions(),
        },
    });
    let columns = json!([
        column("Phase", "string", ".status.phase", "What was decided"),
        column("Reason", "string", ".status.reason", "Why"),
        column("For", "string", ".spec.resourceRef.name", "Who consumes"),
        age(),
        {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
    ]);
    let names = Names {
        group: GROUP,
        kind: "ResourceQuotaClaim",
        plural: "resourcequotaclaims",
        short: &["rqc"],
        scope: "Namespaced",
    };
    definition(&names, spec, status, columns)
}

fn used_bucket() -> Value {
    json!({
        "type": "object",
        "properties": {
            "selector": selector(), "limit": text(""), "used": text(""), "available": text(""), "lastSyncTime": text(""),
            "stale": {"type": "boolean", "description": "Whether it was last measured long ago."},
        },
    })
}

fn grant() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["resourceRef", "limits"],
        "properties": {"resourceRef": reference("The project or organization.", &["kind", "name"]), "limits": limits()},
    });
    let usage = json!({
        "type": "object", "properties": {"name": text(""), "buckets": list("Buckets.", used_bucket())},
    });
    let status = json!({
        "type": "object",
        "properties": {
            "usage": list("What is used, of all grants of the same entity together.", usage),
            "observedGeneration": generation(), "conditions": conditions(),
        },
    });
    let [ready, reason] = ready_columns("Ready", ["Ready", "Reason"]);
    let columns = json!([
        column("Kind", "string", ".spec.resourceRef.kind", "Whether it is a project's or an organization's"),
        column("For", "string", ".spec.resourceRef.name", "Whose it is"),
        ready,
        reason,
        age(),
    ]);
    let names = Names {
        group: GROUP,
        kind: "ResourceQuotaGrant",
        plural: "resourcequotagrants",
        short: &["rqg"],
        scope: "Namespaced",
    };
    definition(&names, spec, status, columns)
}

fn effective() -> Value {
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let texts = |description: &str| list(description, json!({"type": "string"}));
    let spec = json!({
        "type": "object",
        "properties": {
            "entity": {"type": "object", "properties": {"kind": text(""), "name": text("")}},
            "organization": text("The organization of a project."),
            "namespaces": texts("A project's namespaces."),
            "projects": list("An organization's projects.", open()),
            "grants": list("The grants that are added up.", open()),
            "limits": list("What they come to.", open()),
            "organizationLimits": texts("What the organization's grants limit."),
            "organizationGrants": list("The organization's grants.", open()),
            "unsettled": texts("What is being moved between project and organization."),
            "usage": list("What meters said.", open()),
        },
    });
    let resource = json!({
        "type": "object",
        "properties": {"name": text(""), "unit": text(""), "from": text(""), "buckets": list("Buckets.", used_bucket())},
    });
    let status = json!({
        "type": "object",
        "properties": {
            "resources": list("Everything there is, with what is used.", resource),
            "claimsGranted": {"type": "integer"}, "claimsWaiting": {"type": "integer"}, "grantCount": {"type": "integer"},
            "conditions": conditions(),
        },
    });
    let columns = json!([
        column("Kind", "string", ".spec.entity.kind", "Project or organization"),
        column("For", "string", ".spec.entity.name", "Whose it is"),
        column("Grants", "integer", ".status.grantCount", "How many grants are added up"),
        column("Granted", "integer", ".status.claimsGranted", "How many claims are granted"),
        column("Waiting", "integer", ".status.claimsWaiting", "How many claims wait"),
        age(),
    ]);
    let names = Names {
        group: GROUP,
        kind: "EffectiveQuotaGrant",
        plural: "effectivequotagrants",
        short: &["eqg"],
        scope: "Cluster",
    };
    definition(&names, spec, status, columns)
}

fn organization() -> Value {
    let spec = json!({
        "type": "object",
        "properties": {"displayName": text("How it is shown."), "plan": text("The QuotaPlan it has.")},
    });
    let columns = json!([column("Plan", "string", ".spec.plan", "The plan"), age()]);
    let names = Names {
        group: RESOURCES_GROUP,
        kind: "Organization",
        plural: "organizations",
        // `org` is the name of another kind.
        short: &[],
        scope: "Cluster",
    };
    definition(&names, spec, json!({"type": "object", "properties": {"conditions": conditions()}}), columns)
}

fn project() -> Value {
    let spec = json!({
        "type": "object",
        "properties": {
            "displayName": text("How it is shown."), "plan": text("The QuotaPlan it has."),
            "organizationRef": {
                "type": "object", "required": ["name"], "properties": {"name": text("The organization it belongs to.")},
            },
        },
    });
    let columns = json!([
        column("Organization", "string", ".spec.organizationRef.name", "Whose it is"),
        column("Plan", "string", ".spec.plan", "The plan"),
        age(),
    ]);
    let names =
        Names { group: RESOURCES_GROUP, kind: "Project", plural: "projects", short: &["proj"], scope: "Cluster" };
    definition(&names, spec, json!({"type": "object", "properties": {"conditions": conditions()}}), columns)
}
