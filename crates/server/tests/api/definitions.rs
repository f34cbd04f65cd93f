//! The life of CustomResourceDefinitions: which names they get, which versions stay, what goes with them and what does not.

use crate::harness::Server;

/// A definition of `plural` and `kind` in `group`; `versions` are `name served storage`, comma separated.
fn definition(group: &str, plural: &str, kind: &str, versions: &str) -> String {
    let versions: Vec<String> = versions
        .split(',')
        .map(|version| {
            let words: Vec<&str> = version.split_whitespace().collect();
            format!(
                r#"{{"name": "{}", "served": {}, "storage": {}, "schema": {{"openAPIV3Schema":
                 {{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}, "subresources": {{"status": {{}}}}}}"#,
                words[0], words[1], words[2]
            )
        })
        .collect();
    let text = format!(
        r#"{{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {{"name": "{plural}.{group}"}},
          "spec": {{"group": "{group}", "scope": "Namespaced", "names": {{"plural": "{plural}", "kind": "{kind}"}},
          "versions": [{}]}}}}"#,
        versions.join(", ")
    );
    text.replace('\n', " ")
}

const AT: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn with_namespace() -> Server {
    let server = Server::start();
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    server
}

#[tokio::test]
async fn what_is_built_in_cannot_be_defined_again() {
    let server = with_namespace().await;
    let approved = r#""metadata": {"annotations": {"api-approved.kubernetes.io": "unapproved, an attack"}, "#;
    for (group, plural, kind, field) in [
        ("rbac.authorization.k8s.io", "roles", "Role", "spec.names.plural"),
        ("rbac.authorization.k8s.io", "rules", "ClusterRole", "spec.names.kind"),
        ("networking.k8s.io", "networkpolicies", "X", "spec.names.plural"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "X", "spec.names.plural"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", "spec.names.plural"),
        ("storage.k8s.io", "storageclass", "X", "spec.names.plural"),
    ] {
        let plain = definition(group, plural, kind, "v1 true true");
        let open = plain.replace(r#""metadata": {"#, approved);
        server
            .play(&format!(
                "POST {AT}\n  {plain}\n  422  message~metadata.annotations[api-approved.kubernetes.io]: Required value\n\
                 POST {AT}\n  {open}\n  422  message~{field}: Invalid value\n\
                 GET {AT}/{plural}.{group}\n  404\n"
            ))
            .await;
    }
    // A right to say so is what the annotation is.
    let approved = definition("new.k8s.io", "things", "Thing", "v1 true true").replace(r#""metadata": {"#, approved);
    server.play(&format!("POST {AT}\n  {approved}\n  201")).await;
    server.play("GET /apis/rbac.authorization.k8s.io/v1/clusterroles\n  200").await;
}

#[tokio::test]
async fn of_two_definitions_of_one_kind_the_second_waits() {
    let server = with_namespace().await;
    let first = definition("example.com", "widgets", "Widget", "v1 true true");
    let second = definition("example.com", "gadgets", "Widget", "v1 true true");
    server
        .play(&format!(
            r#"
POST {AT}
  {first}
  201  status.conditions.0.type=NamesAccepted  status.conditions.0.status=True  status.conditions.1.status=True  status.acceptedNames.kind=Widget
POST {AT}
  {second}
  201  status.conditions.0.status=False  status.conditions.0.reason=ListKindConflict  status.conditions.1.type=Established
    status.conditions.1.status=False  status.conditions.1.reason=NotAccepted  status.conditions.0.message="WidgetList" is already in use
GET /apis/example.com/v1/namespaces/a/gadgets
  404
GET /apis/example.com/v1/namespaces/a/widgets
  200
# No status says otherwise.
PATCH {AT}/gadgets.example.com/status Content-Type:application/merge-patch+json
  {{"status": {{"conditions": [{{"type": "Established", "status": "True", "reason": "x", "message": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}}], "acceptedNames": {{"plural": "gadgets", "kind": "Widget"}}}}}}
  200
GET {AT}/gadgets.example.com
  200  body~"status":"False","type":"Established"
GET /apis/example.com/v1/namespaces/a/gadgets
  404
# The first leaves, and whoever asks next gets the name.
DELETE {AT}/widgets.example.com
  200
PATCH {AT}/widgets.example.com Content-Type:application/merge-patch+json
  {{"metadata": {{"finalizers": null}}}}
  200
PATCH {AT}/gadgets.example.com/status Content-Type:application/merge-patch+json
  {{}}
  200  status.acceptedNames.kind=Widget
GET /apis/example.com/v1/namespaces/a/gadgets
  200
"#
        ))
        .await;
}

#[tokio::test]
async fn two_at_once_do_not_both_get_the_name() {
    let server = with_namespace().await;
    for round in 0..10 {
        let group = format!("g{round}.example.com");
        let post = |plural: &str| {
            let body = definition(&group, plural, "Widget", "v1 true true");
            server.send(crate::harness::request(&format!("POST {AT}"), &body))
        };
        let (one, two) = tokio::join!(post("widgets"), post("gadgets"));
        let established = |reply: &crate::harness::Reply| {
            assert_eq!(reply.code, 201, "{}", reply.text);
            reply.value["status"]["conditions"][1]["status"] == "True"
        };
        assert!(established(&one) != established(&two), "{} {}", one.text, two.text);
    }
}

#[tokio::test]
async fn a_version_stays_while_objects_may_be_stored_under_it() {
    let server = with_namespace().await;
    let old = definition("example.com", "widgets", "Widget", "v1 true true,v2 true false");
    let new = definition("example.com", "widgets", "Widget", "v1 true false,v2 true true");
    let without = definition("example.com", "widgets", "Widget", "v2 true true");
    let put = |body: &str| body.replace(r#""metadata": {"#, r#""metadata": {"resourceVersion": "${version}", "#);
    server
        .play(&format!(
            r#"
POST {AT}
  {old}
  201  metadata.resourceVersion>version  status.storedVersions.0=v1
POST /apis/example.com/v1/namespaces/a/widgets
  {{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "w"}}, "spec": {{"size": 1}}}}
  201
PUT {AT}/widgets.example.com
  {}
  200  metadata.resourceVersion>version  status.storedVersions.1=v2  metadata.finalizers.0=customresourcecleanup.apiextensions.k8s.io
# Stored under the old version, shown under the one asked for, by itself, in a list and in a table.
GET /apis/example.com/v2/namespaces/a/widgets/w
  200  apiVersion=example.com/v2  spec.size=1
GET /apis/example.com/v2/namespaces/a/widgets
  200  items.0.apiVersion=example.com/v2
GET /apis/example.com/v1/namespaces/a/widgets
  200  items.0.apiVersion=example.com/v1
PUT {AT}/widgets.example.com
  {}
  422  message~status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version
PATCH {AT}/widgets.example.com/status Content-Type:application/merge-patch+json
  {{"status": {{"storedVersions": ["v1"]}}}}
  200  status.storedVersions.0=v1  status.storedVersions.1=v2
# Writing an object again without a change migrates it; then the old version may go.
GET /apis/example.com/v2/namespaces/a/widgets/w
  200  metadata.resourceVersion>before
PATCH /apis/example.com/v2/namespaces/a/widgets/w Content-Type:application/merge-patch+json
  {{}}
  200  apiVersion=example.com/v2
PATCH {AT}/widgets.example.com/status Content-Type:application/merge-patch+json
  {{"status": {{"storedVersions": ["v2"]}}}}
  200  metadata.resourceVersion>version
PUT {AT}/widgets.example.com
  {}
  200  status.storedVersions.0=v2
GET /apis/example.com/v2/namespaces/a/widgets/w
  200  apiVersion=example.com/v2
GET /apis/example.com/v1/namespaces/a/widgets/w
  404
"#,
            put(&new),
            put(&without),
            put(&without),
        ))
        .await;
}

#[tokio::test]
async fn what_a_definition_is_about_does_not_change() {
    let server = with_namespace().await;
    let widgets = definition("example.com", "widgets", "Widget", "v1 true true");
    let change = |field: &str, value: &str, words: &str| {
        format!(
            "PATCH {AT}/widgets.example.com Content-Type:application/merge-patch+json\n  \
             {{\"spec\": {{{field}: {value}}}}}\n  422  message~{words}\n"
        )
    };
    server
        .play(&format!(
            "POST {AT}\n  {widgets}\n  201\n{}{}{}{}",
            change("\"scope\"", "\"Cluster\"", "spec.scope: Invalid value"),
            change("\"group\"", "\"other.com\"", "spec.group: Invalid value"),
            change("\"names\"", r#"{"plural": "gadgets"}"#, "spec.names.plural: Invalid value"),
            change("\"names\"", r#"{"kind": "Gadget"}"#, "spec.names.kind: Invalid value"),
        ))
        .await;
}

#[tokio::test]
async fn a_definition_that_goes_takes_nothing_new_and_leaves_nothing_behind() {
    let server = with_namespace().await;
    let hidden = definition("example.com", "widgets", "Widget", "v1 false true");
    let shown = definition("example.com", "widgets", "Widget", "v1 true true");
    let put = shown.replace(r#""metadata": {"#, r#""metadata": {"resourceVersion": "${version}", "#);
    server
        .play(&format!(
            r#"
POST {AT}
  {hidden}
  201  metadata.resourceVersion>version
GET /apis/example.com/v1/namespaces/a/widgets
  404
PUT {AT}/widgets.example.com
  {put}
  200
POST /apis/example.com/v1/namespaces/a/widgets
  {{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "w"}}}}
  201
PATCH {AT}/widgets.example.com Content-Type:application/json-patch+json
  [{{"op": "replace", "path": "/spec/versions/0/served", "value": false}}]
  200
GET /apis/example.com/v1/namespaces/a/widgets
  404
DELETE {AT}/widgets.example.com
  200
# While it goes, what is there can be listed and deleted, and nothing is created, by no verb.
GET /apis/example.com/v1/namespaces/a/widgets
  200  items.0.metadata.name=w
POST /apis/example.com/v1/namespaces/a/widgets
  {{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "x"}}}}
  403  message~create not allowed while custom resource definition is terminating
PATCH /apis/example.com/v1/namespaces/a/widgets/x?fieldManager=m Content-Type:application/apply-patch+yaml
  {{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "x"}}}}
  403  message~create not allowed while custom resource definition is terminating
# The finalizer is the server's while there are objects.
PATCH {AT}/widgets.example.com Content-Type:application/merge-patch+json
  {{"metadata": {{"finalizers": null}}}}
  200  metadata.finalizers.0=customresourcecleanup.apiextensions.k8s.io  status.conditions.2.type=Terminating
DELETE /apis/example.com/v1/namespaces/a/widgets/w
  200
PATCH {AT}/widgets.example.com Content-Type:application/merge-patch+json
  {{"metadata": {{"finalizers": null}}}}
  200
GET {AT}/widgets.example.com
  404
POST {AT}
  {shown}
  201
GET /apis/example.com/v1/namespaces/a/widgets
  200  items.0!
POST /apis/example.com/v1/namespaces/a/widgets
  {{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {{"name": "w"}}}}
  201
"#
        ))
        .await;
}
