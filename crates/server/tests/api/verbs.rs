//! One script a verb.

use crate::harness::Server;

const NAMESPACE: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201  kind=Namespace  metadata.name=a
"#;

#[tokio::test]
async fn create_and_get() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server.play(r#"
POST /api/v1/namespaces/a/configmaps User-Agent:tester/1.0
  {"metadata": {"name": "one", "labels": {"app": "web"}, "deletionTimestamp": "2020-01-01T00:00:00Z"}, "data": {"k": "v"}}
  201  kind=ConfigMap  apiVersion=v1  metadata.namespace=a  metadata.resourceVersion?  metadata.uid?
  metadata.creationTimestamp?  metadata.deletionTimestamp!  data.k=v
  metadata.managedFields.0.manager=tester  metadata.managedFields.0.operation=Update
GET /api/v1/namespaces/a/configmaps/one
  200  metadata.name=one  data.k=v
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "one"}}
  409  reason=AlreadyExists  message=configmaps "one" already exists  details.name=one  details.kind=configmaps
GET /api/v1/namespaces/a/configmaps/two
  404  reason=NotFound  message=configmaps "two" not found  details.name=two  details.kind=configmaps
POST /api/v1/namespaces/nosuch/configmaps
  {"metadata": {"name": "one"}}
  404  message=namespaces "nosuch" not found
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "x", "namespace": "b"}}
  400  message=the namespace of the provided object does not match the namespace sent on the request
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "x", "resourceVersion": "5"}}
  400  message=resourceVersion should not be set on objects to be created
POST /api/v1/namespaces/a/configmaps
  {"metadata": {}}
  422  reason=Invalid  message=ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required
  details.causes.0.field=metadata.name  details.causes.0.reason=FieldValueRequired
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "Bad_Name", "labels": {"a b": "c d"}}}
  422  details.kind=ConfigMap  details.causes.2.field=metadata.labels  message~[metadata.name: Invalid value: "Bad_Name"
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"generateName": "gen-"}}
  201  metadata.generateName=gen-  metadata.name~gen-
POST /api/v1/namespaces/a/configmaps?dryRun=All
  {"metadata": {"name": "dry"}}
  201  metadata.name=dry  metadata.uid?
GET /api/v1/namespaces/a/configmaps/dry
  404
POST /api/v1/namespaces/a/configmaps?dryRun=Some
  {"metadata": {"name": "dry"}}
  422  message=CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: "Some": supported values: "All"
POST /api/v1/configmaps
  {"metadata": {"name": "x", "namespace": "a"}}
  405  reason=MethodNotAllowed
POST /api/v1/namespaces/a/configmaps/named
  {"metadata": {"name": "named"}}
  405
GET /api/v1/nosuch
  404  message=the server could not find the requested resource
"#).await;
}

#[tokio::test]
async fn field_validation() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/configmaps?fieldValidation=Strict
  {"metadata": {"name": "one"}, "dataa": {}}
  400  reason=BadRequest
  message=ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "dataa"
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "one"}, "dataa": {}}
  201  header:Warning~299 - "unknown field \"dataa\""  dataa!
POST /api/v1/namespaces/a/configmaps?fieldValidation=Ignore
  {"metadata": {"name": "two"}, "dataa": {}}
  201  header:Warning!
POST /api/v1/namespaces/a/configmaps?fieldValidation=Lax
  {"metadata": {"name": "two"}}
  422  message~fieldValidation: Unsupported value: "Lax"
"#,
        )
        .await;
}

#[tokio::test]
async fn update() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server.play(r#"
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one"}, "data": {"k": "1"}}
  404  message=configmaps "one" not found
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "one"}, "data": {"k": "1"}}
  201  metadata.resourceVersion>first  metadata.uid>uid  metadata.creationTimestamp>born
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one", "resourceVersion": "${first}"}, "data": {"k": "2"}}
  200  data.k=2  metadata.uid=${uid}  metadata.creationTimestamp=${born}  metadata.resourceVersion>second
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one", "resourceVersion": "${first}"}, "data": {"k": "3"}}
  409  reason=Conflict  details.name=one  details.kind=configmaps
  message=Operation cannot be fulfilled on configmaps "one": the object has been modified; please apply your changes to the latest version and try again
# Nothing changes: nothing is written.
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one", "resourceVersion": "${second}"}, "data": {"k": "2"}}
  200  metadata.resourceVersion=${second}
# Without a version the last word counts.
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one"}, "data": {"k": "4"}}
  200  data.k=4
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "two"}, "data": {"k": "4"}}
  400  message=the name of the object (two) does not match the name on the URL (one)
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {}, "data": {"k": "4"}}
  400  message=the name of the object (based on URL) was undeterminable: name must be provided
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one", "uid": "11111111-1111-1111-1111-111111111111"}}
  409  message~Precondition failed: UID in precondition: 11111111-1111-1111-1111-111111111111
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one", "creationTimestamp": "2001-01-01T00:00:00Z"}}
  422  message~metadata.creationTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable
