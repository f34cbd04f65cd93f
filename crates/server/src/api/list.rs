//! Lists: from memory, at one revision, page by page if asked, written without reading the objects again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, header};
use serde_json::{Map, Value, json};

use super::long::{LONG_BYTES_MIN, occupy};
use super::negotiate::Form;
use super::options::{ListOptions, Match};
use super::select::Selection;
use super::token::{Place, Scope, Token};
use super::view::View;
use super::{Api, ApiError, ApiResult, Call};
use crate::core::{Cache, Listing, Object, ObjectKey};
use crate::identity::Identity;
use crate::inflight::{AnswerBytes, TooMany, Turns};

/// How long a list waits for a revision that is not there yet; a client that knows a newer one than we do has spoken to
/// somebody else.
pub(super) const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(3);
/// Bytes of a list written in one piece. A list of any size holds this much of the answer in memory at a time, besides the
/// objects themselves, which it shares with everybody.
const PIECE_BYTES: usize = 32 * 1024;
/// Objects from this size on are not copied into a piece but are one.
const SHARED_BYTES_MIN: usize = 8 * 1024;

const TOKEN_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start \
    a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
    results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

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
        Ok(self.write(&call, view, page))
    }

    pub(super) async fn page(&self, call: &Call, options: &ListOptions, selection: &Selection) -> ApiResult<Page> {
        let cache = &self.parts().cache;
        let resource = call.served.storage();
        let seal = &self.inner.continues;
        let scope = Scope {
            resource,
            namespace: &selection.namespace,
            labels: &options.label_selector,
            fields: &options.field_selector,
        };
        let invalid = || ApiError::bad_request("continue key is not valid");
        let token = match options.continue_at.as_str() {
            "" => None,
            _ if !options.resource_version.is_empty() && options.resource_version != "0" => {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            text => Some(Token::parse(text).ok_or_else(invalid)?),
        };
        let expired = |after: &Place| {
            let next = Token::new(None, after.clone());
            ApiError::expired_list(TOKEN_EXPIRED, Some(next.write(seal, &scope)))
        };
        let listing = match &token {
            // Made by an earlier run, by another replica, for another list, or by the client: the place it names is as good
            // as any, but what it says about versions counts for nothing.
            Some(token) if !token.is_ours(seal, &scope) => return Err(expired(&token.after)),
            Some(Token { revision: Some(revision), after, .. }) => {
                cache.at(resource, *revision).ok_or_else(|| expired(after))?
            }
            Some(Token { revision: None, .. }) => cache.list(resource),
            None => self.listing(call, options).await?,
        };
        let after = token.as_ref().map(|token| &token.after);
        let taken = || take(&listing, selection, after, options.limit);
        let is_long = selection.is_long(listing.range(&selection.namespace, after));
        let (mut page, next) = if is_long { self.at_length(call, taken).await? } else { taken() };
        if let Some(after) = next {
            page.next = Some(Token::new(Some(listing.revision), after).write(seal, &scope));
            cache.keep_paged(&call.identity.flow(), resource, &listing);
        }
        Ok(page)
    }

    /// The state a list without a continue token shows.
    async fn listing(&self, call: &Call, options: &ListOptions) -> ApiResult<Listing> {
        let cache = &self.parts().cache;
        let resource = call.served.storage();
        let asked = parse_version(&options.resource_version)?;
        if asked == 0 {
            return Ok(cache.list(resource));
        }
        self.catch_up(asked, options.timeout_seconds).await?;
        let listing = cache.list(resource);
        if options.version_match != Match::Exact || listing.revision == asked {
            return Ok(listing);
        }
        match cache.at(resource, asked) {
            Some(kept) => Ok(kept),
            None => Err(ApiError::expired(format!("The resourceVersion for the provided list is too old: {asked}"))),
        }
    }

    /// Waits a little for a revision that is not there yet, and not beyond the time that the client gives us.
    pub(super) async fn catch_up(&self, revision: u64, seconds: Option<u64>) -> ApiResult<()> {
        let cache = &self.parts().cache;
        if revision <= cache.revision() {
            return Ok(());
        }
        let given = seconds.filter(|seconds| *seconds > 0).map_or(CATCH_UP_TIME_MAX, Duration::from_secs);
        let reached = tokio::time::timeout(given.min(CATCH_UP_TIME_MAX), cache.reached(revision)).await;
        reached.map_err(|_| ApiError::too_new(revision, cache.revision()))
    }
}

/// A resourceVersion; absent is 0. One that cannot be read is a mistake of the request, in a watch as in a list.
pub(super) fn parse_version(text: &str) -> ApiResult<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let what = if is_number { "value out of range" } else { "invalid syntax" };
        let why = format!("strconv.ParseUint: parsing {text:?}: {what}");
        let error = kinds::field_error::FieldError::invalid("resourceVersion", text, why);
        ApiError::bad_request(format!("invalid resource version: {error}"))
    })
}

