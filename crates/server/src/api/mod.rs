//! HTTP requests become verbs on objects.
//!
//! ```text
//! request ─▶ Api::call ─▶ Call (who, what, options, body) ─▶ one file a verb ─▶ core (reads: Cache, writes: sequencer)
//!                                                              └ prepare: decode, default, admit, validate
//! ```
//!
//! [`Api`] is a `tower::Service`. The listener puts it behind the guard, which authenticates and authorizes; controllers
//! inside the process reach it through [`Api::client_as`] without a socket. Either way the caller's [`Identity`] arrives in
//! the request's extensions; a request without one is refused.

mod admit;
mod backup;
mod change;
mod create;
mod definitions;
mod delete;
mod denials;
mod evict;
mod get;
#[cfg(test)]
mod limits_page;
mod list;
mod long;
mod managed;
mod meta;
mod metrics;
mod moves;
mod negotiate;
mod nonresource;
mod number;
mod openapi;
mod options;
mod patch;
mod prepare;
mod response;
mod review;
mod scale;
mod select;
mod status;
mod subresource;
mod table;
mod token;
mod update;
mod view;
mod virtuals;
mod watch;
mod yaml;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use families::{Families, Family, Origin, Plural};
use http::{HeaderMap, Method, Request, Response};
use rules::GroupResource;
use rules::cel::Foresight;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::admission::Admitter;
use crate::authn::Authenticator;
use crate::authz::Rbac;
use crate::body::{self, BODY_BYTES_MAX, BodyError};
use crate::core::{Answer, Cache, Command, ObjectKey, Write, WriteKind};
use crate::identity::Identity;
use crate::inflight::Room;
use crate::listen::RemoteAddr;
use crate::metrics::Metrics;
use crate::orgs;
use crate::registry::{Registry, Served, ServedSubresource};
use crate::request::RequestInfo;
pub use long::Long;
pub(crate) use number::{number_of, tell_number};
use options::Query;
pub(crate) use prepare::CacheWorld;
pub use review::CacheAccounts;
pub use status::{ApiError, ApiResult};

/// What the API is made of.
pub struct Parts {
    pub cache: Arc<Cache>,
    pub writes: sequencer::Handle<Command, Answer>,
    pub registry: Arc<Registry>,
    pub families: Families,
    pub rbac: Arc<Rbac>,
    /// For service account tokens and token reviews; without one both are refused.
    pub authenticator: Option<Arc<Authenticator>>,
    pub metrics: Arc<Metrics>,
    /// What only grows: events and the audit trail of organizations.
    pub journals: store::Journals,
    /// For backups, where the store can be backed up from here.
    pub maintenance: Option<store::Maintenance>,
    /// Milliseconds since 1970.
    pub clock: fn() -> i64,
    /// Cancelled when the server is to stop: watches end.
    pub closing: CancellationToken,
}

/// The API server. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Arc<Parts>,
    /// The family behind each resource whose status is a projection of the ledger.
    projected: HashMap<GroupResource, Arc<dyn Family>>,
    /// The family behind each resource whose objects are made when somebody asks.
    virtuals: HashMap<GroupResource, Arc<dyn Family>>,
    openapi: openapi::CustomDocuments,
    admission: Admitter,
    long: Long,
    /// What happens to organizations, for who follows it.
    tail: Arc<orgs::Tail>,
    trail: orgs::Trail,
    /// What organizations had told of them lately.
    budget: orgs::Budget,
    /// What commands of theirs go by.
    moment: families::orgs::moment::Moment,
    /// How they stood when that was last written down.
    inventory: orgs::inventory::Latest,
    /// Held by the one CustomResourceDefinition that is being written.
    definitions: Arc<tokio::sync::Mutex<()>>,
    /// Tells continue tokens of ours from all others.
    continues: token::Seal,
    /// Held by the one backup that is being sent.
    backups: Arc<tokio::sync::Semaphore>,
    evictions: evict::Turns,
}

/// One request about a resource.
struct Call {
    info: RequestInfo,
    query: Query,
    headers: HeaderMap,
    identity: Arc<Identity>,
    origin: Origin,
    served: Arc<Served>,
    body: Bytes,
    now_ms: i64,
    /// Where room for a large answer is to be had; none inside the process.
    room: Option<Room>,
    /// It has its turn at long work, and a thread to itself.
    has_turn: bool,
}

