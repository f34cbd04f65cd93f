//! Long work: what is more than a moment's, and where it is done.
//!
//! Reading, defaulting, validating and writing a megabyte takes some hundredths of a second, during which a thread that serves
//! sockets serves none. So it is done apart from them, a few at a time, and users have their turns: whoever has a hundred such
//! requests under way waits behind himself. What is short never waits.

use std::future::Future;

use axum::body::Body;
use http::Response;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::negotiate::{self, Form};
use super::{Api, ApiError, ApiResult, Call};
use crate::identity::Identity;
use crate::inflight::Turns;

/// A body or an object that is longer than this is long work, and so are objects that are longer together.
pub(super) const LONG_BYTES_MIN: usize = 64 * 1024;

/// The turns there are.
pub struct Long {
    pub requests: Turns,
    /// For answers being sent. Apart from the others, because one that is being rewritten has a turn of those already.
    pub streams: Turns,
    /// For writes before which is counted what would be too much for their step.
    pub stagings: Turns,
}

impl Long {
    /// Requests enough to keep every processor busy while some wait for the disk; and half of them for all that is watched and
    /// listed in another form than it is stored in. The engine stages one write at a time.
    pub(super) fn new() -> Long {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Long {
            requests: Turns::new(2 * processors),
            streams: Turns::new((processors / 2).max(1)),
            stagings: Turns::new(1),
        }
    }
}

impl Api {
    pub fn long(&self) -> &Long {
        &self.inner.long
    }

    /// Whether a request is more than a moment's work.
    pub(super) fn is_long(&self, call: &Call) -> bool {
        let reads_stored = match &*call.info.verb {
            "patch" | "update" | "delete" => true,
            "get" => {
                let as_stored = matches!(negotiate::form(&call.headers), Ok(Form::Object));
                !as_stored
                    || !call.info.subresource.is_empty()
                    || self.inner.projected.contains_key(&call.served.resource)
            }
            _ => false,
        };
        let is_stored_long = || {
            let stored = self.parts().cache.get(&call.key());
            stored.is_some_and(|stored| stored.json.len() > LONG_BYTES_MIN)
        };
        call.body.len() > LONG_BYTES_MIN || (reads_stored && is_stored_long())
    }

    /// Answers on a thread of its own.
    pub(super) async fn dispatch_in_turn(&self, mut call: Call) -> ApiResult<Response<Body>> {
        let (api, identity) = (self.clone(), call.identity.clone());
        call.has_turn = true;
        self.in_turn(&identity, async move { api.dispatch(call).await }).await
    }

    /// Does long work on a thread of its own, when it is its user's turn.
    pub(super) async fn in_turn<T, Work>(&self, identity: &Identity, work: Work) -> ApiResult<T>
    where
        T: Send + 'static,
        Work: Future<Output = ApiResult<T>> + Send + 'static,
    {
        let turn = self.inner.long.requests.take(identity).await.map_err(|_| ApiError::too_many_requests())?;
        let runtime = Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            runtime.block_on(work)
        });
        done.await.map_err(ApiError::internal)?
    }

    /// Does a part of a request that turns out to be long, when it is its user's turn.
    pub(super) async fn at_length<T>(&self, call: &Call, work: impl FnOnce() -> T) -> ApiResult<T> {
        if call.has_turn {
            return Ok(work());
        }
        let turn = self.inner.long.requests.take(&call.identity).await.map_err(|_| ApiError::too_many_requests())?;
        let done = occupy(work);
        drop(turn);
        Ok(done)
    }
}

/// Runs long work where it is, and has another thread serve sockets meanwhile.
pub(super) fn occupy<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}
