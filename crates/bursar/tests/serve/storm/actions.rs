//! What a client of the storm does: any object or policy is made, changed in any field, or deleted.

use serde_json::{Value, json};
use simulator::rng::Rng;

use super::NAMESPACES;

pub struct Action {
    pub method: &'static str,
    pub path: String,
    pub body: Value,
}

const CAPSULE: &str = "/apis/capsule.clastix.io/v1beta2";
const OPENSHIFT: &str = "/apis/quota.openshift.io/v1";
const HNC: &str = "/apis/hnc.x-k8s.io/v1alpha2";

/// Objects three times as often as policies, and of those any kind alike.
pub fn draw(rng: &mut Rng) -> Action {
    let namespace = format!("n{}", rng.below(NAMESPACES as u64));
    let core = format!("/api/v1/namespaces/{namespace}");
    match rng.below(32) {
        0..8 => on(rng, format!("{core}/pods"), "p", 9, pod),
        8..14 => on(rng, format!("{core}/configmaps"), "m", 7, map),
        14 => ends(rng, &core),
        15..17 => on(rng, format!("{core}/secrets"), "s", 4, |_| json!({})),
        17..22 => on(rng, format!("{CAPSULE}/namespaces/{namespace}/resourcepoolclaims"), "c", 5, claim),
        22..24 => on(rng, format!("{core}/resourcequotas"), "q", 3, quota),
        24 => on(rng, format!("{core}/limitranges"), "l", 1, limit_range),
        25 => on(rng, format!("{OPENSHIFT}/clusterresourcequotas"), "wide-", 3, cluster_quota),
        26 => on(rng, format!("{HNC}/namespaces/{namespace}/hierarchicalresourcequotas"), "h", 2, tree_quota),
        27 => hierarchy(rng, &namespace),
        28 => on(rng, format!("{CAPSULE}/namespaces/{namespace}/customquotas"), "k", 2, custom_quota),
        29 => on(rng, format!("{CAPSULE}/globalcustomquotas"), "g", 2, global_quota),
        30 => on(rng, format!("{CAPSULE}/resourcepools"), "pool-", 3, pool),
        _ => relabel(rng, &namespace),
    }
}

/// Makes, replaces fields of, or deletes one of a few objects of a kind.
fn on(rng: &mut Rng, path: String, prefix: &str, count: u64, spec: impl Fn(&mut Rng) -> Value) -> Action {
    let name = format!("{prefix}{}", rng.below(count));
    let one = format!("{path}/{name}");
    match rng.below(10) {
        0..5 => {
            let mut body = spec(rng);
            body["metadata"]["name"] = json!(name);
            typed(&path, &mut body);
            Action { method: "POST", path, body }
        }
        5..8 => Action { method: "PATCH", path: one, body: spec(rng) },
        _ => Action { method: "DELETE", path: one, body: Value::Null },
    }
}

/// A pod ends, as its node would tell, or runs again.
fn ends(rng: &mut Rng, core: &str) -> Action {
    let phase = ["Running", "Succeeded", "Failed"][rng.index(3)];
    let path = format!("{core}/pods/p{}/status", rng.below(9));
    Action { method: "PATCH", path, body: json!({"status": {"phase": phase}}) }
}

/// A custom resource says what it is.
fn typed(path: &str, body: &mut Value) {
    const KINDS: &[(&str, &str)] = &[
        ("resourcepoolclaims", "ResourcePoolClaim"),
        ("resourcepools", "ResourcePool"),
        ("globalcustomquotas", "GlobalCustomQuota"),
        ("customquotas", "CustomQuota"),
        ("clusterresourcequotas", "ClusterResourceQuota"),
        ("hierarchicalresourcequotas", "HierarchicalResourceQuota"),
        ("hierarchyconfigurations", "HierarchyConfiguration"),
    ];
    let plural = path.rsplit('/').next().unwrap_or_default();
    let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == plural) else { return };
    let group: Vec<&str> = path.trim_start_matches("/apis/").splitn(3, '/').take(2).collect();
    body["apiVersion"] = json!(group.join("/"));
    body["kind"] = json!(kind);
}

fn pod(rng: &mut Rng) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    if rng.below(3) > 0 {
        container["resources"] = json!({"requests": {"cpu": format!("{}m", 100 * (1 + rng.below(9)))}});
    }
    let mut pod = json!({
        "metadata": {"labels": {"app": format!("a{}", rng.below(2))}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    });
    if rng.one_in(3) {
        pod["spec"]["activeDeadlineSeconds"] = json!(600);
    }
    pod
}

fn map(rng: &mut Rng) -> Value {
    let mut data = json!({"size": rng.below(9).to_string()});
    if rng.one_in(3) {
        data["free"] = json!(rng.below(5).to_string());
    }
    json!({"metadata": {"labels": {"counted": if rng.below(4) > 0 { "yes" } else { "no" }}}, "data": data})
}

