//! `/metrics` in process: what it says after a few writes, and that the manual says the same.

use families::metrics::Metric;

use crate::harness::Server;

#[tokio::test]
async fn a_scrape_tells_decisions_commits_objects_and_the_families_numbers() {
    let server = Server::start();
    server
        .play(
            r#"
POST /api/v1/namespaces
  {"metadata": {"name": "a"}}
  201
POST /api/v1/namespaces/a/resourcequotas
  {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1", "requests.cpu": "1500m"}}}
  201
POST /api/v1/namespaces/a/configmaps?dryRun=All
  {"metadata": {"name": "one"}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "one"}}
  201
POST /api/v1/namespaces/a/configmaps
  {"metadata": {"name": "two"}}
  403
POST /api/v1/namespaces/a/configmaps?dryRun=All
  {"metadata": {"name": "two"}}
  403
GET /metrics
  200  header:content-type=text/plain; version=0.0.4; charset=utf-8
POST /metrics
  405
"#,
        )
        .await;
    let text = server.send(crate::harness::request("GET /metrics", "")).await.text;
    for line in [
        "bursar_decisions_total{decision=\"granted\",family=\"kubernetes\"} 1",
        "bursar_decisions_total{decision=\"denied\",family=\"kubernetes\"} 1",
        "bursar_decisions_total{decision=\"queued\",family=\"kubernetes\"} 0",
        "bursar_decisions_total{decision=\"granted\",family=\"capsule\"} 0",
        "bursar_commit_duration_seconds_count 3",
        "bursar_commands_waiting 0",
        "bursar_objects{group=\"\",resource=\"configmaps\"} 1",
        "bursar_webhook_calls_total{outcome=\"failed\",type=\"mutating\"} 0",
        "kube_resourcequota{namespace=\"a\",resource=\"configmaps\",resourcequota=\"q\",type=\"used\"} 1",
        "kube_resourcequota{namespace=\"a\",resource=\"requests.cpu\",resourcequota=\"q\",type=\"hard\"} 1.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn calls_of_webhooks_are_counted_by_how_they_end() {
    let server = Server::start();
    // Nobody listens there: one webhook minds, the other does not.
    for (name, kind, policy) in
        [("open", "mutatingwebhookconfigurations", "Ignore"), ("shut", "validatingwebhookconfigurations", "Fail")]
    {
        let body = serde_json::json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{name}.example.com"), "failurePolicy": policy, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
                }],
            }],
        });
        server.play(&format!("POST /apis/admissionregistration.k8s.io/v1/{kind}\n  {body}\n  201")).await;
    }
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201").await;
    server.play("POST /api/v1/namespaces/a/configmaps\n  {\"metadata\": {\"name\": \"one\"}}\n  500").await;
    let text = server.send(crate::harness::request("GET /metrics", "")).await.text;
    for line in [
        "bursar_webhook_calls_total{outcome=\"ignored\",type=\"mutating\"} 1",
        "bursar_webhook_calls_total{outcome=\"failed\",type=\"validating\"} 1",
        "bursar_webhook_calls_total{outcome=\"allowed\",type=\"validating\"} 0",
        "bursar_webhook_duration_seconds_count{type=\"mutating\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

/// Rows of the manual's tables: name, kind, labels.
fn manual() -> Vec<(String, String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("the manual");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let cell = |row: &mut std::str::Split<'_, &str>| row.next().unwrap_or_default().replace('`', "").trim().to_owned();
    rows.map(|row| row.split(" | ")).map(|mut row| (cell(&mut row), cell(&mut row), cell(&mut row))).collect()
}

#[test]
fn the_manual_lists_every_metric() {
    let families = families::all(&families::Settings::default());
    let told = families.iter().flat_map(|family| family.manifest().metrics).chain(server::metrics::names::ALL);
    let row = |metric: &&Metric| (metric.name.to_owned(), metric.kind.name().to_owned(), metric.labels.join(", "));
    let (mut told, mut listed): (Vec<_>, Vec<_>) = (told.map(row).collect(), manual());
    told.sort();
    listed.sort();
    assert_eq!(told, listed);
    for (name, _, labels) in told {
        let mut sorted: Vec<&str> = labels.split(", ").collect();
        sorted.sort();
        assert_eq!(sorted.join(", "), labels, "labels of {name} are sorted");
    }
}
