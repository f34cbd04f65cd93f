//! `/bursar/denials`: what was denied to whom and why, in the order in which it happened, whatever became of what was denied.

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use store::{Journal, PageLimit};

use super::options::Query;
use super::{Api, ApiError, ApiResult, response};

/// Denials in one answer, unless fewer are asked for.
const PAGE_MAX: usize = 500;
const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Entries looked at for one answer; who wants more asks on from `next`.
const SEEN_MAX: usize = 20_000;

impl Api {
    /// Denials after a number, oldest first; those of one namespace where that is said.
    pub(super) async fn denials(&self, query: &Query) -> ApiResult<Response<Body>> {
        let number = |name: &str, otherwise: u64| match query.get(name) {
            None | Some("") => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| ApiError::bad_request(format!("{name} must be a number"))),
        };
        let (after, wanted) = (number("after", 0)?, number("limit", PAGE_MAX as u64)?);
        let wanted = usize::try_from(wanted).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let namespace = query.get("namespace").unwrap_or_default().to_owned();
        let journals = self.parts().journals.clone();
        let reading = move || {
            let (mut items, mut from, mut seen) = (Vec::new(), after.saturating_add(1), 0);
            let limit = PageLimit { entries: PAGE_MAX, bytes: PAGE_BYTES_MAX };
            loop {
                let page = journals.forward(Journal::DENIALS, from, limit)?;
                if page.entries.is_empty() {
                    return Ok::<_, store::StoreError>((items, None));
                }
                for entry in page.entries {
                    (seen, from) = (seen + 1, entry.sequence.saturating_add(1));
                    let Ok(mut denial) = serde_json::from_slice::<Value>(&entry.value) else { continue };
                    let place = |of: &str| denial[of]["namespace"].as_str().unwrap_or_default() == namespace;
                    if namespace.is_empty() || place("claim") || place("refused") {
                        denial["number"] = json!(entry.sequence);
                        items.push(denial);
                    }
                    if items.len() >= wanted || seen >= SEEN_MAX {
                        return Ok((items, Some(entry.sequence)));
                    }
                }
            }
        };
        let read = tokio::task::spawn_blocking(reading).await.map_err(|error| ApiError::internal(error.to_string()))?;
        let (items, next) = read.map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(response::value(StatusCode::OK, &json!({"items": items, "next": next})))
    }
}
