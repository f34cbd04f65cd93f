//! `/bursar/backup`: the store as it was behind one commit, as a stream (docs/backup.md).

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use tokio_stream::wrappers::ReceiverStream;

use super::{Api, ApiError, ApiResult};
use crate::identity::Identity;

/// Pieces that wait for a slow reader: all the memory that a backup takes.
const PIECES: usize = 4;

impl Api {
    /// For those who run the server: it holds everything that anybody stored.
    pub(super) async fn backup(&self, identity: &Identity) -> ApiResult<Response<Body>> {
        if !identity.is_master() {
            let message = format!("forbidden: User {:?} cannot get path \"/bursar/backup\"", identity.user);
            return Err(ApiError::forbidden_as_said("", "", "", message));
        }
        let Some(maintenance) = self.parts().maintenance.clone() else {
            let message = "this server's store is not in its own folder: back it up with the tools of what holds it";
            return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message));
        };
        let Ok(permit) = self.inner.backups.clone().try_acquire_owned() else {
            let message = "another backup is being sent: one at a time";
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(5));
        };
        let (pieces, stream) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(PIECES);
        // Reads files, which is no work for a thread that others wait for.
        let taken = tokio::task::spawn_blocking(move || maintenance.backup()).await;
        let taken = taken.map_err(|error| ApiError::internal(error.to_string()))?;
        let mut backup = taken.map_err(|error| ApiError::internal(error.to_string()))?;
        tracing::info!(user = %identity.user, sequence = backup.sequence(), "sending a backup");
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            loop {
                let piece = match backup.next_piece() {
                    Ok(Some(piece)) => Ok(Bytes::from(piece)),
                    Ok(None) => return,
                    Err(error) => {
                        tracing::error!(%error, "a backup could not be read to its end");
                        Err(std::io::Error::other(error.to_string()))
                    }
                };
                let failed = piece.is_err();
                // Whoever asked may have gone.
                if pieces.blocking_send(piece).is_err() || failed {
                    return;
                }
            }
        });
        let mut response = Response::new(Body::from_stream(ReceiverStream::new(stream)));
        let binary = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, binary);
        Ok(response)
    }
}