PUT /api/v1/namespaces/a/configmaps/one?dryRun=All
  {"metadata": {"name": "one"}, "data": {"k": "5"}}
  200  data.k=5
GET /api/v1/namespaces/a/configmaps/one
  200  data.k=4
"#).await;
}

#[tokio::test]
async fn patch_in_three_ways() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server
        .play(
            r#"
POST /api/v1/namespaces/a/services
  {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "name": "http"}], "selector": {"app": "a"}}}
  201  metadata.resourceVersion>first
PATCH /api/v1/namespaces/a/services/s Content-Type:application/strategic-merge-patch+json
  {"spec": {"ports": [{"port": 443, "name": "https"}]}}
  200  spec.ports.1.port?  spec.ports.0.port?
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {"metadata": {"labels": {"x": "y"}}, "spec": {"selector": {"app": null, "b": "c"}}}
  200  metadata.labels.x=y  spec.selector.app!  spec.selector.b=c
PATCH /api/v1/namespaces/a/services/s Content-Type:application/json-patch+json
  [{"op": "test", "path": "/metadata/labels/x", "value": "y"}, {"op": "remove", "path": "/metadata/labels/x"}]
  200  metadata.labels.x!
PATCH /api/v1/namespaces/a/services/s Content-Type:application/json-patch+json
  [{"op": "test", "path": "/metadata/name", "value": "no"}]
  422  reason=Invalid
PATCH /api/v1/namespaces/a/services/s Content-Type:application/json-patch+json
  {"op": "test"}
  400
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {"metadata": {"resourceVersion": "${first}", "labels": {"x": "z"}}}
  409  reason=Conflict
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {"metadata": {"name": "t"}}
  400  message=the name of the object (t) does not match the name on the URL (s)
PATCH /api/v1/namespaces/a/services/s?fieldValidation=Strict Content-Type:application/merge-patch+json
  {"spec": {"nosuch": 1}}
  422  message~strict decoding error: unknown field "spec.nosuch"
PATCH /api/v1/namespaces/a/services/s Content-Type:application/merge-patch+json
  {"spec": {"ports": 5}}
  422  message~patch: Invalid value
PATCH /api/v1/namespaces/a/services/nosuch Content-Type:application/merge-patch+json
  {}
  404
PATCH /api/v1/namespaces/a/services/s?force=true Content-Type:application/merge-patch+json
  {}
  422  message~force: Forbidden: may not be specified for non-apply patch
PATCH /api/v1/namespaces/a/services/s Content-Type:application/json
  {}
  415  reason=UnsupportedMediaType  message~application/apply-patch+yaml
"#,
        )
        .await;
}

#[tokio::test]
async fn server_side_apply() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server.play(r#"
PATCH /api/v1/namespaces/a/resourcequotas/q?fieldManager=a Content-Type:application/apply-patch+yaml
  apiVersion: v1
  kind: ResourceQuota
  metadata:
    name: q
  spec:
    hard:
      pods: "5"
  201  metadata.managedFields.0.manager=a  metadata.managedFields.0.operation=Apply  metadata.resourceVersion>first
PATCH /api/v1/namespaces/a/resourcequotas/q?fieldManager=a Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}}
  200  spec.hard.pods=5
PATCH /api/v1/namespaces/a/resourcequotas/q?fieldManager=b Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "6"}}}
  409  reason=Conflict  message=Apply failed with 1 conflict: conflict with "a": .spec.hard.pods
  details.causes.0.reason=FieldManagerConflict  details.causes.0.field=.spec.hard.pods
PATCH /api/v1/namespaces/a/resourcequotas/q?fieldManager=b&force=true Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "6", "services": "1"}}}
  200  spec.hard.pods=6
PATCH /api/v1/namespaces/a/resourcequotas/q?fieldManager=b Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "6"}}}
  200  spec.hard.services!
PATCH /api/v1/namespaces/a/resourcequotas/q Content-Type:application/apply-patch+yaml
  {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
  422  message=PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch
"#).await;
}

#[tokio::test]
async fn delete() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server.play(r#"
DELETE /api/v1/namespaces/a/configmaps/one
  404
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "one"}}
  201  metadata.uid>uid  metadata.resourceVersion>first
DELETE /api/v1/namespaces/a/configmaps/one
  {"preconditions": {"uid": "other"}}
  409  reason=Conflict
  message=Operation cannot be fulfilled on configmaps "one": the UID in the precondition (other) does not match the UID in record (${uid}). The object might have been deleted and then recreated
