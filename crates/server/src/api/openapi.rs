//! `/openapi/v3`: an index and one document a group-version. kubectl reads them for `explain`, `apply` and `edit`.
//!
//! `/openapi/v2` is answered with a valid document that defines nothing. kubectl asks for it before it sends a `List`, and
//! takes a kind without a definition for one that the server checks itself, which is so; a 404 would stop it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response, header};
use kinds::openapi::{CustomResource, Document, custom, documents, index};
use parking_lot::Mutex;
use rules::GroupResource;
use serde_json::{Value, json};

use super::nonresource::document;
use super::{Api, ApiError, ApiResult};
use crate::core::Cache;
use crate::registry;

/// The documents of custom resources, made again when a definition has changed.
#[derive(Default)]
pub(super) struct CustomDocuments {
    made: Mutex<Option<Made>>,
}

/// The revisions of the definitions, and what was made of them.
type Made = (Vec<u64>, Arc<Customs>);

struct Customs {
    documents: Vec<Document>,
    /// Of these and of the built-in ones.
    index: registry::Document,
}

impl CustomDocuments {
    fn of(&self, cache: &Cache) -> Arc<Customs> {
        let definitions = cache.list(&GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"));
        let revisions: Vec<u64> = definitions.range("", None).map(|definition| definition.revision).collect();
        let mut made = self.made.lock();
        if let Some((_, customs)) = made.as_ref().filter(|(known, _)| *known == revisions) {
            return customs.clone();
        }
        let values: Vec<Value> = definitions.range("", None).map(|definition| definition.value()).collect();
        let own = documents_of(&values);
        let index = index(documents().iter().chain(&own)).to_string();
        let customs = Arc::new(Customs { documents: own, index: registry::Document::of_bytes(index.into()) });
        *made = Some((revisions, customs.clone()));
        customs
    }
}

fn documents_of(definitions: &[Value]) -> Vec<Document> {
    let mut by_version: BTreeMap<(String, String), Vec<CustomResource<'_>>> = BTreeMap::new();
    for definition in definitions {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten().filter(|version| version["served"] == true) {
            let resource = CustomResource {
                kind: text("/spec/names/kind"),
                list_kind: text("/spec/names/listKind"),
                plural: text("/spec/names/plural"),
                namespaced: text("/spec/scope") == "Namespaced",
                schema: version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null),
                status: version.pointer("/subresources/status").is_some(),
                scale: version.pointer("/subresources/scale").is_some(),
            };
            let name = version["name"].as_str().unwrap_or_default().to_owned();
            by_version.entry((text("/spec/group").to_owned(), name)).or_default().push(resource);
        }
    }
    by_version.iter().map(|((group, version), resources)| custom(group, version, resources)).collect()
}

impl Api {
    /// `path` is what follows `/openapi/v3/`; empty for the index.
    pub(super) fn openapi(&self, headers: &HeaderMap, path: &str) -> ApiResult<Response<Body>> {
        let customs = self.inner.openapi.of(&self.parts().cache);
        if path.is_empty() {
            return Ok(document(headers, &customs.index, "application/json"));
        }
        let mut all = documents().iter().chain(&customs.documents);
        let found = all.find(|document| document.path == path).ok_or_else(ApiError::no_such_path)?;
        let prepared = registry::Document {
            body: Bytes::copy_from_slice(&found.body),
            etag: format!("\"{}\"", found.hash).into(),
        };
        Ok(document(headers, &prepared, "application/json"))
    }
}

/// Clients of the second version read it in protobuf, and name it so.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document of OpenAPI version 2, in the form that was asked for.
pub(super) fn version_two(headers: &HeaderMap, minor: &str) -> Response<Body> {
    const TITLE: &str = "Kubernetes";
    let version = format!("v1.{minor}.0");
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepts.into_iter().any(|accept| accept.contains("proto-openapi")) {
        // Document {swagger = 1, info = 2 {title = 1, version = 2}}; every text is far shorter than 128 bytes.
        let field = |number: u8, bytes: &[u8]| {
            let length = u8::try_from(bytes.len()).unwrap_or_default();
            [&[number << 3 | 2, length], bytes].concat()
        };
        let info = [field(1, TITLE.as_bytes()), field(2, version.as_bytes())].concat();
        let body = [field(1, b"2.0"), field(2, &info)].concat();
        return document(headers, &registry::Document::of_bytes(body.into()), PROTOBUF);
    }
    let info = json!({"title": TITLE, "version": version});
    let body = json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}});
    document(headers, &registry::Document::of_bytes(body.to_string().into()), "application/json")
}
