//! DELETE: at once, in the background of a grace period, or when the last finalizer lets go.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode};
use kinds::decode::{self, Format};
use kinds::{time, uid};
use serde_json::{Value, json};

use super::admit::Reviewed;
use super::change::RETRIES_MAX;
use super::list::{Page, keys};
use super::long::LONG_BYTES_MIN;
use super::negotiate::body_format;
use super::options::{DeleteOptions, ListOptions, Propagation};
use super::prepare::draft;
use super::select::Selection;
use super::status::success;
use super::view::View;
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::admission;
use crate::core::{Expect, Object, ObjectKey, Refused, WriteKind};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a deletion came to.
pub(super) struct Deleted {
    object: Arc<Object>,
    /// False while a finalizer or a grace period keeps it.
    gone: bool,
    warnings: Vec<String>,
}

impl Api {
    pub(super) async fn delete(&self, call: Call) -> ApiResult<Response<Body>> {
        let view = self.view(&call)?;
        let options = self.delete_options(&call)?;
        let key = call.key();
        let deleted = self.delete_one(&call, &key, &options).await?;
        let code = if !deleted.gone && options.cascades { StatusCode::ACCEPTED } else { StatusCode::OK };
        if deleted.gone && !call.served.strategy.returns_deleted_object() {
            let uid = uid::text(deleted.object.uid);
            let done = success(&key.resource, &key.name, &uid).to_string();
            return Ok(response::object(code, done, &deleted.warnings));
        }
        Ok(response::object(code, view.object(&self.parts().cache, &deleted.object), &deleted.warnings))
    }

    pub(super) async fn delete_collection(&self, call: Call) -> ApiResult<Response<Body>> {
        let view = self.view(&call)?;
        let list = ListOptions::parse(&call.query, false)?;
        let options = self.delete_options(&call)?;
        let selection = Selection::new(&call.served, call.namespace(), &list)?;
        let page = self.page(&call, &list, &selection).await?;
        let is_long = page.objects.iter().any(|object| object.json.len() > LONG_BYTES_MIN);
        if call.has_turn || !is_long {
            return self.delete_all(call, view, page, &options).await;
        }
        let (api, identity) = (self.clone(), call.identity.clone());
        let call = Call { has_turn: true, ..call };
        self.in_turn(&identity, async move { api.delete_all(call, view, page, &options).await }).await
    }

    async fn delete_all(
        &self,
        call: Call,
        view: View,
        page: Page,
        options: &DeleteOptions,
    ) -> ApiResult<Response<Body>> {
        for key in keys(&page) {
            match self.delete_one(&call, &key, options).await {
                // Somebody else was faster; it is gone, which is what was asked for.
                Err(error) if error.reason == "NotFound" => {}
                other => {
                    other?;
                }
            }
        }
        Ok(self.write(&call, view, page))
    }

    fn delete_options(&self, call: &Call) -> ApiResult<DeleteOptions> {
        if call.body.is_empty() {
            return DeleteOptions::parse(&call.query, &Value::Null);
        }
        let facts = kinds::facts::facts();
        let ty =
            facts.kind("meta.k8s.io", "v1", "DeleteOptions").ok_or_else(|| ApiError::internal("no DeleteOptions"))?;
        let unreadable = |why: String| {
            ApiError::bad_request(format!(
                "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: {why}"
            ))
        };
        // client-go sends protobuf without asking what the resource understands; a client without a body type means JSON.
        let format = if decode::is_protobuf(&call.body) { Format::Protobuf } else { body_format(&call.headers)? };
        let body =
            decode::body(format, &call.body, &facts.catalogue, ty).map_err(|error| unreadable(error.to_string()))?;
        match body.value.get("kind").and_then(Value::as_str).unwrap_or_default() {
            "" | "DeleteOptions" => DeleteOptions::parse(&call.query, &body.value),
            other => Err(unreadable(format!("{other} is not DeleteOptions"))),
        }
    }

    pub(super) async fn delete_one(&self, call: &Call, key: &ObjectKey, options: &DeleteOptions) -> ApiResult<Deleted> {
        self.delete_as(call, key, options, true).await
    }

