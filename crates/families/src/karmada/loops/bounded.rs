//! How much of an answer of a member is read, and for how long it is waited for: a member says what it likes, and for as long as it likes;
//! and of one whose line was lost without a word nothing ever comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use kube::client::Body as Asked;
use tokio::time::{Instant, Sleep, sleep};
use tower::{BoxError, Layer, Service};

/// Bytes of one answer, and of one line of a watch. A page of large objects has room in it.
const BYTES_MAX: usize = 256 << 20;
/// How long an answer may take to begin, and each part of it after the one before. An API server waits up to 30 s for a webhook. A watch
/// may be silent for longer: it is begun anew every so often.
const SILENCE_MAX: Duration = Duration::from_secs(35);

/// Reads no more than that of each answer.
pub struct Bounded;

impl<S> Layer<S> for Bounded {
    type Service = Reads<S>;

    fn layer(&self, inner: S) -> Reads<S> {
        Reads { inner, bytes_max: BYTES_MAX, silence_max: SILENCE_MAX }
    }
}

pub struct Reads<S> {
    inner: S,
    bytes_max: usize,
    silence_max: Duration,
}

impl<S, B> Service<Request<Asked>> for Reads<S>
where
    S: Service<Request<Asked>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    B: Body + Send + 'static,
{
    type Response = Response<Answer<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Asked>) -> Self::Future {
        let query = request.uri().query().unwrap_or("");
        let is_watch = query.split('&').any(|one| one.starts_with("watch="));
        let (left, silence_max) = (self.bytes_max, self.silence_max);
        let asked = self.inner.call(request);
        Box::pin(async move {
            let answer = tokio::time::timeout(silence_max, asked).await.map_err(|_| silent(silence_max))?;
            let silence = (!is_watch).then(|| Silence { max: silence_max, end: Box::pin(sleep(silence_max)) });
            let bounded = move |body: B| Answer { body: Box::pin(body), is_watch, left, bytes_max: left, silence };
            answer.map(|answer| answer.map(bounded)).map_err(Into::into)
        })
    }
}

/// An answer that ends with an error where it does not end in time.
pub struct Answer<B> {
    body: Pin<Box<B>>,
    /// A watch goes on for ever, line by line.
    is_watch: bool,
    left: usize,
    bytes_max: usize,
    silence: Option<Silence>,
}

/// For how long nothing may come, and when that is over.
struct Silence {
    max: Duration,
    end: Pin<Box<Sleep>>,
}

fn silent(for_long: Duration) -> BoxError {
    format!("no answer within {} s", for_long.as_secs()).into()
}

impl<B> Body for Answer<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = self.body.as_mut().poll_frame(context);
        if let Some(silence) = &mut self.silence {
            match frame.is_pending() {
                true => {
                    ready!(silence.end.as_mut().poll(context));
                    return Poll::Ready(Some(Err(silent(silence.max))));
                }
                false => silence.end.as_mut().reset(Instant::now() + silence.max),
            }
        }
        let frame = match ready!(frame) {
            None => return Poll::Ready(None),
            Some(frame) => frame.map_err(Into::into)?,
        };
        let data = frame.data_ref().map_or(&[][..], |data| data);
        let line = if self.is_watch { data.iter().rposition(|byte| *byte == b'\n') } else { None };
        let left = match line {
            Some(end) => self.bytes_max.checked_sub(data.len() - end - 1),
            None => self.left.checked_sub(data.len()),
        };
        let Some(left) = left else {
            return Poll::Ready(Some(Err(format!("an answer of more than {} bytes", self.bytes_max).into())));
        };
        self.left = left;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{ListParams, WatchParams};
    use kube::client::ClientBuilder;

    use super::*;

    /// A member that says this again and again, so many times.
    fn saying(words: &'static str, times: usize) -> Api<ConfigMap> {
        let service = tower::service_fn(move |_: Request<Asked>| {
            let frame = move |_| Ok::<_, BoxError>(Frame::data(Bytes::from_static(words.as_bytes())));
            let body = http_body_util::StreamBody::new(futures::stream::iter((0..times).map(frame)));
            async move { Ok::<_, BoxError>(Response::new(body)) }
        });
        reads(service, PATIENCE)
    }

    const PATIENCE: Duration = Duration::from_secs(60);
    const BRIEFLY: Duration = Duration::from_millis(20);

    fn reads<S, B>(inner: S, silence_max: Duration) -> Api<ConfigMap>
    where
        S: Service<Request<Asked>, Response = Response<B>, Error: Into<BoxError> + 'static, Future: Send>
            + Send
            + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let reads = Reads { inner, bytes_max: 4096, silence_max };
        Api::all(ClientBuilder::new(reads, "default").build())
    }

    async fn watched(member: &Api<ConfigMap>) -> Vec<kube::Result<()>> {
        let changes = member.watch(&WatchParams::default(), "0").await.expect("a watch");
        changes.map(|change| change.map(drop)).collect().await
    }

    /// Nobody waits for ever for what was lost on the way: an answer that never begins, be it to a watch, and one that breaks off.
    #[tokio::test]
    async fn an_answer_that_never_comes_is_an_error() {
        let never =
            || tower::service_fn(|_: Request<Asked>| std::future::pending::<Result<Response<Asked>, BoxError>>());
        let breaks_off = tower::service_fn(|_: Request<Asked>| async {
            let first = futures::stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{\"kind\"")))]);
            let body = http_body_util::StreamBody::new(first.chain(futures::stream::pending()));
            Ok::<_, BoxError>(Response::new(body))
        });
        let asked = async {
            assert!(reads(never(), BRIEFLY).list(&ListParams::default()).await.is_err());
            assert!(reads(never(), BRIEFLY).watch(&WatchParams::default(), "0").await.is_err());
            assert!(reads(breaks_off, BRIEFLY).list(&ListParams::default()).await.is_err());
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("an end");
    }

    /// What never ends is an error before it is too much, and a watch may go on for ever.
    #[tokio::test]
    async fn an_answer_without_end_is_not_read_to_its_end() {
        let list = r#"{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": []}"#;
        saying(list, 1).list(&ListParams::default()).await.expect("an answer");
        assert!(saying("        \n", usize::MAX).list(&ListParams::default()).await.is_err());
        let line = "{\"type\": \"ADDED\", \"object\": {\"kind\": \"ConfigMap\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"a\"}}}\n";
        let all = watched(&saying(line, 1000)).await;
        assert!(all.len() == 1000 && all.iter().all(Result::is_ok));
        let endless = watched(&saying("        ", usize::MAX)).await;
        assert!(endless.iter().any(Result::is_err), "a line is read up to that");
    }
}
