//! `/metrics`: what the server and the families tell whoever monitors them, in Prometheus' text format.

use axum::body::Body;
use families::metrics::{Survey, TEXT_FORMAT};
use families::{BalanceLine, Balances, Family};
use http::{HeaderValue, Response, header};
use rules::GroupResource;
use sequencer::Limits;
use serde_json::Value;

use super::{Api, ApiError, ApiResult};
use crate::core::Cache;
use crate::metrics::Seen;

impl Api {
    pub(super) async fn metrics(&self) -> ApiResult<Response<Body>> {
        let api = self.clone();
        // Reads every policy and claim there is, which is no work for a thread that others wait for.
        let text = tokio::task::spawn_blocking(move || api.scrape()).await;
        let text = text.map_err(|error| ApiError::internal(error.to_string()))?;
        let mut response = Response::new(Body::from(text));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
        Ok(response)
    }

    fn scrape(&self) -> String {
        let parts = self.parts();
        let commands_waiting = Limits::default().queue.saturating_sub(parts.writes.free_places());
        let seen = Seen { cache: &parts.cache, commands_waiting };
        parts.metrics.scrape(&seen, |out| {
            for family in parts.families.iter() {
                family.sample(&CacheSurvey { cache: &parts.cache, family: &**family }, out);
            }
        })
    }
}

/// Objects as readers see them, and the balances beside them.
struct CacheSurvey<'a> {
    cache: &'a Cache,
    family: &'a dyn Family,
}

impl Balances for CacheSurvey<'_> {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        self.cache.of(policy)
    }
}

impl Survey for CacheSurvey<'_> {
    fn each(&self, resource: &GroupResource, look: &mut dyn FnMut(&Value)) {
        for object in self.cache.list(resource).range("", None) {
            let mut value = object.value();
            self.family.project(resource, &mut value, self.cache);
            look(&value);
        }
    }

    fn each_parsed(
        &self,
        resource: &GroupResource,
        make: &dyn Fn(&Value) -> families::Parsed,
        look: &mut dyn FnMut(&families::Parsed),
    ) {
        for object in self.cache.list(resource).range("", None) {
            look(&object.parsed(make));
        }
    }
}
