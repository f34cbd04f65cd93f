//! GET of one object.

use axum::body::Body;
use http::{Response, StatusCode};

use super::{Api, ApiError, ApiResult, Call, response};

impl Api {
    pub(super) fn get(&self, call: Call) -> ApiResult<Response<Body>> {
        let view = self.view(&call)?;
        // Everything in the cache is durable and nothing durable is missing from it, so that any resourceVersion up to
        // the present is satisfied by what it holds.
        if let Some(version) = call.query.get("resourceVersion").filter(|version| !version.is_empty()) {
            let asked: u64 =
                version.parse().map_err(|_| ApiError::bad_request(format!("invalid resource version {version:?}")))?;
            let current = self.parts().cache.revision();
            if asked > current {
                return Err(ApiError::too_new(asked, current));
            }
        }
        let object = self.parts().cache.get(&call.key()).ok_or_else(|| call.not_found())?;
        Ok(response::json(StatusCode::OK, view.object(&self.parts().cache, &object)))
    }
}
