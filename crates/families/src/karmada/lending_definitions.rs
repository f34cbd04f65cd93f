//! The kinds of lending, which are ours: what members were lent, and what they keep to.

use serde_json::{Value, json};

use super::POLICY_GROUP;
use super::definitions::{Names, age, column, definition, object, required, text};
use crate::definition::amounts;

/// Ours: what one member may use of a quota for pods that appear there at run time.
pub fn federated_quota_lease() -> Value {
    let spec = required(
        &["quota", "clusterName"],
        json!({
            "quota": text("The FederatedResourceQuota."),
            "clusterName": text("The member."),
            "hard": amounts("What the member's ResourceQuota allows."),
            "base": amounts("What bindings are charged for there; kept up to date by the server."),
            "evicted": amounts("What bindings are charged for that were evicted from there and are not placed anew; kept up to date by the server."),
            "covered": amounts("How much of hard that is, and is not charged a second time; kept up to date by the server."),
            "validUntil": {"type": "string", "format": "date-time"},
        }),
    );
    let status = object(json!({
        "used": amounts("What the member uses."),
        "waiting": amounts("What waits at a gate there."),
        "renewUntil": {"type": "string", "format": "date-time"},
    }));
    let columns = json!([
        column("CLUSTER", "string", ".spec.clusterName"),
        column("HARD", "string", ".spec.hard"),
        column("USED", "string", ".status.used"),
        age(),
    ]);
    let names = Names {
        group: POLICY_GROUP,
        version: "v1alpha1",
        kind: "FederatedQuotaLease",
        plural: "federatedquotaleases",
        short: &[],
        scope: "Namespaced",
    };
    definition(&names, spec, Some(status), columns)
}

pub fn when_full() -> Value {
    json!({
        "type": "string", "enum": ["Refuse", "Gate"],
        "description": "Whether pods that do not fit are refused (the default), or wait at a scheduling gate.",
    })
}

/// Ours, in members: what the pods of a namespace may take.
pub fn federated_quota_slice() -> Value {
    let spec = object(json!({
        "hard": amounts("What pods may take."),
        "whenFull": when_full(),
        "validUntil": {"type": "string", "format": "date-time"},
    }));
    let status = object(json!({
        "hard": amounts("What is enforced."),
        "used": amounts("What pods take."),
        "waiting": amounts("What pods at the gate wait for."),
    }));
    let columns = json!([
        column("HARD", "string", ".status.hard"),
        column("USED", "string", ".status.used"),
        column("WAITING", "string", ".status.waiting"),
        column("VALID-UNTIL", "string", ".spec.validUntil"),
    ]);
    let names = Names {
        group: POLICY_GROUP,
        version: "v1alpha1",
        kind: "FederatedQuotaSlice",
        plural: "federatedquotaslices",
        short: &[],
        scope: "Namespaced",
    };
    definition(&names, spec, Some(status), columns)
}
