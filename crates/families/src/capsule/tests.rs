//! What the family says by itself. What becomes of it in the engine is told in `tests/families`.

use rules::{GroupResource, Rulebook, Subject, policy_name};
use serde_json::json;

use super::claim::{claims, pools};
use super::{Capsule, Settings};
use crate::{Family, Nothing, PolicyObject};

/// Creations were not always counted: such claims have only the clock's word.
#[test]
fn claims_that_are_older_than_the_count_of_creations_wait_by_the_clock() {
    let spec = json!({"quota": {"hard": {"pods": "2"}}, "selectors": [{"matchLabels": {"tenant": "solar"}}]});
    let object = json!({"metadata": {"name": "p"}, "spec": spec});
    let policy = PolicyObject { resource: &pools(), namespace: "", name: "p", object: &object, in_force: None };
    let compiled = Capsule::new(Settings::default()).compile(&policy, &Nothing).unwrap();
    let mut rulebook = Rulebook::new();
    rulebook.install(policy_name(&pools(), "", "p"), compiled);
    let labels = [("tenant".to_string(), "solar".to_string())].into();
    let namespace = rules::Namespace { name: "a".into(), labels, annotations: Default::default() };
    rulebook.namespace_changed(&namespace, true);

    let of: GroupResource = claims();
    // In the order of a line of one priority.
    let position = |name: &str, second: u32, born: u64| {
        let created = format!("2026-01-01T00:00:{second:02}Z");
        let claim = json!({
            "metadata": {"creationTimestamp": created}, "spec": {"pool": "p", "claim": {"pods": "2"}},
        });
        let mut subject = Subject::new(ledger::SubjectId(1), &of, "a", name, &claim);
        subject.born = born;
        let position = rulebook.measure(&subject).unwrap().wait.unwrap().position;
        (position.arrived, position.tie)
    };
    let line = [position("old", 10, 0), position("middle", 20, 0), position("young", 30, 0), position("new", 5, 7)];
    assert!(line.is_sorted_by(|one, next| one < next), "{line:?}");
}
