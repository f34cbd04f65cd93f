use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::core::ApiResource;
use serde_json::json;

use super::RETRIED_MAX;
use super::graph::{Graph, Seen};
use crate::resources::Found;

fn found(plural: &str) -> Arc<Found> {
    let api = ApiResource {
        group: String::new(),
        version: "v1".into(),
        api_version: "v1".into(),
        kind: plural.to_owned(),
        plural: plural.to_owned(),
    };
    Arc::new(Found { api, namespaced: true })
}

fn object(uid: &str, owner: Option<&str>) -> Box<ObjectMeta> {
    let owners = owner.map(|uid| vec![OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() }]);
    Box::new(ObjectMeta { uid: Some(uid.to_owned()), owner_references: owners, ..ObjectMeta::default() })
}

#[test]
fn only_relations_are_kept() {
    let (pods, mut graph) = (found("pods"), Graph::default());
    graph.take(Seen::Changed(pods.clone(), object("alone", None)));
    graph.take(Seen::Changed(pods.clone(), object("child", Some("parent"))));
    assert_eq!(graph.nodes.keys().collect::<Vec<_>>(), ["child"]);
    graph.take(Seen::Changed(pods, object("child", None)));
    assert!(graph.nodes.is_empty() && graph.dependents.is_empty());
}

#[test]
fn the_end_of_an_owner_brings_up_its_dependents() {
    let mut graph = Graph::default();
    graph.take(Seen::Changed(found("pods"), object("child", Some("parent"))));
    graph.pending.clear();
    graph.take(Seen::Gone("parent".to_owned()));
    assert!(graph.pending.contains("child"));
}

/// A server where no owner is found and every deletion is refused; it counts the latter.
fn refusing() -> (Client, Arc<AtomicUsize>) {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let deletes = request.method() == http::Method::DELETE;
        counted.fetch_add(usize::from(deletes), Ordering::Relaxed);
        let (code, reason) = if deletes { (403, "Forbidden") } else { (404, "NotFound") };
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": "no", "metadata": {}});
        let body = kube::client::Body::from(status.to_string().into_bytes());
        let response = http::Response::builder().status(code).body(body).expect("a response");
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    (Client::new(service, "default"), refused)
}

#[tokio::test]
async fn a_refused_deletion_is_not_tried_with_every_event() {
    let (client, refused) = refusing();
    let (pods, mut graph) = (found("pods"), Graph::default());
    graph.watched.push(pods.clone());
    let held = |uid: String| {
        let owner = OwnerReference {
            uid: "gone".into(),
            name: "gone".into(),
            kind: "pods".into(),
            api_version: "v1".into(),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            uid: Some(uid.clone()),
            name: Some(uid),
            namespace: Some("n".into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Box::new(metadata)
    };
    for at in 0..50 {
        graph.take(Seen::Changed(pods.clone(), held(format!("held-{at}"))));
    }
    graph.work(&client).await;
    assert_eq!(refused.load(Ordering::Relaxed), 50, "each is tried once");
    for at in 0..100 {
        graph.take(Seen::Changed(pods.clone(), object(&format!("other-{at}"), None)));
        graph.take(Seen::Listing(pods.clone()));
        for at in 0..50 {
            let (_, shown) = graph.listings.last_mut().expect("being listed");
            shown.insert(format!("held-{at}"));
        }
        graph.take(Seen::Listed(pods.clone()));
        graph.work(&client).await;
    }
    assert_eq!(refused.load(Ordering::Relaxed), 50, "nothing has changed about them");
    // What is due is tried a few at a time.
    let due = graph.resting.take_due(Instant::now() + Duration::from_secs(1), RETRIED_MAX);
    assert_eq!(due.len(), RETRIED_MAX);
    graph.pending.extend(due);
    graph.take(Seen::Changed(pods, held("held-7".into())));
    graph.work(&client).await;
    assert!(refused.load(Ordering::Relaxed) <= 50 + RETRIED_MAX + 1, "and what has changed, at once");
}

#[test]
fn nothing_is_owned_from_another_namespace() {
    let mut graph = Graph::default();
    let within = |namespace: &str, uid: &str, owner: Option<&str>| {
        let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
        Box::new(ObjectMeta { namespace, deletion_timestamp: None, ..*object(uid, owner) })
    };
    for (namespace, uid, owner) in [
        ("a", "mine", Some("root")),
        ("a", "child", Some("mine")),
        ("b", "stranger", Some("mine")),
        ("", "wide", Some("mine")),
        ("", "cluster", Some("root")),
        ("b", "below", Some("cluster")),
    ] {
        graph.take(Seen::Changed(found("pods"), within(namespace, uid, owner)));
    }
    let owned = |uid: &str| graph.owned(uid, &graph.nodes[uid]).map(|(uid, _)| uid.as_str()).collect::<Vec<_>>();
    assert_eq!(owned("mine"), ["child"]);
    assert_eq!(owned("cluster"), ["below"]);
}

#[test]
fn what_a_new_listing_does_not_show_has_gone() {
    let (pods, sets, mut graph) = (found("pods"), found("sets"), Graph::default());
    graph.take(Seen::Changed(sets.clone(), object("parent", Some("grandparent"))));
    graph.take(Seen::Changed(pods.clone(), object("stays", Some("parent"))));
    graph.take(Seen::Changed(pods.clone(), object("went", Some("parent"))));
    graph.alive.entry("grandparent".to_owned()).or_default().insert(None);
    graph.pending.clear();
    graph.take(Seen::Listing(pods.clone()));
    graph.take(Seen::Changed(pods.clone(), object("stays", Some("parent"))));
    graph.take(Seen::Listed(pods));
    assert!(graph.nodes.contains_key("parent") && graph.nodes.contains_key("stays"));
    assert!(!graph.nodes.contains_key("went"));
    assert!(graph.alive.is_empty() && graph.pending.contains("stays"));
}
