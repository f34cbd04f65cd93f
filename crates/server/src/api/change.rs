//! What every change of a stored object goes through.
//!
//! A change is made from the object as it was read, and stored only if it still is that object. When it is not, it is made
//! again from the newer one; whoever named a resourceVersion then finds another and says so.

use std::sync::Arc;

use families::Operation;
use rules::GroupResource;
use serde_json::Value;

use super::admit::Reviewed;
use super::create::held;
use super::managed::Author;
use super::prepare::{Admitting, check_name, check_size, draft, grants, schema_errors};
use super::view::is_current;
use super::{Api, ApiError, ApiResult, Call, meta};
use crate::admission;
use crate::core::{Expect, Object, ObjectKey, Refused, WriteKind};

/// How often a change is made again because somebody else was faster. Every lost round means that another write got
/// through, so this only ends for a client that loses against dozens of others.
pub(super) const RETRIES_MAX: usize = 64;

/// A change of one stored object.
#[derive(Copy, Clone)]
pub(super) struct Change<'a> {
    pub call: &'a Call,
    pub key: &'a ObjectKey,
    /// What is written: the main resource (empty) or a part of the object.
    pub subresource: &'a str,
    pub dry_run: bool,
    /// None when the managedFields are made already.
    pub author: Option<&'a Author>,
}

impl Api {
    /// Stores what `make` makes of the object, as a reader sees it, that is stored. None when there is no such object.
    /// The warnings are those of the round that got through.
    pub(super) async fn change(
        &self,
        change: Change<'_>,
        warnings: &mut Vec<String>,
        mut make: impl FnMut(&Value, &mut Vec<String>) -> ApiResult<Value>,
    ) -> ApiResult<Option<Arc<Object>>> {
        let Change { call, key, .. } = change;
        for _ in 0..RETRIES_MAX {
            let Some(stored) = self.parts().cache.get(key) else { return Ok(None) };
            let old = self.tree(&call.served, &stored)?;
            warnings.clear();
            let new = make(&old, warnings)?;
            let changed = self.replace(&change, &stored, &old, new, warnings).await?;
            if changed.is_some() {
                return Ok(changed);
            }
        }
        Err(ApiError::modified(&key.resource, &key.name))
    }

    /// Stores a changed object. None when the stored one is no longer the one the change was made from.
    async fn replace(
        &self,
        change: &Change<'_>,
        stored: &Arc<Object>,
        old: &Value,
        mut new: Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Option<Arc<Object>>> {
        let Change { call, key, subresource, dry_run, author } = *change;
        let served = &call.served;
        meta::settle_namespace(&mut new, call.namespace())?;
        let mut errors = meta::prepare_update(&mut new, old)?;
        super::subresource::isolate(&mut new, old, served, subresource);
        self.default(served, &mut new)?;
        if subresource.is_empty() {
            served.strategy.prepare_update(&mut new, old);
        }
        let operation = if subresource == "status" { Operation::Status } else { Operation::Update };
        let admitting = Admitting { operation, subresource, key, old: Some(old), origin: &call.origin };
        self.admit(&admitting, &mut new)?;
        let reviewed = Reviewed {
            call,
            operation: admission::Operation::Update,
            key,
            subresource,
            old: Some(old),
            delete: None,
            dry_run,
        };
        // A binding was shown to webhooks as what it is.
        let is_shown = subresource != "binding";
        let tracked = new.pointer("/metadata/managedFields").cloned();
        if is_shown && self.mutate(&reviewed, &mut new, warnings).await? {
            meta::settle_namespace(&mut new, call.namespace())?;
            meta::put_back(&mut new, "managedFields", tracked)?;
            errors.extend(meta::prepare_update(&mut new, old)?);
            super::subresource::isolate(&mut new, old, served, subresource);
            if subresource.is_empty() {
                served.strategy.prepare_update(&mut new, old);
            }
            check_name(call, &new)?;
            self.admit(&admitting, &mut new)?;
        }
        self.check_moves(call, key, Some(old), Some(&new))?;
        let reservation = self.allocate(call, key, subresource, &mut new)?;
        // Being put on a node is no wish of the pod's owner, and a status is nobody's wish.
        if served.strategy.counts_generations() && !matches!(subresource, "binding" | "status") {
            meta::count_generation(&mut new, old, served.strategy.counts_metadata())?;
        }
        errors.extend(meta::validate(&new, served));
        errors.extend(schema_errors(served, &new, Some(old)));
        errors.extend(match subresource {
            "" => {
                let mut errors = served.strategy.validate(&new);
                errors.extend(served.strategy.validate_update(&new, old));
                errors
            }
            subresource => served.strategy.validate_subresource(subresource, &new, old),
        });
        errors.extend(self.family_errors(&admitting, &mut new, warnings));
        if !errors.is_empty() {
            return Err(call.invalid(&key.name, &errors));
        }
        warnings.extend(served.strategy.warnings(&new, Some(old)));
        if let Some(kind) = grants(key) {
            Box::pin(self.check_grant(kind, call, key, Some(old), &new)).await?;
        }
        if let Some(author) = author {
            kinds::apply::updated(old, &mut new, &author.writer(call, subresource));
        }
        meta::metadata(&mut new)?.insert("resourceVersion".into(), meta::text(old, "resourceVersion").into());
        if is_shown {
            self.ask_webhooks(&reviewed, &new, warnings).await?;
        }
        // Written again under the version that is the stored one by now: that is how a storage version is migrated.
        let turn = self.settle_definition(call, key, &mut new, Some(old)).await?;
        if new == *old && is_current(served, stored) {
            return Ok(Some(stored.clone()));
        }
        let finished = is_finished(&new, old);
        let expect = Expect { revision: Some(stored.revision), uid: Some(stored.uid) };
        let draft = draft(served, new, None)?;
        check_size(&draft, Some(stored))?;
        let kind = if finished {
            WriteKind::Delete { expect, last: Some(draft) }
        } else {
            WriteKind::Update { draft, expect, status: subresource == "status" }
        };
        match self.submit_holding(call.asks(key, kind, dry_run), held(reservation, turn)).await? {
            Ok(written) => Ok(Some(written.object)),
            Err(Refused::Conflict { .. } | Refused::UidMismatch { .. }) => Ok(None),
            Err(refused) => Err(self.refused(call, key, refused)),
        }
    }
}

/// Refuses a change that was made for another object of the same name.
pub(super) fn check_uid(resource: &GroupResource, name: &str, new: &Value, old: &Value) -> ApiResult<()> {
    let (given, stored) = (meta::text(new, "uid"), meta::text(old, "uid"));
    if given.is_empty() || given == stored {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
    Err(ApiError::conflict(resource, name, &why))
}

/// Refuses a change that says which version it was made from where another is stored.
pub(super) fn check_version(key: &ObjectKey, new: &Value, old: &Value) -> ApiResult<()> {
    match meta::text(new, "resourceVersion") {
        "" | "0" => Ok(()),
        version if version == meta::text(old, "resourceVersion") => Ok(()),
        _ => Err(ApiError::modified(&key.resource, &key.name)),
    }
}

/// Whether a deleted object has lost what kept it: its last finalizer.
fn is_finished(new: &Value, old: &Value) -> bool {
    let grace = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let namespace_finalizers = match new.get("kind").and_then(Value::as_str) {
        Some("Namespace") if new.get("apiVersion").and_then(Value::as_str) == Some("v1") => {
            new.pointer("/spec/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
        }
        _ => 0,
    };
    meta::is_set(new, "deletionTimestamp")
        && meta::finalizers(new).is_empty()
        && grace == 0
        && namespace_finalizers == 0
}
