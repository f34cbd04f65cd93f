//! Schemathesis against the served OpenAPI document: requests that nobody thought of, of which none may be answered with a failure
//! of the server or in a way that the document does not tell.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::platform::{Platform, of_env};

/// Names in paths, so that requests meet what there is; those that the server gives follow.
const CONFIGURATION: &str = "[parameters]\n\
    org = \"acme\"\napp = \"shop\"\nenv = [\"prod\", \"test\"]\nnode = [\"n1\", \"n2\"]\n\
    dimension = [\"max_apps\", \"max_instances\", \"max_total_cpu_request\"]\nrelease = [\"1\", \"7\"]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_answered_but_as_the_document_says() {
    let mut platform = Platform::start(&["n1"], false).await;
    platform.env("test").await;
    platform.done(&format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})).await;
    platform.done(&format!("POST {}", of_env("prod", "routes")), json!({"hostname": "shop.example.com"})).await;
    let made = one_of_each(&mut platform).await;
    platform.done("POST /v1/orgs", json!({"id": "brief"})).await;
    let token = token(&mut platform).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/schemathesis");
    let found = Command::new(script).output().expect("scripts/schemathesis runs");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let program = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let folder = platform.server.folder.clone();
    let address = platform.server.address();
    let only = ["--include-operation-id", "delete_v1_orgs__org_"];
    // A stream has no end to compare; an organization that is deleted would end all the rest.
    let all = ["--exclude-path-regex", "logs/stream$", "--exclude-operation-id", "delete_v1_orgs__org_"];
    let brief = "[parameters]\norg = \"brief\"\n".to_owned();
    for (number, (names, chosen)) in
        [(brief, &only[..]), (CONFIGURATION.to_owned() + &made, &all)].into_iter().enumerate()
    {
        let configuration = folder.join(format!("schemathesis-{number}.toml"));
        std::fs::write(&configuration, names).expect("a configuration");
        let mut run = Command::new(&program);
        run.arg("--config-file").arg(&configuration);
        run.args(["run", &format!("https://{address}/openapi/orgs.json"), "--tls-verify", "false"]);
        run.args(["--header", &format!("Authorization: Bearer {token}")]);
        run.args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"]);
        run.args(["--checks", "response_schema_conformance,unsupported_method,allow_header_conformance"]);
        run.args(chosen);
        run.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "20", "--seed", "1", "--workers", "1"]);
        run.args(["--no-shrink", "--warnings", "off", "--no-color", "--suppress-health-check", "all"]);
        run.current_dir(&folder);
        let output =
            tokio::task::spawn_blocking(move || run.output()).await.expect("it ends").expect("schemathesis runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("No issues found"), "{said}");
    }
}

/// One of everything that has an id of its own, and the ids as parameters.
async fn one_of_each(platform: &mut Platform) -> String {
    let mut lines = String::new();
    let mut made: Vec<(&str, String)> = Vec::new();
    let instance = platform.until_ready("prod", 1).await.remove(0);
    made.push(("instance", instance["id"].as_str().expect("an id").to_owned()));
    for (name, line, body) in [
        ("session", "POST /v1/orgs/acme/instances/{instance}/exec".to_owned(), Value::Null),
        ("volume", "POST /v1/orgs/acme/volumes".to_owned(), json!({"size_bytes": 1_i64 << 30, "home_node": "n1"})),
        ("snapshot", "POST /v1/orgs/acme/volumes/{volume}/snapshots".to_owned(), Value::Null),
        (
            "attachment",
            format!("POST {}", of_env("test", "volume-attachments")),
            json!({"volume": "{volume}", "mount_path": "/d"}),
        ),
        ("route", format!("POST {}", of_env("prod", "routes")), json!({"hostname": "two.example.com"})),
        ("deploy", format!("POST {}", of_env("prod", "deploys")), json!({"release": 1})),
    ] {
        let fill =
            |text: &str| made.iter().fold(text.to_owned(), |text, (name, id)| text.replace(&format!("{{{name}}}"), id));
        let body = serde_json::from_str(&fill(&body.to_string())).expect("a document");
        let answer = platform.done(&fill(&line), body).await;
        made.push((name, answer["id"].as_str().expect("an id").to_owned()));
        if name == "snapshot" {
            let id = &made[made.len() - 1].1;
            platform.done(&format!("PUT /v1/orgs/acme/snapshots/{id}/status"), json!({"status": "succeeded"})).await;
            let volume = &made[made.len() - 2].1;
            let restore = format!("POST /v1/orgs/acme/volumes/{volume}/restore");
            let job = platform.done(&restore, json!({"snapshot": id})).await;
            made.push(("job", job["id"].as_str().expect("an id").to_owned()));
        }
    }
    for (name, id) in made {
        lines += &format!("{name} = \"{id}\"\n");
    }
    lines
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
