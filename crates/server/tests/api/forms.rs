//! Negotiation and the forms of answers, discovery, health.

use crate::harness::Server;

#[tokio::test]
async fn objects_are_shown_in_the_form_asked_for() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "one"}, "data": {"k": "v"}}
  201
GET /api/v1/namespaces/a/configmaps/one Accept:application/json;as=Table;v=v1;g=meta.k8s.io,application/json
  200  kind=Table  apiVersion=meta.k8s.io/v1  columnDefinitions.0.name=Name  rows.0.cells.0=one
  rows.0.object.kind=PartialObjectMetadata  rows.0.object.metadata.name=one
GET /api/v1/namespaces/a/configmaps?includeObject=None Accept:application/json;as=Table;v=v1;g=meta.k8s.io
  200  kind=Table  rows.0.object!  rows.0.cells.0=one  metadata.resourceVersion?
GET /api/v1/namespaces/a/configmaps?includeObject=Object Accept:application/json;as=Table;v=v1;g=meta.k8s.io
  200  rows.0.object.data.k=v
GET /api/v1/namespaces/a/configmaps?includeObject=Some Accept:application/json;as=Table;v=v1;g=meta.k8s.io
  400
GET /api/v1/namespaces/a/configmaps/one Accept:application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io
  200  kind=PartialObjectMetadata  apiVersion=meta.k8s.io/v1  metadata.name=one  data!
GET /api/v1/namespaces/a/configmaps Accept:application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
  200  kind=PartialObjectMetadataList  items.0.kind=PartialObjectMetadata  items.0.metadata.name=one  items.0.data!
GET /api/v1/namespaces/a/configmaps/one Accept:application/vnd.kubernetes.protobuf,application/json
  200  kind=ConfigMap  header:content-type~application/json
GET /api/v1/namespaces/a/configmaps/one Accept:text/html
  406  reason=NotAcceptable  message~only the following media types are accepted: application/json
"#,
        )
        .await;
}

#[tokio::test]
async fn discovery_health_and_version() {
    let server = Server::start();
    server
        .play(
            r#"
GET /version
  200  major=1  gitVersion~v1.36
GET /healthz
  200  body~ok
GET /readyz/ping
  200  body~ok
GET /api
  200  kind=APIVersions
GET /api Accept:application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json
  200  kind=APIGroupDiscoveryList  header:content-type~as=APIGroupDiscoveryList  header:etag>etag
GET /api Accept:application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList If-None-Match:${etag}
  304
GET /apis
  200  kind=APIGroupList
GET /apis/apps
  200  kind=APIGroup  preferredVersion.version=v1
GET /apis/apps/v1
  200  kind=APIResourceList  groupVersion=apps/v1
GET /api/v1
  200  kind=APIResourceList
GET /apis/nosuch/v1
  404
GET /
  200  paths.0=/.well-known/openid-configuration  paths.1=/api
POST /version
  405
GET /debug/audit
  200  differences=[]
GET /nosuch
  404
"#,
        )
        .await;
}

#[tokio::test]
async fn reviews_are_answered_and_forgotten() {
    let server = Server::start();
    server
        .play(
            r#"
POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews
  {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}}
  201  status.allowed=true
POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews
  {"spec": {}}
  422  reason=Invalid
POST /apis/authentication.k8s.io/v1/selfsubjectreviews
  {}
  201  status.userInfo.username=admin
POST /apis/authorization.k8s.io/v1/subjectaccessreviews
  {"spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "pods"}}}
  201  status.allowed=false
GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews
  405
"#,
        )
        .await;
}
