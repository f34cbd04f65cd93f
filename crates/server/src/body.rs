//! Reading a request's body without trusting its length.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// The largest body we read. Kubernetes' limit: etcd cannot store an object much larger than half of it.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// How long a body may take. A slow sender holds a seat meanwhile.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// What of a body that is too large is read and dropped before it is refused: clients that send before they listen would
/// otherwise lose the answer with the connection. Beyond that, and beyond this time, they do.
pub const DROPPED_BYTES_MAX: usize = 32 * 1024 * 1024;
pub const DROPPED_TIME_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// 413.
    #[error("Request entity is too large: limit is {0}")]
    TooLarge(usize),
    /// 408.
    #[error("the request body did not arrive in time")]
    Slow,
    /// The client went away or broke the protocol; 400 if anybody is left to read it.
    #[error("the request body cannot be read: {0}")]
    Broken(String),
}

/// The whole body, if it is at most `limit` bytes.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let mut body = body;
    let announced = body.size_hint().lower();
    if announced > u64::try_from(limit).unwrap_or(u64::MAX) {
        drop_rest(&mut body, DROPPED_BYTES_MAX, DROPPED_TIME_MAX).await;
        return Err(BodyError::TooLarge(limit));
    }
    match tokio::time::timeout(BODY_TIME_MAX, Limited::new(&mut body, limit).collect()).await {
        Err(_) => Err(BodyError::Slow),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            drop_rest(&mut body, DROPPED_BYTES_MAX, DROPPED_TIME_MAX).await;
            Err(BodyError::TooLarge(limit))
        }
        Ok(Err(error)) => Err(BodyError::Broken(error.to_string())),
    }
}

/// Reads on without keeping anything, so much and so long at the most.
pub(crate) async fn drop_rest(body: &mut Body, bytes_max: usize, time_max: Duration) {
    let reading = async {
        let mut dropped = 0;
        while let Some(Ok(frame)) = body.frame().await {
            dropped += frame.data_ref().map_or(0, Bytes::len);
            if dropped > bytes_max {
                return;
            }
        }
    };
    // A sender that takes longer is left to itself.
    let _ = tokio::time::timeout(time_max, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded_whether_announced_or_not() {
        assert_eq!(read(Body::from("abc"), 3).await.expect("fits"), "abc");
        assert!(matches!(read(Body::from("abcd"), 3).await, Err(BodyError::TooLarge(3))));
        let chunks = futures::stream::iter((0..10).map(|_| Ok::<_, std::io::Error>("ab")));
        assert!(matches!(read(Body::from_stream(chunks), 3).await, Err(BodyError::TooLarge(3))));
        let broken = futures::stream::iter([Ok("ab"), Err(std::io::Error::other("gone"))]);
        assert!(matches!(read(Body::from_stream(broken), 3).await, Err(BodyError::Broken(_))));
    }
}
