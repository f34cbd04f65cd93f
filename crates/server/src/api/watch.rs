//! Watches: the present state (if asked), then every change, as lines of JSON until somebody ends it.
//!
//! A watcher holds a position in the history of its resource and little else: the few events that it was handed, or one large
//! one. One that reads slower than changes come falls out of the history's end and is told so with a 410: the memory a
//! watcher can take is bounded by what is kept for all of them. The present state that it asks for first is another matter. That it holds as a list does, and so it is
//! charged for it as a list is, and has to take it in a list's time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, header};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::list::parse_version;
use super::long::{LONG_BYTES_MIN, occupy};
use super::negotiate::Form;
use super::options::ListOptions;
use super::select::Selection;
use super::view::View;
use super::{Api, ApiError, ApiResult, Call};
use crate::core::event::watch_line;
use crate::core::{Cache, Event, EventKind, Object, WatchCursor, WatchPoll};
use crate::identity::Identity;
use crate::inflight::{Charge, Room, Turns};
use crate::listen::ANSWER_BYTES_PER_SECOND_MIN;

/// A watch without timeoutSeconds ends by itself after this long, plus up to as much again, so that the watchers of a
/// server do not all come back at once.
pub const WATCH_TIME_MIN: Duration = Duration::from_secs(1800);
/// The longest watch a client may ask for.
pub const WATCH_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often a watcher that allows bookmarks learns how far it has seen.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Bytes handed to the connection in one piece.
const PIECE_BYTES: usize = 16 * 1024;
/// An initial state up to this size is not charged for: as many as a user may have watches are little still.
const SMALL_STATE_BYTES: usize = 4 * 1024;
/// How long a watcher may take for its initial state at the least, as with any answer that is taken slowly.
const STATE_TIME_MIN: Duration = Duration::from_secs(60);

impl Api {
    pub(super) async fn watch(&self, call: Call) -> ApiResult<Response<Body>> {
        let view = self.view(&call)?.of_events();
        if super::negotiate::wants_yaml(&call.headers) {
            // A stream of documents that nobody reads.
            return Err(ApiError::not_acceptable(&["application/json"]));
        }
        let options = ListOptions::parse(&call.query, true)?;
        let selection = Selection::new(&call.served, call.namespace(), &options)?;
        let asked = parse_version(&options.resource_version)?;
        let cache = self.parts().cache.clone();
        let resource = call.served.storage();

        // From nothing, or from 0: the present state first. A client of WatchList says so in as many words.
        let initial = options.send_initial_events.unwrap_or(asked == 0);
        if options.send_initial_events.is_some() {
            self.catch_up(asked, options.timeout_seconds).await?;
        }
        let mut watcher = Watcher {
            initial: VecDeque::new(),
            initial_end: None,
            held: None,
            cursor: cache.watch(resource, asked),
            taken: Vec::new().into_iter(),
            seen: asked,
            cache,
            view,
            selection,
            started: false,
            bookmark_at: options.bookmarks.then(|| Instant::now() + BOOKMARK_EVERY),
            ends_at: Instant::now() + watch_time(options.timeout_seconds),
            closing: self.parts().closing.clone(),
            turns: self.inner.long.streams.clone(),
            identity: call.identity.clone(),
            over: false,
        };
        if initial || asked == 0 {
            let listing = watcher.cache.list(resource);
            if initial {
                let selection = &watcher.selection;
                let all = || listing.range(&selection.namespace, None);
                let chosen = || all().filter(|object| selection.accepts(object)).cloned().collect();
                let is_long = selection.is_long(all());
                watcher.initial = if is_long { self.at_length(&call, chosen).await? } else { chosen() };
                watcher.held = hold(&watcher.initial, call.room.as_ref()).await?;
            }
            watcher.cursor = watcher.cache.watch(resource, listing.revision);
            watcher.seen = listing.revision;
            watcher.initial_end =
                (options.send_initial_events == Some(true) && options.bookmarks).then_some(listing.revision);
        }
        let stream = futures::stream::unfold(watcher, |mut watcher| async move {
            let piece = watcher.next().await?;
            Some((Ok::<_, std::convert::Infallible>(piece), watcher))
        });
        let mut response = Response::new(Body::from_stream(stream));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }
}

