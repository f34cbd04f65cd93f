//! Resources that are not stored: made from others when somebody asks, or a document that becomes a write elsewhere.

use axum::body::Body;
use families::{Family, VirtualWrite};
use http::{Response, StatusCode};
use rules::GroupResource;
use serde_json::{Value, json};

use super::change::Change;
use super::managed::Author;
use super::negotiate::{Form, body_format};
use super::options::{ListOptions, WriteOptions};
use super::prepare::{CacheWorld, Expected, parse};
use super::select::Selection;
use super::view::View;
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::core::ObjectKey;

impl Api {
    pub(super) async fn virtual_resource(&self, call: &Call, family: &dyn Family) -> ApiResult<Response<Body>> {
        match &*call.info.verb {
            "list" => self.virtual_list(call, family),
            _ if call.info.namespace.is_empty() => Err(ApiError::method_not_allowed()),
            "get" => {
                let objects = self.virtual_objects(call, family, &call.info.namespace);
                let found = objects.into_iter().find(|object| meta::text(object, "name") == call.info.name);
                let object = found.ok_or_else(|| call.not_found())?;
                let view = self.view(call)?;
                match view.form {
                    Form::Table => Ok(response::value(StatusCode::OK, &table(&view, &[object], json!({})))),
                    Form::Object | Form::Metadata => Ok(response::value(StatusCode::OK, &object)),
                }
            }
            "create" => self.virtual_create(call, family).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn virtual_objects(&self, call: &Call, family: &dyn Family, namespace: &str) -> Vec<Value> {
        let cache = &*self.parts().cache;
        family.virtual_objects(&call.served.resource, namespace, &CacheWorld(cache), cache)
    }

    fn virtual_list(&self, call: &Call, family: &dyn Family) -> ApiResult<Response<Body>> {
        let view = self.view(call)?;
        let cache = &self.parts().cache;
        let namespaces: Vec<String> = match call.info.namespace.as_str() {
            "" => {
                let all = cache.list(&GroupResource::core("namespaces"));
                all.range("", None).map(|namespace| namespace.key.name.to_string()).collect()
            }
            one => vec![one.to_owned()],
        };
        let options = ListOptions::parse(&call.query, false)?;
        let selection = Selection::new(&call.served, &call.info.namespace, &options)?;
        let made = namespaces.iter().flat_map(|namespace| self.virtual_objects(call, family, namespace));
        let objects: Vec<Value> = made.filter(|object| selection.accepts_value(object)).collect();
        let metadata = json!({"resourceVersion": cache.revision().to_string()});
        let list = match view.form {
            Form::Table => table(&view, &objects, metadata),
            Form::Object | Form::Metadata => json!({
                "kind": call.served.list_kind, "apiVersion": call.served.api_version(), "metadata": metadata,
                "items": objects,
            }),
        };
        Ok(response::value(StatusCode::OK, &list))
    }

    /// A posted document writes a status elsewhere, on condition that nobody wrote there since.
    async fn virtual_create(&self, call: &Call, family: &dyn Family) -> ApiResult<Response<Body>> {
        let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let document = parse(body_format(&call.headers)?, &call.body, &Expected::main(&call.served))?.value;
        let write = family.virtual_write(&call.served.resource, &call.info.namespace, &document);
        let VirtualWrite { resource, name, resource_version, status } =
            write.ok_or_else(ApiError::method_not_allowed)?.map_err(ApiError::bad_request)?;
        let snapshot = self.parts().registry.snapshot();
        let served = snapshot.of(&resource).ok_or_else(ApiError::no_such_path)?.clone();
        let key = ObjectKey::new(resource.clone(), &call.info.namespace, &name);
        let author = Author::of(call, &options);
        let call = &call.about(served, &name);
        let dry_run = options.dry_run;
        let change = Change { call, key: &key, subresource: "status", dry_run, author: Some(&author) };
        let mut warnings = Vec::new();
        let changed = self.change(change, &mut warnings, |old, _| {
            if meta::text(old, "resourceVersion") != resource_version {
                return Err(ApiError::modified(&resource, &name));
            }
            let mut new = old.clone();
            new["status"] = status.clone();
            Ok(new)
        });
        changed.await?.ok_or_else(|| ApiError::not_found(&resource, &name))?;
        Ok(response::created())
    }
}

fn table(view: &View, objects: &[Value], metadata: Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": view.columns(),
        "rows": objects.iter().map(|object| view.row(object)).collect::<Vec<_>>(),
    })
}
