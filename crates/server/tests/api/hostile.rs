//! Bodies made to cost more than they are long: deep, wide, multiplying and quadratic ones, in every format and every kind
//! of patch, against every sort of kind. Each is refused with a 4xx or stored; the server lives on, answers are short, and
//! what is stored can be read.

use axum::body::Body;
use http::Request;

use crate::harness::{Reply, Server};

/// Long enough for a refusal with a hundred causes, far below what was sent.
const ANSWER_BYTES_MAX: usize = 4 << 20;

const DEFINITION: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions
  {"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
   "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true,
     "schema": {"openAPIV3Schema": {"type": "object", "properties": {
       "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
       "any": {"x-kubernetes-preserve-unknown-fields": true},
       "list": {"type": "array", "items": {"type": "object", "properties": {
         "text": {"type": "string", "default": "DEFAULT"}, "n": {"type": "integer", "anyOf": [ANYOF]}}}},
       "names": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
         "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
       "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}}}]}}
  201
POST /apis/example.com/v1/namespaces/a/widgets
  {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "free": {"a": {}}, "set": ["a"]}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "c"}, "data": {"k": "v"}}
  201
POST /apis/apps/v1/namespaces/a/controllerrevisions
  {"metadata": {"name": "r"}, "revision": 1, "data": {"l": []}}
  201
"#;

async fn start() -> Server {
    let server = Server::start();
    let branches: Vec<String> = (0..200).map(|n| format!(r#"{{"enum": [{n}]}}"#)).collect();
    let script = DEFINITION.replace("DEFAULT", &"x".repeat(200)).replace("ANYOF", &branches.join(", "));
    server.play(&script).await;
    server
}

async fn send(server: &Server, method: &str, path: &str, kind: &str, body: impl Into<Body>) -> Reply {
    let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
    let reply = server.send(request.body(body.into()).expect("a request")).await;
    assert!(reply.text.len() < ANSWER_BYTES_MAX, "{path} {kind} is answered with {} bytes", reply.text.len());
    reply
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const WIDGETS: &str = "/apis/example.com/v1/namespaces/a/widgets";
const WIDGET: &str = "/apis/example.com/v1/namespaces/a/widgets/w";
const MAP: &str = "/api/v1/namespaces/a/configmaps/c";
const REVISION: &str = "/apis/apps/v1/namespaces/a/controllerrevisions/r";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn widget(name: &str, rest: &str) -> String {
    format!(r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"{name}"}},{rest}}}"#)
}

fn deep(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

fn often(item: &str, times: usize) -> String {
    vec![item; times].join(",")
}

fn operations(each: &str, times: usize) -> String {
    format!("[{}]", often(each, times))
}

/// What is tried, method, path, format, body, and the codes that are an answer to it.
type Attempt = (&'static str, &'static str, &'static str, &'static str, String, &'static [u16]);

#[tokio::test]
async fn each_is_refused_and_the_server_lives_on() {
    let server = start().await;
    let nest = r#"{"op":"add","path":"/b","value":{}},{"op":"move","from":"/any","path":"/b/a"},{"op":"move","from":"/b","path":"/any"}"#;
    let managed = format!(
        r#"{{"metadata":{{"managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}}]}}}}"#,
        deep(118).replace('a', "f:a").replace('1', "{}")
    );
    let long_list = format!(r#"{{"op":"add","path":"/data/l","value":[{}]}}"#, often("0", 100_000));
    let aliases = (1..9).fold("a0: &a0 [x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        format!("{text}a{n}: &a{n} [{}]\n", often(&format!("*a{}", n - 1), 8))
    });
    let schema = |node: String| {
        format!(
            r#"{{"metadata":{{"name":"bombs.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced","names":{{"plural":"bombs","kind":"Bomb"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{node}}}}}]}}}}"#
        )
    };
    let property = |node: &str| format!(r#"{{"type":"object","properties":{{"a":{node}}}}}"#);
    let deep_schema = (0..54).fold(r#"{"type":"string"}"#.to_owned(), |inner, _| property(&inner));
    let patterns: Vec<String> =
        (0..1_000).map(|n| format!(r#""f{n}":{{"type":"string","pattern":"(a{{100}}){{90}}{n}"}}"#)).collect();
    let cases: Vec<Attempt> = vec![
        ("deep json", "POST", WIDGETS, JSON, widget("x", &format!(r#""free":{}"#, deep(5_000))), &[400]),
        ("as deep as serde reads", "POST", WIDGETS, JSON, widget("x", &format!(r#""free":{}"#, deep(124))), &[400]),
        ("deep with managedFields", "POST", WIDGETS, JSON, widget("x", &format!(r#""free":{}"#, deep(118))), &[422]),
        ("deep yaml", "POST", WIDGETS, YAML, format!("free: {}", deep(5_000)), &[400]),
        ("deep flow yaml", "POST", WIDGETS, YAML, format!("free: {}", "[".repeat(100_000)), &[400]),
        (
            "indented yaml",
            "POST",
            WIDGETS,
            YAML,
            (0..2_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
            &[400],
        ),
        ("aliases", "POST", WIDGETS, YAML, aliases, &[400]),
        (
            "many values",
            "POST",
            WIDGETS,
            JSON,
            widget("x", &format!(r#""free":{{"l":[{}]}}"#, often("0", 300_000))),
            &[413],
        ),
        (
            "small objects",
            "POST",
            WIDGETS,
            JSON,
            widget("x", &format!(r#""free":{{"l":[{}]}}"#, often(r#"{"a":1}"#, 150_000))),
            &[413],
        ),
        ("defaults", "POST", WIDGETS, JSON, widget("x", &format!(r#""list":[{}]"#, often("{}", 150_000))), &[413]),
        (
            "defaults by apply",
            "PATCH",
            "/apis/example.com/v1/namespaces/a/widgets/y?fieldManager=m",
            APPLY,
            widget("y", &format!(r#""list":[{}]"#, often("{}", 50_000))),
            &[413],
        ),
        ("defaults by merge patch", "PATCH", WIDGET, MERGE, format!(r#"{{"list":[{}]}}"#, often("{}", 50_000)), &[413]),
        (
            "defaults by json patch",
            "PATCH",
            WIDGET,
            JSON_PATCH,
            format!(r#"[{{"op":"add","path":"/list","value":[{}]}}]"#, often("{}", 50_000)),
            &[413],
        ),
        (
            "branches",
            "POST",
            WIDGETS,
            JSON,
            widget("x", &format!(r#""list":[{}]"#, often(r#"{"text":"","n":7}"#, 20_000))),
            &[422],
        ),
        (
            "one identity often",
            "POST",
            WIDGETS,
            JSON,
            widget("x", &format!(r#""set":[{}]"#, often(r#""a""#, 50_000))),
            &[422],
        ),
        (
            "too long to store",
            "POST",
            WIDGETS,
            JSON,
            widget("x", &format!(r#""free":{{"t":"{}"}}"#, "x".repeat(1_500_000))),
            &[413],
        ),
        (
            "nesting by moves",
            "PATCH",
            WIDGET,
            JSON_PATCH,
            format!(r#"[{{"op":"add","path":"/any","value":{{}}}},{}]"#, often(nest, 3_000)),
            &[422],
        ),
        (
            "nesting by copies",
            "PATCH",
            WIDGET,
            JSON_PATCH,
            operations(r#"{"op":"copy","from":"/free/a","path":"/free/a/a"}"#, 1_000),
            &[422],
        ),
        (
            "nesting in managedFields",
            "PATCH",
            WIDGET,
            JSON_PATCH,
            format!(
                r#"[{{"op":"replace","path":"/metadata/managedFields/0/fieldsV1","value":{}}}]"#,
                deep(117).replace('1', "{}")
            ),
            &[422],
        ),
        ("managedFields by merge patch", "PATCH", MAP, MERGE, managed, &[400, 422]),
        (
            "deep paths",
            "PATCH",
            WIDGET,
            JSON_PATCH,
            operations(&format!(r#"{{"op":"add","path":"{}","value":1}}"#, "/free".repeat(20_000)), 20),
            &[422],
        ),
        (
            "doubling copies",
            "PATCH",
            MAP,
            JSON_PATCH,
            format!(
                r#"[{{"op":"add","path":"/data/t","value":"{}"}},{}]"#,
                "x".repeat(100_000),
                often(r#"{"op":"copy","from":"/data","path":"/data/d"}"#, 40)
            ),
            &[422],
        ),
        (
            "inserts in front",
            "PATCH",
            REVISION,
            JSON_PATCH,
            format!("[{long_list},{}]", often(r#"{"op":"add","path":"/data/l/0","value":0}"#, 5_000)),
            &[413],
        ),
        (
            "removals in front",
            "PATCH",
            REVISION,
            JSON_PATCH,
            format!("[{long_list},{}]", often(r#"{"op":"remove","path":"/data/l/0"}"#, 5_000)),
            &[413],
        ),
        (
            "too many operations",
            "PATCH",
            WIDGET,
            JSON_PATCH,
            operations(r#"{"op":"test","path":"/kind","value":"Widget"}"#, 10_001),
            &[413],
        ),
        ("deep merge patch", "PATCH", WIDGET, MERGE, format!(r#"{{"free":{}}}"#, deep(3_000)), &[400]),
        ("merge patch, deepest", "PATCH", WIDGET, MERGE, format!(r#"{{"free":{}}}"#, deep(119)), &[422]),
        ("strategic, deep", "PATCH", REVISION, STRATEGIC, format!(r#"{{"data":{}}}"#, deep(3_000)), &[400]),
        (
            "strategic, directives",
            "PATCH",
            MAP,
            STRATEGIC,
            format!(r#"{{"$retainKeys":[{}],"data":null}}"#, often(r#""a""#, 100_000)),
            &[400, 422],
        ),
        (
            "strategic, order",
            "PATCH",
            MAP,
            STRATEGIC,
            format!(
                r#"{{"metadata":{{"$setElementOrder/finalizers":[{}],"finalizers":["a/b"]}}}}"#,
                often(r#""a""#, 100_000)
            ),
            &[200, 400, 422],
        ),
        (
            "deep apply",
            "PATCH",
            "/apis/example.com/v1/namespaces/a/widgets/w?fieldManager=m",
            APPLY,
            widget("w", &format!(r#""free":{}"#, deep(118))),
            &[400, 422],
        ),
        (
            "apply, many keys",
            "PATCH",
            "/apis/example.com/v1/namespaces/a/widgets/w?fieldManager=m",
            APPLY,
            widget(
                "w",
                &format!(
                    r#""names":[{}]"#,
                    (0..20_000).map(|n| format!(r#"{{"name":"{n}"}}"#)).collect::<Vec<_>>().join(",")
                ),
            ),
            &[200, 413],
        ),
        (
            "built-in defaults",
            "POST",
            "/api/v1/namespaces/a/pods",
            JSON,
            format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{}]}}}}"#, often("{}", 190_000)),
            &[413],
        ),
        ("schema, deep", "POST", DEFINITIONS, JSON, schema(property(&deep_schema)), &[201, 400, 422]),
        (
            "schema, deeper",
            "POST",
            DEFINITIONS,
            JSON,
            schema((0..200).fold(deep_schema.clone(), |inner, _| property(&inner))),
            &[400],
        ),
        (
            "schema, patterns",
            "POST",
            DEFINITIONS,
            JSON,
            schema(format!(r#"{{"type":"object","properties":{{{}}}}}"#, patterns.join(","))),
            &[422],
        ),
        (
            "schema, one pattern",
            "POST",
            DEFINITIONS,
            JSON,
            schema(property(r#"{"type":"string","pattern":"((a{1000}){1000}){1000}"}"#)),
            &[422],
        ),
    ];
    for (what, method, path, kind, body, codes) in cases {
        let reply = send(&server, method, path, kind, body).await;
        let shown: String = reply.text.chars().take(300).collect();
        assert!(codes.contains(&reply.code.as_u16()), "{what}: {} {shown}", reply.code);
    }
    for path in [WIDGET, MAP, REVISION] {
        let reply = send(&server, "GET", path, JSON, "").await;
        assert!(reply.code == 200 && reply.value["metadata"]["name"].is_string(), "{path}: {}", reply.text);
    }
}

#[tokio::test]
async fn names_that_would_break_a_row_are_refused() {
    let server = start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles";
    for name in ["x".repeat(5_000), "x".repeat(1_025), "a\\u0000b".to_owned(), "a\\nb".to_owned(), "a/b".to_owned()] {
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"rules":[]}}"#);
        let reply = send(&server, "POST", roles, JSON, body).await;
        assert_eq!(reply.code, 422, "{}", reply.text);
    }
    let labels: Vec<String> = (0..50_000).map(|n| format!(r#""-{n}":"-""#)).collect();
    let body = format!(r#"{{"metadata":{{"name":"l","labels":{{{}}}}}}}"#, labels.join(","));
    let reply = send(&server, "POST", "/api/v1/namespaces/a/configmaps", JSON, body).await;
    assert!(reply.code == 422 && reply.text.len() < 200_000, "{} {}", reply.code, reply.text.len());
    let body = format!(r#"{{"metadata":{{"name":"{}"}},"rules":[]}}"#, "x".repeat(1_024));
    assert_eq!(send(&server, "POST", roles, JSON, body).await.code, 201);
    assert_eq!(send(&server, "GET", roles, JSON, "").await.code, 200);
}

/// A generator of our own: a failure is found again by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).expect("a length")).expect("below a length")
    }

    /// A place in the widget, near its leaves or nowhere.
    fn pointer(&mut self) -> String {
        let roots = ["/free", "/any", "/list", "/names", "/set", "/metadata", "/metadata/managedFields", "/free/a"];
        let mut pointer = roots[self.below(roots.len())].to_owned();
        for _ in 0..self.below(4) {
            let steps = ["/a", "/0", "/-", "/text", "/name", "/b"];
            pointer.push_str(steps[self.below(steps.len())]);
        }
        pointer
    }

    fn value(&mut self, levels: usize) -> String {
        let (times, below) = (self.below(6), levels.saturating_sub(1));
        match self.below(8) {
            0 if levels > 0 => format!("[{}]", (0..times).map(|_| self.value(below)).collect::<Vec<_>>().join(",")),
            1 if levels > 0 => format!(r#"{{"a":{},"b":{}}}"#, self.value(below), self.value(below)),
            2 => deep(self.below(130)),
            3 => format!("[{}]", often("{}", self.below(3_000))),
            4 => format!(r#""{}""#, "x".repeat(self.below(5_000))),
            5 => r#"{"name":"a"}"#.to_owned(),
            6 => "null".to_owned(),
            _ => self.below(1_000).to_string(),
        }
    }

    fn operation(&mut self) -> String {
        let op = ["add", "add", "replace", "remove", "move", "copy", "copy", "test"][self.below(8)];
        let (path, from, value) = (self.pointer(), self.pointer(), self.value(3));
        format!(r#"{{"op":"{op}","path":"{path}","from":"{from}","value":{value}}}"#)
    }
}

#[tokio::test]
async fn whatever_is_stored_can_be_read_again() {
    let server = start().await;
    let mut random = Random(0x5eed_cafe);
    for step in 0..200 {
        let (kind, body) = match random.below(4) {
            0 => (
                JSON_PATCH,
                format!("[{}]", (0..=random.below(4)).map(|_| random.operation()).collect::<Vec<_>>().join(",")),
            ),
            1 => (MERGE, format!(r#"{{"free":{},"list":{}}}"#, random.value(4), random.value(3))),
            2 => (APPLY, widget("w", &format!(r#""free":{{"a":{}}},"any":{}"#, random.value(4), random.value(4)))),
            _ => (MERGE, r#"{"free":null,"any":null,"list":null,"names":null,"set":null}"#.to_owned()),
        };
        let path = format!("{WIDGET}?fieldManager=m{}&force={}", random.below(3), kind == APPLY);
        let path = if kind == APPLY { path } else { WIDGET.to_owned() };
        let reply = send(&server, "PATCH", &path, kind, body.clone()).await;
        let shown: String = body.chars().take(300).collect();
        assert!(reply.code.as_u16() < 500, "step {step}: {} {} for {kind} {shown}", reply.code, reply.text);
        let read = send(&server, "GET", WIDGET, JSON, "").await;
        let reads = read.code == 200 && read.value["metadata"]["name"] == "w";
        assert!(reads && read.text.len() <= kinds::bounds::OBJECT_BYTES_MAX + 64, "step {step}: {}", read.code);
        assert!(!kinds::bounds::is_text_deeper(read.text.as_bytes(), kinds::bounds::DEPTH_MAX), "step {step}");
    }
}
