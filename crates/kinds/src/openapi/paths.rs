//! The `paths` of a document: the endpoints of each resource and what they take.

use serde_json::{Map, Value, json};

use super::root;

/// A resource whose endpoints are described.
pub struct Endpoint<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub plural: &'a str,
    pub namespaced: bool,
    pub verbs: &'a [&'a str],
    /// Strategic merge patches are for built-in kinds only.
    pub strategic: bool,
    /// Names in `components.schemas`.
    pub schema: String,
    pub list: Option<String>,
    pub subresources: Vec<Sub<'a>>,
}

pub struct Sub<'a> {
    pub name: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub verbs: &'a [&'a str],
    pub schema: String,
}

/// What an operation is about.
struct About<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    schema: &'a str,
    list: Option<&'a str>,
    strategic: bool,
    tag: String,
}

/// Adds all paths of a resource.
pub fn add(paths: &mut Map<String, Value>, endpoint: &Endpoint<'_>) {
    let &Endpoint { group, version, kind, plural, .. } = endpoint;
    let top = root(group, version);
    let tag = format!("{}_{version}", if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) });
    let list = endpoint.list.as_deref();
    let strategic = endpoint.strategic;
    let about = About { group, version, kind, schema: &endpoint.schema, list, strategic, tag: tag.clone() };
    let scoped = match endpoint.namespaced {
        true => format!("{top}/namespaces/{{namespace}}/{plural}"),
        false => format!("{top}/{plural}"),
    };
    let has = |verb: &str| endpoint.verbs.contains(&verb);
    if endpoint.namespaced && has("list") {
        let mut item = parameters(&[]);
        item.insert("get".into(), about.operation("list"));
        paths.insert(format!("{top}/{plural}"), item.into());
    }
    let within: &[&str] = if endpoint.namespaced { &["namespace"] } else { &[] };
    let mut item = parameters(within);
    for (verb, method) in [("list", "get"), ("create", "post"), ("deletecollection", "delete")] {
        if has(verb) {
            item.insert(method.into(), about.operation(verb));
        }
    }
    paths.insert(scoped.clone(), item.into());
    let within: &[&str] = if endpoint.namespaced { &["name", "namespace"] } else { &["name"] };
    let methods = [("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete")];
    let mut item = parameters(within);
    for (verb, method) in methods.iter().filter(|(verb, _)| has(verb)) {
        item.insert((*method).into(), about.operation(verb));
    }
    if item.len() > 1 {
        paths.insert(format!("{scoped}/{{name}}"), item.into());
    }
    for sub in &endpoint.subresources {
        let &Sub { group, version, kind, .. } = sub;
        let about = About { group, version, kind, schema: &sub.schema, list: None, strategic, tag: tag.clone() };
        let mut item = parameters(within);
        for (verb, method) in methods.iter().chain(&[("create", "post")]).filter(|(verb, _)| sub.verbs.contains(verb)) {
            item.insert((*method).into(), about.operation(verb));
        }
        paths.insert(format!("{scoped}/{{name}}/{}", sub.name), item.into());
    }
}

