//! Server-side apply and the tracking of field ownership it rests on.
//!
//! Every write names a field manager. [`created`] and [`updated`] record which fields an ordinary write set;
//! [`apply`] lays a configuration over the live object, refuses where somebody else owns a field with another value,
//! takes away what its manager applied earlier and no longer does, and records the new ownership. The model is that of
//! Kubernetes' structured merge: maps are owned key by key, lists whole, as sets or item by item, as the schema says.
//!
//! ```text
//! live ──┬─ merge ─> merged ─ prune(last applied, nobody else's) ─> new ─ compare(live) ─> conflicts | managedFields
//! applied┘
//! ```
//!
//! Pure functions: the time comes in with the [`Writer`]. Start reading at [`apply`].

mod check;
mod compare;
mod conflict;
mod created;
mod cursor;
mod element;
mod fields;
mod managed;
mod merge;
mod set;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::schema::{Catalogue, TypeId};
use compare::{Changes, compare};
pub use conflict::{Conflict, Conflicts};
pub use created::{created, created_fields, created_text};
use cursor::Cursor;
use fields::{fields_of, places_of, with_named_parents};
pub use managed::{Entry, Managed, OLD_UPDATES_MANAGER, Operation, UPDATERS_MAX};
use merge::Emptied;
pub use set::FieldSet;

/// Who writes what kind of object, when.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    pub catalogue: &'a Catalogue,
    pub ty: TypeId,
    /// `v1`, `apps/v1`: the version the request was made in.
    pub api_version: &'a str,
    pub kind: &'a str,
    pub manager: &'a str,
    /// Empty for the main resource, else `status`, `scale` …
    pub subresource: &'a str,
    /// RFC 3339 in whole seconds, UTC.
    pub now: &'a str,
    /// Fields this endpoint does not write, whatever the request says (`["status"]` for the main resource of a kind with a
    /// status subresource): they are never owned through it. Dotted field names.
    pub reset: &'a [&'a str],
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// Somebody else owns a field: 409.
    #[error("{0}")]
    Conflict(Conflicts),
    /// The configuration is not one for this object: 400.
    #[error("{0}")]
    BadRequest(String),
}

/// The manager that is given the fields of an object nobody tracked before it was first applied to.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// kubectl's client-side apply leaves its last configuration here; its server-side apply may take over those fields.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Longest manager name derived from a user agent; the bound Kubernetes puts on the parameter too.
pub const MANAGER_BYTES_MAX: usize = 128;

/// Metadata that belongs to the server or names the object: never owned.
const UNOWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// The field manager of a request without a `fieldManager` parameter: the product part of its user agent.
pub fn manager_of_user_agent(user_agent: &str) -> String {
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for c in product.chars().filter(|c| !c.is_control()) {
        if manager.len() + c.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        manager.push(c);
    }
    manager
}

/// Records in `new` what an ordinary write changed. `new` may bring managedFields of its own: a list replaces the
/// stored one, an empty list stops the tracking.
pub fn updated(old: &Value, new: &mut Value, by: &Writer<'_>) {
    let requested = managed::strip_from(new);
    let stored = || Managed::of(old).unwrap_or_default();
    let mut managed = match requested {
        Some(requested) if by.subresource.is_empty() => {
            if managed::is_reset(&requested) {
                Managed::default()
            } else {
                Managed::read(&requested).ok().filter(|managed| !managed.is_empty()).unwrap_or_else(stored)
            }
        }
        _ => stored(),
    };
    // An object nobody tracked stays untracked until it is applied to.
    if managed.is_empty() {
        return;
    }
    record_update(Some(old), new, &mut managed, by);
    managed.cap();
    managed.write(new);
}