/// Takes room for the present state until it is sent; a small one needs none.
async fn hold(initial: &VecDeque<Arc<Object>>, room: Option<&Room>) -> ApiResult<Option<Held>> {
    let bytes: usize = initial.iter().map(|object| object.json.len() + size_of::<Arc<Object>>()).sum();
    let Some(room) = room.filter(|_| bytes > SMALL_STATE_BYTES) else { return Ok(None) };
    let charge = room.take(bytes).await.map_err(|_| ApiError::too_many_requests())?;
    let seconds = u64::try_from(bytes).unwrap_or(u64::MAX) / ANSWER_BYTES_PER_SECOND_MIN;
    let until = Instant::now() + STATE_TIME_MIN + Duration::from_secs(seconds);
    Ok(Some(Held { until, _charge: charge }))
}

fn watch_time(asked: Option<u64>) -> Duration {
    match asked {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(WATCH_TIME_MAX),
        _ => {
            let jitter = uuid::Uuid::new_v4().as_u128() % u128::from(WATCH_TIME_MIN.as_secs());
            WATCH_TIME_MIN + Duration::from_secs(u64::try_from(jitter).unwrap_or_default())
        }
    }
}

/// What a watcher is charged until its initial state is sent, and until when it has to have taken that.
struct Held {
    until: Instant,
    _charge: Charge,
}

struct Watcher {
    /// Objects of the initial state not sent yet.
    initial: VecDeque<Arc<Object>>,
    held: Option<Held>,
    /// The revision of the bookmark that ends the initial state.
    initial_end: Option<u64>,
    cursor: WatchCursor,
    /// Changes taken from the history and not sent yet.
    taken: std::vec::IntoIter<Arc<Event>>,
    /// Every change up to here has been sent.
    seen: u64,
    cache: Arc<Cache>,
    view: View,
    selection: Selection,
    /// Something has been sent: a table names its columns only once.
    started: bool,
    bookmark_at: Option<Instant>,
    ends_at: Instant,
    closing: CancellationToken,
    /// For what is long.
    turns: Turns,
    identity: Arc<Identity>,
    over: bool,
}

