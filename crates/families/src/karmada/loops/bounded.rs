//! How much of an answer of a member is read: a member says what it likes, and for as long as it likes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::TryFutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use kube::client::Body as Asked;
use tower::{BoxError, Layer, Service};

/// Bytes of one answer, and of one line of a watch. A page of large objects has room in it.
const BYTES_MAX: usize = 256 << 20;

/// Reads no more than that of each answer.
pub struct Bounded;

impl<S> Layer<S> for Bounded {
    type Service = Reads<S>;

    fn layer(&self, inner: S) -> Reads<S> {
        Reads { inner, bytes_max: BYTES_MAX }
    }
}

pub struct Reads<S> {
    inner: S,
    bytes_max: usize,
}

impl<S, B> Service<Request<Asked>> for Reads<S>
where
    S: Service<Request<Asked>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: Body + Send + 'static,
{
    type Response = Response<Answer<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Asked>) -> Self::Future {
        let query = request.uri().query().unwrap_or("");
        let is_watch = query.split('&').any(|one| one.starts_with("watch="));
        let left = self.bytes_max;
        let bounded = move |body: B| Answer { body: Box::pin(body), is_watch, left, bytes_max: left };
        Box::pin(self.inner.call(request).map_ok(move |response| response.map(bounded)))
    }
}

/// An answer that ends with an error where it does not end in time.
pub struct Answer<B> {
    body: Pin<Box<B>>,
    /// A watch goes on for ever, line by line.
    is_watch: bool,
    left: usize,
    bytes_max: usize,
}

impl<B> Body for Answer<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(self.body.as_mut().poll_frame(context)) {
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
        Api::all(ClientBuilder::new(Reads { inner: service, bytes_max: 4096 }, "default").build())
    }

    async fn watched(member: &Api<ConfigMap>) -> Vec<kube::Result<()>> {
        let changes = member.watch(&WatchParams::default(), "0").await.expect("a watch");
        changes.map(|change| change.map(drop)).collect().await
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
