//! Lists: from memory, at one revision, page by page if asked, written without reading the objects again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use serde_json::{Map, Value, json};

use super::negotiate::Form;
use super::options::{ListOptions, Match};
use super::select::Selection;
use super::view::View;
use super::{Api, ApiError, ApiResult, Call};
use crate::core::{Cache, Listing, Object, ObjectKey};

/// How long a list waits for a revision that is not there yet; a client that knows a newer one than we do has spoken to
/// somebody else.
pub(super) const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(3);
/// Bytes of a list written in one piece. A list of any size holds this much of the answer in memory at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// The longest continue token read; ours are a namespace and a name in base64.
const TOKEN_BYTES_MAX: usize = 2048;

const TOKEN_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start \
    a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
    results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

/// Where a list goes on.
struct Token {
    /// None goes on with whatever is there now.
    revision: Option<u64>,
    after: (Arc<str>, Arc<str>),
}

/// One page of a list.
pub(super) struct Page {
    pub objects: Vec<Arc<Object>>,
    pub revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Api {
    pub(super) async fn list(&self, call: Call) -> ApiResult<Response<Body>> {
        let view = self.view(&call)?;
        let options = ListOptions::parse(&call.query, false)?;
        let selection = Selection::new(&call.served, call.namespace(), &options)?;
        let page = self.page(&call, &options, &selection).await?;
        Ok(write(self.parts().cache.clone(), view, page))
    }

    pub(super) async fn page(&self, call: &Call, options: &ListOptions, selection: &Selection) -> ApiResult<Page> {
        let cache = &self.parts().cache;
        let resource = call.served.storage();
        let token = match options.continue_at.as_str() {
            "" => None,
            _ if !options.resource_version.is_empty() && options.resource_version != "0" => {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            text => Some(Token::parse(text).ok_or_else(|| ApiError::bad_request("continue key is not valid"))?),
        };
        let listing = match &token {
            Some(Token { revision: Some(revision), after }) => cache.at(resource, *revision).ok_or_else(|| {
                let next = Token { revision: None, after: after.clone() };
                ApiError::expired_list(TOKEN_EXPIRED, Some(next.write()))
            })?,
            Some(Token { revision: None, .. }) => cache.list(resource),
            None => self.listing(call, options).await?,
        };
        let after = token.as_ref().map(|token| &token.after);
        let page = take(&listing, selection, after, options.limit);
        if page.next.is_some() {
            cache.keep_paged(resource, &listing);
        }
        Ok(page)
    }

    /// The state a list without a continue token shows.
    async fn listing(&self, call: &Call, options: &ListOptions) -> ApiResult<Listing> {
        let cache = &self.parts().cache;
        let resource = call.served.storage();
        // In a list a mistake here is one of the request, not of an object.
        let asked = parse_version(call, &options.resource_version).map_err(|error| {
            let why = error.message.split_once(" is invalid: ").map_or("", |(_, why)| why).to_owned();
            ApiError::bad_request(format!("invalid resource version: {why}"))
        })?;
        if asked == 0 {
            return Ok(cache.list(resource));
        }
        self.catch_up(asked).await?;
        let listing = cache.list(resource);
        if options.version_match != Match::Exact || listing.revision == asked {
            return Ok(listing);
        }
        match cache.at(resource, asked) {
            Some(kept) => Ok(kept),
            None => Err(ApiError::expired(format!("The resourceVersion for the provided list is too old: {asked}"))),
        }
    }

    /// Waits a little for a revision that is not there yet.
    pub(super) async fn catch_up(&self, revision: u64) -> ApiResult<()> {
        let cache = &self.parts().cache;
        if revision <= cache.revision() {
            return Ok(());
        }
        let reached = tokio::time::timeout(CATCH_UP_TIME_MAX, cache.reached(revision)).await;
        reached.map_err(|_| ApiError::too_new(revision, cache.revision()))
    }
}

/// A resourceVersion; absent is 0.
pub(super) fn parse_version(call: &Call, text: &str) -> ApiResult<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        let error = kinds::field_error::FieldError::invalid("resourceVersion", text, why);
        ApiError::invalid(&call.served.resource.group, &call.served.resource.resource, "", &[error])
    })
}

