//! Whatever a client sends: the same 4xx as from kube-apiserver, no panic, and no more memory than a body deserves.

use http::{HeaderMap, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::peer::Kubernetes;
use crate::process::Process;

/// What the whole of this may cost the server. Its largest bodies are ten megabytes, sent sixteen at a time; of each it
/// reads three at most.
const GROWTH_MEGABYTES_MAX: u64 = 256;

struct Case {
    what: &'static str,
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: Vec<u8>,
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/known";
const STRICT: &str = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const YAML: (&str, &str) = ("Content-Type", "application/yaml");
const PROTOBUF: (&str, &str) = ("Content-Type", "application/vnd.kubernetes.protobuf");
const JSON_PATCH: (&str, &str) = ("Content-Type", "application/json-patch+json");
const MERGE: (&str, &str) = ("Content-Type", "application/merge-patch+json");
const STRATEGIC: (&str, &str) = ("Content-Type", "application/strategic-merge-patch+json");
const APPLY: (&str, &str) = ("Content-Type", "application/apply-patch+yaml");

fn case(
    what: &'static str,
    request: (&'static str, &'static str),
    headers: &'static [(&'static str, &'static str)],
    body: impl Into<Vec<u8>>,
) -> Case {
    Case { what, method: request.0, path: request.1, headers, body: body.into() }
}

/// Ten lists of ten lists of ten lists …
fn bomb() -> String {
    let mut text =
        String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for pair in ["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"] {
        let (of, to) = pair.split_at(1);
        text.push_str(&format!("{to}: &{to} [{}]\n", vec![format!("*{of}"); 10].join(", ")));
    }
    text
}

fn protobuf(rest: &[u8]) -> Vec<u8> {
    [b"k8s\0", rest].concat()
}

fn cases() -> Vec<Case> {
    let post = ("POST", MAPS);
    let patch = ("PATCH", MAP);
    let deep = |open: &str, close: &str, levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    let mut all = vec![
        // malformed JSON
        case("an unfinished object", post, &[JSON], r#"{"metadata": {"name": "x""#),
        case("two objects", post, &[JSON], r#"{"metadata": {"name": "x"}}{}"#),
        case("a list", post, &[JSON], "[]"),
        case("a word", post, &[JSON], "\"word\""),
        case("nothing", post, &[JSON], ""),
        case("null", post, &[JSON], "null"),
        case("not text", post, &[JSON], vec![0xff, 0xfe, 0x00, 0x7b]),
        // wrong types
        case("metadata that is text", post, &[JSON], r#"{"metadata": "x"}"#),
        case("a name that is a number", post, &[JSON], r#"{"metadata": {"name": 5}}"#),
        case("data that is a number", post, &[JSON], r#"{"metadata": {"name": "x"}, "data": {"k": 5}}"#),
        case("labels that are a list", post, &[JSON], r#"{"metadata": {"name": "x", "labels": []}}"#),
        case("another kind", post, &[JSON], r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}"#),
        case(
            "another version",
            post,
            &[JSON],
            r#"{"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "x"}}"#,
        ),
        case("no name", post, &[JSON], "{}"),
        case("a bad name", post, &[JSON], r#"{"metadata": {"name": "X Y"}}"#),
        case("a bad label", post, &[JSON], r#"{"metadata": {"name": "x", "labels": {"a b": "c"}}}"#),
        case("another namespace", post, &[JSON], r#"{"metadata": {"name": "x", "namespace": "other"}}"#),
        case("a version on a new object", post, &[JSON], r#"{"metadata": {"name": "x", "resourceVersion": "1"}}"#),
        // unknown and repeated fields under Strict
        case("an unknown field", ("POST", STRICT), &[JSON], r#"{"metadata": {"name": "x"}, "dato": {}}"#),
        case("an unknown field below", ("POST", STRICT), &[JSON], r#"{"metadata": {"name": "x", "label": {}}}"#),
        case("a field twice", ("POST", STRICT), &[JSON], r#"{"metadata": {"name": "x"}, "data": {}, "data": {}}"#),
        case("an unknown field in YAML", ("POST", STRICT), &[YAML], "metadata: {name: x}\ndato: {}"),
        case(
            "nonsense for fieldValidation",
            ("POST", "/api/v1/namespaces/default/configmaps?fieldValidation=Maybe"),
            &[JSON],
            r#"{"metadata": {"name": "x"}}"#,
        ),
        case(
            "nonsense for dryRun",
            ("POST", "/api/v1/namespaces/default/configmaps?dryRun=Some"),
            &[JSON],
            r#"{"metadata": {"name": "x"}}"#,
        ),
        // YAML
        case("unbalanced YAML", post, &[YAML], "metadata: {name: x"),
        case("YAML with a tab", post, &[YAML], "metadata:\n\tname: x"),
        // nesting
        case("a thousand lists", post, &[JSON], deep("[", "]", 100_000)),
        case(
            "objects in objects",
            post,
            &[JSON],
            format!(r#"{{"metadata":{{"name":"x"}},"data":{}}}"#, deep("{\"a\":", "}", 20_000)),
        ),
        case("deep metadata", post, &[JSON], format!(r#"{{"metadata":{}}}"#, deep("{\"metadata\":", "}", 20_000))),
        // selectors
        case("a bad label selector", ("GET", "/api/v1/configmaps?labelSelector=((("), &[], ""),
        case("a half label selector", ("GET", "/api/v1/configmaps?labelSelector=a%20in%20(b"), &[], ""),
        case("a bad field selector", ("GET", "/api/v1/configmaps?fieldSelector=a"), &[], ""),
        case("an unknown field selected", ("GET", "/api/v1/configmaps?fieldSelector=data.a%3Db"), &[], ""),
        case("a bad selector on a watch", ("GET", "/api/v1/configmaps?watch=1&labelSelector=%3D"), &[], ""),
        case(
            "a bad selector on deletecollection",
            ("DELETE", "/api/v1/namespaces/default/configmaps?labelSelector=(("),
            &[],
            "",
        ),
        // list options
        case("a limit that is a word", ("GET", "/api/v1/configmaps?limit=x"), &[], ""),
        case("a bad continue token", ("GET", "/api/v1/configmaps?limit=1&continue=nonsense"), &[], ""),
        case("a version that is a word", ("GET", "/api/v1/configmaps?resourceVersion=x"), &[], ""),
        case("a watch from a word", ("GET", "/api/v1/configmaps?watch=1&resourceVersion=x"), &[], ""),
        case(
            "an unknown resourceVersionMatch",
            ("GET", "/api/v1/configmaps?resourceVersion=1&resourceVersionMatch=About"),
            &[],
            "",
        ),
        case("a match without a version", ("GET", "/api/v1/configmaps?resourceVersionMatch=Exact"), &[], ""),
        case("initial events without a match", ("GET", "/api/v1/configmaps?watch=1&sendInitialEvents=true"), &[], ""),
        // patches
        case("a JSON patch that is an object", patch, &[JSON_PATCH], "{}"),
        case("a JSON patch that is no JSON", patch, &[JSON_PATCH], "[{"),
        case("an unknown operation", patch, &[JSON_PATCH], r#"[{"op": "frobnicate", "path": "/data"}]"#),
        case("an operation without a path", patch, &[JSON_PATCH], r#"[{"op": "add", "value": 1}]"#),
        case("a path that is not there", patch, &[JSON_PATCH], r#"[{"op": "remove", "path": "/data/nosuch"}]"#),
        case("a failed test", patch, &[JSON_PATCH], r#"[{"op": "test", "path": "/data/a", "value": "no"}]"#),
        case("a patch to a wrong type", patch, &[JSON_PATCH], r#"[{"op": "add", "path": "/data", "value": 5}]"#),
        case("a merge patch that is a list", patch, &[MERGE], "[]"),
        case("a merge patch that is no JSON", patch, &[MERGE], "{"),
        case("a merge patch to a wrong type", patch, &[MERGE], r#"{"data": 5}"#),
        case("a strategic patch with a bad directive", patch, &[STRATEGIC], r#"{"data": {"$patch": "frobnicate"}}"#),
        case("a strategic patch that is no JSON", patch, &[STRATEGIC], "{"),
        case("a patch of the name", patch, &[MERGE], r#"{"metadata": {"name": "other"}}"#),
        case(
            "an unknown field under Strict",
            ("PATCH", "/api/v1/namespaces/default/configmaps/known?fieldValidation=Strict"),
            &[MERGE],
            r#"{"dato": {}}"#,
        ),
        case("apply without a manager", patch, &[APPLY], "{apiVersion: v1, kind: ConfigMap, metadata: {name: known}}"),
        case(
            "apply of another kind",
            ("PATCH", "/api/v1/namespaces/default/configmaps/known?fieldManager=m"),
            &[APPLY],
            "{apiVersion: v1, kind: Secret, metadata: {name: known}}",
        ),
        case(
            "apply of another name",
            ("PATCH", "/api/v1/namespaces/default/configmaps/known?fieldManager=m"),
            &[APPLY],
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}",
        ),
        case(
            "apply with managedFields",
            ("PATCH", "/api/v1/namespaces/default/configmaps/known?fieldManager=m"),
            &[APPLY],
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: known, managedFields: [{manager: x}]}}",
        ),
        case(
            "apply of broken YAML",
            ("PATCH", "/api/v1/namespaces/default/configmaps/known?fieldManager=m"),
            &[APPLY],
            "{apiVersion: v1",
        ),
        case(
            "a manager with a line break",
            ("PATCH", "/api/v1/namespaces/default/configmaps/known?fieldManager=a%0Ab"),
            &[APPLY],
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: known}}",
        ),
        case(
            "force on a merge patch",
            ("PATCH", "/api/v1/namespaces/default/configmaps/known?force=true"),
            &[MERGE],
            "{}",
        ),
        case("a patch of what is not there", ("PATCH", "/api/v1/namespaces/default/configmaps/nosuch"), &[MERGE], "{}"),
        // protobuf
        case("protobuf that is JSON", post, &[PROTOBUF], r#"{"metadata": {"name": "x"}}"#),
        case("protobuf of nothing", post, &[PROTOBUF], protobuf(b"")),
        case("protobuf cut off", post, &[PROTOBUF], protobuf(&[0x0a, 0x40, 0x0a])),
        case(
            "protobuf with an endless length",
            post,
            &[PROTOBUF],
            protobuf(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        ),
        case("protobuf noise", post, &[PROTOBUF], protobuf(&[0x97; 500])),
        // content types
        case("a page", post, &[("Content-Type", "text/html")], r#"{"metadata": {"name": "x"}}"#),
        case("CBOR", post, &[("Content-Type", "application/cbor")], vec![0xa0]),
        case("a patch of no known type", patch, &[JSON], "{}"),
        case("an answer nobody has", ("GET", MAP), &[("Accept", "text/html")], ""),
        case(
            "a table of another kind",
            ("GET", MAP),
            &[("Accept", "application/json;as=Chart;g=meta.k8s.io;v=v1")],
            "",
        ),
        // other requests
        case("a delete with bad options", ("DELETE", MAP), &[JSON], r#"{"gracePeriodSeconds": "soon"}"#),
        case(
            "a delete with two policies",
            ("DELETE", MAP),
            &[JSON],
            r#"{"orphanDependents": true, "propagationPolicy": "Orphan"}"#,
        ),
        case("a delete with an unknown policy", ("DELETE", MAP), &[JSON], r#"{"propagationPolicy": "Sometimes"}"#),
        case("a delete of another version", ("DELETE", MAP), &[JSON], r#"{"preconditions": {"uid": "other"}}"#),
        case("an update of another name", ("PUT", MAP), &[JSON], r#"{"metadata": {"name": "other"}}"#),
        case(
            "an update from an old version",
            ("PUT", MAP),
            &[JSON],
            r#"{"metadata": {"name": "known", "resourceVersion": "1"}}"#,
        ),
        case(
            "an update of what is not there",
            ("PUT", "/api/v1/namespaces/default/configmaps/nosuch"),
            &[JSON],
            r#"{"metadata": {"name": "nosuch"}}"#,
        ),
        case("a resource nobody has", ("GET", "/api/v1/namespaces/default/nosuch"), &[], ""),
        case("a group nobody has", ("GET", "/apis/nosuch.example.com/v1/things"), &[], ""),
        case("a subresource nobody has", ("GET", "/api/v1/namespaces/default/configmaps/known/status"), &[], ""),
        case("a post to an object", ("POST", MAP), &[JSON], "{}"),
        case(
            "an object in no namespace",
            ("POST", "/api/v1/namespaces/nosuch/configmaps"),
            &[JSON],
            r#"{"metadata": {"name": "x"}}"#,
        ),
    ];
    all.push(case("ten megabytes", post, &[JSON], format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(10_000_000))));
    all.push(case(
        "ten megabytes of patch",
        patch,
        &[MERGE],
        format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(10_000_000)),
    ));
    all
}

async fn send(client: &Client, case: &Case) -> (StatusCode, HeaderMap, Value) {
    try_send(client, case).await.unwrap_or_else(|error| panic!("{}: no answer: {error}", case.what))
}

async fn try_send(client: &Client, case: &Case) -> kube::Result<(StatusCode, HeaderMap, Value)> {
    let mut request = Request::builder().method(case.method).uri(case.path);
    for (name, value) in case.headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(case.body.clone())).expect("a request");
    let response = client.send(request).await?;
    let (head, body) = response.into_parts();
    let text = body.collect_bytes().await.unwrap_or_default();
    Ok((head.status, head.headers, serde_json::from_slice(&text).unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_are_refused_as_kube_apiserver_refuses_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let peer = tokio::task::spawn_blocking(Kubernetes::start).await.expect("a peer");
    let (ours, theirs) = (process.client().await, peer.client());
    let known = case("setting up", ("POST", MAPS), &[JSON], r#"{"metadata": {"name": "known"}, "data": {"a": "b"}}"#);
    for client in [&ours, &theirs] {
        assert_eq!(send(client, &known).await.0, 201);
    }
    let before = process.peak_megabytes();
    let mut differences = Vec::new();
    for case in cases() {
        let (code, headers, answer) = send(&ours, &case).await;
        // kube-apiserver hangs up on those who send too much, and some of them never hear why.
        let Ok((wanted, _, their_answer)) = try_send(&theirs, &case).await else {
            assert_eq!(code, 413, "{}", case.what);
            continue;
        };
        // Some answers over there are no Status, and some mistakes of the client's are called the server's.
        let reason = |answer: &Value| {
            answer["reason"].as_str().filter(|_| !their_answer.is_null()).unwrap_or_default().to_owned()
        };
        let same = (code, reason(&answer)) == (wanted, reason(&their_answer));
        if !same && !wanted.is_server_error() {
            differences.push(format!("{}: here {code} {answer}\n    there {wanted} {their_answer}", case.what));
        }
        assert!(code.is_client_error() || code == wanted, "{}: {code}", case.what);
        if code.is_client_error() {
            assert_eq!(answer["kind"], "Status", "{}: {answer}", case.what);
            assert_eq!(headers["Content-Type"], "application/json", "{}", case.what);
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));

    // kube-apiserver unfolds this one; a server with less memory must not.
    let answer = send(&ours, &case("a YAML bomb", ("POST", MAPS), &[YAML], bomb())).await;
    assert_eq!(answer.0, 400, "{}", answer.2);
    let apply = ("PATCH", "/api/v1/namespaces/default/configmaps/bomb?fieldManager=m");
    let answer = send(&ours, &case("a YAML bomb applied", apply, &[APPLY], bomb())).await;
    assert_eq!(answer.0, 400, "{}", answer.2);
    let deep = format!("metadata: {{name: x}}\ndata: {}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let answer = send(&ours, &case("deep YAML", ("POST", MAPS), &[YAML], deep)).await;
    assert_eq!(answer.0, 400, "{}", answer.2);

    // Many at once.
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let client = ours.clone();
        tasks.spawn(async move {
            let body = format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(10_000_000));
            send(&client, &case("ten megabytes", ("POST", MAPS), &[JSON], body)).await.0
        });
    }
    while let Some(code) = tasks.join_next().await {
        assert_eq!(code.expect("an answer"), 413);
    }
    let growth = process.peak_megabytes().saturating_sub(before);
    assert!(growth <= GROWTH_MEGABYTES_MAX, "the server grew by {growth} MB");
    assert_eq!(send(&ours, &case("still there", ("GET", MAP), &[], "")).await.0, 200);
    assert_eq!(process.stop().await, Some(0));
}
