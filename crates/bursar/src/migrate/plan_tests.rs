//! Plans for the tenant of Capsule's documentation, and everything that stands against one.

use serde_json::{Value, json};

use super::*;

fn tenant(scope: &str) -> Tenant {
    let object = json!({
        "metadata": {"name": "migration"},
        "spec": {"resourceQuotas": {"scope": scope, "items": [
            {"hard": {"limits.cpu": "2", "requests.memory": "2Gi"}},
            {"hard": {"pods": "7"}, "scopes": ["NotTerminating"]},
        ]}},
        "status": {"namespaces": ["migration-dev", "migration-prod"]},
    });
    Tenant::read(&object).expect("a tenant")
}

fn quota(namespace: &str, item: usize, used: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": format!("capsule-migration-{item}")}, "status": {"used": used}})
}

fn filled() -> Tenant {
    let mut tenant = tenant("Tenant");
    for one in [
        quota("migration-dev", 0, json!({"limits.cpu": "375m", "requests.memory": "384Mi"})),
        quota("migration-dev", 1, json!({"pods": "3"})),
        quota("migration-prod", 0, json!({"limits.cpu": "0", "requests.memory": "0"})),
        quota("migration-prod", 1, json!({"pods": 1})),
        quota("elsewhere", 1, json!({"pods": "100"})),
    ] {
        tenant.note_quota(&one).expect("a quota");
    }
    tenant
}

fn problems(tenant: &Tenant, headroom_percent: u16) -> String {
    plan(tenant, &Options { headroom_percent }).expect_err("a problem").join("\n")
}

#[test]
fn every_item_becomes_a_pool_and_every_usage_a_claim() {
    let plan = plan(&filled(), &Options { headroom_percent: 0 }).expect("a plan");
    let claims: Vec<_> = plan.claims.iter().map(|one| (&*one.namespace, &*one.name, show(&one.claim))).collect();
    assert_eq!(
        claims,
        [
            ("migration-dev", "migration-0", json!({"limits.cpu": "375m", "requests.memory": "384Mi"})),
            ("migration-dev", "migration-1", json!({"pods": "3"})),
            ("migration-prod", "migration-1", json!({"pods": "1"})),
        ]
    );
    assert_eq!(
        plan.pools[1].manifest["spec"],
        json!({
            "config": {"defaultsZero": true},
            "selectors": [{"matchLabels": {"capsule.clastix.io/tenant": "migration"}}],
            "quota": {"hard": {"pods": "7"}, "scopes": ["NotTerminating"]},
        })
    );
    assert!(plan.notes[0].contains("namespace migration-prod uses nothing of capsule-migration-0"), "{:?}", plan.notes);
}

#[test]
fn headroom_is_rounded_up_and_has_to_fit() {
    let plan = plan(&filled(), &Options { headroom_percent: 10 }).expect("a plan");
    let claims: Vec<_> = plan.claims.iter().map(|one| show(&one.claim)).collect();
    assert_eq!(claims[0], json!({"limits.cpu": "413m", "requests.memory": "442918503"}));
    assert_eq!((&claims[1], &claims[2]), (&json!({"pods": "4"}), &json!({"pods": "2"})));
    let said = problems(&filled(), 100);
    assert_eq!(
        said,
        "capsule-migration-1: its namespaces would claim 8 of pods and the tenant has 7: ask for less headroom, raise \
         the tenant's quota, or free something"
    );
}

#[test]
fn nothing_is_migrated_by_halves() {
    let said = problems(&tenant("Tenant"), 0);
    assert!(said.contains("namespace migration-dev has no ResourceQuota capsule-migration-0"), "{said}");
    assert!(problems(&tenant("Namespace"), 0).contains("limit each namespace by itself"));

    let mut uncounted = filled();
    uncounted.note_quota(&quota("migration-dev", 0, json!({"limits.cpu": "375m"}))).expect("a quota");
    assert_eq!(
        problems(&uncounted, 0),
        "ResourceQuota migration-dev/capsule-migration-0 shows no usage of requests.memory yet"
    );

    let mut over = filled();
    over.note_quota(&quota("migration-prod", 1, json!({"pods": "5"}))).expect("a quota");
    assert!(problems(&over, 0).contains("claim 8 of pods and the tenant has 7: raise"), "{}", problems(&over, 0));

    let mut unlabelled = filled();
    unlabelled.labelled = Some(["migration-dev", "new"].map(String::from).into());
    unlabelled.terminating = ["new".to_string()].into();
    let said = problems(&unlabelled, 0);
    assert!(said.contains("namespace migration-prod is in its status.namespaces and has no label"), "{said}");
    assert!(said.contains("namespace new has its label and is not in its status.namespaces"), "{said}");
    assert!(said.contains("namespace new is being removed"), "{said}");

    let bad = json!({"metadata": {"name": "t"}, "spec": {"resourceQuotas": {"items": [{"hard": {"pods": "many"}}]}}});
    let said = Tenant::read(&bad).expect_err("no quantity");
    assert!(said.starts_with("tenant t: spec.resourceQuotas.items: pods: \"many\""), "{said}");
}
