//! The claims that objects come with: made with the object, changed with it, gone with it.
//!
//! What a policy asks of an object is found out when somebody writes that object, by whoever writes it, and at no other time: a claim
//! that was made stays as it is when its policy changes or goes, and after a restart. A condition about the writer or the request says
//! whether a claim is made, and one about the object whether it stays: else somebody of whom no claim is asked would take
//! one away from an object by labelling it.

use std::sync::Arc;

use kinds::fields::{at, given, items, text};
use ledger::SubjectId;
use rules::cel::aside;
use serde_json::{Value, json};

use super::CLAIMS;
use super::catalog::Catalog;
use super::claim::Parts;
use super::claim_policy::{ClaimPolicy, POLICY_LABEL, policies_of};
use super::effective;
use super::entity::{Entities, Entity};
use super::growth;
use super::template::Inputs;
use super::trigger::Speaks;
use crate::capsule::{Resolved, Target};
use crate::{
    Admission, COMPANIONS_MAX, Change, Companion, Company, Must, Origin, Place, PolicyObject, Refusal, View, World,
    Writing, companion_uid,
};

/// Who writes, and what, as expressions see it.
fn told(writing: &Writing<'_>) -> (Value, Value) {
    let Origin { identity, .. } = writing.origin;
    let user = json!({"name": identity.user, "uid": identity.uid, "groups": identity.groups, "extra": identity.extra});
    let request = json!({
        "verb": if writing.old.is_some() { "update" } else { "create" }, "apiGroup": &*writing.resource.group,
        "resource": &*writing.resource.resource, "namespace": writing.namespace, "name": writing.name,
    });
    (user, request)
}

/// A claim that was made for an object.
struct Made {
    number: usize,
    place: Place,
    claim: Arc<Value>,
}

fn made_of(subject: SubjectId, view: &dyn View) -> Vec<Made> {
    let one = |number| {
        let place = view.companion(subject, number).filter(|place| CLAIMS.is(&place.resource))?;
        let claim = view.get(&place.resource, &place.namespace, &place.name)?;
        Some(Made { number, place, claim })
    };
    (0..COMPANIONS_MAX).filter_map(one).collect()
}

/// The claims that an object comes with.
pub fn company(writing: &Writing<'_>, view: &dyn View) -> Result<Company, Refusal> {
    let policies = policies_of(writing.resource, view);
    if policies.is_empty() || only_leaves(writing) {
        return Ok(Company::default());
    }
    let (user, request) = told(writing);
    let catalog = Catalog::of(view);
    let inputs = Inputs { object: writing.object, user: &user, request: &request };
    let subject = kinds::uid::parse(text(writing.object, &["metadata", "uid"])).unwrap_or(SubjectId(0));
    let made = if writing.old.is_some() { made_of(subject, view) } else { Vec::new() };
    let mut company = Company::default();
    for kept in &policies {
        let policy = kept.policy.as_ref().map_err(|why| {
            Refusal::forbidden(format!(
                "policy \"{}\" cannot be read, and it is not known what it asks: {why}",
                kept.name
            ))
        })?;
        let is_its = |made: &&Made| text(&made.claim, &["metadata", "labels", POLICY_LABEL]) == policy.name;
        let own = made.iter().find(is_its);
        match policy.trigger.speaks(&policy.name, &inputs)? {
            Speaks::Yes => {}
            Speaks::NotNow => continue,
            Speaks::No => {
                company.without.extend(own.map(|own| own.place.clone()));
                continue;
            }
        }
        let (name, object) = wanted(policy, writing, &inputs, &catalog)?;
        // What a policy made that is gone or switched off is the claim of whichever wants one of that name now.
        let policy_of = |made: &Made| text(&made.claim, &["metadata", "labels", POLICY_LABEL]).to_owned();
        let is_left =
            |made: &&Made| *made.place.name == *name && !policies.iter().any(|one| one.name == policy_of(made));
        let own = own.or_else(|| made.iter().find(is_left));
        let Some(object) = object else {
            company.without.extend(own.map(|own| own.place.clone()));
            continue;
        };
        if own.is_none() && asked_the_same_before(policy, writing, &inputs, &object, &catalog) {
            continue;
        }
        let stays = own.filter(|own| *own.place.name == *name);
        company.without.extend(own.filter(|_| stays.is_none()).map(|own| own.place.clone()));
        if stays.is_none_or(|stays| stays.claim["spec"] != object["spec"]) {
            check_counted(policy, writing, &object, stays.map(|stays| &*stays.claim), view)?;
        }
        let is_free = |number: &usize| {
            let taken = company.with.iter().any(|one| one.number == *number);
            let uid = companion_uid(subject, *number);
            !taken && view.companion(subject, *number).is_none() && view.explain(uid).state.is_none()
        };
        let number = stays.map(|stays| stays.number).or_else(|| (0..COMPANIONS_MAX).find(is_free));
        let Some(number) = number else {
            let why = format!("more than {COMPANIONS_MAX} policies want a claim for {}", writing.name);
            return Err(Refusal::forbidden(why));
        };
        company.with.push(Companion { resource: CLAIMS.resource(), number, name, object, quota: None });
    }
    Ok(company)
}