    /// Deletes what webhooks were asked about already, as something else.
    pub(super) async fn delete_reviewed(
        &self,
        call: &Call,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> ApiResult<Deleted> {
        self.delete_as(call, key, options, false).await
    }

    async fn delete_as(
        &self,
        call: &Call,
        key: &ObjectKey,
        options: &DeleteOptions,
        is_shown: bool,
    ) -> ApiResult<Deleted> {
        let refused = |why: String| ApiError::forbidden(&key.resource, &key.name, &why);
        admission::steps::admit_delete(&key.resource, &key.name).map_err(refused)?;
        for _ in 0..RETRIES_MAX {
            let not_found = || ApiError::not_found(&key.resource, &key.name);
            let stored = self.parts().cache.get(key).ok_or_else(not_found)?;
            // What cannot be read can still be removed.
            let old = self.tree(&call.served, &stored).unwrap_or_else(|_| stored.value());
            check_preconditions(key, options, &old)?;
            self.check_moves(call, key, Some(&old), None)?;
            let mut warnings = Vec::new();
            let reviewed = Reviewed {
                call,
                operation: admission::Operation::Delete,
                key,
                subresource: "",
                old: Some(&old),
                delete: Some(options),
                dry_run: options.dry_run,
            };
            if is_shown {
                self.mutate(&reviewed, &mut Value::Null, &mut warnings).await?;
                self.ask_webhooks(&reviewed, &Value::Null, &mut warnings).await?;
            }
            let step = next_step(call, options, &old)?;
            let expect = Expect { revision: Some(stored.revision), uid: Some(stored.uid) };
            let (kind, gone) = match step {
                Step::Wait => return Ok(Deleted { object: stored, gone: false, warnings }),
                Step::Mark(new) => {
                    (WriteKind::Update { draft: draft(&call.served, new, None)?, expect, status: false }, false)
                }
                Step::Remove => (WriteKind::Delete { expect, last: None }, true),
            };
            match self.submit(call.asks(key, kind, options.dry_run)).await? {
                Ok(written) => return Ok(Deleted { object: written.object, gone, warnings }),
                Err(Refused::Conflict { .. }) => {}
                Err(refused) => return Err(self.refused(call, key, refused)),
            }
        }
        Err(ApiError::modified(&key.resource, &key.name))
    }
}

fn check_preconditions(key: &ObjectKey, options: &DeleteOptions, old: &Value) -> ApiResult<()> {
    let (uid, version) = (meta::text(old, "uid"), meta::text(old, "resourceVersion"));
    if let Some(asked) = options.uid.as_deref().filter(|asked| *asked != uid) {
        let why = format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict(&key.resource, &key.name, &why));
    }
    if let Some(asked) = options.resource_version.as_deref().filter(|asked| *asked != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({version}). The \
             object might have been modified"
        );
        return Err(ApiError::conflict(&key.resource, &key.name, &why));
    }
    Ok(())
}

enum Step {
    /// The object stays, with the deletion noted in it.
    Mark(Value),
    /// It is noted already, and nothing about it changes.
    Wait,
    Remove,
}

fn next_step(call: &Call, options: &DeleteOptions, old: &Value) -> ApiResult<Step> {
    let served = &call.served;
    let finalizers = finalizers_after(call, options, old);
    let grace = served.strategy.grace_seconds(old, options.grace_seconds).filter(|seconds| *seconds > 0);
    let is_namespace = served.resource.is("", "namespaces");
    let namespace_kept =
        is_namespace && old.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if finalizers.is_empty() && grace.is_none() && !namespace_kept {
        return Ok(Step::Remove);
    }
    let mut new = old.clone();
    let already = meta::is_set(old, "deletionTimestamp");
    let before = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let seconds = match (already, before, grace) {
        // A second deletion may shorten the grace period, never lengthen it.
        (true, Some(before), Some(grace)) => before.min(grace),
        (true, Some(before), None) if options.grace_seconds.is_none() => before,
        (_, _, grace) => grace.unwrap_or(0),
    };
    let metadata = meta::metadata(&mut new)?;
    let generation = metadata.get("generation").and_then(Value::as_i64).filter(|number| *number > 0 && !already);
    if let Some(generation) = generation {
        metadata.insert("generation".into(), generation.saturating_add(1).into());
    }
    if !already || before != Some(seconds) {
        let at = call.now_ms.saturating_add(seconds.saturating_mul(1000));
        metadata.insert("deletionTimestamp".into(), time::text(at).into());
        metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
    }
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(finalizers));
    }
    if is_namespace {
        new["status"]["phase"] = "Terminating".into();
    }
    Ok(if new == *old { Step::Wait } else { Step::Mark(new) })
}

/// What becomes of dependents is written down as a finalizer, which the garbage collector takes away when it is done.
fn finalizers_after(call: &Call, options: &DeleteOptions, old: &Value) -> Vec<String> {
    let mut finalizers: Vec<String> = meta::finalizers(old).into_iter().map(str::to_owned).collect();
    let has = |name: &str| finalizers.iter().any(|one| one == name);
    let policy = match options.propagation {
        Some(policy) => policy,
        None if has(ORPHAN) => Propagation::Orphan,
        None if has(FOREGROUND) => Propagation::Foreground,
        None if call.served.strategy.orphans_by_default() => Propagation::Orphan,
        None => Propagation::Background,
    };
    finalizers.retain(|one| one != ORPHAN && one != FOREGROUND);
    match policy {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
    }
    finalizers
}
