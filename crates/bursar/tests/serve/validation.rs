//! Objects that are wrong in one way each: refused here in the very words of kube-apiserver.

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::peer::Kubernetes;
use crate::process::Process;

/// A list of `{case, path, body}`.
const CASES: &str = include_str!("invalid.json");

/// Code and message of the answer to a create that is not carried out.
async fn ask(client: &Client, case: &Value) -> (u16, String) {
    let path = format!("{}?dryRun=All", case["path"].as_str().expect("a path"));
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(Body::from(case["body"].to_string().into_bytes())).expect("a request");
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let text = response.into_body().collect_bytes().await.expect("a body");
    let answer: Value = serde_json::from_slice(&text).expect("JSON");
    let message = if code < 400 { "" } else { answer["message"].as_str().unwrap_or_default() };
    (code, message.to_owned())
}

#[tokio::test]
async fn invalid_objects_are_refused_in_the_words_of_kube_apiserver() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]).await;
    let peer = tokio::task::spawn_blocking(Kubernetes::start).await.expect("a peer");
    let (ours, theirs) = (process.client().await, peer.client());
    let cases: Vec<Value> = serde_json::from_str(CASES).expect("cases");
    let mut differences = Vec::new();
    let mut refused = 0;
    for case in &cases {
        let (here, there) = (ask(&ours, case).await, ask(&theirs, case).await);
        refused += usize::from(there.0 == 422);
        if here != there {
            differences.push(format!("{}:\n  here  {here:?}\n  there {there:?}", case["case"]));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(refused > 70, "{refused} of {} cases are invalid", cases.len());
    assert_eq!(process.stop().await, Some(0));
}