fn take(listing: &Listing, selection: &Selection, after: Option<&(Arc<str>, Arc<str>)>, limit: usize) -> Page {
    let mut page = Page { objects: Vec::new(), revision: listing.revision, next: None, remaining: None };
    // A list of one name in one namespace is a lookup.
    if let (Some(name), false, None) = (selection.name(), selection.namespace.is_empty(), after) {
        let place = (selection.namespace.as_str().into(), name.into());
        page.objects.extend(listing.objects.get(&place).filter(|object| selection.accepts(object)).cloned());
        return page;
    }
    let mut rest = listing.range(&selection.namespace, after).filter(|object| selection.accepts(object));
    if limit == 0 {
        page.objects.extend(rest.cloned());
        return page;
    }
    page.objects.extend(rest.by_ref().take(limit).cloned());
    if rest.next().is_some() {
        if let Some(last) = page.objects.last() {
            let after = (last.key.namespace.clone(), last.key.name.clone());
            page.next = Some(Token { revision: Some(listing.revision), after }.write());
        }
        // Kubernetes counts the rest only where counting needs no filter.
        if selection.is_everything() {
            page.remaining = Some(rest.count() + 1);
        }
    }
    page
}

impl Page {
    fn metadata(&self) -> Value {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), json!(self.revision.to_string()));
        if let Some(next) = &self.next {
            metadata.insert("continue".into(), json!(next));
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".into(), json!(remaining));
        }
        Value::Object(metadata)
    }
}

/// The answer, written in pieces as the client takes them.
pub(super) fn write(cache: Arc<Cache>, view: View, page: Page) -> Response<Body> {
    let metadata = page.metadata();
    let head = match view.form {
        Form::Object => format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            json!(view.served.list_kind),
            json!(view.served.api_version())
        ),
        Form::Metadata => format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata},\"items\":["
        ),
        Form::Table => format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata},\"columnDefinitions\":{},\"rows\":[",
            view.columns()
        ),
    };
    let mut pieces = Pieces { cache, view, objects: page.objects, at: 0, head: Some(head), done: false };
    let first = pieces.next().unwrap_or_default();
    let mut response = if pieces.done {
        Response::new(Body::from(first))
    } else {
        let stream = futures::stream::iter(std::iter::once(first).chain(pieces).map(Ok::<_, std::convert::Infallible>));
        Response::new(Body::from_stream(stream))
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

struct Pieces {
    cache: Arc<Cache>,
    view: View,
    objects: Vec<Arc<Object>>,
    at: usize,
    head: Option<String>,
    done: bool,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = self.head.take().map(String::into_bytes).unwrap_or_default();
        while let Some(object) = self.objects.get(self.at) {
            if self.at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&self.view.item(&self.cache, object));
            self.at += 1;
            if out.len() >= CHUNK_BYTES {
                return Some(out.into());
            }
        }
        self.done = true;
        out.extend_from_slice(b"]}");
        Some(out.into())
    }
}

impl Token {
    fn write(&self) -> String {
        let (namespace, name) = &self.after;
        let revision = self.revision.map_or(json!(-1), |revision| json!(revision));
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{namespace}/{name}")});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn parse(text: &str) -> Option<Token> {
        if text.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        if token["v"] != "meta.k8s.io/v1" {
            return None;
        }
        let (namespace, name) = token["start"].as_str()?.split_once('/')?;
        let revision = match token["rv"].as_i64()? {
            -1 => None,
            revision => Some(u64::try_from(revision).ok()?),
        };
        Some(Token { revision, after: (namespace.into(), name.into()) })
    }
}

/// Everything of a selection, for verbs that walk over objects.
pub(super) fn keys(page: &Page) -> Vec<ObjectKey> {
    page.objects.iter().map(|object| object.key.clone()).collect()
}
