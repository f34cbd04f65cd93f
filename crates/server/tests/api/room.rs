//! Answers that hold much until they are read: who makes them is charged first, and as long as they are held.

use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use server::identity::Identity;
use server::inflight::{InFlight, Limits, Room, Taken};
use tower::Service;

use crate::harness::{Server, request};

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
/// Of eight times as much a user has this.
const PART: usize = 4 << 20;

struct Reader {
    in_flight: Arc<InFlight>,
    identity: Arc<Identity>,
}

impl Reader {
    fn new() -> Reader {
        let in_flight = Arc::new(InFlight::new(Limits { answer_bytes: 8 * PART, ..Limits::default() }));
        Reader { in_flight, identity: Arc::new(Identity::authenticated("reader", [""; 0])) }
    }

    async fn get(&self, server: &Server, line: &str) -> Response<Body> {
        let mut request: Request<Body> = request(line, "");
        request.extensions_mut().insert(Room::new(Arc::clone(&self.in_flight), Arc::clone(&self.identity)));
        server.admin().call(request).await.expect("infallible")
    }

    fn has_all_its_room(&self) -> bool {
        self.in_flight.piece(&self.identity, PART).is_ok()
    }
}

async fn filled() -> Server {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    for name in ["one", "two", "three"] {
        let long = "x".repeat(100_000);
        let body = format!(r#"{{"metadata": {{"name": "{name}"}}, "data": {{"a": "{long}"}}}}"#);
        server.play(&format!("POST {MAPS}\n  {body}\n  201")).await;
    }
    server
}

#[tokio::test]
async fn room_for_an_answer_in_yaml_is_taken_before_it_is_made() {
    let (server, reader) = (filled().await, Reader::new());
    let answer = reader.get(&server, &format!("GET {MAPS} Accept:application/yaml")).await;
    assert_eq!(answer.headers()["content-type"], "application/yaml");
    assert!(answer.extensions().get::<Taken>().is_some() && !reader.has_all_its_room());
    drop(answer);
    assert!(reader.has_all_its_room());
    let small =
        reader.get(&server, &format!("GET {MAPS}?fieldSelector=metadata.name%3Dnone Accept:application/yaml")).await;
    assert!(small.extensions().get::<Taken>().is_none());
    let text = small.into_body().collect().await.expect("a body").to_bytes();
    assert!(text.starts_with(b"apiVersion: v1\n") || text.starts_with(b"kind: ConfigMapList\n"), "{text:?}");
}

#[tokio::test]
async fn what_a_watch_begins_with_is_charged_until_it_is_sent() {
    let (server, reader) = (filled().await, Reader::new());
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(reader.get(&server, &format!("GET {MAPS}?watch=true")).await);
    }
    assert!(!reader.has_all_its_room(), "three states are held");
    // Each object is a piece of its own; the one after them says that they were taken.
    for watch in watches {
        let mut events = watch.into_body();
        for _ in 0..3 {
            events.frame().await.expect("an event").expect("an event");
        }
        server.play(&format!("POST {MAPS}\n  {{\"metadata\": {{\"generateName\": \"n-\"}}}}\n  201")).await;
        events.frame().await.expect("an event").expect("an event");
        // The body lives on, and holds nothing.
        tokio::spawn(async move { events.frame().await });
    }
    assert!(reader.has_all_its_room());
    let later = reader.get(&server, &format!("GET {MAPS}?watch=true&resourceVersion=1")).await;
    assert!(reader.has_all_its_room(), "what follows is shared with all");
    drop(later);
}
