//! A token that is bound in one organization, at every endpoint there is.

use kube::Client;
use serde_json::{Value, json};
use server::orgs::table::{Action, ENDPOINTS, Endpoint, Who};

use super::platform::{Platform, of_env, try_send};

/// The path of an endpoint with names that are there, or could be.
fn path(endpoint: &Endpoint, org: &str) -> String {
    let named = |part: &str| match part {
        "{org}" => org.to_owned(),
        "{app}" => "shop".to_owned(),
        "{env}" => "prod".to_owned(),
        "{dimension}" => "max_apps".to_owned(),
        part if part.starts_with('{') => "x1".to_owned(),
        part => part.to_owned(),
    };
    endpoint.path.split('/').map(named).collect::<Vec<_>>().join("/")
}

pub async fn member(platform: &mut Platform) -> Client {
    let rules = json!([{"apiGroups": ["orgs.bursar.dev"], "resources": ["*"], "verbs": ["*"]}]);
    bound(platform, rules, "namespaces/acme/rolebindings").await
}

/// A client with these rights, in one namespace or everywhere.
async fn bound(platform: &mut Platform, rules: Value, bindings: &str) -> Client {
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    platform
        .done(&format!("POST {roles}/clusterroles"), json!({"metadata": {"name": "org-member"}, "rules": rules}))
        .await;
    platform.done("POST /api/v1/namespaces/acme/serviceaccounts", json!({"metadata": {"name": "ci"}})).await;
    let binding = json!({
        "metadata": {"name": "ci"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "org-member"},
        "subjects": [{"kind": "ServiceAccount", "name": "ci", "namespace": "acme"}],
    });
    platform.done(&format!("POST {roles}/{bindings}"), binding).await;
    let path = "POST /api/v1/namespaces/acme/serviceaccounts/ci/token";
    let answer = platform.done(path, json!({"spec": {}})).await;
    let kubeconfig = kube::config::Kubeconfig::read_from(platform.server.kubeconfig()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
    let mut config = config.expect("a configuration");
    let token = answer["status"]["token"].as_str().expect("a token").to_owned();
    config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
    // What is refused for a while is answered, and not asked for again.
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_reaches_its_organization_and_nothing_else_at_any_endpoint() {
    let mut platform = Platform::start(&[], false).await;
    platform.done("POST /v1/orgs", json!({"id": "other", "tier": "standard"})).await;
    platform.done("POST /v1/orgs/other/apps", json!({"name": "shop"})).await;
    let member = member(&mut platform).await;
    for endpoint in ENDPOINTS.iter().filter(|one| !matches!(one.action, Action::OpenApi)) {
        // Another's, and what is nobody's in particular, is not even answered with what is wrong with the request.
        let line = format!("{} {}", endpoint.method, path(endpoint, "other"));
        let (code, answer) = try_send(&member, &line, &Value::Null, None).await.expect("an answer");
        assert_eq!(code, 403, "{line}: {answer}");
        let line = format!("{} {}", endpoint.method, path(endpoint, "acme"));
        // A stream of its own would not end.
        if endpoint.who == Who::Org && !matches!(endpoint.action, Action::Stream) {
            let (code, answer) = try_send(&member, &line, &Value::Null, None).await.expect("an answer");
            assert!(!matches!(code, 401 | 403), "{line}: {answer}");
        } else if endpoint.who == Who::Operator {
            let (code, answer) = try_send(&member, &line, &Value::Null, None).await.expect("an answer");
            assert_eq!(code, 403, "{line}: {answer}");
        }
    }
    // Nothing of the other was changed by all that.
    let apps = platform.get("/v1/orgs/other/apps").await;
    assert_eq!(apps["items"].as_array().map(Vec::len), Some(1), "{apps}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_speaks_for_its_own_node_alone() {
    let mut platform = Platform::start(&["n1"], false).await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    let instance = platform.until_ready("prod", 1).await.remove(0)["id"].as_str().expect("an id").to_owned();
    let rule = |resources: Value, names: Value| json!({"apiGroups": ["orgs.bursar.dev"], "resources": resources, "verbs": ["update"], "resourceNames": names});
    let anything = json!({"apiGroups": ["orgs.bursar.dev"], "resources": ["instances/status"], "verbs": ["update"]});
    let rules = json!([anything, rule(json!(["nodes/status"]), json!(["n2"]))]);
    let other = bound(&mut platform, rules, "clusterrolebindings").await;
    platform.node("n2").await;
    let report = format!("PUT /v1/orgs/acme/instances/{instance}/status");
    for body in [
        json!({"status": "failed"}),
        json!({"status": "stopped", "node": "n1"}),
        json!({"status": "failed", "node": "n2"}),
    ] {
        let (code, answer) = try_send(&other, &report, &body, None).await.expect("an answer");
        assert_eq!((code, &answer["code"]), (403, &json!("forbidden")), "{answer}");
    }
    let beat = |node: &str| format!("POST /v1/nodes/{node}/heartbeat");
    assert_eq!(try_send(&other, &beat("n1"), &Value::Null, None).await.expect("an answer").0, 403);
    assert_eq!(try_send(&other, &beat("n2"), &Value::Null, None).await.expect("an answer").0, 204);
    let shown = platform.get(&format!("/v1/orgs/acme/instances/{instance}")).await;
    assert_eq!(shown["reported"]["status"], "ready", "{shown}");
}
