//! One question to one webhook: sent, timed, answered, and what a failure means.

use std::fmt::Write as _;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;

use super::hook::Hook;
use super::matching::Shape;
use super::review::{self, Answer};
use super::{Refusal, Request};
use crate::metrics::{Metrics, WebhookOutcome};

/// Asks a webhook. None when it could not be asked and does not mind.
pub(super) async fn ask(
    hook: &Hook,
    request: &Request<'_>,
    shape: &Shape,
    object: &Value,
    mutating: bool,
    metrics: &Metrics,
) -> Result<Option<Answer>, Refusal> {
    if request.dry_run && !hook.dry_run {
        return Err(Refusal::BadRequest(format!("admission webhook {:?} does not support dry run", hook.name)));
    }
    let begun = Instant::now();
    let answer = exchange(hook, request, shape, object, mutating).await;
    let outcome = match &answer {
        Ok(answer) if answer.allowed => WebhookOutcome::Allowed,
        Ok(_) => WebhookOutcome::Denied,
        Err(_) if hook.fails_open => WebhookOutcome::Ignored,
        Err(_) => WebhookOutcome::Failed,
    };
    metrics.webhook_called(mutating, outcome, begun.elapsed());
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) => {
            let message = format!("failed calling webhook {:?}: {why}", hook.name);
            tracing::warn!(fails_open = hook.fails_open, "{message}");
            return if hook.fails_open { Ok(None) } else { Err(Refusal::Failed(message)) };
        }
    };
    if let Some(annotations) = &answer.audit_annotations {
        tracing::info!(webhook = hook.name, name = request.name, ?annotations, "audit annotations of a webhook");
    }
    if answer.allowed {
        return Ok(Some(answer));
    }
    Err(Refusal::Denied(Box::new(review::denied(&hook.name, answer.status))))
}

async fn exchange(
    hook: &Hook,
    request: &Request<'_>,
    shape: &Shape,
    object: &Value,
    mutating: bool,
) -> Result<Answer, String> {
    if let Some(broken) = &hook.broken {
        return Err(broken.clone());
    }
    let client = hook.client()?;
    let uid = uuid::Uuid::new_v4().hyphenated().to_string();
    let question = Bytes::from(review::question(&uid, request, shape, object).to_string());
    let mut url = hook.target.url();
    // Writing to a text cannot fail.
    let _ = write!(url, "?timeout={}s", hook.timeout.as_secs());
    let failed = |why: &str| format!("failed to call webhook: Post {url:?}: {why}");
    let answered = tokio::time::timeout(hook.timeout, client.post(&url, question)).await;
    let bytes = answered.map_err(|_| failed("context deadline exceeded"))?.map_err(|why| failed(&why))?;
    review::answer(&bytes, &uid, mutating).map_err(|why| format!("received invalid webhook response: {why}"))
}