/// The page, and the last object's place when there are more.
fn take(listing: &Listing, selection: &Selection, after: Option<&Place>, limit: usize) -> (Page, Option<Place>) {
    let mut page = Page { objects: Vec::new(), revision: listing.revision, next: None, remaining: None };
    // A list of one name in one namespace is a lookup.
    if let (Some(name), false, None) = (selection.name(), selection.namespace.is_empty(), after) {
        let place = (selection.namespace.as_str().into(), name.into());
        page.objects.extend(listing.objects.get(&place).filter(|object| selection.accepts(object)).cloned());
        return (page, None);
    }
    let mut rest = listing.range(&selection.namespace, after).filter(|object| selection.accepts(object));
    if limit == 0 {
        page.objects.extend(rest.cloned());
        return (page, None);
    }
    page.objects.extend(rest.by_ref().take(limit).cloned());
    let mut next = None;
    if rest.next().is_some() {
        next = page.objects.last().map(|last| (last.key.namespace.clone(), last.key.name.clone()));
        // Kubernetes counts the rest only where counting needs no filter.
        if selection.is_everything() {
            page.remaining = Some(rest.count() + 1);
        }
    }
    (page, next)
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

impl Api {
    /// The answer, written in pieces as the client takes them.
    pub(super) fn write(&self, call: &Call, view: View, page: Page) -> Response<Body> {
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
        // What the answer keeps alive until it is sent, whoever replaces or deletes the objects meanwhile.
        let bytes = page.objects.iter().map(|object| object.json.len() + size_of::<Arc<Object>>()).sum();
        let objects = page.objects.into_iter();
        let cache = self.parts().cache.clone();
        let mut pieces = Pieces { cache, view, objects, head: Some(head), large: None, read: 0, done: false };
        let first = if pieces.is_long() { None } else { pieces.next() };
        let mut response = if pieces.done {
            Response::new(Body::from(first.unwrap_or_default()))
        } else {
            let (turns, identity) = (self.inner.long.streams.clone(), call.identity.clone());
            let first = futures::stream::iter(first.map(Ok));
            Response::new(Body::from_stream(first.chain(pieces.stream(turns, identity))))
        };
        response.extensions_mut().insert(AnswerBytes(bytes));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

struct Pieces {
    cache: Arc<Cache>,
    view: View,
    /// Each is let go once it is written.
    objects: std::vec::IntoIter<Arc<Object>>,
    head: Option<String>,
    /// An object that is a piece of its own, after the one that was just made.
    large: Option<Bytes>,
    /// Bytes of objects that had to be read for the last piece.
    read: usize,
    done: bool,
}

impl Pieces {
    /// The pieces one by one. What is long has its user's turn and leaves the sockets' thread; many short ones let others
    /// have it in between. Whose turn does not come has an answer that breaks off, as on any server that is too busy.
    fn stream(self, turns: Turns, identity: Arc<Identity>) -> impl Stream<Item = Result<Bytes, TooMany>> {
        futures::stream::try_unfold(self, move |mut pieces| {
            let (turns, identity) = (turns.clone(), identity.clone());
            async move {
                if pieces.is_long() {
                    let turn = turns.take(&identity).await?;
                    let piece = occupy(|| pieces.next());
                    drop(turn);
                    return Ok(piece.map(|piece| (piece, pieces)));
                }
                if pieces.read > 0 {
                    tokio::task::yield_now().await;
                }
                Ok(pieces.next().map(|piece| (piece, pieces)))
            }
        })
    }

    /// Whether the next piece begins with an object that has to be read and is long.
    fn is_long(&self) -> bool {
        let next = self.objects.as_slice().first();
        self.large.is_none() && next.is_some_and(|next| next.json.len() > LONG_BYTES_MIN && self.view.reads(next))
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.read = 0;
        if let Some(large) = self.large.take() {
            return Some(large);
        }
        if self.done {
            return None;
        }
        let mut out = Vec::with_capacity(PIECE_BYTES + SHARED_BYTES_MIN);
        let mut begins = false;
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
            begins = true;
        }
        let mut is_first = true;
        // A long one begins a piece, so that it has its turn.
        while is_first || !self.is_long() {
            is_first = false;
            let Some(object) = self.objects.next() else {
                self.done = true;
                out.extend_from_slice(b"]}");
                return Some(out.into());
            };
            if !std::mem::take(&mut begins) {
                out.push(b',');
            }
            let item = self.view.item(&self.cache, &object);
            if self.view.reads(&object) {
                self.read += object.json.len();
            }
            if item.len() >= SHARED_BYTES_MIN {
                self.large = Some(item);
                return Some(out.into());
            }
            out.extend_from_slice(&item);
            if out.len() >= PIECE_BYTES || self.read >= LONG_BYTES_MIN {
                break;
            }
        }
        Some(out.into())
    }
}

/// Everything of a selection, for verbs that walk over objects.
pub(super) fn keys(page: &Page) -> Vec<ObjectKey> {
    page.objects.iter().map(|object| object.key.clone()).collect()
}
