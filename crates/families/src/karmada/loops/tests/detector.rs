//! Bindings say what templates and policies say, and nobody keeps anybody else from getting one.

use super::super::detector::Detector;
use super::super::promises::Promises;
use super::*;

fn template(name: &str, namespace: &str, requests: Value, replicas: u32) -> Value {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": requests}}]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "1"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
    })
}

fn policy(namespace: &str, name: &str, selectors: Value, placement: Value) -> DynamicObject {
    object(&policies(), namespace, name, json!({"spec": {"resourceSelectors": selectors, "placement": placement}}))
}

/// A control plane with these Deployments and whatever else its versions serve; what cannot be listed there is not answered.
fn centre(core: Value, templates: Vec<Value>) -> (Client, mpsc::UnboundedReceiver<Asked>) {
    let deployments = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let apps = served("apps/v1", &[("deployments", "Deployment", &["list", "watch"])]);
    api(move |(method, place, body)| match (method.as_str(), &**place) {
        ("GET", place) if place.contains("watch=") => None,
        ("GET", "/apis/apps/v1") => Some(apps.clone()),
        ("GET", "/api/v1") => Some(core.clone()),
        ("GET", place) if place.contains("/deployments") => Some(listed(&deployments, json!(templates))),
        ("GET", _) => None,
        _ => Some(body.clone()),
    })
}

fn detector(client: Client, all: Vec<DynamicObject>, bound: Vec<DynamicObject>) -> Detector {
    let some = |names: &[&str]| names.iter().map(|name| object(&clusters(), "", name, json!({}))).collect();
    let mirrors = [
        Mirror::of(policies(), all),
        Mirror::of(bindings(), bound),
        Mirror::of(quotas(), Vec::new()),
        Mirror::of(clusters(), some(&["m1"])),
    ];
    Detector::new(client, Arc::new(Settings::default()), Watch::new(), mirrors, Promises::default())
}

fn deployments_of(namespace: &str) -> DynamicObject {
    policy(namespace, "p", json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]), json!({}))
}

/// A policy that names a kind which nobody can list is its namespace's own affair.
#[tokio::test]
async fn a_kind_that_cannot_be_listed_keeps_nobody_waiting() {
    // One that says so, and one that never answers.
    let core = served("v1", &[("bindings", "Binding", &["create"]), ("configmaps", "ConfigMap", &["list", "watch"])]);
    let (client, mut asked) = centre(core, vec![template("web", "team", json!({"cpu": "1"}), 1)]);
    let odd = json!([{"apiVersion": "v1", "kind": "Binding"}, {"apiVersion": "v1", "kind": "ConfigMap"}]);
    let mut detector =
        detector(client, vec![policy("other", "odd", odd, json!({})), deployments_of("team")], Vec::new());
    tokio::time::timeout(PATIENCE, detector.look()).await.expect("a look comes to its end");
    let (_, place, _) = told(&mut asked, |(method, ..)| *method == Method::POST).await;
    assert!(place.contains("/namespaces/team/resourcebindings"), "{place}");
}

/// However much one namespace has, the others' turn comes in the same look.
#[tokio::test]
async fn one_namespace_keeps_no_other_waiting_for_all_it_has() {
    let mut all: Vec<Value> = (0..500).map(|one| template(&format!("a{one:03}"), "much", json!({}), 1)).collect();
    all.push(template("web", "team", json!({}), 1));
    let (client, mut asked) = centre(Value::Null, all);
    let mut detector = detector(client, vec![deployments_of("much"), deployments_of("team")], Vec::new());
    tokio::time::timeout(PATIENCE, detector.look()).await.expect("a look comes to its end");
    let (mut much, mut team) = (0, 0);
    while let Ok((method, place, _)) = asked.try_recv() {
        let is_one = method == Method::POST && place.contains("/resourcebindings");
        much += usize::from(is_one && place.contains("/much/"));
        team += usize::from(is_one && place.contains("/team/"));
    }
    assert!(team == 1 && much > 0 && much < 100, "{team} and {much}");
}

