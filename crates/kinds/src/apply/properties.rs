//! What must hold for any objects: properties over random ones of real kinds.

use proptest::prelude::*;
use serde_json::Value;

use super::compare::compare;
use super::*;
use crate::test_schema::{Random, kind};

const KINDS: &[(&str, &str)] =
    &[("v1", "Pod"), ("v1", "Service"), ("v1", "ResourceQuota"), ("v1", "ConfigMap"), ("apps/v1", "Deployment")];

fn writer<'a>(which: usize, manager: &'a str, now: &'a str) -> Writer<'a> {
    let (api_version, kind_name) = KINDS[which];
    let (catalogue, ty) = kind(kind_name);
    Writer { catalogue, ty, api_version, kind: kind_name, manager, subresource: "", now, reset: &[] }
}

fn object(random: &mut Random, by: &Writer<'_>) -> Value {
    random.object(by.catalogue, by.ty, by.api_version, by.kind)
}

fn owned(object: &Value, manager: &str) -> FieldSet {
    let managed = Managed::of(object).expect("what we wrote reads");
    managed.entries.into_iter().find(|entry| entry.manager == manager).map(|entry| entry.fields).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_for_new_objects_says_what_a_comparison_with_nothing_says(seed: u64, which in 0..KINDS.len()) {
        let by = writer(which, "a", "t");
        let object = object(&mut Random(seed), &by);
        let changes = compare(by.cursor(), None, &object);
        let compared = without_unowned(changes.added.union(&changes.modified)).into_value();
        prop_assert_eq!(created_fields(&object, &by), compared.to_string(), "{}", object);
    }

    #[test]
    fn applying_again_changes_nothing(seed: u64, which in 0..KINDS.len()) {
        let random = &mut Random(seed);
        let by = writer(which, "a", "2026-01-01T00:00:00Z");
        let other = writer(which, "b", "2026-01-01T00:00:01Z");
        let later = writer(which, "a", "2026-01-01T00:00:09Z");
        let (mine, theirs) = (object(random, &by), object(random, &by));
        let mut live = object(random, &by);
        created(&mut live, &writer(which, "c", "2026-01-01T00:00:00Z"));
        let live = apply(Some(&live), &theirs, &other, true).unwrap();
        let once = apply(Some(&live), &mine, &by, true).unwrap();
        let twice = apply(Some(&once), &mine, &later, false);
        prop_assert_eq!(twice.as_ref(), Ok(&once));
    }

    #[test]
    fn force_owns_everything_applied(seed: u64, which in 0..KINDS.len()) {
        let random = &mut Random(seed);
        let by = writer(which, "a", "t");
        let (mine, theirs) = (object(random, &by), object(random, &by));
        let live = apply(None, &theirs, &writer(which, "b", "t"), false).unwrap();
        let result = apply(Some(&live), &mine, &by, true).unwrap();
        let wanted = without_unowned(fields_of(by.cursor(), &mine));
        prop_assert_eq!(owned(&result, "a"), wanted);
        // Every applied value is in the result: laying the configuration over it once more has no effect.
        let mut bare = result.clone();
        managed::strip_from(&mut bare);
        prop_assert_eq!(merge::merge(by.cursor(), Some(&bare), Some(&mine)), Some(bare));
    }

    #[test]
    fn an_only_applier_that_lets_go_leaves_nothing(seed: u64, which in 0..KINDS.len()) {
        let by = writer(which, "a", "t");
        let mine = object(&mut Random(seed), &by);
        let bare = serde_json::json!({"apiVersion": by.api_version, "kind": by.kind, "metadata": {"name": "x"}});
        let live = apply(None, &mine, &by, false).unwrap();
        let mut left = apply(Some(&live), &bare, &by, false).unwrap();
        managed::strip_from(&mut left);
        for unowned in ["namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink"] {
            left["metadata"].as_object_mut().unwrap().remove(unowned);
        }
        // A declared list applied as empty is recorded nowhere, so it stays; so does a null.
        prop_assert_eq!(without_void(left), bare);
    }

    #[test]
    fn what_we_record_reads_back_the_same(seed: u64, which in 0..KINDS.len()) {
        let by = writer(which, "a", "t");
        let set = fields_of(by.cursor(), &object(&mut Random(seed), &by));
        prop_assert_eq!(FieldSet::read(&set.clone().into_value()), Ok(set));
    }

    #[test]
    fn sets_obey_their_algebra(seed: u64, which in 0..KINDS.len()) {
        let random = &mut Random(seed);
        let by = writer(which, "a", "t");
        let changes = compare(by.cursor(), Some(&object(random, &by)), &object(random, &by));
        let (a, b) = (changes.added.union(&changes.modified), fields_of(by.cursor(), &object(random, &by)));
        prop_assert_eq!(a.clone().union(&b), b.clone().union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert!(a.clone().difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.clone().difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(FieldSet::read(&a.clone().into_value()), Ok(a));
    }

    #[test]
    fn an_update_is_owned_by_its_writer_alone(seed: u64, which in 0..KINDS.len()) {
        let random = &mut Random(seed);
        let by = writer(which, "a", "2026-01-01T00:00:00Z");
        let mut old = object(random, &by);
        created(&mut old, &by);
        let mut new = object(random, &by);
        let changes = compare(by.cursor(), Some(&{ let mut bare = old.clone(); managed::strip_from(&mut bare); bare }), &new);
        let touched = without_unowned(changes.added.union(&changes.modified));
        updated(&old, &mut new, &writer(which, "b", "2026-01-01T00:00:01Z"));
        if !Managed::of(&old).unwrap().is_empty() {
            prop_assert_eq!(owned(&new, "b"), touched);
            prop_assert!(owned(&new, "a").intersection(&owned(&new, "b")).is_empty());
        }
    }
}

/// Without nulls and empty lists and objects.
fn without_void(value: Value) -> Value {
    let is_void = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().map(|(name, field)| (name, without_void(field)));
            Value::Object(kept.filter(|(_, field)| !is_void(field)).collect())
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().map(without_void).filter(|item| !is_void(item)).collect())
        }
        other => other,
    }
}
