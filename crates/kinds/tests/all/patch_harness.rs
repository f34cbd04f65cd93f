//! What must hold for any patch, configuration, field set or schema. The fuzz target and the bounded tests both call this.

use kinds::apply::{self, FieldSet, Writer};
use kinds::decode::{fit, json};
use kinds::facts;
use kinds::field_error::Path;
use kinds::patch::{json_patch, merge_patch, strategic};
use kinds::schema::TypeId;
use kinds::structural::Structural;
use serde_json::Value;

/// The kinds patched: with keyed lists, sets, atomic and granular maps among them.
pub const KINDS: &[(&str, &str, &str)] = &[
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "ResourceQuota"),
    ("apps", "v1", "Deployment"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
];

/// The first byte chooses the kind; then come JSON texts, one a line: an object, and what is done to it.
pub fn check_bytes(bytes: &[u8]) {
    let &[kind, ref rest @ ..] = bytes else { return };
    let read = |line: &[u8]| json(line, None).map_or(Value::Null, |read| read.value);
    let mut lines = rest.splitn(3, |byte| *byte == b'\n').map(read);
    let mut next = || lines.next().unwrap_or(Value::Null);
    let (original, change, other) = (next(), next(), next());
    check(usize::from(kind), original, change, &other);
}

pub fn check(kind: usize, original: Value, change: Value, other: &Value) {
    let (group, version, kind) = KINDS[kind % KINDS.len()];
    let ty = facts().kind(group, version, kind).expect("a built-in kind");
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    check_patches(ty, &original, &change);
    for value in [&original, &change, other] {
        check_set(value, other);
        check_schema(value, &original);
    }
    let by = Writer {
        catalogue: &facts().catalogue,
        ty,
        api_version: &api_version,
        kind,
        manager: "a",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        reset: &["status"],
    };
    check_apply(original, change, &by);
}

fn check_patches(ty: TypeId, original: &Value, change: &Value) {
    let _ = json_patch(original.clone(), change);
    let _ = strategic(original.clone(), change.clone(), &facts().catalogue, ty);
    if let Ok(once) = merge_patch(original.clone(), change) {
        assert_eq!(merge_patch(once.clone(), change).as_ref(), Ok(&once), "merging twice");
    }
}

fn check_set(value: &Value, other: &Value) {
    let Ok(set) = FieldSet::read(value) else { return };
    assert_eq!(FieldSet::read(&set.clone().into_value()).as_ref(), Ok(&set), "reading what was written");
    assert_eq!(set.clone().union(&set), set, "one with itself");
    assert!(set.clone().difference(&set).is_empty(), "nothing without itself");
    let _ = set.paths();
    if let Ok(other) = FieldSet::read(other) {
        let (shared, rest) = (set.intersection(&other), set.clone().difference(&other));
        assert!(rest.intersection(&other).is_empty());
        assert_eq!(rest.union(&shared), set, "the parts make the whole");
    }
}

fn check_apply(original: Value, change: Value, by: &Writer<'_>) {
    let dressed = |mut object: Value| -> Option<Value> {
        let fields = object.as_object_mut()?;
        fields.insert("apiVersion".into(), by.api_version.into());
        fields.insert("kind".into(), by.kind.into());
        fit(by.catalogue, by.ty, object).ok().map(|fitted| fitted.value)
    };
    let (Some(mut live), Some(change)) = (dressed(original), dressed(change)) else { return };
    let fields = apply::created_fields(&live, by);
    let fields: Value = serde_json::from_str(&fields).expect("ownership is JSON");
    FieldSet::read(&fields).expect("and a field set");

    let mut new = change.clone();
    apply::updated(&live, &mut new, by);
    apply::created(&mut live, &Writer { manager: "creator", ..*by });
    let mut applied = change;
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let _ = apply::apply(Some(&live), &applied, by, false);
    let Ok(once) = apply::apply(Some(&live), &applied, by, true) else { return };
    let later = Writer { now: "2026-01-01T00:00:09Z", ..*by };
    assert_eq!(apply::apply(Some(&once), &applied, &later, false).as_ref(), Ok(&once), "applying twice");
}

fn check_schema(schema: &Value, object: &Value) {
    let Ok(structural) = Structural::compile(schema, &Path::new("schema")) else { return };
    let mut object = object.clone();
    structural.prune(&mut object);
    assert!(structural.prune(&mut object).is_empty(), "pruning twice");
    if structural.default(&mut object).is_err() {
        return;
    }
    let once = object.clone();
    assert_eq!(structural.default(&mut object), Ok(()));
    assert_eq!(object, once, "defaulting twice");
    let _ = structural.validate(&object, None);
    assert!(structural.validate(&object, Some(&object)).iter().all(|error| !error.path.is_empty()));
}