DELETE /api/v1/namespaces/a/configmaps/one
  {"preconditions": {"resourceVersion": "1"}}
  409
DELETE /api/v1/namespaces/a/configmaps/one?dryRun=All
  200
DELETE /api/v1/namespaces/a/configmaps/one
  {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "preconditions": {"uid": "${uid}"}}
  200  kind=Status  status=Success  details.name=one  details.kind=configmaps  details.uid=${uid}
GET /api/v1/namespaces/a/configmaps/one
  404
# A finalizer keeps it until it lets go.
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
  201
DELETE /api/v1/namespaces/a/configmaps/held
  200  kind=ConfigMap  metadata.deletionTimestamp?  metadata.deletionGracePeriodSeconds=0  metadata.resourceVersion>marked
DELETE /api/v1/namespaces/a/configmaps/held
  200  metadata.resourceVersion=${marked}
PATCH /api/v1/namespaces/a/configmaps/held Content-Type:application/merge-patch+json
  {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
  422  message~no new finalizers can be added if the object is being deleted
PATCH /api/v1/namespaces/a/configmaps/held Content-Type:application/merge-patch+json
  {"metadata": {"finalizers": null}}
  200  metadata.name=held
GET /api/v1/namespaces/a/configmaps/held
  404
# What becomes of dependents is a finalizer of its own.
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "parent"}}
  201
DELETE /api/v1/namespaces/a/configmaps/parent
  {"propagationPolicy": "Foreground"}
  200  metadata.finalizers.0=foregroundDeletion
DELETE /api/v1/namespaces/a/configmaps/parent
  {"propagationPolicy": "Never"}
  422  message~propagationPolicy: Unsupported value: "Never"
DELETE /api/v1/namespaces/a/configmaps/parent
  {"kind": "Pod", "apiVersion": "v1"}
  400
DELETE /api/v1/namespaces/a/configmaps?labelSelector=none
  200  kind=ConfigMapList  items.0!
DELETE /api/v1/namespaces/a/configmaps
  {"propagationPolicy": "Background"}
  200  kind=ConfigMapList  items.0.metadata.name=parent
GET /api/v1/namespaces/a/configmaps
  200  items=[]
"#).await;
}

#[tokio::test]
async fn a_namespace_goes_when_it_is_finalized() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server
        .play(
            r#"
PUT /api/v1/namespaces/a/finalize
  {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}
  200
DELETE /api/v1/namespaces/a
  200  status.phase=Terminating  metadata.deletionTimestamp?
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "late"}}
  403  reason=Forbidden  details.causes.0.reason=NamespaceTerminating
  message=configmaps "late" is forbidden: unable to create new content in namespace a because it is being terminated
PUT /api/v1/namespaces/a/finalize
  {"metadata": {"name": "a"}, "spec": {}}
  200
GET /api/v1/namespaces/a
  404
"#,
        )
        .await;
}