impl About<'_> {
    fn operation(&self, verb: &str) -> Value {
        let kind = self.kind;
        let (action, does, answer) = match verb {
            "list" => ("list", "list or watch objects of", self.list.unwrap_or(self.schema)),
            "create" => ("post", "create", self.schema),
            "update" => ("put", "replace the specified", self.schema),
            "patch" => ("patch", "partially update the specified", self.schema),
            "delete" => ("delete", "delete", STATUS),
            "deletecollection" => ("deletecollection", "delete a collection of", STATUS),
            _ => ("get", "read the specified", self.schema),
        };
        let mut operation = json!({
            "tags": [self.tag],
            "description": format!("{does} {kind}"),
            "responses": {
                "200": {"description": "OK", "content": content(&["application/json"], answer)},
                "401": {"description": "Unauthorized"},
            },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": self.group, "version": self.version, "kind": kind},
        });
        let queries: &[Query] = match verb {
            "list" => LIST,
            "create" | "update" => WRITE,
            "patch" => PATCH,
            "delete" => DELETE,
            "deletecollection" => DELETE_COLLECTION,
            _ => &[],
        };
        if !queries.is_empty() {
            operation["parameters"] = queries.iter().map(query).collect();
        }
        match verb {
            "create" | "update" => {
                operation["requestBody"] = json!({"required": true, "content": content(&["*/*"], self.schema)});
            }
            "delete" | "deletecollection" => {
                operation["requestBody"] = json!({"content": content(&["*/*"], DELETE_OPTIONS)});
            }
            "patch" => {
                let types = if self.strategic { PATCH_TYPES } else { &PATCH_TYPES[..3] };
                operation["requestBody"] = json!({"required": true, "content": content(types, PATCH_BODY)});
            }
            _ => {}
        }
        operation
    }
}

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH_BODY: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const PATCH_TYPES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// A query parameter: name, type, what for.
type Query = (&'static str, &'static str, &'static str);

const LIST: &[Query] = &[
    ("allowWatchBookmarks", "boolean", "Send bookmarks, which tell a watcher the newest version it has seen."),
    ("continue", "string", "The token of the page before, to get the next one."),
    ("fieldSelector", "string", "Only objects whose fields match."),
    ("labelSelector", "string", "Only objects whose labels match."),
    ("limit", "integer", "At most so many objects in one page."),
    ("resourceVersion", "string", "The version to read at, or to watch from."),
    ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Begin a watch with the objects there are, then a bookmark."),
    ("timeoutSeconds", "integer", "End the watch after so many seconds."),
    ("watch", "boolean", "Follow changes instead of listing."),
];
const DRY_RUN: Query = ("dryRun", "string", "All: go through every step and store nothing.");
const FIELD_MANAGER: Query = ("fieldManager", "string", "The name under which changed fields are owned.");
const FIELD_VALIDATION: Query =
    ("fieldValidation", "string", "What to do about unknown and duplicate fields: Ignore, Warn or Strict.");
const WRITE: &[Query] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Query] = &[
    DRY_RUN,
    FIELD_MANAGER,
    FIELD_VALIDATION,
    ("force", "boolean", "Apply even where another manager owns the field, and own it from then on."),
];
const GRACE: Query = ("gracePeriodSeconds", "integer", "How long the object may take to end; 0 is at once.");
const PROPAGATION: Query =
    ("propagationPolicy", "string", "What becomes of dependents: Orphan, Background or Foreground.");
const DELETE: &[Query] = &[DRY_RUN, GRACE, PROPAGATION];
const DELETE_COLLECTION: &[Query] = &[DRY_RUN, GRACE, PROPAGATION, LIST[2], LIST[3], LIST[4]];

fn query(&(name, kind, words): &Query) -> Value {
    json!({"name": name, "in": "query", "description": words, "schema": {"type": kind, "uniqueItems": true}})
}

/// A path item with its path parameters.
fn parameters(names: &[&str]) -> Map<String, Value> {
    let one = |name: &&str| {
        let words = if *name == "name" { "name of the object" } else { "the namespace it is in" };
        json!({"name": name, "in": "path", "required": true, "description": words,
            "schema": {"type": "string", "uniqueItems": true}})
    };
    let pretty = json!({"name": "pretty", "in": "query", "description": "Indent the answer.",
        "schema": {"type": "string", "uniqueItems": true}});
    let list: Vec<Value> = names.iter().map(one).chain([pretty]).collect();
    Map::from_iter([("parameters".to_owned(), list.into())])
}

fn content(types: &[&str], schema: &str) -> Value {
    let body = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
    types.iter().map(|name| ((*name).to_owned(), body.clone())).collect::<Map<_, _>>().into()
}
