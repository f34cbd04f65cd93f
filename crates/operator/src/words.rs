//! Refusals as a webhook tells them. The API server puts in front which webhook it was.

use engine::Refused;
use families::Families;
use kinds::field_error::join;
use serde_json::{Value, json};

/// What is said instead of yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct No {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

impl No {
    pub fn forbidden(message: impl Into<String>) -> No {
        No { code: 403, reason: "Forbidden", message: message.into() }
    }

    /// Not now: whoever asks again soon may get another answer.
    pub fn not_yet(message: impl Into<String>) -> No {
        No { code: 503, reason: "ServiceUnavailable", message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> No {
        No { code: 400, reason: "BadRequest", message: message.into() }
    }

    pub fn to_status(&self) -> Value {
        json!({"status": "Failure", "code": self.code, "reason": self.reason, "message": self.message})
    }
}

/// What the engine refused, in the words of whoever refused it.
pub fn refused(refused: Refused, namespace: &str, families: &Families) -> No {
    match refused {
        Refused::Denied(denials) => {
            let words = denials.iter().map(|denial| match families.of_policy(&denial.resource) {
                Some(family) => family.words(denial).text,
                None => format!("exceeded quota: {}", denial.name),
            });
            let words: Vec<String> = words.collect();
            No::forbidden(if words.is_empty() { "exceeded quota".into() } else { words.join("; ") })
        }
        Refused::Said { refusal, .. } => No::forbidden(refusal.message),
        Refused::Unmeasurable { policy, message } => {
            No::forbidden(format!("{policy} could not be evaluated: {message}"))
        }
        Refused::Invalid(errors) => No { code: 422, reason: "Invalid", message: join(&errors) },
        Refused::NamespaceNotFound => {
            No::not_yet(format!("namespace \"{namespace}\" has not been seen yet; try again in a moment"))
        }
        Refused::NamespaceTerminating => No::forbidden(format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        )),
        Refused::DefinitionTerminating => No::forbidden("the kind of the object is being removed"),
        Refused::NoSpace => No::not_yet("there is no room left where what is granted is kept"),
        other @ (Refused::AlreadyExists
        | Refused::NotFound
        | Refused::Conflict { .. }
        | Refused::UidMismatch { .. }
        | Refused::Bug(_)) => {
            tracing::error!(?other, "a review ended in a way that it should not");
            No { code: 500, reason: "InternalError", message: format!("a bug: {other:?}") }
        }
    }
}
