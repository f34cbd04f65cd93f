//! Custom resources: served as soon as they are defined, pruned, defaulted, validated, printed; and events, which have two
//! addresses.

use crate::harness::Server;

const DEFINITION: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
GET /apis/example.com/v1
  404
POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions
  {"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
   "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]},
   "versions": [{"name": "v1", "served": true, "storage": true,
     "schema": {"openAPIV3Schema": {"type": "object", "properties": {
       "spec": {"type": "object", "required": ["size"], "properties": {
         "size": {"type": "integer", "minimum": 1, "maximum": 10}, "color": {"type": "string", "default": "red"}}},
       "status": {"type": "object", "properties": {"ready": {"type": "boolean"}, "replicas": {"type": "integer"}}}}}},
     "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}},
     "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]},
    {"name": "v1beta1", "served": true, "storage": false,
     "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
  201
GET /apis/example.com/v1
  200  resources.0.name=widgets
"#;

#[tokio::test]
async fn custom_resources_obey_their_definition() {
    let server = Server::start();
    server.play(DEFINITION).await;
    server
        .play(
            r#"
POST /apis/example.com/v1/namespaces/a/widgets
  {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3, "nosuch": 1}, "status": {"ready": true}}
  201  spec.color=red  spec.nosuch!  status!  metadata.generation=1  header:Warning~unknown field \"spec.nosuch\"
POST /apis/example.com/v1/namespaces/a/widgets?fieldValidation=Strict
  {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"size": 3, "nosuch": 1}}
  400  message~strict decoding error: unknown field "spec.nosuch"
POST /apis/example.com/v1/namespaces/a/widgets
  {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"size": 30}}
  422  reason=Invalid  details.kind=Widget  details.group=example.com  details.causes.0.field=spec.size
POST /apis/example.com/v1/namespaces/a/widgets
  {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {}}
  422  message~spec.size: Required value
POST /apis/example.com/v1/namespaces/a/widgets
  {"metadata": {"name": "x"}, "spec": {"size": 1}}
  400  message~Object 'Kind' is missing
PATCH /apis/example.com/v1/namespaces/a/widgets/w Content-Type:application/merge-patch+json
  {"spec": {"size": 4}}
  200  metadata.generation=2
PATCH /apis/example.com/v1/namespaces/a/widgets/w/status Content-Type:application/merge-patch+json
  {"spec": {"size": 9}, "metadata": {"labels": {"x": "y"}}, "status": {"ready": true}}
  200  spec.size=4  status.ready=true  metadata.generation=2  metadata.labels!
PUT /apis/example.com/v1/namespaces/a/widgets/w
  {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 5}}
  422  message~metadata.resourceVersion: Invalid value: 0x0: must be specified for an update
PATCH /apis/example.com/v1/namespaces/a/widgets/w Content-Type:application/strategic-merge-patch+json
  {}
  415
GET /apis/example.com/v1/namespaces/a/widgets/w/scale
  200  spec.replicas=4
PUT /apis/example.com/v1/namespaces/a/widgets/w/scale
  {"metadata": {"name": "w"}, "spec": {"replicas": 6}}
  200  spec.replicas=6
GET /apis/example.com/v1beta1/namespaces/a/widgets/w
  200  apiVersion=example.com/v1beta1  spec.size=6
GET /apis/example.com/v1/widgets Accept:application/json;as=Table;v=v1;g=meta.k8s.io
  200  columnDefinitions.1.name=Size  rows.0.cells.0=w  rows.0.cells.1=6
PATCH /apis/example.com/v1/namespaces/a/widgets/applied?fieldManager=m Content-Type:application/apply-patch+yaml
  {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "applied"}, "spec": {"size": 2}}
  201  metadata.managedFields.0.operation=Apply
GET /openapi/v3
  200  body~/openapi/v3/apis/example.com/v1?hash=
GET /openapi/v3/api/v1
  200  openapi?
GET /openapi/v3/apis/example.com/v1
  200  openapi?
GET /openapi/v3/apis/nosuch/v1
  404
DELETE /apis/example.com/v1/namespaces/a/widgets/w
  200  status=Success
"#,
        )
        .await;
}

#[tokio::test]
async fn events_are_the_same_at_both_addresses() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /apis/events.k8s.io/v1/namespaces/a/events
  {"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i", "action": "Do", "reason": "Done", "type": "Normal", "note": "hello", "regarding": {"kind": "Pod", "name": "p", "namespace": "a"}}
  201  note=hello  apiVersion=events.k8s.io/v1
GET /api/v1/namespaces/a/events/e
  200  apiVersion=v1  message=hello  involvedObject.name=p  note!
GET /apis/events.k8s.io/v1/namespaces/a/events
  200  items.0.note=hello
GET /api/v1/namespaces/a/events?fieldSelector=involvedObject.name%3Dp
  200  items.0.message=hello
"#,
        )
        .await;
}
