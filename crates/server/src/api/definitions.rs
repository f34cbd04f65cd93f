//! What is settled about a CustomResourceDefinition at the moment it is stored, and about nothing else: which names it gets.
//!
//! Two definitions may ask for one name at the same time. They are settled one after the other, each from the check to the
//! answer of its write, so that the second sees what the first got. Webhooks are asked before.

use kinds::field_error::FieldError;
use kinds::strategies::definitions::{CLEANUP, note_stored_version, unapproved};
use kinds::time;
use rules::GroupResource;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use super::{Api, ApiError, ApiResult, Call, meta};
use crate::core::ObjectKey;
use crate::registry::is_established;

/// Held while a definition is written.
pub(super) type Turn = Option<OwnedMutexGuard<()>>;

impl Api {
    /// Writes into a definition what names it gets, or refuses it. The turn has to be kept until its write is answered.
    /// Anything else that is stored needs no turn.
    pub(super) async fn settle_definition(
        &self,
        call: &Call,
        key: &ObjectKey,
        object: &mut Value,
        old: Option<&Value>,
    ) -> ApiResult<Turn> {
        if !key.resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            return Ok(None);
        }
        let turn = self.inner.definitions.clone().lock_owned().await;
        let group = object["spec"]["group"].as_str().unwrap_or_default();
        let taken = self.parts().registry.taken(group, &key.name);
        if old.is_none() {
            let mut errors: Vec<FieldError> = unapproved(object).into_iter().collect();
            if let Some((field, name)) = taken.builtin_conflict(&object["spec"]["names"]) {
                let detail = format!("the group {group:?} has it already, and it is not a custom resource");
                errors.push(FieldError::invalid(format!("spec.names.{field}"), name, detail));
            }
            if !errors.is_empty() {
                return Err(call.invalid(&key.name, &errors));
            }
        }
        taken.accept(object, old.unwrap_or(&Value::Null), &time::text(call.now_ms));
        note_stored_version(object);
        if let Some(old) = old {
            self.keep_cleanup(object, old)?;
        }
        Ok(Some(turn))
    }

    /// The finalizer that removes a definition's objects is the server's: without it they would stay, unseen and charged.
    fn keep_cleanup(&self, object: &mut Value, old: &Value) -> ApiResult<()> {
        if !meta::finalizers(old).contains(&CLEANUP) || meta::finalizers(object).contains(&CLEANUP) {
            return Ok(());
        }
        let text = |pointer: &str| old.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let resource = GroupResource::new(text("/spec/group"), text("/spec/names/plural"));
        let has_objects = || self.parts().cache.list(&resource).range("", None).next().is_some();
        let terminating = meta::is_set(old, "deletionTimestamp");
        if !terminating || (is_established(object) && has_objects()) {
            let metadata = meta::metadata(object)?;
            match metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
                Some(finalizers) => finalizers.push(CLEANUP.into()),
                None => {
                    metadata.insert("finalizers".into(), json!([CLEANUP]));
                }
            }
        }
        Ok(())
    }
}

/// The answer to a create of a kind whose definition is being deleted.
pub(super) fn terminating(resource: &GroupResource, name: &str) -> ApiError {
    ApiError::forbidden(resource, name, "create not allowed while custom resource definition is terminating")
}
