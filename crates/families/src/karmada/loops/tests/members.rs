//! Members that refuse, that cannot be asked, and that say very much.

use super::super::member::Member;
use super::*;

fn brought(namespace: &str, name: &str, kind: &str) -> DynamicObject {
    let manifest = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let mut work = object(
        &works(),
        "karmada-es-m1",
        &format!("{namespace}-{name}"),
        json!({"spec": {"workload": {"manifests": [manifest]}}}),
    );
    work.metadata.generation = Some(1);
    work
}

/// What a member does not let anybody list, or refuses, is asked for a few times a look, and everything else arrives.
#[tokio::test]
async fn what_a_member_refuses_keeps_nothing_else_waiting() {
    const MANY: usize = 200;
    let core =
        served("v1", &[("configmaps", "ConfigMap", &[]), ("secrets", "Secret", &[]), ("services", "Service", &[])]);
    let secrets = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let services = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Service"));
    let (member, mut asked) = api(move |(method, place, body)| match (method.as_str(), &**place) {
        ("GET", "/api/v1") => Some(core.clone()),
        ("GET", place) if place.contains("/configmaps") => Some(refusal(403)),
        ("GET", place) if place.contains("watch=") => None,
        ("GET", "/api/v1/secrets?" | "/api/v1/services?") => None,
        ("GET", place) if place.starts_with("/api/v1/secrets") => Some(listed(&secrets, json!([]))),
        ("GET", place) if place.starts_with("/api/v1/services") => Some(listed(&services, json!([]))),
        ("GET", place) if place.contains("/secrets/") || place.contains("/services/") => Some(missing()),
        ("PATCH", place) if place.contains("/secrets/") => Some(refusal(422)),
        ("PATCH", _) => {
            let mut written = body.clone();
            written["metadata"]["uid"] = json!("u");
            Some(written)
        }
        _ => Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})),
    });
    let (client, _told) = api(|(_, _, body)| Some(body.clone()));
    let of =
        |kind: &'static str| (0..MANY).map(move |one| brought("other", &format!("{}{one}", kind.to_lowercase()), kind));
    let mut all: Vec<DynamicObject> = of("ConfigMap").chain(of("Secret")).collect();
    all.push(brought("team", "web", "Service"));
    let mut member = Member::new(client, member, Mirror::of(works(), all), Watch::new());
    let count = |asked: &mut mpsc::UnboundedReceiver<Asked>| {
        let (mut refused, mut arrived) = (0, 0);
        while let Ok((method, place, _)) = asked.try_recv() {
            let is_write = method == Method::PATCH;
            refused += usize::from(place.contains("/configmaps") || (is_write && place.contains("/secrets/")));
            arrived += usize::from(is_write && place.contains("/services/"));
        }
        (refused, arrived)
    };
    assert!(!tokio::time::timeout(PATIENCE, member.look()).await.expect("a look comes to its end"));
    let (refused, arrived) = count(&mut asked);
    assert!(arrived == 1 && refused < MANY + 20, "{arrived} arrived, {refused} were refused");
    for _ in 0..3 {
        assert!(!tokio::time::timeout(PATIENCE, member.look()).await.expect("a look comes to its end"));
        let (refused, _) = count(&mut asked);
        assert!(refused < 60, "{refused} were tried again at once");
    }
}

/// Whatever a member, or a quota, has to say: the condition is written.
#[test]
fn a_message_is_cut_to_what_a_condition_has_room_for() {
    let long = "ü".repeat(40_000);
    let conditions = super::super::standing::with_condition(&Value::Null, "Ready", "False", "ClusterNotReady", &long);
    let message = conditions[0]["message"].as_str().expect("a message");
    assert!(message.chars().count() < 32_768 && long.starts_with(message) && !message.is_empty());
    let status = json!({ "conditions": conditions });
    assert!(super::super::standing::says(&status, "Ready", "False", "ClusterNotReady", &long), "it is told once");
}

/// A member that nobody can ask, because its credentials are missing, is unreachable as one that does not answer is.
#[tokio::test]
async fn a_cluster_without_credentials_is_told_to_be_unreachable() {
    let reference = json!({"namespace": "default", "name": "m1"});
    let spec = json!({"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1", "secretRef": reference});
    let ready =
        json!({"conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "well"}]});
    let cluster = object(&clusters(), "", "m1", json!({"spec": spec, "status": ready}));
    let (client, mut asked) = api(move |(method, place, body)| match (method.as_str(), &**place) {
        ("GET", place) if place.contains("watch=") => None,
        ("GET", place) if place.contains("/secrets/") => Some(missing()),
        ("GET", place) if place.contains("/clusters/m1") => Some(serde_json::to_value(&cluster).expect("JSON")),
        ("GET", _) => Some(listed(&clusters(), json!([cluster]))),
        _ => Some(body.clone()),
    });
    let settings = Settings { grace_seconds: 1, ..Settings::default() };
    let looking = tokio::spawn(super::super::members::run(client, Arc::new(settings)));
    let (_, place, patch) = told(&mut asked, |(method, ..)| *method == Method::PATCH).await;
    assert!(place.contains("/clusters/m1/status"), "{place}");
    let condition = &patch["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("Unknown"), &json!("ClusterNotReachable")));
    looking.abort();
}