#[tokio::test]
async fn lists() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    for number in 0..5 {
        let tier = if number % 2 == 0 { "even" } else { "odd" };
        let body = format!(r#"{{"metadata": {{"name": "c{number}", "labels": {{"tier": "{tier}"}}}}}}"#);
        server.play(&format!("POST /api/v1/namespaces/a/configmaps\n  {body}\n  201")).await;
    }
    server.play(r#"
GET /api/v1/namespaces/a/configmaps
  200  kind=ConfigMapList  apiVersion=v1  items.0.metadata.name=c0  items.4.metadata.name=c4  metadata.resourceVersion>now
  metadata.continue!
GET /api/v1/configmaps?labelSelector=tier%3Deven
  200  items.2.metadata.name=c4  items.3!
GET /api/v1/configmaps?labelSelector=tier+notin+(even)
  200  items.1.metadata.name=c3  items.2!
GET /api/v1/configmaps?fieldSelector=metadata.name%3Dc3
  200  items.0.metadata.name=c3  items.1!
GET /api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dc3,metadata.namespace!%3Db
  200  items.0.metadata.name=c3
GET /api/v1/configmaps?fieldSelector=spec.x%3D1
  400  message=field label not supported: spec.x
GET /api/v1/configmaps?labelSelector=a+b
  400
GET /api/v1/namespaces/nosuch/configmaps
  200  items=[]
GET /api/v1/namespaces/a/configmaps?limit=2
  200  items.1.metadata.name=c1  items.2!  metadata.remainingItemCount=3  metadata.continue>next
DELETE /api/v1/namespaces/a/configmaps/c2
  200
# The pages show the state of the first.
GET /api/v1/namespaces/a/configmaps?limit=2&continue=${next}
  200  items.0.metadata.name=c2  items.1.metadata.name=c3  metadata.resourceVersion=${now}  metadata.continue>next
GET /api/v1/namespaces/a/configmaps?limit=2&continue=${next}
  200  items.0.metadata.name=c4  items.1!  metadata.continue!
GET /api/v1/namespaces/a/configmaps?limit=2&continue=${next}&resourceVersion=5
  400  message=specifying resource version is not allowed when using continue
GET /api/v1/namespaces/a/configmaps?continue=nonsense
  400  message=continue key is not valid

# Whoever wrote these did not make them here: no version in them counts, and the place they name is good for a new start.
GET /api/v1/namespaces/a/configmaps?limit=2&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5LCJzdGFydCI6ImEvYzEifQ
  410  reason=Expired  metadata.continue>again
GET /api/v1/namespaces/a/configmaps?limit=2&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhL2MxIn0
  410  reason=Expired
GET /api/v1/namespaces/a/configmaps?limit=2&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYS9jMSJ9
  410  reason=Expired
# One of ours, in another list.
GET /api/v1/configmaps?limit=2&continue=${next}
  410  reason=Expired
GET /api/v1/namespaces/a/secrets?limit=2&continue=${next}
  410  reason=Expired
GET /api/v1/namespaces/a/configmaps?limit=2&labelSelector=a%3Db&continue=${next}
  410  reason=Expired
GET /api/v1/namespaces/a/configmaps?limit=2&continue=${again}
  200  items.0.metadata.name=c3  items.1.metadata.name=c4  items.2!
# What was forged is in nobody's list.
GET /api/v1/namespaces/a/configmaps?limit=2
  200  items.0.metadata.name=c0  items.1.metadata.name=c1  metadata.remainingItemCount=2
GET /api/v1/namespaces/a/configmaps?resourceVersion=abc
  400  message~invalid resource version: resourceVersion: Invalid value: "abc"
GET /api/v1/namespaces/a/configmaps?resourceVersion=${now}&resourceVersionMatch=NotOlderThan
  200
GET /api/v1/namespaces/a/configmaps?resourceVersion=1&resourceVersionMatch=Exact
  200  metadata.resourceVersion=1  items.0!
GET /api/v1/namespaces/a/configmaps/c0?resourceVersion=99999
  504  reason=Timeout  details.causes.0.reason=ResourceVersionTooLarge
"#).await;
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server.play(r#"
POST /apis/apps/v1/namespaces/a/deployments
  {"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}, "status": {"replicas": 9}}
  201  status.replicas!
PATCH /apis/apps/v1/namespaces/a/deployments/d/status Content-Type:application/merge-patch+json
  {"spec": {"replicas": 7}, "status": {"replicas": 3}}
  200  spec.replicas=2  status.replicas=3
GET /apis/apps/v1/namespaces/a/deployments/d/status
  200  status.replicas=3
PATCH /apis/apps/v1/namespaces/a/deployments/d Content-Type:application/merge-patch+json
  {"spec": {"replicas": 4}, "status": {"replicas": 8}}
  200  spec.replicas=4  status.replicas=3
GET /apis/apps/v1/namespaces/a/deployments/d/scale
  200  kind=Scale  apiVersion=autoscaling/v1  spec.replicas=4  status.replicas=3  status.selector=app=d
PUT /apis/apps/v1/namespaces/a/deployments/d/scale
  {"metadata": {"name": "d"}, "spec": {"replicas": 6}}
  200  spec.replicas=6
PATCH /apis/apps/v1/namespaces/a/deployments/d/scale Content-Type:application/merge-patch+json
  {"spec": {"replicas": 5}}
  200  spec.replicas=5
PATCH /apis/apps/v1/namespaces/a/deployments/d/scale?fieldManager=m&force=true Content-Type:application/apply-patch+yaml
  {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 1}}
  200  spec.replicas=1
PUT /apis/apps/v1/namespaces/a/deployments/d/scale
  {"metadata": {"name": "d"}, "spec": {"replicas": -1}}
  422  message~spec.replicas: Invalid value: -1: must be greater than or equal to 0
GET /apis/apps/v1/namespaces/a/deployments/d
  200  spec.replicas=1
GET /apis/apps/v1/namespaces/a/deployments/d/nosuch
  404
DELETE /apis/apps/v1/namespaces/a/deployments/d/status
  405
"#).await;
}

/// What a request wrote is found by its number, which a client may choose.
#[tokio::test]
async fn every_answer_tells_the_number_of_its_request() {
    let server = Server::start();
    server.play(NAMESPACE).await;
    server
        .play(
            r#"
GET /api/v1/namespaces/a
  200  header:Audit-Id~-4
GET /api/v1/namespaces/nosuch Audit-Id:6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11
  404  header:Audit-Id=6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11
GET /api/v1/namespaces/a Audit-Id:whatever
  200  header:Audit-Id~-4
"#,
        )
        .await;
}
