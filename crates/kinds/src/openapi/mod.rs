//! OpenAPI v3 documents in Kubernetes' shape, one a group-version, and the index over them.
//!
//! kubectl reads three things out of them: what `explain` prints, whether PATCH takes `fieldValidation` (then it leaves
//! validation to the server), and how lists merge when it computes a strategic merge patch. Built-in documents are made of
//! the facts, custom ones of the CRD's own schema; [`paths`] and this module do not know the difference.
//!
//! The URL of a document carries a hash of its content, so clients cache it until it changes.

mod custom;
mod descriptions;
mod paths;
mod schemas;

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::builtin::builtin;
use crate::facts::facts;
use schemas::Schemas;

pub use custom::{CustomResource, custom};

/// One group-version's document, ready to be sent.
#[derive(Clone, Debug)]
pub struct Document {
    /// `api/v1` or `apis/apps/v1`, as the index names it.
    pub path: String,
    pub body: Vec<u8>,
    /// Of the body, in hexadecimal.
    pub hash: String,
}

/// The version the documents name. Clients do not compare it with anything.
const VERSION: &str = "v1.36.0";

static BUILTIN: LazyLock<Vec<Document>> = LazyLock::new(build);

/// The documents of all built-in group-versions, made on first use.
pub fn documents() -> &'static [Document] {
    &BUILTIN
}

/// What `GET /openapi/v3` answers.
pub fn index<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Value {
    let entry = |document: &Document| {
        let url = format!("/openapi/v3/{}?hash={}", document.path, document.hash);
        (document.path.clone(), json!({"serverRelativeURL": url}))
    };
    let paths: Map<String, Value> = documents.into_iter().map(entry).collect();
    json!({"paths": paths})
}

fn build() -> Vec<Document> {
    let mut documents = Vec::new();
    for resources in builtin().chunk_by(|a, b| (a.group, a.version) == (b.group, b.version)) {
        let (group, version) = (resources[0].group, resources[0].version);
        let mut schemas = Schemas::new(facts());
        let mut paths = Map::new();
        for resource in resources {
            let list = facts().kind(group, version, &resource.list_kind).filter(|_| resource.stored());
            let endpoint = paths::Endpoint {
                group,
                version,
                kind: resource.kind,
                plural: resource.plural,
                namespaced: resource.namespaced,
                verbs: resource.verbs,
                strategic: true,
                schema: schemas.kind(group, version, resource.kind, resource.ty),
                list: list.map(|ty| schemas.kind(group, version, &resource.list_kind, ty)),
                subresources: resource
                    .subresources
                    .iter()
                    .map(|sub| paths::Sub {
                        name: sub.name,
                        group: sub.group,
                        version: sub.version,
                        kind: sub.kind,
                        verbs: sub.verbs,
                        schema: schemas.kind(sub.group, sub.version, sub.kind, sub.ty),
                    })
                    .collect(),
            };
            paths::add(&mut paths, &endpoint);
        }
        schemas.shared(group, version);
        documents.push(document(group, version, paths, schemas.finish()));
    }
    documents
}

fn document(group: &str, version: &str, paths: Map<String, Value>, schemas: Map<String, Value>) -> Document {
    let value = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header",
                    "description": "Bearer Token authentication"},
            },
        },
    });
    let body = value.to_string().into_bytes();
    Document { path: root(group, version).trim_start_matches('/').to_owned(), hash: hash(&body), body }
}

/// `/api/v1` or `/apis/apps/v1`.
fn root(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

/// FNV-1a of 128 bits. It tells one document of ours from another; nobody is kept out by it.
fn hash(bytes: &[u8]) -> String {
    let mut state: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in bytes {
        state = (state ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{state:032X}")
}

#[cfg(test)]
mod tests;
