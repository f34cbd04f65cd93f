//! Public ports: an organization is counted for each distinct address and port its routes are reached at, however many share it.
//!
//! Of the routes that share a binding one is charged for it. Who comes to an unclaimed binding is charged; when that route goes,
//! or no longer needs it, another that does takes it over in the same step.

use std::sync::Arc;

use kinds::fields::{given, items, text};
use serde_json::{Value, json};

use super::names::{ROUTES, env_name};
use crate::{Change, Must, Parsed, Place, PolicyObject, View, World};

/// What of a route the others ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RouteFacts {
    name: String,
    needs: Vec<String>,
    charged: Vec<String>,
}

/// The addresses and ports that a route is reached at: the listeners all share, and its environment's own address.
pub fn bindings(spec: &Value) -> Vec<String> {
    let Some(port) = given(spec, &["listen_port"]).and_then(Value::as_i64) else { return Vec::new() };
    let mut bindings = vec![format!("ipv6-shared:{port}")];
    if given(spec, &["ipv4_required"]).and_then(Value::as_bool) == Some(true) {
        let env = env_name(text(spec, &["app"]), text(spec, &["env"]));
        bindings.push(format!("ipv4:{env}:{port}"));
    }
    bindings
}

fn charged(spec: &Value) -> Vec<String> {
    items(spec, &["charged_bindings"]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn parse(object: &Value) -> Parsed {
    let spec = &object["spec"];
    let name = text(object, &["metadata", "name"]).to_owned();
    Arc::new(RouteFacts { name, needs: bindings(spec), charged: charged(spec) })
}

fn others(namespace: &str, but: &str, world: &dyn World) -> Vec<Arc<RouteFacts>> {
    let all = world.parsed(&ROUTES.resource(), namespace, &parse);
    let facts = all.into_iter().filter_map(|one| one.downcast::<RouteFacts>().ok());
    facts.filter(|one| one.name != but).collect()
}

/// A route is charged for what it needs and no other is charged for.
pub fn route(object: &PolicyObject<'_>, view: &dyn View) -> Must {
    if object.object.is_null() {
        return Must::AsItIs;
    }
    let others = others(object.namespace, object.name, view);
    let mut own = bindings(&object.object["spec"]);
    own.retain(|binding| !others.iter().any(|one| one.charged.contains(binding) && one.needs.contains(binding)));
    let mut route = object.object.clone();
    if let Some(Value::Object(spec)) = route.get_mut("spec") {
        spec.insert("charged_bindings".into(), json!(own));
    }
    Must::differ(object.object, route)
}

/// The routes that may have to take over what a changed one was charged for.
pub fn concerned(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let before = charged(&change.old["spec"]);
    let kept = change.new.map(|new| bindings(&new["spec"])).unwrap_or_default();
    let left: Vec<&String> = before.iter().filter(|binding| !kept.contains(binding)).collect();
    if left.is_empty() {
        return Vec::new();
    }
    let others = others(change.namespace, change.name, view);
    let needing = others.iter().filter(|one| left.iter().any(|binding| one.needs.contains(binding)));
    needing.map(|one| Place::new(ROUTES.resource(), change.namespace, &one.name)).collect()
}
