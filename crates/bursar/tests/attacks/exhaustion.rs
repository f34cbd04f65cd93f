//! Making the server work or swell: deep, long, many, multiplied. Every body is made here, by a line that says what it is.

use serde_json::{Value, json};

use crate::land::Land;

const MAPS: &str = "/api/v1/namespaces/team-a/configmaps";
const OWN: &str = "/api/v1/namespaces/team-a/configmaps/own";

fn deep_json(levels: usize) -> String {
    format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
}

fn deep_object(levels: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
}

/// A JSON patch whose operations are all alike.
fn patch(count: usize, operation: impl Fn(usize) -> Value) -> String {
    Value::Array((0..count).map(operation).collect()).to_string()
}

/// `a: &a [...]`, and each further line ten times the one before.
fn aliases(levels: usize) -> String {
    let mut text = String::from("metadata: {name: x}\ndata:\n  k0: &k0 [lol]\n");
    for level in 1..levels {
        let names = vec![format!("*k{}", level - 1); 10].join(", ");
        text.push_str(&format!("  k{level}: &k{level} [{names}]\n"));
    }
    text
}

/// Patches: depth, growth and number of operations.
async fn patches(land: &mut Land) {
    let nest = patch(20_000, |_| json!({"op": "move", "from": "/data", "path": "/data/a"}));
    let double = patch(40, |_| json!({"op": "copy", "from": "/data", "path": "/data/again"}));
    let inside = patch(
        300,
        |at| json!({"op": "add", "path": format!("/metadata/managedFields/0/fieldsV1{}", "/f:a".repeat(at)), "value": {"f:a": {}}}),
    );
    let inserts = patch(20_000, |_| json!({"op": "add", "path": "/metadata/finalizers/0", "value": "a/b"}));
    for body in [&nest, &double, &inside, &inserts] {
        land.attempt(("edit", "PATCH", OWN, "patch", body), "400|403|413|422").await;
        land.attempt(("edit", "PATCH", &format!("{OWN}?dryRun=All"), "patch", body), "400|403|413|422").await;
        land.attempt(("patcher", "PATCH", OWN, "patch", body), "400|403|413|422").await;
    }
    let deep = format!("{{\"data\": {}}}", deep_object(5_000));
    for form in ["merge", "strategic", "apply", "patch"] {
        land.attempt(("edit", "PATCH", &format!("{OWN}?fieldManager=m"), form, &deep), "400|413|422").await;
        land.attempt(("edit", "PATCH", &format!("{OWN}?fieldManager=m"), form, &deep_json(100_000)), "400|413|422")
            .await;
    }
}

/// Bodies: depth, aliases, size, in every form.
async fn bodies(land: &mut Land) {
    for levels in [200, 5_000, 200_000] {
        land.attempt(("edit", "POST", MAPS, "", &deep_json(levels)), "400|413|422").await;
        let body = format!("{{\"metadata\": {{\"name\": \"x\"}}, \"data\": {}}}", deep_object(levels));
        land.attempt(("edit", "POST", MAPS, "", &body), "400|413|422").await;
        let flow = format!("metadata: {{name: x}}\ndata: {}\n", deep_json(levels));
        land.attempt(("edit", "POST", MAPS, "yaml", &flow), "400|413|422").await;
    }
    for levels in [7, 9, 40] {
        land.attempt(("edit", "POST", MAPS, "yaml", &aliases(levels)), "400|413|422").await;
        land.attempt(("stranger", "POST", MAPS, "yaml", &aliases(levels)), "403").await;
    }
    let large = |bytes: usize| json!({"metadata": {"name": "x"}, "data": {"k": "v".repeat(bytes)}}).to_string();
    land.attempt(("edit", "POST", MAPS, "", &large(1_100_000)), "413|422").await;
    land.attempt(("edit", "POST", MAPS, "", &large(2_900_000)), "413|422").await;
    land.attempt(("edit", "POST", MAPS, "", &large(8_000_000)), "413").await;
    let labels: serde_json::Map<String, Value> =
        (0..9_000).map(|at| (format!("l{at}"), json!("v".repeat(60)))).collect();
    let noted = json!({"metadata": {"name": "x", "annotations": labels}}).to_string();
    land.attempt(("edit", "POST", MAPS, "", &noted), "413|422").await;
}

/// Built-in kinds with long lists.
async fn lists(land: &mut Land) {
    let ports: Vec<Value> = (0..30_000).map(|at| json!({"name": format!("p{at}"), "port": 1 + at % 65_000})).collect();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}}).to_string();
    land.attempt(("edit", "POST", "/api/v1/namespaces/team-a/services", "", &service), "403|413|422").await;
    let requests = json!({"requests": {"cpu": "1m"}});
    let containers: Vec<Value> =
        (0..9_000).map(|at| json!({"name": format!("c{at}"), "image": "i", "resources": requests})).collect();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}}).to_string();
    land.attempt(("edit", "POST", "/api/v1/namespaces/team-a/pods", "", &pod), "403|413|422").await;
    let tolerations: Vec<Value> =
        (0..20_000).map(|at| json!({"key": format!("k{at}"), "operator": "Exists"})).collect();
    let tolerant = json!({"metadata": {"name": "p"}, "spec": {
        "tolerations": tolerations, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}],
    }});
    land.attempt(("edit", "POST", "/api/v1/namespaces/team-a/pods", "", &tolerant.to_string()), "403|413|422").await;
    let selector = format!("{MAPS}?labelSelector={}", "a%3Db,".repeat(3_000));
    land.attempt(("view", "GET", &selector, "", ""), "400|414|431").await;
    let owners: Vec<Value> = (0..5_000)
        .map(|at| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("o{at}"), "uid": format!("u{at}"), "controller": true}))
        .collect();
    let owned = json!({"metadata": {"name": "x", "ownerReferences": owners}}).to_string();
    land.attempt(("edit", "POST", MAPS, "", &owned), "413|422").await;
}

