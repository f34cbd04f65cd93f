//! Reads that ask for something special: a past state, another notation.

use crate::harness::Server;

#[tokio::test]
async fn a_list_at_an_exact_version_shows_that_version() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "one"}, "data": {"k": "first"}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "two"}}
  201  metadata.resourceVersion>then
PUT /api/v1/namespaces/a/configmaps/one
  {"metadata": {"name": "one"}, "data": {"k": "second"}}
  200
DELETE /api/v1/namespaces/a/configmaps/two
  200
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "three"}}
  201
GET /api/v1/namespaces/a/configmaps?resourceVersion=${then}&resourceVersionMatch=Exact
  200  metadata.resourceVersion=${then}  items.0.data.k=first  items.1.metadata.name=two  items.2!
GET /api/v1/namespaces/a/configmaps?resourceVersion=${then}&resourceVersionMatch=Exact&limit=1
  200  items.0.metadata.name=one  items.1!  metadata.continue>next
GET /api/v1/namespaces/a/configmaps?limit=1&continue=${next}
  200  metadata.resourceVersion=${then}  items.0.metadata.name=two  metadata.continue!
GET /api/v1/namespaces/a/configmaps?resourceVersion=${then}&resourceVersionMatch=NotOlderThan
  200  items.0.data.k=second  items.1.metadata.name=three  items.2!
GET /api/v1/namespaces/a/configmaps?resourceVersion=0&resourceVersionMatch=Exact
  422
GET /api/v1/namespaces/a/configmaps?resourceVersion=x
  400  message~invalid resource version: resourceVersion: Invalid value: "x"
"#,
        )
        .await;
}

#[tokio::test]
async fn answers_come_in_yaml_for_those_who_want_it_first() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces Accept:application/yaml
  {"metadata": {"name": "a"}}
  201  header:content-type=application/yaml  body~kind: Namespace
GET /api/v1/namespaces Accept:application/yaml
  200  body~kind: NamespaceList
GET /api/v1/namespaces/nosuch Accept:application/yaml
  404  body~reason: NotFound
GET /api/v1/namespaces/a Accept:application/json,application/yaml
  200  header:content-type=application/json  metadata.name=a
GET /api/v1/namespaces/a Accept:application/yaml;q=0.5,application/json
  200  header:content-type=application/json
GET /version Accept:application/yaml
  200  body~gitVersion: v
GET /api/v1/namespaces?watch=1 Accept:application/yaml
  406
"#,
        )
        .await;
    let request = crate::harness::request("GET /api/v1/namespaces/a Accept:application/yaml", "");
    let text = server.send(request).await.text;
    let value: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
    assert_eq!(value["metadata"]["labels"]["kubernetes.io/metadata.name"], "a");
}