/// What an object changes that is on its way out, and asks for nothing by that.
const OF_LEAVING: [&str; 6] =
    ["deletionTimestamp", "deletionGracePeriodSeconds", "finalizers", "managedFields", "resourceVersion", "generation"];

/// Whether an object is on its way out, and nothing else becomes of it by this write: that is nobody's to keep it from, whatever its
/// policies say by now. What it has it keeps until it is gone; one that changes on its way is asked like others.
fn only_leaves(writing: &Writing<'_>) -> bool {
    let Some(old) = writing.old.filter(|_| given(writing.object, &["metadata", "deletionTimestamp"]).is_some()) else {
        return false;
    };
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !OF_LEAVING.contains(&field.as_str()));
        }
        object
    };
    rest(old) == rest(writing.object)
}

/// The name of the claim that a policy wants for an object, and the claim with what is asked for in it; none where that is nothing, as of
/// what is scaled to zero.
fn wanted(
    policy: &ClaimPolicy,
    writing: &Writing<'_>,
    inputs: &Inputs<'_>,
    catalog: &Catalog,
) -> Result<(String, Option<Value>), Refusal> {
    let (name, mut claim) = policy.claim(writing, inputs)?;
    let Some(resources) = claim["spec"]["resources"].as_array_mut() else { return Ok((name, None)) };
    let is_nothing = |one: &Value| {
        let definition = catalog.get(text(one, &["name"]));
        definition.is_some_and(|known| known.unit.read(text(one, &["quantity"])).is_ok_and(|amount| amount.is_zero()))
    };
    resources.retain(|one| !is_nothing(one));
    let is_asked = !resources.is_empty();
    Ok((name, is_asked.then_some(claim)))
}

/// One that was there before the policy, and was meant by it then, is asked for nothing as long as it asks for nothing else. Where
/// that cannot be told in time it is asked.
fn asked_the_same_before(
    policy: &ClaimPolicy,
    writing: &Writing<'_>,
    inputs: &Inputs<'_>,
    claim: &Value,
    catalog: &Catalog,
) -> bool {
    let Some(old) = writing.old else { return false };
    let before = Writing { object: old, old: None, ..*writing };
    let inputs = Inputs { object: old, ..*inputs };
    let is_same = |before: &Value| before["spec"]["resources"] == claim["spec"]["resources"];
    let was_same = || {
        policy.trigger.speaks(&policy.name, &inputs) == Ok(Speaks::Yes)
            && wanted(policy, &before, &inputs, catalog)
                .is_ok_and(|(_, before)| before.is_some_and(|before| is_same(&before)))
    };
    aside(old, was_same).unwrap_or(false)
}

/// A claim that nobody would count, or that cannot be counted, is not granted, and neither is what comes with it. One that was
/// granted `before` may become less.
fn check_counted(
    policy: &ClaimPolicy,
    writing: &Writing<'_>,
    claim: &Value,
    before: Option<&Value>,
    view: &dyn View,
) -> Result<(), Refusal> {
    let failed = |why: &str| Err(Refusal::forbidden(format!("policy \"{}\" cannot make a claim: {why}", policy.name)));
    if writing.namespace.is_empty() {
        return failed("it is in no namespace, and so in no project that could have quota");
    }
    let project = Entities::of(view).project(writing.namespace).map(Entity::project);
    if !project.is_some_and(|project| effective::counts(&project, writing.namespace, view)) {
        return failed("nothing is defined that could be claimed, or its project is not counted yet");
    }
    if let Some(before) = before {
        return growth::check(before, claim, writing.namespace, view).or_else(|why| failed(&why));
    }
    match Parts::read(claim, &Catalog::of(view)).invalid.first() {
        Some(invalid) => failed(&format!("{} ({})", invalid.message, invalid.reason)),
        None => Ok(()),
    }
}

/// The object that a claim was made for, if one was: nobody else gives a claim such a uid.
fn made_for(claim: &Value) -> Option<SubjectId> {
    let own = kinds::uid::parse(text(claim, &["metadata", "uid"]))?;
    let of = kinds::uid::parse(text(claim, &["spec", "resourceRef", "uid"]))?;
    (0..COMPANIONS_MAX).any(|number| companion_uid(of, number) == own).then_some(of)
}

/// Whether a write lets go of a claim before the object it was made for.
pub fn lets_go(change: &Change<'_>) -> bool {
    let leaves = change.new.is_none_or(super::claim::leaves);
    leaves && !super::claim::leaves(change.old) && made_for(change.old).is_some()
}

/// Whether the object is there that a claim was made for, if it was made for one.
pub fn lives(claim: &Value, view: &dyn View) -> Option<bool> {
    made_for(claim).map(|of| view.lives(of))
}

/// The reference by which a claim is owned by the object it is for, where it is.
fn own_reference(claim: &Value) -> Option<&Value> {
    let uid = Some(text(claim, &["spec", "resourceRef", "uid"])).filter(|uid| !uid.is_empty())?;
    items(claim, &["metadata", "ownerReferences"]).iter().find(|owner| text(owner, &["uid"]) == uid)
}