/// Applies a configuration to the live object, or makes the object when there is none. With `force`, fields of other
/// managers are taken over.
pub fn apply(live: Option<&Value>, applied: &Value, by: &Writer<'_>, force: bool) -> Result<Value, ApplyError> {
    let cursor = by.cursor();
    check_applied(cursor, applied, by)?;
    let empty = Value::Object(Map::new());
    let mut managed = live.map_or_else(Managed::default, |live| Managed::of(live).unwrap_or_default());
    let live = live.map(|live| {
        let mut live = live.clone();
        managed::strip_from(&mut live);
        live
    });
    if let Some(live) = live.as_ref().filter(|_| managed.is_empty()) {
        record_update(None, live, &mut managed, &Writer { manager: BEFORE_FIRST_APPLY, ..*by });
    }

    let mut own = Entry { fields: by.filter(fields_of(cursor, applied)), ..by.entry(Operation::Apply) };
    let last = managed.take(&own);
    let merged = merge::merge(cursor, live.as_ref(), Some(applied)).unwrap_or_else(|| empty.clone());
    let (mut new, changes) = match &last {
        Some(last) => {
            let unwanted = unwanted(cursor, &merged, &managed, applied, last);
            let without =
                |emptied| merge::remove(cursor, &merged, unwanted.root(), emptied).unwrap_or_else(|| empty.clone());
            // What lost its last item is gone from the object, but is not taken from whoever owns the place.
            (without(Emptied::Gone), compare(cursor, live.as_ref(), &without(Emptied::Null)))
        }
        None => {
            let changes = compare(cursor, live.as_ref(), &merged);
            (merged, changes)
        }
    };
    let changes = by.filter_changes(changes);
    let touched = changes.added.union(&changes.modified);
    let conflicts: Vec<(&Entry, FieldSet)> = managed
        .entries
        .iter()
        .map(|entry| (entry, entry.fields.intersection(&touched)))
        .filter(|(_, set)| !set.is_empty())
        .collect();
    if !force && !conflicts.is_empty() {
        let allowed = live.as_ref().and_then(|live| migration_allowance(cursor, live, by)).unwrap_or_default();
        let refused: Vec<(&Entry, FieldSet)> = conflicts
            .into_iter()
            .map(|(entry, set)| (entry, set.difference(&allowed)))
            .filter(|(_, set)| !set.is_empty())
            .collect();
        if !refused.is_empty() {
            return Err(ApplyError::Conflict(Conflicts::of(refused)));
        }
    }
    for entry in &mut managed.entries {
        entry.fields = std::mem::take(&mut entry.fields).difference(&touched).difference(&changes.removed);
    }

    own.fields = without_unowned(own.fields);
    let unchanged = live.as_ref() == Some(&new);
    own.time = match last {
        Some(last) if unchanged && last.fields == own.fields && last.api_version == own.api_version => last.time,
        _ => own.time,
    };
    managed.entries.push(own);
    renew_last_applied(&mut new, applied, by);
    managed.write(&mut new);
    Ok(new)
}

impl<'a> Writer<'a> {
    fn cursor(&self) -> Cursor<'a> {
        Cursor { catalogue: self.catalogue, ty: Some(self.ty) }
    }

    fn entry(&self, operation: Operation) -> Entry {
        Entry {
            manager: self.manager.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: Some(self.now.to_owned()),
            fields: FieldSet::default(),
        }
    }

    fn filter(&self, mut set: FieldSet) -> FieldSet {
        for path in self.reset {
            let path: Vec<&str> = path.split('.').collect();
            set.remove_below(&path);
        }
        set
    }

    fn filter_changes(&self, changes: Changes) -> Changes {
        Changes {
            added: self.filter(changes.added),
            modified: self.filter(changes.modified),
            removed: self.filter(changes.removed),
        }
    }
}

/// Gives what changed to the writer and takes it from everybody else.
fn record_update(old: Option<&Value>, new: &Value, managed: &mut Managed, by: &Writer<'_>) {
    let changes = by.filter_changes(compare(by.cursor(), old, new));
    let touched = changes.added.union(&changes.modified);
    for entry in &mut managed.entries {
        entry.fields = std::mem::take(&mut entry.fields).difference(&touched).difference(&changes.removed);
    }
    let fields = without_unowned(touched);
    if fields.is_empty() {
        return;
    }
    let mut own = by.entry(Operation::Update);
    let before = managed.take(&own).map(|entry| entry.fields).unwrap_or_default();
    own.fields = fields.union(&before);
    managed.entries.push(own);
}