fn bound(template: &Value, placement: Value, request: Value, clusters: Value) -> DynamicObject {
    let of = |field: &str| template["metadata"][field].clone();
    let spec = json!({
        "resource": {
            "apiVersion": template["apiVersion"], "kind": template["kind"], "namespace": of("namespace"), "name": of("name"),
            "uid": of("uid"),
        },
        "replicas": 10, "replicaRequirements": {"resourceRequest": request, "priorityClassName": "high"},
        "placement": placement, "clusters": clusters,
    });
    object(&bindings(), "team", "web-deployment", json!({ "spec": spec }))
}

/// What is taken out of a template, or of a policy, is taken out of the binding: it is charged no more, and what is charged is what members get.
#[tokio::test]
async fn what_is_taken_out_of_a_template_or_a_policy_goes_from_its_binding() {
    let web = template("web", "team", json!({"cpu": "1"}), 10);
    let before =
        json!({"clusterAffinity": {"clusterNames": ["m1"]}, "replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let now = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let there = bound(&web, before, json!({"cpu": "1", "memory": "1Gi"}), json!([{"name": "m1", "replicas": 10}]));
    let (client, mut asked) = centre(Value::Null, vec![web]);
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let mut detector = detector(client, vec![policy("team", "p", selectors, now)], vec![there]);
    tokio::time::timeout(PATIENCE, detector.look()).await.expect("a look comes to its end");
    let (_, _, patch) = told(&mut asked, |(method, ..)| *method == Method::PATCH).await;
    let gone = json!({"resourceRequest": {"memory": null}, "priorityClassName": null});
    assert_eq!(patch["spec"], json!({"replicaRequirements": gone, "placement": {"clusterAffinity": null}}));
}

/// Fewer and larger pods that come to less pass: nobody asks for the new size of those that are not to run any more.
#[tokio::test]
async fn another_size_comes_with_the_pods_that_go() {
    let web = template("web", "team", json!({"cpu": "4"}), 2);
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let there = bound(&web, divided.clone(), json!({"cpu": "1"}), json!([{"name": "m1", "replicas": 10}]));
    let (client, mut asked) = centre(Value::Null, vec![web]);
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let mut detector = detector(client, vec![policy("team", "p", selectors, divided)], vec![there]);
    tokio::time::timeout(PATIENCE, detector.look()).await.expect("a look comes to its end");
    let (_, _, patch) = told(&mut asked, |(method, ..)| *method == Method::PATCH).await;
    assert_eq!(patch["spec"]["clusters"], json!([{"name": "m1", "replicas": 2}]));
    assert_eq!(patch["metadata"]["resourceVersion"], "1", "for this placement and for no other");
}

/// More and smaller pods: nothing of what is charged is let go of in between, where somebody else would take it.
#[tokio::test]
async fn more_pods_come_with_their_new_size() {
    let web = template("web", "team", json!({"cpu": "1"}), 30);
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let there = bound(&web, divided.clone(), json!({"cpu": "4"}), json!([{"name": "m1", "replicas": 10}]));
    let (client, mut asked) = centre(Value::Null, vec![web]);
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let mut detector = detector(client, vec![policy("team", "p", selectors, divided)], vec![there]);
    tokio::time::timeout(PATIENCE, detector.look()).await.expect("a look comes to its end");
    let (_, _, patch) = told(&mut asked, |(method, ..)| *method == Method::PATCH).await;
    assert_eq!(patch["spec"]["replicas"], 30);
    assert_eq!(patch["spec"]["replicaRequirements"]["resourceRequest"]["cpu"], "1");
    assert_eq!(patch["spec"]["clusters"], json!([{"name": "m1", "replicas": 30}]));
    assert_eq!(patch["metadata"]["resourceVersion"], "1", "for this placement and for no other");
}

/// Two names that become one have one binding: the first template keeps it.
#[tokio::test]
async fn a_binding_belongs_to_the_template_that_it_names() {
    let (one, other) = (template("a.b", "team", json!({}), 1), template("a:b", "team", json!({}), 1));
    let mut there = bound(&one, json!({}), json!({}), json!([]));
    there.metadata.name = Some("a.b-deployment".into());
    let (client, mut asked) = centre(Value::Null, vec![other]);
    let mut detector = detector(client, vec![deployments_of("team")], vec![there]);
    assert!(!tokio::time::timeout(PATIENCE, detector.look()).await.expect("a look comes to its end"));
    while let Ok((method, place, body)) = asked.try_recv() {
        assert!(method == Method::GET || place.contains("/events"), "{method} {place} {body}");
    }
}
