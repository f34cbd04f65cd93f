//! What pools and claims must be beyond what their owners write: finalizers, pools that are assigned, the end of a release, owners.

use std::sync::Arc;

use ledger::SubjectId;
use rules::policy_name;
use serde_json::{Value, json};

use super::claim::{assign, claims, pools, subject};
use super::pool::{self, RELEASE, is_released};
use super::{GROUP, VERSION, at, items, jit, nodes, provision, text};
use crate::{Change, Must, Place, View};

/// On a pool while it has namespaces or claims.
const FINALIZER: &str = "controller.projectcapsule.dev/finalize";

/// A pool is as large as its nodes say, where they do. It is held while it serves anybody, and when it is deleted until what it
/// provisioned is gone.
pub fn pool(pool: &Value, view: &dyn View) -> Result<Must, String> {
    let mut kept = match nodes::must_be(pool, view)? {
        Must::Be(sized) => sized,
        Must::AsItIs | Must::Gone => pool.clone(),
    };
    // Where nobody fills it in before it is stored, it is now.
    pool::default(&mut kept);
    let leaves = at(pool, &["metadata", "deletionTimestamp"]).is_some();
    let held = must_be_held(pool, view);
    if is_held(pool) != held {
        let mut finalizers: Vec<Value> = items(pool, &["metadata", "finalizers"]).to_vec();
        finalizers.retain(|one| one != FINALIZER);
        if held && !leaves {
            finalizers.push(json!(FINALIZER));
        }
        let is_free = finalizers.is_empty();
        if is_free && leaves {
            return Ok(Must::Gone);
        }
        match kept.get_mut("metadata").and_then(Value::as_object_mut) {
            Some(metadata) if is_free => drop(metadata.remove("finalizers")),
            Some(metadata) => drop(metadata.insert("finalizers".into(), Value::Array(finalizers))),
            None => {}
        }
    }
    Ok(Must::differ(pool, kept))
}

/// The pool without what holds it: where the cluster collects what belongs to it, nothing has to.
pub fn let_go(pool: &mut Value) {
    let Some(metadata) = pool.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
    finalizers.retain(|one| one != FINALIZER);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    }
}

fn is_held(pool: &Value) -> bool {
    items(pool, &["metadata", "finalizers"]).iter().any(|one| one == FINALIZER)
}

/// Claims are charged only where the pool serves, so that a pool with claims has namespaces.
fn must_be_held(pool: &Value, view: &dyn View) -> bool {
    let name = text(pool, &["metadata", "name"]);
    match at(pool, &["metadata", "deletionTimestamp"]) {
        Some(_) => !provision::provided(name, view).is_empty(),
        None => !view.namespaces(&policy_name(&pools(), "", name)).is_empty(),
    }
}

/// Whether a pool is held that need not be, or the other way round. Cheaper than to ask what it must be.
pub fn is_out_of_step(pool: &Value, view: &dyn View) -> bool {
    is_held(pool) != must_be_held(pool, view)
}

/// A claim without a pool gets one as soon as there is one for it; one that was released stands in line again; and one that has its
/// resources belongs to a pool that takes its claims along.
pub fn claim(claim: &Value, view: &dyn View) -> Must {
    match jit::must_be(claim, view) {
        Must::AsItIs => {}
        other => return other,
    }
    if claim.is_null() || at(claim, &["metadata", "deletionTimestamp"]).is_some() {
        return Must::AsItIs;
    }
    let mut kept = claim.clone();
    let (namespace, name) = (text(claim, &["metadata", "namespace"]), text(claim, &["spec", "pool"]));
    if name.is_empty() {
        let Some(assigned) = assign(claim, namespace, view) else { return Must::AsItIs };
        kept["spec"]["pool"] = json!(assigned);
        return Must::differ(claim, kept);
    }
    // The write that asked for it has let go of everything already.
    if is_released(claim)
        && let Some(notes) = kept["metadata"]["annotations"].as_object_mut()
    {
        notes.remove(RELEASE);
        return Must::differ(claim, kept);
    }
    set_owner(&mut kept, name, subject(claim), view);
    Must::differ(claim, kept)
}