fn without_unowned(mut set: FieldSet) -> FieldSet {
    for path in UNOWNED {
        set.remove_member(path);
    }
    set
}

fn check_applied(cursor: Cursor<'_>, applied: &Value, by: &Writer<'_>) -> Result<(), ApplyError> {
    let refuse = |why: String| Err(ApplyError::BadRequest(why));
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text(applied, "apiVersion"), text(applied, "kind"));
    // Go prints a group, version and kind with the group's slash even when the group is empty.
    let group_version_kind = |version: &str, kind: &str| {
        let slash = if version.contains('/') { "" } else { "/" };
        format!("{slash}{version}, Kind={kind}")
    };
    if version != by.api_version || kind != by.kind {
        return refuse(format!("invalid object type: {}", group_version_kind(&version, &kind)));
    }
    let metadata = applied.get("metadata").unwrap_or(&Value::Null);
    if metadata.get("managedFields").is_some_and(|entries| !entries.is_null()) {
        return refuse("metadata.managedFields must be nil".into());
    }
    let errors = check::check(cursor, applied);
    let why = match errors.as_slice() {
        [] => return Ok(()),
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    refuse(format!(
        "failed to create typed patch object ({}/{}; {}): {why}",
        text(metadata, "namespace"),
        text(metadata, "name"),
        group_version_kind(&version, &kind)
    ))
}

/// What goes: what the manager applied last time, does not apply now, and nobody else owns.
fn unwanted(cursor: Cursor<'_>, merged: &Value, others: &Managed, applied: &Value, last: &Entry) -> FieldSet {
    let take = |unwanted: &FieldSet| {
        let rest = merge::remove(cursor, merged, unwanted.root(), Emptied::Null);
        places_of(cursor, &rest.unwrap_or_else(|| Value::Object(Map::new())))
    };
    let last_set = with_named_parents(cursor, &last.fields);
    let without_last = take(&last_set);
    // Everything that is applied now or owned by others comes back, empty lists included …
    let owned = others.entries.iter().fold(places_of(cursor, applied), |owned, entry| owned.union(&entry.fields));
    let merged_set = places_of(cursor, merged);
    let kept = without_last.union(&with_named_parents(cursor, &owned));
    let pruned = take(&merged_set.clone().difference(&kept));
    // … and so does what nobody owns but was not ours to take: only what we had applied goes.
    merged_set.difference(&pruned).intersection(&last_set)
}

/// The fields `kubectl apply --server-side` may take without force: those its client-side predecessor applied and nobody
/// has changed since.
fn migration_allowance(cursor: Cursor<'_>, live: &Value, by: &Writer<'_>) -> Option<FieldSet> {
    if by.manager != "kubectl" {
        return None;
    }
    let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    let last_applied: Value = serde_json::from_str(text).ok()?;
    if last_applied.get("apiVersion")?.as_str()? != by.api_version {
        return None;
    }
    let changes = compare(cursor, Some(&last_applied), live);
    let set = fields_of(cursor, &last_applied);
    Some(set.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Keeps the annotation of client-side apply in step, so that going back to it does not undo what was applied here.
fn renew_last_applied(new: &mut Value, applied: &Value, by: &Writer<'_>) {
    if by.manager != "kubectl" {
        return;
    }
    let annotation =
        new.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations")?.get_mut(LAST_APPLIED));
    let Some(annotation) = annotation.filter(|text| text.as_str().is_some_and(|text| !text.is_empty())) else { return };
    let mut applied = applied.clone();
    if let Some(Value::Object(annotations)) = applied.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")) {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = Value::String(format!("{applied}\n"));
}