impl Call {
    /// The namespace objects of this request are in; empty for cluster-scoped resources.
    fn namespace(&self) -> &str {
        if self.served.namespaced { &self.info.namespace } else { "" }
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.served.storage().clone(), self.namespace(), &self.info.name)
    }

    /// A write that this request asks for.
    fn asks(&self, key: &ObjectKey, kind: WriteKind, dry_run: bool) -> Write {
        let (key, origin) = (key.clone(), self.origin.clone());
        Write { key, kind, dry_run, now_ms: self.now_ms, foresight: Foresight::Asked, origin }
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.served.resource, &self.info.name)
    }

    fn invalid(&self, name: &str, errors: &[kinds::field_error::FieldError]) -> ApiError {
        ApiError::invalid(&self.served.resource.group, &self.served.kind, name, errors)
    }

    /// The same request as one about an object of another resource.
    fn about(&self, served: Arc<Served>, name: &str) -> Call {
        Call {
            info: RequestInfo { name: name.to_owned(), ..self.info.clone() },
            query: Query::default(),
            headers: self.headers.clone(),
            identity: self.identity.clone(),
            origin: self.origin.clone(),
            served,
            body: self.body.clone(),
            now_ms: self.now_ms,
            room: self.room.clone(),
            has_turn: self.has_turn,
        }
    }

    fn user_agent(&self) -> &str {
        self.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn subresource(&self) -> ApiResult<&ServedSubresource> {
        self.served.subresource(&self.info.subresource).ok_or_else(ApiError::no_such_path)
    }
}

/// Milliseconds since 1970, from the system's clock. Where that is set back, time stands still until it has caught up, as it does in
/// the engine: what would begin in the past, a lease or an hour that is counted, would be over before it began.
pub fn system_clock() -> i64 {
    static LATEST: AtomicI64 = AtomicI64::new(i64::MIN);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    not_back(&LATEST, since.ok().and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0))
}

fn not_back(latest: &AtomicI64, now_ms: i64) -> i64 {
    latest.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
}

impl Api {
    pub fn new(parts: Parts) -> Api {
        let (mut projected, mut virtuals) = (HashMap::new(), HashMap::new());
        for family in parts.families.iter() {
            let manifest = family.manifest();
            let resources = manifest.policies.iter().chain(manifest.projected).map(Plural::resource);
            projected.extend(resources.map(|resource| (resource, family.clone())));
            for resource in manifest.virtuals {
                parts.registry.add_virtual(resource);
                virtuals.insert(GroupResource::new(resource.group, resource.resource), family.clone());
            }
        }
        let openapi = openapi::CustomDocuments::default();
        let admission = Admitter::follow(&parts.cache, &parts.registry, &parts.metrics);
        Api {
            inner: Arc::new(Inner {
                parts: Arc::new(parts),
                projected,
                virtuals,
                openapi,
                admission,
                definitions: Arc::default(),
                long: Long::new(),
                tail: Arc::default(),
                trail: orgs::Trail::default(),
                budget: orgs::Budget::default(),
                moment: families::orgs::moment::Moment::new(),
                inventory: orgs::inventory::Latest::default(),
                continues: token::Seal::new(),
                backups: Arc::new(tokio::sync::Semaphore::new(1)),
                evictions: evict::Turns::default(),
            }),
        }
    }

    pub(crate) fn shared_parts(&self) -> &Arc<Parts> {
        &self.inner.parts
    }

    pub fn parts(&self) -> &Parts {
        &self.inner.parts
    }

    pub(crate) fn trail(&self) -> &orgs::Trail {
        &self.inner.trail
    }

    pub(crate) fn budget(&self) -> &orgs::Budget {
        &self.inner.budget
    }

    /// The moment of a command of an organization.
    pub(crate) fn moment_ms(&self) -> i64 {
        self.inner.moment.now_ms((self.inner.parts.clock)())
    }

    /// Nothing is before this moment any more.
    pub(crate) fn go_on_from(&self, at_ms: i64) {
        self.inner.moment.now_ms(at_ms);
    }

    pub(crate) fn inventory(&self) -> &orgs::inventory::Latest {
        &self.inner.inventory
    }

    pub(crate) fn tail(&self) -> &Arc<orgs::Tail> {
        &self.inner.tail
    }

    /// A Kubernetes client that speaks to this server without a socket, as `identity`.
    pub fn client_as(&self, identity: Identity) -> kube::Client {
        kube::Client::new(self.service_as(identity), "default")
    }