/// A claim that has its resources is deleted with a pool that says so; one that waits is not. Once the pool is on its way out,
/// what goes with it is settled.
fn set_owner(claim: &mut Value, name: &str, uid: SubjectId, view: &dyn View) {
    let pool = view.get(&pools(), "", name).filter(|pool| at(pool, &["metadata", "deletionTimestamp"]).is_none());
    let Some(pool) = pool else { return };
    let deletes = at(&pool, &["spec", "config", "deleteBoundResources"]) == Some(&Value::Bool(true));
    let has = || !view.waits(uid) && view.explain(uid).has_of(&policy_name(&pools(), "", name));
    let is_owned =
        items(claim, &["metadata", "ownerReferences"]).iter().any(|one| one["uid"] == pool["metadata"]["uid"]);
    let goes_with_it = deletes && has();
    if is_owned == goes_with_it {
        return;
    }
    let mut owners: Vec<Value> = items(claim, &["metadata", "ownerReferences"]).to_vec();
    owners.retain(|owner| owner["kind"] != "ResourcePool");
    if goes_with_it {
        owners.push(json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourcePool", "name": name, "uid": pool["metadata"]["uid"],
        }));
    }
    match claim.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(metadata) if owners.is_empty() => drop(metadata.remove("ownerReferences")),
        Some(metadata) => drop(metadata.insert("ownerReferences".into(), Value::Array(owners))),
        None => {}
    }
}

/// The claims that a change may concern: the one that was written, or those on a pool and those without any.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    if *change.resource == claims() {
        let is_there = change.new.is_some();
        return is_there.then(|| Place::new(claims(), change.namespace, change.name)).into_iter().collect();
    }
    if change.resource.is("", "namespaces") {
        return in_namespace(change, view);
    }
    if *change.resource != pools() || change.new.is_none() {
        return Vec::new();
    }
    let both = || [Some(change.old), change.new].into_iter().flatten();
    let is_same = |path: &[&str]| change.new.is_some_and(|new| at(change.old, path) == at(new, path));
    let is_itself = is_same(&["metadata", "uid"]) && is_same(&["metadata", "deletionTimestamp"]);
    let concerns_all = !is_itself || both().any(minds_its_claims);
    let mut places = Vec::new();
    for namespace in view.namespaces(&policy_name(&pools(), "", change.name)) {
        for claim in of_namespace(&namespace, concerns_all, view) {
            if ["", change.name].contains(&text(&claim, &["spec", "pool"])) {
                places.push(Place::new(claims(), &namespace, text(&claim, &["metadata", "name"])));
            }
        }
    }
    places
}

/// Whether what claims on a pool must be depends on what they have of it: it takes them along, or has made them.
fn minds_its_claims(pool: &Value) -> bool {
    let config = |name: &str| at(pool, &["spec", "config", name]) == Some(&Value::Bool(true));
    config("deleteBoundResources") || config("jitClaims")
}

/// All claims in a namespace, or those that have nothing of any pool and wait for nothing: they may get one.
fn of_namespace(namespace: &str, all: bool, view: &dyn View) -> Vec<Arc<Value>> {
    if all { view.list(&claims(), namespace) } else { view.uncharged(&claims(), namespace) }
}

/// Those in a namespace that pools may select otherwise than before: it may have come to one, or left it.
fn in_namespace(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let marks = |namespace: &Value| ["labels", "annotations"].map(|marks| at(namespace, &["metadata", marks]).cloned());
    if change.new.is_none_or(|new| marks(new) == marks(change.old)) {
        return Vec::new();
    }
    let concerns_all = view.list(&pools(), "").iter().any(|pool| minds_its_claims(pool));
    let all = of_namespace(change.name, concerns_all, view).into_iter();
    all.map(|claim| Place::new(claims(), change.name, text(&claim, &["metadata", "name"]))).collect()
}
