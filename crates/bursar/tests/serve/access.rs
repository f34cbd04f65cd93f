//! A tenant's service account, from its token to the end of its rights.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::object;
use crate::process::Process;

async fn may(client: &Client, verb: &str, resource: &str, namespace: &str) -> bool {
    let attributes = json!({"verb": verb, "resource": resource, "namespace": namespace});
    let review: SelfSubjectAccessReview = object(json!({"spec": {"resourceAttributes": attributes}}));
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await.expect("an answer");
    answer.status.is_some_and(|status| status.allowed)
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("no answer: {other}"),
    }
}

#[tokio::test]
async fn a_tenant_is_confined_to_its_namespace_and_ends_with_its_account() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let admin = process.client().await;
    let create = PostParams::default();
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    for name in ["team-a", "team-b"] {
        namespaces.create(&create, &object(json!({"metadata": {"name": name}}))).await.expect("a namespace");
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "team-a");
    accounts.create(&create, &object(json!({"metadata": {"name": "ci"}}))).await.expect("an account");
    let binding = |role: &str, account: &str| -> RoleBinding {
        object(json!({"metadata": {"name": format!("{account}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "team-a"}]}))
    };
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), "team-a");
    bindings.create(&create, &binding("admin", "ci")).await.expect("a binding");
    let request: TokenRequest = object(json!({"spec": {"audiences": []}}));
    let token = accounts.create_token_request("ci", &create, &request).await.expect("a token");
    let token = token.status.and_then(|status| status.token).expect("a token");

    let tenant = process.client_with_token(&token).await;
    let me: SelfSubjectReview = Api::all(tenant.clone()).create(&create, &object(json!({}))).await.expect("an answer");
    let me = me.status.and_then(|status| status.user_info).and_then(|user| user.username);
    assert_eq!(me.as_deref(), Some("system:serviceaccount:team-a:ci"));
    // What it may, by asking and by doing.
    assert!(may(&tenant, "create", "configmaps", "team-a").await);
    let maps: Api<ConfigMap> = Api::namespaced(tenant.clone(), "team-a");
    maps.create(&create, &object(json!({"metadata": {"name": "m"}}))).await.expect("its own namespace");
    // What it may not: another namespace, all namespaces, its own quotas' limits, more rights than it has.
    assert!(!may(&tenant, "list", "configmaps", "team-b").await);
    let elsewhere: Api<ConfigMap> = Api::namespaced(tenant.clone(), "team-b");
    let refused = [
        elsewhere.list(&ListParams::default()).await.map(|_| ()),
        elsewhere.get("m").await.map(|_| ()),
        Api::<ConfigMap>::all(tenant.clone()).list(&ListParams::default()).await.map(|_| ()),
        namespaces_of(&tenant).list(&ListParams::default()).await.map(|_| ()),
        namespaces_of(&tenant).get("team-b").await.map(|_| ()),
        namespaces_of(&tenant).get("no-such-namespace").await.map(|_| ()),
        quotas_of(&tenant).create(&create, &object(json!({"metadata": {"name": "q"}}))).await.map(|_| ()),
        bindings_of(&tenant).create(&create, &binding("cluster-admin", "ci")).await.map(|_| ()),
        roles_of(&tenant).create(&create, &node_reader()).await.map(|_| ()),
    ];
    for outcome in refused {
        assert_eq!(code(&outcome.expect_err("refused")), 403);
    }
    namespaces_of(&tenant).get("team-a").await.expect("its own namespace may be read");
    bindings_of(&tenant).create(&create, &binding("view", "default")).await.expect("less than it holds may be granted");

    // A right withdrawn is withdrawn at once, and an account removed ends its tokens.
    bindings.delete("ci-admin", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(code(&maps.list(&ListParams::default()).await.expect_err("refused")), 403);
    accounts.delete("ci", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(code(&maps.list(&ListParams::default()).await.expect_err("refused")), 401);
    assert_eq!(process.stop().await, Some(0));
}

fn namespaces_of(client: &Client) -> Api<Namespace> {
    Api::all(client.clone())
}

fn quotas_of(client: &Client) -> Api<ResourceQuota> {
    Api::namespaced(client.clone(), "team-a")
}

fn bindings_of(client: &Client) -> Api<RoleBinding> {
    Api::namespaced(client.clone(), "team-a")
}

fn roles_of(client: &Client) -> Api<Role> {
    Api::namespaced(client.clone(), "team-a")
}

fn node_reader() -> Role {
    object(
        json!({"metadata": {"name": "nodes"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]}),
    )
}