    /// The API as one caller inside the process sees it.
    pub fn service_as<B>(&self, identity: Identity) -> impl Answering<B> + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let identity = Arc::new(identity);
        tower::ServiceExt::map_request(self.clone(), move |mut request: Request<B>| {
            request.extensions_mut().insert(Arc::clone(&identity));
            request
        })
    }

    async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let head = request.method() == Method::HEAD;
        let yaml = negotiate::wants_yaml(request.headers());
        let room = request.extensions().get::<Room>().cloned();
        let identity = request.extensions().get::<Arc<Identity>>().filter(|_| yaml).cloned();
        let number = number_of(request.headers());
        let mut response = match self.answer(request, number).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        };
        if let Some(identity) = identity {
            response = Box::pin(self.in_yaml(response, room, &identity)).await.unwrap_or_else(ApiError::into_response);
        }
        if head {
            *response.body_mut() = Body::empty();
        }
        tell_number(response.headers_mut(), number);
        response
    }

    async fn answer(&self, request: Request<Body>, number: Uuid) -> ApiResult<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let identity = parts
            .extensions
            .remove::<Arc<Identity>>()
            .ok_or_else(|| ApiError::new(http::StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"))?;
        let info = match parts.extensions.remove::<RequestInfo>() {
            Some(info) => info,
            None => {
                RequestInfo::parse(&parts.method, &parts.uri).map_err(|bad| ApiError::bad_request(bad.to_string()))?
            }
        };
        if orgs::is_ours(&info.path) {
            let room = parts.extensions.remove::<Room>();
            let head = (parts.method, parts.uri, parts.headers);
            let source = parts.extensions.remove::<RemoteAddr>().map(|remote| remote.0);
            let asked = orgs::answer((self, room, source), &self.inner.parts, head, body, identity, number);
            return Ok(Box::pin(asked).await);
        }
        let query = Query::parse(parts.uri.query())?;
        if !info.is_resource {
            return Box::pin(self.nonresource(&parts.method, &info, &query, &parts.headers, &identity)).await;
        }
        let served = self.parts().registry.resolve(&info.group, &info.version, &info.resource);
        let served = served.filter(|served| is_route(served, &info)).ok_or_else(ApiError::no_such_path)?;
        let body = body::read(body, BODY_BYTES_MAX).await.map_err(|error| match error {
            BodyError::TooLarge(limit) => ApiError::too_large(limit),
            BodyError::Slow => ApiError::timeout(error.to_string()),
            BodyError::Broken(_) => ApiError::bad_request(error.to_string()),
        })?;
        let now_ms = (self.parts().clock)();
        let room = parts.extensions.remove::<Room>();
        let origin = Origin { identity: identity.clone(), request: number.as_u128() };
        let headers = parts.headers;
        let call = Call { info, query, headers, identity, origin, served, body, now_ms, room, has_turn: false };
        // What is boxed, here and below, takes its memory only when it is asked for: a future is as large as the largest
        // within it, and the plain create of a small object is what there is most of.
        if self.is_long(&call) { Box::pin(self.dispatch_in_turn(call)).await } else { self.dispatch(call).await }
    }

    async fn dispatch(&self, call: Call) -> ApiResult<Response<Body>> {
        if !call.info.rest.is_empty() {
            return Err(ApiError::no_such_path());
        }
        if !call.info.subresource.is_empty() {
            return Box::pin(self.subresource(call)).await;
        }
        let verb = call.info.verb.clone();
        if !call.served.verbs.contains(&&*verb) {
            return Err(ApiError::method_not_allowed());
        }
        if let Some(family) = self.inner.virtuals.get(&call.served.resource) {
            return Box::pin(self.virtual_resource(&call, &**family)).await;
        }
        // Objects of a namespaced resource can be listed over all namespaces, and nothing else.
        let everywhere = call.served.namespaced && call.info.namespace.is_empty();
        match &*verb {
            "list" => Box::pin(self.list(call)).await,
            "watch" => Box::pin(self.watch(call)).await,
            _ if everywhere => Err(ApiError::method_not_allowed()),
            "get" => self.get(call),
            // Creating something with a name in the path is no route.
            "create" if !call.info.name.is_empty() => Err(ApiError::method_not_allowed()),
            "create" if !call.served.is_stored() => Box::pin(self.review(call)).await,
            "create" => self.create(call).await,
            "update" if call.info.name.is_empty() => Err(ApiError::method_not_allowed()),
            "update" => Box::pin(self.update(call)).await,
            "patch" if call.info.name.is_empty() => Err(ApiError::method_not_allowed()),
            "patch" => Box::pin(self.patch(call)).await,
            "delete" => Box::pin(self.delete(call)).await,
            "deletecollection" => Box::pin(self.delete_collection(call)).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

/// Whether the path is one of this resource. What was authorized as something in a namespace must be in that namespace:
/// a cluster-scoped resource, Namespaces included, does not exist below one.
fn is_route(served: &Served, info: &RequestInfo) -> bool {
    let own_path = info.group.is_empty() && info.resource == "namespaces";
    match (served.namespaced, info.is_within) {
        (true, within) => within || info.namespace.is_empty(),
        (false, within) => !within && (info.namespace.is_empty() || own_path),
    }
}

/// What answers requests with a body of this type.
pub trait Answering<B>:
    tower::Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<B, S> Answering<B> for S where
    S: tower::Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<B> tower::Service<Request<B>> for Api
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.handle(request.map(Body::new)).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        let latest = AtomicI64::new(i64::MIN);
        let told = [5, 9, 3, 8, 10].map(|now_ms| not_back(&latest, now_ms));
        assert_eq!(told, [5, 9, 9, 9, 10]);
    }
}
