//! What the verbs ask of [`crate::admission`]: users' webhooks, and addresses for Services.

use serde_json::{Value, json};

use super::options::{DeleteOptions, Propagation};
use super::prepare::{Expected, fit};
use super::scale::{scale_of, set_replicas};
use super::{Api, ApiError, ApiResult, Call};
use crate::admission::{AddressError, Operation, Refusal, Request, Reservation};
use crate::core::ObjectKey;
use crate::registry::Served;

/// A write as webhooks see it.
pub(super) struct Reviewed<'a> {
    pub call: &'a Call,
    pub operation: Operation,
    pub key: &'a ObjectKey,
    pub subresource: &'a str,
    pub old: Option<&'a Value>,
    /// Set for deletions.
    pub delete: Option<&'a DeleteOptions>,
    pub dry_run: bool,
}

impl Reviewed<'_> {
    fn request<'a>(&'a self, old: Option<&'a Value>, options: &'a Value) -> Request<'a> {
        let served = &self.call.served;
        let kind = match served.subresource(self.subresource) {
            Some(sub) => [&*sub.group, &*sub.version, &*sub.kind],
            None => [&*served.resource.group, &*served.version, &*served.kind],
        };
        let is_namespace = served.resource.is("", "namespaces");
        Request {
            operation: self.operation,
            resource: &served.resource,
            version: &served.version,
            kind,
            subresource: self.subresource,
            namespace: if is_namespace { &self.key.name } else { &self.key.namespace },
            name: &self.key.name,
            identity: &self.call.identity,
            old,
            options,
            dry_run: self.dry_run,
        }
    }

    /// CreateOptions, UpdateOptions or DeleteOptions as a document.
    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        match self.delete {
            None => {
                for field in ["fieldManager", "fieldValidation"] {
                    if let Some(text) = self.call.query.get(field).filter(|text| !text.is_empty()) {
                        options[field] = text.into();
                    }
                }
            }
            Some(delete) => {
                if let Some(seconds) = delete.grace_seconds {
                    options["gracePeriodSeconds"] = seconds.into();
                }
                if let Some(propagation) = delete.propagation {
                    options["propagationPolicy"] = match propagation {
                        Propagation::Background => "Background",
                        Propagation::Foreground => "Foreground",
                        Propagation::Orphan => "Orphan",
                    }
                    .into();
                }
                for (field, given) in [("uid", &delete.uid), ("resourceVersion", &delete.resource_version)] {
                    if let Some(given) = given {
                        options["preconditions"][field] = given.as_str().into();
                    }
                }
            }
        }
        options
    }

    fn refused(&self, refusal: Refusal) -> ApiError {
        match refusal {
            Refusal::Denied(status) => ApiError::as_said(*status),
            Refusal::BadRequest(why) => ApiError::bad_request(why),
            Refusal::Forbidden(why) => ApiError::forbidden(&self.call.served.resource, &self.key.name, &why),
            Refusal::Failed(why) => ApiError::internal(why),
        }
    }
}

impl Api {
    pub(super) fn has_webhooks(&self) -> bool {
        !self.inner.admission.webhooks.is_idle()
    }

    /// Lets mutating webhooks change the object; tells whether one did. What they change is fitted and defaulted again.
    pub(super) async fn mutate(
        &self,
        write: &Reviewed<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<bool> {
        let webhooks = &self.inner.admission.webhooks;
        if webhooks.is_idle() {
            return Ok(false);
        }
        let (served, options) = (&write.call.served, write.options());
        let outcome = if write.subresource == "scale" {
            let old = write.old.map(|old| scale_of(served, old));
            let mut scale = scale_of(served, object);
            let request = write.request(old.as_ref(), &options);
            let outcome = webhooks.mutate(&request, &mut scale, &mut |value| Ok(value), warnings).await;
            if outcome == Ok(true) {
                set_replicas(served, object, &scale);
            }
            outcome
        } else {
            let request = write.request(write.old, &options);
            let mut settle = |value| self.settle(served, value);
            webhooks.mutate(&request, object, &mut settle, warnings).await
        };
        outcome.map_err(|refusal| write.refused(refusal))
    }

    /// Shows validating webhooks what is about to be stored.
    pub(super) async fn ask_webhooks(
        &self,
        write: &Reviewed<'_>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        let webhooks = &self.inner.admission.webhooks;
        if webhooks.is_idle() {
            return Ok(());
        }
        let (served, options) = (&write.call.served, write.options());
        let outcome = if write.subresource == "scale" {
            let old = write.old.map(|old| scale_of(served, old));
            webhooks.validate(&write.request(old.as_ref(), &options), &scale_of(served, object), warnings).await
        } else {
            webhooks.validate(&write.request(write.old, &options), object, warnings).await
        };
        outcome.map_err(|refusal| write.refused(refusal))
    }

    /// The same for a body that is not stored itself, as that of a binding or an eviction: it is shown to both kinds of
    /// webhooks, and comes back as they left it.
    pub(super) async fn review_body(
        &self,
        write: &Reviewed<'_>,
        mut body: Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Value> {
        let webhooks = &self.inner.admission.webhooks;
        if webhooks.is_idle() {
            return Ok(body);
        }
        let options = write.options();
        let request = write.request(None, &options);
        let mutated = webhooks.mutate(&request, &mut body, &mut |value| Ok(value), warnings).await;
        mutated.map_err(|refusal| write.refused(refusal))?;
        webhooks.validate(&request, &body, warnings).await.map_err(|refusal| write.refused(refusal))?;
        Ok(body)
    }

    fn settle(&self, served: &Served, value: Value) -> Result<Value, String> {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        if (text("kind"), text("apiVersion")) != (&*served.kind, served.api_version().as_str()) {
            return Err("the patched object is of another kind".into());
        }
        let (mut value, _) = fit(value, Vec::new(), &Expected::main(served)).map_err(|error| error.to_string())?;
        self.default(served, &mut value).map_err(|error| error.message)?;
        Ok(value)
    }

    /// Gives a Service its addresses. They are held for it while the answer is alive.
    pub(super) fn allocate(
        &self,
        call: &Call,
        key: &ObjectKey,
        subresource: &str,
        object: &mut Value,
    ) -> ApiResult<Option<Reservation>> {
        if !subresource.is_empty() || !key.resource.is("", "services") {
            return Ok(None);
        }
        let reserved = self.inner.admission.addresses.allocate(&key.namespace, &key.name, object);
        reserved.map(Some).map_err(|error| match error {
            AddressError::Invalid(errors) => call.invalid(&key.name, &errors),
            AddressError::Exhausted(why) => ApiError::internal(why),
        })
    }
}