impl Watcher {
    /// The next piece of the stream; none at its end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if !self.initial.is_empty() || self.initial_end.is_some() {
            if self.held.as_ref().is_some_and(|held| held.until <= Instant::now()) {
                return None;
            }
            if !self.initial.front().is_some_and(|next| self.is_long(next)) {
                return Some(self.initial_piece());
            }
            // Whose turn does not come begins again: that watch ends.
            let _turn = self.turns.take(&self.identity).await.ok()?;
            return Some(occupy(|| self.initial_piece()));
        }
        self.held = None;
        loop {
            let next = self.taken.as_slice().first();
            let piece = if next.is_some_and(|event| self.is_long_change(event)) {
                let _turn = self.turns.take(&self.identity).await.ok()?;
                occupy(|| self.piece())
            } else {
                self.piece()
            };
            if piece.is_some() {
                return piece;
            }
            // Read before the poll: if that finds nothing, nothing up to here is missing.
            let visible = self.cache.revision();
            match self.cursor.poll() {
                WatchPoll::Events(events) => {
                    self.seen = self.cursor.position();
                    self.taken = events.into_iter();
                }
                WatchPoll::TooOld => {
                    self.over = true;
                    let error = ApiError::too_old(self.cursor.position(), visible);
                    return Some(watch_line("ERROR", error.to_value().to_string().as_bytes()));
                }
                WatchPoll::Idle => {
                    self.seen = self.seen.max(visible);
                    if let Some(bookmark) = self.idle().await? {
                        return Some(bookmark);
                    }
                }
            }
        }
    }

    /// Whether an object has to be read, to choose it or to show it, and is long.
    fn is_long(&self, object: &Object) -> bool {
        self.selection.reads_long(object) || (object.json.len() > LONG_BYTES_MIN && self.view.reads(object))
    }

    /// The same of a change. An object that leaves the view is shown as it was, which has to be read whatever it was chosen by.
    fn is_long_change(&self, event: &Event) -> bool {
        let leaves = |before: &Object| self.selection.accepts(before) && !self.selection.accepts(&event.object);
        let was_long = |before: &Object| before.json.len() > LONG_BYTES_MIN && (self.is_long(before) || leaves(before));
        self.is_of_namespace(event) && (self.is_long(&event.object) || event.previous.as_deref().is_some_and(was_long))
    }

    /// Waits for something to happen: `None` ends the stream, `Some(Some)` is a bookmark that became due.
    async fn idle(&mut self) -> Option<Option<Bytes>> {
        let bookmark_at = self.bookmark_at.unwrap_or(self.ends_at);
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            () = sleep_until(self.ends_at) => None,
            () = self.cursor.changed() => Some(None),
            () = sleep_until(bookmark_at), if self.bookmark_at.is_some() => {
                self.bookmark_at = Some(Instant::now() + BOOKMARK_EVERY);
                Some(Some(self.bookmark(self.seen, false)))
            }
        }
    }

    fn bookmark(&self, revision: u64, ends_initial_events: bool) -> Bytes {
        watch_line("BOOKMARK", &self.view.bookmark(revision, ends_initial_events))
    }

    /// Some of the initial state, in one piece, and the bookmark after the last of it.
    fn initial_piece(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        let mut read = 0;
        while let Some(object) = self.initial.pop_front() {
            let shown = self.shown(&object);
            out.extend_from_slice(&watch_line("ADDED", &shown));
            read += if self.view.reads(&object) { object.json.len() } else { 0 };
            // A long one begins a piece, so that it has its turn.
            let is_long = self.initial.front().is_some_and(|next| self.is_long(next));
            if out.len() >= PIECE_BYTES || read >= LONG_BYTES_MIN || is_long {
                return out.freeze();
            }
        }
        if let Some(revision) = self.initial_end.take() {
            out.extend_from_slice(&self.bookmark(revision, true));
        }
        out.freeze()
    }

    fn shown(&mut self, object: &Object) -> Bytes {
        let first = !std::mem::replace(&mut self.started, true);
        self.view.event_object(&self.cache, object, first)
    }

    /// Lines of what was taken from the history; none when the selection wants nothing of it, or all is sent.
    fn piece(&mut self) -> Option<Bytes> {
        let everything = self.selection.is_everything();
        let mut only: Option<Bytes> = None;
        let mut out = BytesMut::new();
        while let Some(event) = self.taken.next() {
            let line = if everything && self.is_of_namespace(&event) && self.view.form == Form::Object {
                // The common watcher: one line, made once for all of them.
                if self.view.renames(&event.object) { self.line(event.kind, &event.object) } else { event.line() }
            } else {
                match self.selected_line(&event) {
                    Some(line) => line,
                    None => continue,
                }
            };
            match only.take() {
                None if out.is_empty() => only = Some(line),
                first => {
                    if out.is_empty() {
                        // One allocation a piece, of a size that comes back: growing to it would touch new pages each time.
                        out.reserve(PIECE_BYTES + line.len());
                    }
                    out.extend_from_slice(&first.unwrap_or_default());
                    out.extend_from_slice(&line);
                }
            }
            if out.len() >= PIECE_BYTES {
                break;
            }
        }
        only.or_else(|| (!out.is_empty()).then(|| out.freeze()))
    }

    fn is_of_namespace(&self, event: &Event) -> bool {
        self.selection.namespace.is_empty() || *event.object.key.namespace == *self.selection.namespace
    }

    /// What a watcher with a selector is told: an object that comes into view was added, one that leaves was deleted.
    fn selected_line(&mut self, event: &Event) -> Option<Bytes> {
        let now = self.selection.accepts(&event.object);
        let before = event.previous.as_ref().is_some_and(|previous| self.selection.accepts(previous));
        match (event.kind, before, now) {
            (EventKind::Deleted, true, _) | (EventKind::Deleted, _, true) => {
                Some(self.line(EventKind::Deleted, &event.object))
            }
            (EventKind::Deleted, false, false) | (_, false, false) => None,
            (_, false, true) => Some(self.line(EventKind::Added, &event.object)),
            (_, true, true) => Some(self.line(EventKind::Modified, &event.object)),
            (_, true, false) => {
                // As it was when last in view, at the version at which it left.
                let previous = event.previous.as_ref()?;
                let mut value = previous.value();
                value["metadata"]["resourceVersion"] = event.revision().to_string().into();
                let left = previous.said_again(event.revision(), value.to_string().into());
                Some(self.line(EventKind::Deleted, &left))
            }
        }
    }

    fn line(&mut self, kind: EventKind, object: &Object) -> Bytes {
        let shown = self.shown(object);
        watch_line(kind.name(), &shown)
    }
}
