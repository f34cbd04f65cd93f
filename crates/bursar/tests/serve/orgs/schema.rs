//! Schemathesis against the served OpenAPI document: requests that nobody thought of, of which none may be answered with a failure
//! of the server or in a way that the document does not tell.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::platform::{Platform, of_env};

/// Names in paths, so that requests meet what there is.
const CONFIGURATION: &str = "[parameters]\n\
    org = \"acme\"\napp = \"shop\"\nenv = [\"prod\", \"test\"]\nnode = [\"n1\", \"n2\"]\n\
    dimension = [\"max_apps\", \"max_instances\", \"max_total_cpu_request\"]\nrelease = [\"1\", \"7\"]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_answered_but_as_the_document_says() {
    let mut platform = Platform::start(&["n1"], false).await;
    platform.env("test").await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    platform.done(&format!("POST {}", of_env("prod", "routes")), json!({"hostname": "shop.example.com"})).await;
    let token = token(&mut platform).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/schemathesis");
    let found = Command::new(script).output().expect("scripts/schemathesis runs");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let program = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let folder = platform.server.folder.clone();
    let configuration = folder.join("schemathesis.toml");
    std::fs::write(&configuration, CONFIGURATION).expect("a configuration");
    let url = format!("https://{}/openapi/orgs.json", platform.server.address());
    let run = move || {
        Command::new(program)
            .arg("--config-file")
            .arg(&configuration)
            .args(["run", &url, "--tls-verify", "false", "--header", &format!("Authorization: Bearer {token}")])
            .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"])
            .args(["--checks", "response_schema_conformance,unsupported_method,allow_header_conformance"])
            // A stream has no end to compare; organizations that are deleted would end all the rest.
            .args(["--exclude-path-regex", "logs/stream$", "--exclude-operation-id", "delete_v1_orgs__org_"])
            .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "3", "--seed", "1", "--workers", "1"])
            .args(["--no-shrink", "--warnings", "off", "--no-color", "--suppress-health-check", "all"])
            .current_dir(&folder)
            .output()
            .expect("schemathesis runs")
    };
    let output = tokio::task::spawn_blocking(run).await.expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("No issues found"), "{said}");
}

/// A token that may do everything.
async fn token(platform: &mut Platform) -> String {
    platform.done("POST /api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "tester"}})).await;
    let binding = json!({
        "metadata": {"name": "tester"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "tester", "namespace": "default"}],
    });
    platform.done("POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let path = "POST /api/v1/namespaces/default/serviceaccounts/tester/token";
    let answer: Value = platform.done(path, json!({"spec": {}})).await;
    answer["status"]["token"].as_str().expect("a token").to_owned()
}