fn definition(plural: &str, schema: &Value) -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bombs.example.com")},
        "spec": {
            "group": "bombs.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": format!("K{plural}"), "listKind": format!("K{plural}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
    .to_string()
}

fn spec_of(properties: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
}

/// Definitions that cost much, and objects of definitions that cost little and multiply.
async fn definitions(land: &mut Land) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut deep = json!({"type": "string"});
    for _ in 0..300 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    land.attempt(("definer", "POST", path, "", &definition("deeps", &deep)), "400|413|422").await;
    let patterns: serde_json::Map<String, Value> = (0..1_000)
        .map(|at| (format!("f{at}"), json!({"type": "string", "pattern": format!("^(a|b|c{at}){{1,900}}$")})))
        .collect();
    land.attempt(("definer", "POST", path, "", &definition("patterns", &spec_of(&json!(patterns)))), "400|413|422")
        .await;
    let rule = json!({"rule": "self.all(a, self.all(b, self.all(c, a != b || b != c)))"});
    let costly =
        spec_of(&json!({"l": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [rule]}}));
    land.attempt(("definer", "POST", path, "", &definition("costs", &costly)), "422").await;

    let item = json!({"type": "object", "default": {}, "properties": {
        "a": {"type": "string", "default": "x".repeat(2_000)}, "b": {"type": "string", "default": "y".repeat(2_000)},
    }});
    let bomb = spec_of(&json!({"l": {"type": "array", "items": item}}));
    land.attempt(("root", "POST", path, "", &definition("bombs", &bomb)), "201").await;
    let values: Vec<String> = (0..20_000).map(|at| format!("value-{at}")).collect();
    let listed = spec_of(&json!({"l": {"type": "array", "items": {"type": "string", "enum": values}}}));
    land.attempt(("root", "POST", path, "", &definition("enums", &listed)), "201|413|422").await;
    let of = |plural: &str| format!("/apis/bombs.example.com/v1/namespaces/team-a/{plural}");
    let object = |plural: &str, list: Vec<Value>| {
        json!({"apiVersion": "bombs.example.com/v1", "kind": format!("K{plural}"), "metadata": {"name": "x"}, "spec": {"l": list}})
            .to_string()
    };
    for count in [3_000, 10_000, 400_000] {
        let body = object("bombs", vec![json!({}); count]);
        land.attempt(("star", "POST", &of("bombs"), "", &body), "413|422").await;
        land.attempt(("star", "POST", &format!("{}?dryRun=All", of("bombs")), "", &body), "413|422").await;
    }
    let body = object("enums", vec![json!("value-none"); 60_000]);
    land.attempt(("star", "POST", &of("enums"), "", &body), "404|413|422").await;
    for plural in ["bombs", "enums"] {
        let definition = format!("{path}/{plural}.bombs.example.com");
        land.attempt(("root", "DELETE", &definition, "", ""), "200|404").await;
        land.until_gone(&definition).await;
    }
}

/// Roles and bindings of a namespace's own administrator, thousands of rules against thousands.
async fn roles(land: &mut Land) {
    let api = "rbac.authorization.k8s.io";
    let path = |kind: &str| format!("/apis/{api}/v1/namespaces/team-a/{kind}");
    let role = |name: &str, resource: &str, count: usize| {
        let rule = |at: usize| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"], "resourceNames": [format!("n{at}")]});
        json!({"metadata": {"name": name}, "rules": (0..count).map(rule).collect::<Vec<_>>()}).to_string()
    };
    let binding = |name: &str, subjects: Value| {
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": api, "kind": "Role", "name": "big"}, "subjects": subjects})
            .to_string()
    };
    let subject = |kind: &str, name: &str| json!({"kind": kind, "apiGroup": api, "name": name});
    land.attempt(("admin", "POST", &path("roles"), "", &role("big", "pods", 10_000)), "201").await;
    for name in ["b0", "b1", "b2"] {
        let body = binding(name, json!([subject("User", "admin")]));
        land.attempt(("admin", "POST", &path("rolebindings"), "", &body), "201").await;
    }
    land.attempt(("admin", "POST", &path("roles"), "", &role("evil", "nodes", 10_000)), "403").await;
    let many = |count: usize| (0..count).map(|at| format!("n{at}")).collect::<Vec<_>>();
    let short = json!({"metadata": {"name": "short"}, "rules": [
        {"apiGroups": many(10), "resources": many(10), "verbs": ["get"], "resourceNames": many(100)},
    ]});
    land.attempt(("admin", "POST", &path("roles"), "", &short.to_string()), "403").await;
    let same = binding("same", json!(vec![subject("Group", "system:unauthenticated"); 10_000]));
    land.attempt(("admin", "POST", &path("rolebindings"), "", &same), "201").await;
    let own = path("rolebindings/same");
    for label in ["a", "b", "c"] {
        let body = json!({"metadata": {"labels": {"l": label}}}).to_string();
        land.attempt(("admin", "PATCH", &own, "merge", &body), "200").await;
        land.attempt(("nobody", "GET", MAPS, "", ""), "401|403").await;
    }
}

#[tokio::test]
async fn nobody_wears_the_server_out() {
    let mut land = Land::start().await;
    patches(&mut land).await;
    bodies(&mut land).await;
    lists(&mut land).await;
    definitions(&mut land).await;
    roles(&mut land).await;
    assert!(land.end().await >= 67, "a table was cut short");
}
