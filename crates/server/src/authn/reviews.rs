//! TokenRequest and TokenReview as functions of the posted object.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::service_account::{AUDIENCES_MAX, Bound, BoundKind, EXPIRATION_SECONDS_DEFAULT, Mint, TokenRequestError};
use super::{Accounts, Authenticator, TokenSigner};

/// Why a TokenRequest is refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// 422, or 500 for a key that does not sign.
    #[error(transparent)]
    Token(#[from] TokenRequestError),
    #[error("spec.expirationSeconds: Invalid value: must be a whole number of seconds")]
    Seconds,
    #[error("cannot bind token for serviceaccount {name:?} to type {kind} with apiVersion {api_version:?}")]
    BoundKind { name: String, kind: String, api_version: String },
    #[error("cannot bind token for serviceaccount {name:?} to pod running with different serviceaccount name.")]
    BoundAccount { name: String },
    /// 404.
    #[error("{resource} {name:?} not found")]
    BoundNotFound { resource: &'static str, name: String },
    /// 409.
    #[error(
        "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted and then recreated"
    )]
    BoundUid { given: String },
}

/// Answers POST …/serviceaccounts/NAME/token for an account with this uid. `id` becomes the token's own.
pub fn token_request(
    signer: &TokenSigner,
    accounts: &dyn Accounts,
    account: (&str, &str, &str),
    request: &Value,
    now: u64,
    id: &str,
) -> Result<Value, RequestError> {
    let (namespace, name, uid) = account;
    let spec = &request["spec"];
    let audiences: Vec<String> = strings(&spec["audiences"]);
    let expiration_seconds = match &spec["expirationSeconds"] {
        Value::Null => None,
        given => Some(given.as_u64().ok_or(RequestError::Seconds)?),
    };
    let bound = bound(accounts, namespace, name, &spec["boundObjectRef"])?;
    let mint = Mint { namespace, name, uid, audiences: &audiences, expiration_seconds, bound: bound.as_ref() };
    let (token, expires) = signer.mint(&mint, now, id)?;
    let expires = i64::try_from(expires).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let mut answer = request.as_object().cloned().unwrap_or_default();
    answer.insert("metadata".into(), json!({"name": name, "namespace": namespace}));
    let mut shown = spec.as_object().cloned().unwrap_or_default();
    shown.insert(
        "audiences".into(),
        json!(if audiences.is_empty() { vec![signer.issuer().to_owned()] } else { audiences }),
    );
    shown.entry("expirationSeconds").or_insert(json!(EXPIRATION_SECONDS_DEFAULT));
    answer.insert("spec".into(), Value::Object(shown));
    answer.insert("status".into(), json!({"token": token, "expirationTimestamp": expires.map(|at| at.to_string())}));
    Ok(Value::Object(answer))
}

fn bound(
    accounts: &dyn Accounts,
    namespace: &str,
    account: &str,
    reference: &Value,
) -> Result<Option<Bound>, RequestError> {
    if reference.is_null() {
        return Ok(None);
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    let (kind, api_version, name, given) = (text("kind"), text("apiVersion"), text("name"), text("uid"));
    let (kind, resource, namespace) = match (api_version.as_str(), kind.as_str()) {
        ("v1", "Pod") => (BoundKind::Pod, "pods", namespace),
        ("v1", "Secret") => (BoundKind::Secret, "secrets", namespace),
        ("v1", "Node") => (BoundKind::Node, "nodes", ""),
        _ => return Err(RequestError::BoundKind { name: account.to_owned(), kind, api_version }),
    };
    let Some(uid) = accounts.bound_uid(kind, namespace, &name) else {
        return Err(RequestError::BoundNotFound { resource, name });
    };
    // A token would outlive, or die with, what somebody else runs.
    if kind == BoundKind::Pod && accounts.pod_account(namespace, &name).as_deref() != Some(account) {
        return Err(RequestError::BoundAccount { name: account.to_owned() });
    }
    if !given.is_empty() && given != uid {
        return Err(RequestError::BoundUid { given });
    }
    Ok(Some(Bound { kind, name, uid }))
}

/// Answers POST tokenreviews: whose token is it, if it is good for one of the audiences asked for.
pub fn token_review(authenticator: &Authenticator, review: &Value, now: u64) -> Value {
    let spec = &review["spec"];
    let audiences = strings(&spec["audiences"]);
    let token = spec["token"].as_str().unwrap_or_default();
    let own = [authenticator.signer().issuer().to_owned()];
    // The answer names the audiences that are both asked for and meant by the token.
    let asked = if audiences.is_empty() { &own[..] } else { &audiences[..audiences.len().min(AUDIENCES_MAX)] };
    let status = match authenticator.authenticate_token(token, asked, now) {
        Ok(identity) => {
            let meant = |audience: &&String| {
                authenticator.authenticate_token(token, std::slice::from_ref(*audience), now).is_ok()
            };
            let answered: Vec<&String> = asked.iter().filter(meant).collect();
            json!({"authenticated": true, "user": identity.user_info(), "audiences": answered})
        }
        Err(_) => json!({"authenticated": false, "user": {}, "error": "invalid bearer token"}),
    };
    let mut answer = review.as_object().cloned().unwrap_or_default();
    answer.entry("metadata").or_insert_with(|| json!({}));
    answer.insert("status".into(), status);
    Value::Object(answer)
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
