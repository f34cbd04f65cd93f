//! Denials are kept: as events on the claim, and written down for as long as journals are.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use kube::api::DeleteParams;

use super::*;
use crate::harness::PATIENCE;

async fn denials(client: &kube::Client, query: &str) -> Vec<Value> {
    let request = http::Request::get(format!("/bursar/denials{query}")).body(Vec::new()).expect("a request");
    let page: Value = client.request(request).await.expect("denials");
    page["items"].as_array().cloned().expect("a list")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_denial_outlives_its_claim_and_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let (process, client) = start(folder.path(), definition(CPU, "cores"), &[(CPU, "4")]).await;
    for (name, resource, cores) in [("large", CPU, "5"), ("none", COUNT, "1"), ("fits", CPU, "4")] {
        create(&client, &claims(), name, claim(&[(resource, cores)])).await.expect("a claim");
    }
    // An object whose claim does not fit is refused, and that is written down as well.
    let policy = json!({
        "trigger": {"resource": {"apiVersion": "v1", "kind": "ConfigMap"}, "constraints": [
            {"expression": "object.metadata.name == 'refused'"},
        ]},
        "target": {"resourceClaimTemplate": {"spec": {"resources": [{"name": CPU, "quantity": "6"}]}}},
    });
    let policies = kind("ClaimCreationPolicy", "claimcreationpolicies");
    create(&client, &policies, "maps", policy).await.expect("a policy");
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), PROJECT);
    let map = crate::object(json!({"metadata": {"name": "refused"}}));
    let refused = maps.create(&PostParams::default(), &map).await.expect_err("it does not fit");
    assert!(refused.to_string().contains("requested 6"), "{refused}");
    let grown = api(&client, &claims())
        .patch("fits", &PatchParams::default(), &Patch::Merge(json!({"spec": claim(&[(CPU, "9")])})))
        .await
        .expect_err("it does not fit");
    assert!(grown.to_string().contains("requested 5, used 4, limit 4"), "{grown}");
    // The event is there, and stays when the claim goes.
    let events: Api<Event> = Api::namespaced(client.clone(), PROJECT);
    let begun = Instant::now();
    loop {
        let all = events.list(&ListParams::default()).await.expect("a list");
        let found = all.items.iter().find(|one| one.involved_object.name.as_deref() == Some("large"));
        if let Some(event) = found {
            assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("QuotaExceeded"), Some("Warning")));
            assert!(
                event.message.as_deref().unwrap_or_default().ends_with("requested 5, used 0, limit 4"),
                "{event:?}"
            );
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "no event");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for name in ["large", "none", "fits"] {
        api(&client, &claims()).delete(name, &DeleteParams::default()).await.expect("a deletion");
    }
    assert_eq!(process.stop().await, Some(0));
    let process = Process::start(folder.path(), &[]).await;
    let client = process.client().await;
    let kept = denials(&client, "").await;
    let said: Vec<(String, String)> = kept
        .iter()
        .map(|one| {
            let name = [&one["claim"]["name"], &one["refused"]["name"]].into_iter().find_map(Value::as_str);
            (name.unwrap_or_default().to_owned(), one["reason"].as_str().unwrap_or_default().to_owned())
        })
        .collect();
    let expected = [
        ("large", "QuotaExceeded"),
        ("none", "GrantNotFound"),
        ("refused", "QuotaNeverFits"),
        ("fits", "QuotaNeverFits"),
    ];
    assert_eq!(said, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
    assert!(
        kept.iter().all(|one| one["user"].is_string() && one["message"].as_str().is_some_and(|why| !why.is_empty()))
    );
    // In pages, and those of one namespace.
    let first = denials(&client, "?limit=1").await;
    assert_eq!(first, kept[..1]);
    assert_eq!(denials(&client, &format!("?after={}&namespace={PROJECT}", first[0]["number"])).await, kept[1..]);
    assert_eq!(denials(&client, "?namespace=elsewhere").await, Vec::<Value>::new());
    assert_eq!(process.stop().await, Some(0));
}