fn waits(claim: &Value, view: &dyn View) -> bool {
    kinds::uid::parse(text(claim, &["metadata", "uid"])).is_some_and(|uid| view.waits(uid))
}

/// Whether a claim waits for the sake of an object that is gone: between its deletion and the collection of what it owned nobody
/// may be served for it.
pub fn outlived(claim: &Value, view: &dyn View) -> bool {
    own_reference(claim).is_some() && waits(claim, view) && object_of(claim, view).is_none()
}

/// A claim that waits stays its object's: it is nothing without it, and cannot be left behind as an orphan.
pub fn owned_while_waiting(object: &PolicyObject<'_>, view: &dyn View) -> Must {
    let claim = object.object;
    if own_reference(claim).is_some() || !waits(claim, view) {
        return Must::AsItIs;
    }
    let Some(stored) = view.get(object.resource, object.namespace, object.name) else { return Must::AsItIs };
    let uid = |claim: &Value| text(claim, &["spec", "resourceRef", "uid"]).to_owned();
    let Some(owner) = own_reference(&stored).filter(|_| uid(&stored) == uid(claim)) else { return Must::AsItIs };
    let mut owned = claim.clone();
    match owned["metadata"]["ownerReferences"].as_array_mut() {
        Some(owners) => owners.push(owner.clone()),
        None => owned["metadata"]["ownerReferences"] = json!([owner]),
    }
    Must::Be(owned)
}

fn object_of(claim: &Value, view: &dyn View) -> Option<Arc<Value>> {
    let reference = at(claim, &["spec", "resourceRef"])?;
    let (object, _) = named(reference, text(claim, &["metadata", "namespace"]), view)?;
    (text(&object, &["metadata", "uid"]) == text(reference, &["uid"])).then_some(object)
}

/// The object of this kind and name, in a namespace or in none.
fn named(reference: &Value, namespace: &str, world: &dyn World) -> Option<(Arc<Value>, Resolved)> {
    let kind = json!({"group": text(reference, &["apiGroup"]), "version": "v1", "kind": text(reference, &["kind"])});
    let resolved = Target::read(&kind).resolve(world);
    let namespace = if resolved.namespaced { namespace } else { "" };
    let object = world.get(&resolved.resource, namespace, text(reference, &["name"]))?;
    Some((object, resolved))
}

/// A claim for an object that is there is owned by it: when that goes the claim goes, and whoever waits in line for what is no more
/// is not served. Only within a namespace: others' objects are nobody's to look for.
pub fn own(request: &mut Admission<'_>, world: &dyn World) {
    let found = at(request.object, &["spec", "resourceRef"]).and_then(|reference| {
        let is_here = ["", request.namespace].contains(&text(reference, &["namespace"]));
        named(reference, request.namespace, world).filter(|(_, resolved)| is_here && resolved.namespaced)
    });
    let Some((object, _)) = found else { return };
    let uid = text(&object, &["metadata", "uid"]);
    let reference = &mut request.object["spec"]["resourceRef"];
    if !["", uid].contains(&text(reference, &["uid"])) {
        return;
    }
    reference["uid"] = json!(uid);
    let owner = json!({
        "apiVersion": text(&object, &["apiVersion"]), "kind": text(reference, &["kind"]),
        "name": text(reference, &["name"]), "uid": uid,
    });
    let Some(metadata) = request.object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
    if let Some(owners) = owners.as_array_mut()
        && !owners.iter().any(|one| one["uid"] == owner["uid"])
    {
        owners.push(owner);
    }
}

/// A claim that was made for an object is that object's: it cannot be made to say anything else, nor be deleted before it.
pub fn check(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    if change.old.is_null() || lives(change.old, view) != Some(true) {
        return Ok(());
    }
    let leaves = change.new.is_none_or(super::claim::leaves);
    let object = object_of(change.old, view);
    let is_leaving = object.as_ref().is_some_and(|object| given(object, &["metadata", "deletionTimestamp"]).is_some());
    let name = text(change.old, &["spec", "resourceRef", "name"]);
    // Namespaces are emptied, and what nobody owns is collected, with every right there is, whoever had that begun.
    if leaves && is_leaving && change.origin.identity.is_internal() {
        return Err(Refusal::forbidden(format!(
            "it was made for {name:?}, which is still there: it goes with that, or whoever may release it lets it go"
        )));
    }
    if leaves && !is_leaving {
        return Err(Refusal::forbidden(format!(
            "it was made for {name:?}, which is there: delete that, or let it take less"
        )));
    }
    let is_changed = change.new.is_some_and(|new| {
        let label = |object| text(object, &["metadata", "labels", POLICY_LABEL]).to_owned();
        new.get("spec") != change.old.get("spec") || label(new) != label(change.old)
    });
    match is_changed && !leaves {
        true => Err(Refusal::forbidden(format!("it was made for {name:?}, and changes with it"))),
        false => Ok(()),
    }
}
