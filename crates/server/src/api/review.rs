//! Questions that are posted, answered and forgotten: who am I, may I, whose token is this; and tokens for service
//! accounts.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode};
use kinds::field_error::{FieldError, Reason};
use kinds::uid;
use rules::GroupResource;
use serde_json::Value;

use super::options::FieldValidation;
use super::prepare::Expected;
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::authn::{Accounts, BoundKind, RequestError, token_request, token_review};
use crate::authz::reviews::{self, ReviewError};
use crate::core::{Cache, ObjectKey};

impl Api {
    pub(super) async fn review(&self, call: Call) -> ApiResult<Response<Body>> {
        if call.served.resource.is("", "bindings") {
            return self.bind(call, "").await;
        }
        let review = self.decode(&call, &Expected::main(&call.served), FieldValidation::Ignore, &mut Vec::new())?;
        let (rbac, identity) = (&self.parts().rbac, &*call.identity);
        let answer = match &*call.served.resource.resource {
            "selfsubjectreviews" => Ok(reviews::self_subject_review(identity, &review)),
            "selfsubjectaccessreviews" => reviews::self_subject_access_review(rbac, identity, &review),
            "subjectaccessreviews" => reviews::subject_access_review(rbac, &review),
            "localsubjectaccessreviews" => reviews::local_subject_access_review(rbac, call.namespace(), &review),
            "selfsubjectrulesreviews" => reviews::self_subject_rules_review(rbac, identity, &review),
            "tokenreviews" => match &self.parts().authenticator {
                Some(authenticator) => Ok(token_review(authenticator, &review, seconds(call.now_ms))),
                None => return Err(ApiError::method_not_allowed()),
            },
            _ => return Err(ApiError::method_not_allowed()),
        };
        let answer = answer.map_err(|error| match error {
            ReviewError::BadRequest(why) => ApiError::bad_request(why),
            ReviewError::Invalid { field, value, detail } => {
                let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                call.invalid("", &[FieldError::new(field, Reason::Invalid, Some(value), detail)])
            }
        })?;
        Ok(response::value(StatusCode::CREATED, &answer))
    }

    /// A token for a service account.
    pub(super) fn token(&self, call: Call) -> ApiResult<Response<Body>> {
        let Some(authenticator) = &self.parts().authenticator else { return Err(ApiError::method_not_allowed()) };
        let request = self.decode(&call, &Expected::subresource(&call)?, FieldValidation::Ignore, &mut Vec::new())?;
        super::subresource::check_below(&call, &request, "TokenRequest")?;
        let account = self.parts().cache.get(&call.key()).ok_or_else(|| call.not_found())?;
        let uid = uid::text(account.uid);
        let accounts = CacheAccounts(self.parts().cache.clone());
        let id = uuid::Uuid::new_v4().hyphenated().to_string();
        let names = (call.namespace(), call.info.name.as_str(), uid.as_str());
        let answer = token_request(authenticator.signer(), &accounts, names, &request, seconds(call.now_ms), &id);
        let answer = answer.map_err(|error| match &error {
            RequestError::BoundNotFound { resource, name } => ApiError::not_found(&GroupResource::core(resource), name),
            RequestError::BoundUid { .. } => {
                ApiError::conflict(&call.served.resource, &call.info.name, &error.to_string())
            }
            _ => ApiError::bad_request(error.to_string()),
        })?;
        Ok(response::value(StatusCode::CREATED, &answer))
    }
}

fn seconds(now_ms: i64) -> u64 {
    u64::try_from(now_ms.div_euclid(1000)).unwrap_or(0)
}

/// What tokens are checked against: the objects as readers see them.
pub struct CacheAccounts(pub Arc<Cache>);

impl CacheAccounts {
    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let object = self.0.get(&ObjectKey::new(GroupResource::core(resource), namespace, name))?;
        Some(uid::text(object.uid))
    }
}

impl Accounts for CacheAccounts {
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        let object = self.0.get(&ObjectKey::new(GroupResource::core("serviceaccounts"), namespace, name))?;
        let deleted = meta::is_set(&object.value(), "deletionTimestamp");
        (!deleted).then(|| uid::text(object.uid))
    }

    fn bound_uid(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
        match kind {
            BoundKind::Pod => self.uid("pods", namespace, name),
            BoundKind::Secret => self.uid("secrets", namespace, name),
            BoundKind::Node => self.uid("nodes", "", name),
        }
    }
    fn pod_account(&self, namespace: &str, name: &str) -> Option<String> {
        let pod = self.0.get(&ObjectKey::new(GroupResource::core("pods"), namespace, name))?.value();
        let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
        Some(if account.is_empty() { "default" } else { account }.to_owned())
    }
}