fn hard(rng: &mut Rng) -> Value {
    let mut hard = serde_json::Map::new();
    for (name, most) in [("pods", 9), ("requests.cpu", 4), ("count/configmaps", 9), ("secrets", 6)] {
        if rng.below(3) > 0 {
            hard.insert(name.into(), json!(rng.below(most).to_string()));
        } else {
            // In a patch: the name goes.
            hard.insert(name.into(), Value::Null);
        }
    }
    Value::Object(hard)
}

/// In a create, a name without a value is not there.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

fn quota(rng: &mut Rng) -> Value {
    let mut spec = json!({"hard": without_nulls(hard(rng))});
    if rng.one_in(4) {
        spec = json!({"hard": {"pods": rng.below(7).to_string()}, "scopes": [SCOPES[rng.index(SCOPES.len())]]});
    }
    json!({"spec": spec})
}

const SCOPES: &[&str] = &["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"];

fn limit_range(rng: &mut Rng) -> Value {
    let cpu = format!("{}m", 50 * (1 + rng.below(4)));
    json!({"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu}}]}})
}

fn labels(rng: &mut Rng) -> Value {
    let (tier, team) = (["gold", "silver"][rng.index(2)], ["a", "b"][rng.index(2)]);
    match rng.below(3) {
        0 => json!({"tier": tier}),
        1 => json!({"team": team}),
        _ => json!({"tier": "gold", "team": team}),
    }
}

fn cluster_quota(rng: &mut Rng) -> Value {
    let selector = json!({"labels": {"matchLabels": labels(rng)}});
    json!({"spec": {"selector": selector, "quota": {"hard": without_nulls(hard(rng))}}})
}

fn tree_quota(rng: &mut Rng) -> Value {
    json!({"spec": {"hard": without_nulls(hard(rng))}})
}

fn hierarchy(rng: &mut Rng, namespace: &str) -> Action {
    let path = format!("{HNC}/namespaces/{namespace}/hierarchyconfigurations");
    let parent = format!("n{}", rng.below(NAMESPACES as u64));
    match rng.below(4) {
        0 => Action { method: "DELETE", path: format!("{path}/hierarchy"), body: Value::Null },
        1 => Action { method: "PATCH", path: format!("{path}/hierarchy"), body: json!({"spec": {"parent": parent}}) },
        _ => {
            let mut body = json!({"metadata": {"name": "hierarchy"}, "spec": {"parent": parent}});
            typed(&path, &mut body);
            Action { method: "POST", path, body }
        }
    }
}

fn sources(rng: &mut Rng) -> Value {
    let counted = json!([{"matchLabels": {"counted": "yes"}}]);
    let mut sources =
        vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "path": ".data.size", "selectors": counted})];
    if rng.one_in(2) {
        sources.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "sub", "path": ".data.free"}));
    }
    if rng.one_in(3) {
        sources.push(json!({"apiVersion": "v1", "kind": "Secret", "op": "count"}));
    }
    json!(sources)
}

fn custom_quota(rng: &mut Rng) -> Value {
    json!({"spec": {"limit": rng.below(40).to_string(), "sources": sources(rng)}})
}

fn global_quota(rng: &mut Rng) -> Value {
    let mut quota = custom_quota(rng);
    quota["spec"]["namespaceSelectors"] = match rng.below(3) {
        0 => Value::Array(Vec::new()),
        _ => json!([{"matchLabels": labels(rng)}]),
    };
    quota
}

fn amounts(rng: &mut Rng, most: u64) -> Value {
    let mut amounts = json!({"pods": rng.below(most).to_string()});
    if rng.one_in(2) {
        amounts["requests.cpu"] = json!(rng.below(most).to_string());
    }
    amounts
}

fn pool(rng: &mut Rng) -> Value {
    let mut spec = json!({
        "quota": {"hard": amounts(rng, 12)},
        "selectors": [{"matchLabels": labels(rng)}],
        "config": {
            "orderedQueue": rng.one_in(2), "deleteBoundResources": rng.one_in(4), "defaultsZero": rng.one_in(8),
            "jitClaims": rng.one_in(3),
        },
    });
    if rng.one_in(2) {
        spec["defaults"] = json!({"pods": rng.below(3).to_string()});
    }
    json!({"spec": spec})
}

fn claim(rng: &mut Rng) -> Value {
    // One in four takes any pool that has enough.
    let pool = if rng.one_in(4) { String::new() } else { format!("pool-{}", rng.below(3)) };
    json!({"spec": {"pool": pool, "claim": without_nulls(amounts(rng, 5))}})
}

fn relabel(rng: &mut Rng, namespace: &str) -> Action {
    let path = format!("/api/v1/namespaces/{namespace}");
    match rng.below(12) {
        0 => Action { method: "DELETE", path, body: Value::Null },
        1..4 => {
            let body = json!({"metadata": {"name": namespace, "labels": labels(rng)}});
            Action { method: "POST", path: "/api/v1/namespaces".into(), body }
        }
        _ => Action { method: "PATCH", path, body: json!({"metadata": {"labels": labels(rng)}}) },
    }
}
