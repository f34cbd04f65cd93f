//! Rights in one namespace end at that namespace: every resource, at every address, with every verb.

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use rules::GroupResource;
use server::authz::Decision;
use server::identity::Identity;
use server::registry::Served;
use server::request::RequestInfo;
use tower::{Service, ServiceExt};

use crate::harness::{Server, request};

/// A caller in front of whom the guard stands: what its roles do not allow is refused before it is looked at.
struct Caller<'a> {
    server: &'a Server,
    name: &'static str,
}

impl Caller<'_> {
    async fn ask(&self, line: &str, body: &str) -> (u16, Body) {
        let request = request(line, body);
        let info = match RequestInfo::parse(request.method(), request.uri()) {
            Ok(info) => info,
            Err(_) => return (400, Body::empty()),
        };
        let identity = Identity::authenticated(self.name, Vec::<&str>::new());
        if let Decision::Denied { .. } = self.server.api.parts().rbac.authorize(&identity, &info.attributes()) {
            return (403, Body::empty());
        }
        let mut service = self.server.as_user(self.name, &[]);
        let service = ServiceExt::<Request<Body>>::ready(&mut service).await.expect("infallible");
        let answer = service.call(request).await.expect("infallible");
        (answer.status().as_u16(), answer.into_body())
    }

    async fn code(&self, line: &str, body: &str) -> u16 {
        self.ask(line, body).await.0
    }

    async fn text(&self, line: &str, body: &str) -> (u16, String) {
        let (code, answer) = self.ask(line, body).await;
        let bytes = answer.collect().await.expect("a body").to_bytes();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Two namespaces, `star` who may do everything in the first, and a cluster-scoped object of several kinds.
const LAND: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "mine"}}
  201
