//! PUT, and what every change of a stored object goes through.
//!
//! A change is made from the object as it was read, and stored only if it still is that object. When it is not, the caller
//! either hears of a conflict (it named a resourceVersion) or the change is made again from the newer object.

use std::sync::Arc;

use axum::body::Body;
use families::Operation;
use http::{Response, StatusCode};
use serde_json::Value;

use super::admit::Reviewed;
use super::create::held;
use super::managed::Author;
use super::options::WriteOptions;
use super::prepare::{Admitting, Expected, check_name, check_size, draft, grants, schema_errors};
use super::view::is_current;
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::admission;
use crate::core::{Expect, Object, ObjectKey, Refused, WriteKind};

/// How often a change is made again because somebody else was faster. Every lost round means that another write got
/// through, so this only ends for a client that loses against dozens of others.
pub(super) const RETRIES_MAX: usize = 64;

/// A change of one stored object.
pub(super) struct Edit<'a> {
    pub call: &'a Call,
    pub key: &'a ObjectKey,
    pub stored: &'a Arc<Object>,
    /// The stored object as a reader sees it.
    pub old: &'a Value,
    /// What is written: the main resource (empty) or a part of the object.
    pub subresource: &'a str,
    pub dry_run: bool,
    /// None when the managedFields are made already.
    pub author: Option<&'a Author>,
}

impl Api {
    pub(super) async fn update(&self, call: Call) -> ApiResult<Response<Body>> {
        let expected = Expected::main(&call.served);
        self.update_as(&call, &expected, "").await
    }

    pub(super) async fn update_as(
        &self,
        call: &Call,
        expected: &Expected<'_>,
        subresource: &str,
    ) -> ApiResult<Response<Body>> {
        let view = self.view(call)?;
        let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
        let key = call.key();
        let author = Author::of(call, &options);
        for _ in 0..RETRIES_MAX {
            let mut warnings = Vec::new();
            let new = self.decode(call, expected, options.field_validation, &mut warnings)?;
            check_name(call, &new)?;
            let stored = self.parts().cache.get(&key).ok_or_else(|| call.not_found())?;
            let old = self.tree(&call.served, &stored)?;
            let conditional = self.check_version(call, &new, &old)?;
            let edit = Edit {
                call,
                key: &key,
                stored: &stored,
                old: &old,
                subresource,
                dry_run: options.dry_run,
                author: Some(&author),
            };
            match self.replace(edit, new, &mut warnings).await? {
                Some(object) => {
                    let mut answer = response::json(StatusCode::OK, view.object(&self.parts().cache, &object));
                    response::warn(&mut answer, &warnings);
                    return Ok(answer);
                }
                None if conditional => break,
                None => {}
            }
        }
        Err(ApiError::modified(&key.resource, &key.name))
    }

    /// Whether the new object says which version it was made from; refused when that is not the stored one.
    pub(super) fn check_version(&self, call: &Call, new: &Value, old: &Value) -> ApiResult<bool> {
        let (resource, name) = (&call.served.resource, &call.info.name);
        let (given, stored) = (meta::text(new, "uid"), meta::text(old, "uid"));
        if !given.is_empty() && given != stored {
            let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
            return Err(ApiError::conflict(resource, name, &why));
        }
        match meta::text(new, "resourceVersion") {
            "" | "0" if call.served.strategy.allows_unconditional_update() => Ok(false),
            "" | "0" => Err(call.invalid(name, &[meta::version_required()])),
            version if version == meta::text(old, "resourceVersion") => Ok(true),
            version if version.parse::<u64>().is_err() => {
                let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
                let error = kinds::field_error::FieldError::invalid("metadata.resourceVersion", version, why);
                Err(call.invalid(name, &[error]))
            }
            _ => Err(ApiError::modified(resource, name)),
        }
    }

    /// Stores a changed object. None when the stored one is no longer the one the change was made from.
    pub(super) async fn replace(
        &self,
        edit: Edit<'_>,
        mut new: Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Option<Arc<Object>>> {
        let Edit { call, key, stored, old, subresource, dry_run, author } = edit;
        let served = &call.served;
        meta::settle_namespace(&mut new, call.namespace())?;
        let mut errors = meta::prepare_update(&mut new, old)?;
        super::subresource::isolate(&mut new, old, served, subresource);
        self.default(served, &mut new)?;
        if subresource.is_empty() {
            served.strategy.prepare_update(&mut new, old);
        }
        let operation = if subresource == "status" { Operation::Status } else { Operation::Update };
        let admitting = Admitting { operation, subresource, key, old: Some(old) };
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
        match self.submit_holding(key, kind, dry_run, call.now_ms, held(reservation, turn)).await? {
            Ok(written) => Ok(Some(written.object)),
            Err(Refused::Conflict { .. } | Refused::UidMismatch { .. }) => Ok(None),
            Err(refused) => Err(self.refused(call, key, refused)),
        }
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