POST /api/v1/namespaces
  {"metadata": {"name": "other"}}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/mine/roles
  {"metadata": {"name": "star"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings
  {"metadata": {"name": "star"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "star"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "star"}]}
  201
POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions
  {"metadata": {"name": "globes.example.com"}, "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "globes", "kind": "Globe"}, "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
  201
POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions
  {"metadata": {"name": "plots.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "plots", "kind": "Plot"}, "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
  201
POST /apis/example.com/v1/globes
  {"apiVersion": "example.com/v1", "kind": "Globe", "metadata": {"name": "other"}}
  201
POST /apis/example.com/v1/namespaces/other/plots
  {"apiVersion": "example.com/v1", "kind": "Plot", "metadata": {"name": "other"}}
  201
POST /api/v1/namespaces/other/configmaps
  {"metadata": {"name": "other"}}
  201
POST /api/v1/namespaces/other/pods
  {"metadata": {"name": "other"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
  201
POST /apis/rbac.authorization.k8s.io/v1/clusterroles
  {"metadata": {"name": "other"}, "rules": []}
  201
POST /api/v1/nodes
  {"metadata": {"name": "other"}}
  201
POST /apis/scheduling.k8s.io/v1/priorityclasses
  {"metadata": {"name": "other"}, "value": 1}
  201
"#;

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Everything that stands outside of `mine`, with its revision.
fn outside(server: &Server) -> Vec<String> {
    let parts = server.api.parts();
    let mut all = Vec::new();
    for served in parts.registry.snapshot().all().into_iter().filter(|served| served.is_stored()) {
        let resource: GroupResource = served.storage().clone();
        let listed = parts.cache.list(&resource);
        // No namespace is all of them.
        for object in listed.range("", None).filter(|object| &*object.key.namespace != "mine") {
            all.push(format!("{resource} {}/{} {}", object.key.namespace, object.key.name, object.revision));
        }
    }
    all
}

/// Requests at one address, as lines with bodies. `namespace` goes into the bodies.
fn attempts(served: &Served, place: &str, namespace: &str) -> Vec<(String, String)> {
    let (group, version) = (&served.resource.group, &served.version);
    let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let collection = format!("{base}{place}/{}", served.resource.resource);
    let body = |name: &str| {
        let metadata = format!(r#"{{"name": "{name}", "namespace": "{namespace}", "labels": {{"taken": "over"}}}}"#);
        format!(r#"{{"apiVersion": "{}", "kind": "{}", "metadata": {metadata}}}"#, served.api_version(), served.kind)
    };
    let mut lines = vec![
        (format!("GET {collection}"), String::new()),
        (format!("HEAD {collection}"), String::new()),
        (format!("GET {collection}?watch=1&timeoutSeconds=1"), String::new()),
        (format!("GET {collection}?fieldSelector=metadata.name%3Dother"), String::new()),
        (format!("POST {collection}"), body("fresh")),
        (format!("POST {collection}?dryRun=All"), body("fresh")),
        (format!("POST {collection}"), body("").replace(r#""name": """#, r#""generateName": "fresh-""#)),
        (format!("DELETE {collection}"), String::new()),
        (format!("DELETE {collection}?fieldSelector=metadata.name%3Dother"), String::new()),
    ];
    let subresources = served.subresources.iter().map(|sub| format!("/{}", sub.name));
    for below in std::iter::once(String::new()).chain(subresources) {
        for name in ["other", "mine"] {
            let one = format!("{collection}/{name}{below}");
            lines.push((format!("GET {one}"), String::new()));
            lines.push((format!("PUT {one}"), body(name)));
            lines.push((format!("POST {one}"), body(name)));
            lines.push((format!("DELETE {one}"), String::new()));
            for kind in PATCHES {
                let patch = match kind {
                    "application/json-patch+json" => {
                        r#"[{"op": "add", "path": "/metadata/labels", "value": {"taken": "over"}}]"#.to_owned()
                    }
                    _ => body(name),
                };
                lines.push((format!("PATCH {one}?fieldManager=me&force=true Content-Type:{kind}"), patch));
            }
        }
    }
    // Force belongs to applying alone.
    lines.into_iter().map(|(line, body)| (unforced(line), body)).collect()
}

fn unforced(line: String) -> String {
    if line.contains("apply-patch") { line } else { line.replace("&force=true", "") }
}

#[tokio::test]
async fn rights_in_a_namespace_reach_nothing_else() {
    let server = Server::start();
    server.play(LAND).await;
    let star = Caller { server: &server, name: "star" };
    let before = outside(&server);
    let snapshot = server.api.parts().registry.snapshot();
    let mut asked = 0;
    for served in snapshot.all() {
        let (namespaced, is_namespace) = (served.namespaced, served.resource.is("", "namespaces"));
        // (address, namespace in the body, what every request there has to be answered)
        let places = [
            ("", "other", 403),
            ("", "mine", 403),
            ("/namespaces/other", "other", 403),
            ("/namespaces/other", "mine", 403),
        ];
        for (place, namespace, expected) in places {
            for (line, body) in attempts(served, place, namespace) {
                // A Namespace's own path is the one address outside of namespaces that belongs to a namespace.
                if is_namespace && place.is_empty() && line.contains("/namespaces/mine") {
                    continue;
                }
                asked += 1;
                let code = star.code(&line, &body).await;
                assert_eq!(code, expected, "{line} {body}");
            }
        }
        for namespace in ["mine", "other"] {
            for (line, body) in attempts(served, "/namespaces/mine", namespace) {
                let code = match namespaced {
                    // What is wrong in a namespace's own way (a Role's rules, a name taken) is not looked at here.
                    true if namespace == "mine" || body.is_empty() => continue,
                    _ => star.code(&line, &body).await,
                };
                asked += 1;
                match namespaced {
                    true => assert!((400..500).contains(&code) || keeps_to_path(&line), "{code}: {line} {body}"),
                    false => assert_eq!(code, 404, "{line} {body}"),
                }
            }
        }
    }
    assert!(asked > 5_000, "{asked}");
    assert_eq!(outside(&server), before);
    // The one path outside that is its own, and its parts.
    assert_eq!(star.code("GET /api/v1/namespaces/mine", "").await, 200);
    assert_eq!(star.code("GET /api/v1/namespaces/mine/status", "").await, 200);
}

/// Whether the namespace in the body does not matter: a JSON patch has none, a review is answered and forgotten.
fn keeps_to_path(line: &str) -> bool {
    line.contains("json-patch") || line.contains("review")
}

#[tokio::test]
async fn an_address_written_in_another_way_is_no_other_address() {
    let server = Server::start();
    server.play(LAND).await;
    let star = Caller { server: &server, name: "star" };
    let before = outside(&server);
    for path in [
        "/api/v1/namespaces/mine/../other/configmaps",
        "/api/v1/namespaces/mine/../other/configmaps/other",
        "/api/v1/namespaces/mine/%2e%2e/other/configmaps/other",
        "/api/v1/namespaces/mine/configmaps/..%2f..%2fother%2fconfigmaps%2fother",
        "/api/v1/namespaces/mine%2f..%2fother/configmaps/other",
        "/api/v1/namespaces/mine/configmaps/%2e%2e/%2e%2e/other/configmaps/other",
        "/api/v1/namespaces/mine//configmaps/other",
        "/api/v1//namespaces/other/configmaps/other",
        "//api/v1/namespaces/other/configmaps/other",
        "/api/v1/namespaces/other/configmaps/other/",
        "/api/v1/namespaces//configmaps",
        "/api/v1/namespaces/mine/namespaces",
        "/api/v1/namespaces/mine/namespaces/",
        "/api/v1/namespaces/mine/namespaces/mine",
        "/api/v1/namespaces/mine/namespaces/other",
        "/api/v1/namespaces/mine/namespaces/other/status",
        "/api/v1/namespaces/mine/namespaces/other/finalize",
        "/api/v1/namespaces/mine/namespaces/other/configmaps",
        "/api/v1/namespaces/mine/namespaces/other/configmaps/other",
        "/api/v1/namespaces/mine/status/other",
        "/api/v1/namespaces/mine/finalize/other",
        "/api/v1/namespaces/mine/NAMESPACES/other",
        "/API/v1/namespaces/other/configmaps/other",
        "/api/V1/namespaces/mine/configmaps",
        "/api/v1/Namespaces/other/configmaps",
        "/api/v1/namespaces/Mine/configmaps",
        "/api/v1/namespaces/mine%00/configmaps",
        "/api/v1/namespaces/mine/configmaps/other%00",
        "/api/v1/namespaces/mine%20/configmaps",
        "/api/v1/namespaces/%6dine/nodes/other",
        "/api/v1/namespaces/mine/%6eodes/other",
        "/api/v1/namespaces/mine;x/configmaps",
        "/apis//v1/namespaces/mine/configmaps",
        "/apis/v1/namespaces/mine/configmaps",
        "/apis/core/v1/namespaces/mine/configmaps",
        "/api/apps/v1/namespaces/mine/deployments",
        "/apis/example.com/v1/namespaces/mine/globes/other",
        "/apis/example.com/v1/namespaces/mine/globes/other/status",
        "/apis/example.com/v1/namespaces/other",
        "/apis/example.com/v1/namespaces/mine",
        "/apis/example.com/v1/namespaces/mine/status",
        "/api/v1/namespaces/mine/pods/other/proxy/..%2f..%2fother",
        "/api/v1/namespaces/mine/services/other:80/proxy/",
        "/api/v1/watch/namespaces/other/configmaps",
        "/api/v1/proxy/namespaces/other/pods/other",
        "/api/v1/nodes/other/proxy/",
    ] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let body = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"taken": "over"}}}"#;
            let body = if method == Method::GET || method == Method::DELETE { "" } else { body };
            let line = format!("{method} {path} Content-Type:application/merge-patch+json");
            let (code, text) = star.text(&line, body).await;
            assert!(matches!(code, 400 | 403 | 404 | 405), "{code}: {line} {text}");
        }
    }
    assert_eq!(outside(&server), before);
}

#[tokio::test]
async fn a_right_on_one_name_is_a_right_on_that_name() {
    let server = Server::start();
    server.play(LAND).await;
    server
        .play(
            r#"
POST /apis/rbac.authorization.k8s.io/v1/namespaces/mine/roles
  {"metadata": {"name": "one"}, "rules": [{"apiGroups": [""], "resources": ["configmaps", "pods"], "resourceNames": ["one"], "verbs": ["*"]}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings
  {"metadata": {"name": "one"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "one"}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/mine/roles
  {"metadata": {"name": "patcher"}, "rules": [{"apiGroups": ["", "example.com"], "resources": ["configmaps", "plots"], "verbs": ["patch", "update", "get"]}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings
  {"metadata": {"name": "patcher"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patcher"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "patcher"}]}
  201
POST /api/v1/namespaces/mine/configmaps
  {"metadata": {"name": "one"}, "data": {"k": "first"}}
  201
POST /api/v1/namespaces/mine/configmaps
  {"metadata": {"name": "two"}, "data": {"k": "second"}}
  201
POST /api/v1/namespaces/mine/pods
  {"metadata": {"name": "two"}, "spec": {"containers": [{"name": "c", "image": "second"}]}}
  201
"#,
        )
        .await;
    let maps = "/api/v1/namespaces/mine/configmaps";
    let pods = "/api/v1/namespaces/mine/pods";
    let apply = "?fieldManager=me Content-Type:application/apply-patch+yaml";
    let named =
        |name: &str| format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{name}"}}}}"#);
    let plot = r#"{"apiVersion": "example.com/v1", "kind": "Plot", "metadata": {"name": "made"}}"#;
    let cases = [
        ("one", format!("GET {maps}/one"), String::new(), 200),
        ("one", format!("GET {maps}/two"), String::new(), 403),
        ("one", format!("GET {maps}"), String::new(), 403),
        ("one", format!("GET {maps}?fieldSelector=metadata.name%3Done"), String::new(), 200),
        ("one", format!("GET {maps}?fieldSelector=metadata.name%3Dtwo"), String::new(), 403),
        ("one", format!("GET {maps}?fieldSelector=metadata.name!%3Done"), String::new(), 403),
        (
            "one",
            format!("GET {maps}?fieldSelector=metadata.name%3Dtwo&fieldSelector=metadata.name%3Done"),
            String::new(),
            403,
        ),
        // What stands behind an escaped comma is part of a value, not a name to be judged by.
        ("one", format!("GET {pods}?fieldSelector=spec.nodeName!%3Dx%5C,metadata.name%3Done"), String::new(), 403),
        (
            "one",
            format!("GET {pods}?watch=1&fieldSelector=spec.nodeName!%3Dx%5C,metadata.name%3Done"),
            String::new(),
            403,
        ),
        ("one", format!("DELETE {pods}?fieldSelector=spec.nodeName!%3Dx%5C,metadata.name%3Done"), String::new(), 403),
        ("one", format!("DELETE {maps}"), String::new(), 403),
        ("one", format!("POST {maps}"), named("one"), 403),
        ("one", format!("POST {maps}"), named("two"), 403),
        ("one", format!("PATCH {maps}/two Content-Type:application/merge-patch+json"), "{}".into(), 403),
        (
            "one",
            format!("PATCH {maps}/one Content-Type:application/merge-patch+json"),
            r#"{"metadata": {"name": "two"}}"#.into(),
            400,
        ),
        ("one", format!("PUT {maps}/one"), named("two"), 400),
        ("one", format!("PATCH {maps}/two{apply}"), named("two"), 403),
        // Who may patch what there is may not make what there is not.
        ("patcher", format!("PATCH {maps}/one{apply}"), named("one"), 200),
        ("patcher", format!("PATCH {maps}/made{apply}"), named("made"), 403),
        (
            "patcher",
            format!("PATCH {maps}/made?fieldManager=me&dryRun=All Content-Type:application/apply-patch+yaml"),
            named("made"),
            403,
        ),
        ("patcher", format!("PATCH /apis/example.com/v1/namespaces/mine/plots/made{apply}"), plot.into(), 403),
        ("patcher", format!("PUT {maps}/made"), named("made"), 404),
        ("star", format!("PATCH {maps}/made{apply}"), named("made"), 201),
    ];
    for (name, line, body, expected) in cases {
        let (code, text) = Caller { server: &server, name }.text(&line, &body).await;
        assert_eq!(code, expected, "{name}: {line} {body}\n{text}");
    }
    let (_, text) =
        Caller { server: &server, name: "patcher" }.text(&format!("PATCH {maps}/new{apply}"), &named("new")).await;
    let why = r#"configmaps \"new\" is forbidden: User \"patcher\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"mine\""#;
    assert!(text.contains(why), "{text}");
}
