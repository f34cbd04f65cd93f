//! What is sent over real HTTPS, what comes back, and what becomes of failures.

use super::server::{HookServer, Reply};
use super::*;

fn settle(object: Value) -> Result<Value, String> {
    Ok(object)
}

async fn mutate(bench: &Bench, asked: &Asked, object: &mut Value) -> Result<Vec<String>, Refusal> {
    let mut warnings = Vec::new();
    bench.webhooks.mutate(&asked.request(), object, &mut settle, &mut warnings).await.map(|_| warnings)
}

async fn validate(bench: &Bench, asked: &Asked, object: &Value) -> Result<Vec<String>, Refusal> {
    let mut warnings = Vec::new();
    bench.webhooks.validate(&asked.request(), object, &mut warnings).await.map(|()| warnings)
}

fn paths(server: &HookServer) -> Vec<String> {
    server.seen().into_iter().map(|(path, _)| path).collect()
}

#[tokio::test]
async fn the_question_and_its_path_are_those_of_kubernetes() {
    let server = HookServer::start(|_, _| {
        Reply::Response(json!({"allowed": true, "warnings": ["mind the gap"], "auditAnnotations": {"a": "b"}}))
    })
    .await;
    let bench = Bench::new();
    assert!(bench.webhooks.is_idle());
    let hooks = json!([hook("one.example.com", &format!("{}/check", server.url), &server.ca_bundle, json!({}))]);
    bench.configure(VALIDATING, "v", hooks);
    assert!(!bench.webhooks.is_idle());
    let asked = Asked { old: Some(json!({"data": {"a": "1"}})), ..Asked::new("UPDATE v1/configmaps team-a/web") };
    let object = json!({"data": {"a": "2"}});
    for _ in 0..3 {
        assert_eq!(validate(&bench, &asked, &object).await, Ok(vec!["mind the gap".to_owned()]));
    }
    let (path, mut review) = server.seen().remove(0);
    assert_eq!(path, "/check?timeout=10s");
    assert!(uuid::Uuid::try_parse(review["request"]["uid"].as_str().unwrap()).is_ok());
    review["request"]["uid"] = "u".into();
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let expected = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "web", "namespace": "team-a", "operation": "UPDATE", "dryRun": false,
            "userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]},
            "object": {"data": {"a": "2"}}, "oldObject": {"data": {"a": "1"}},
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    });
    assert_eq!(review, expected);
    assert_eq!(server.connections(), 1, "a connection is used again");
}

#[tokio::test]
async fn a_refusal_keeps_the_webhooks_words() {
    let server = HookServer::start(|path, _| {
        Reply::Response(match path {
            "/plain" => json!({"allowed": false}),
            "/reason" => json!({"allowed": false, "status": {"reason": "TooMuch", "code": 200}}),
            _ => json!({"allowed": false, "status": {"code": 418, "reason": "Teapot", "message": "short and stout"}}),
        })
    })
    .await;
    let cases = [
        ("/plain", 400, r#"admission webhook "h" denied the request without explanation"#),
        ("/reason", 400, r#"admission webhook "h" denied the request: TooMuch"#),
        ("/full", 418, r#"admission webhook "h" denied the request: short and stout"#),
    ];
    for (path, code, message) in cases {
        for resource in [MUTATING, VALIDATING] {
            let bench = Bench::new();
            bench.configure(
                resource,
                "c",
                json!([hook("h", &format!("{}{path}", server.url), &server.ca_bundle, json!({}))]),
            );
            let (asked, mut object) = (Asked::new("CREATE v1/configmaps n/a"), json!({}));
            let answer = match resource {
                MUTATING => mutate(&bench, &asked, &mut object).await,
                _ => validate(&bench, &asked, &object).await,
            };
            let Err(Refusal::Denied(status)) = answer else { panic!("{path}: {answer:?}") };
            assert_eq!((status["code"].as_u64(), status["message"].as_str()), (Some(code), Some(message)), "{path}");
            assert_eq!(status["status"], "Failure");
        }
    }
}

#[tokio::test]
async fn webhooks_change_objects_in_order_and_some_are_asked_again() {
    let server = HookServer::start(|path, asked| {
        let name = path.trim_start_matches('/');
        if asked["object"]["data"].get(name).is_some() {
            return Reply::Allow;
        }
        let before = asked["object"]["data"].as_object().map_or(0, |data| data.len());
        Reply::Patch(json!([{"op": "add", "path": format!("/data/{name}"), "value": before.to_string()}]))
    })
    .await;
    let bench = Bench::new();
    let hook = |name: &str, policy: &str| {
        let fields = json!({"reinvocationPolicy": policy});
        hook(name, &format!("{}/{name}", server.url), &server.ca_bundle, fields)
    };
    bench.configure(MUTATING, "b", json!([hook("third", "IfNeeded")]));
    bench.configure(MUTATING, "a", json!([hook("first", "IfNeeded"), hook("second", "Never")]));
    let mut object = json!({"data": {}});
    mutate(&bench, &Asked::new("CREATE v1/configmaps n/a"), &mut object).await.unwrap();
    assert_eq!(object, json!({"data": {"first": "0", "second": "1", "third": "2"}}));
    let asked: Vec<String> = paths(&server).iter().map(|path| path.split('?').next().unwrap().to_owned()).collect();
    assert_eq!(asked, ["/first", "/second", "/third", "/first"]);
}

#[tokio::test]
async fn a_patched_object_is_settled_before_the_next_webhook_sees_it() {
    let server = HookServer::start(|_, asked| match asked["object"]["defaulted"].as_bool() {
        None => Reply::Patch(json!([{"op": "add", "path": "/x", "value": 1}])),
        Some(_) => Reply::Allow,
    })
    .await;
    let bench = Bench::new();
    let hook = |name: &str| hook(name, &server.url, &server.ca_bundle, json!({}));
    bench.configure(MUTATING, "a", json!([hook("one"), hook("two")]));
    let (asked, mut object, mut warnings) = (Asked::new("CREATE v1/configmaps n/a"), json!({}), Vec::new());
    let mut settle = |mut object: Value| {
        object["defaulted"] = true.into();
        Ok(object)
    };
    let changed = bench.webhooks.mutate(&asked.request(), &mut object, &mut settle, &mut warnings).await;
    assert_eq!(changed, Ok(true));
    assert_eq!(object, json!({"x": 1, "defaulted": true}));
    let mut refuse = |_| Err("unknown field".to_owned());
    let refused = bench.webhooks.mutate(&asked.request(), &mut json!({}), &mut refuse, &mut warnings).await;
    assert_eq!(refused, Err(Refusal::Failed("admission webhook \"one\" returned a bad patch: unknown field".into())));
}

#[tokio::test]
async fn failures_refuse_or_are_ignored_by_policy() {
    let server = HookServer::start(|path, _| match path {
        "/slow" => Reply::Hang,
        "/error" => Reply::Raw(500, "no".into()),
        "/moved" => Reply::Raw(302, String::new()),
        "/text" => Reply::Raw(200, "hello".into()),
        "/empty" => Reply::Raw(200, "{}".into()),
        "/other" => Reply::Response(json!({"allowed": true, "uid": "x"})),
        "/long" => Reply::Raw(200, " ".repeat(9 * 1024 * 1024)),
        "/patch" => Reply::Patch(json!([{"op": "add", "path": "/x", "value": 1}])),
        _ => Reply::Raw(404, String::new()),
    })
    .await;
    let stranger = HookServer::start(|_, _| Reply::Allow).await;
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let at = |path: &str| format!("{}{path}", server.url);
    let cases = [
        (at("/slow"), "/slow?timeout=1s\": context deadline exceeded"),
        (at("/error"), "an error on the server (500 Internal Server Error: \"no\") has prevented"),
        (at("/moved"), "the server answered 302 Found, and redirects are not followed"),
        (at("/text"), "received invalid webhook response: it is not JSON"),
        (at("/empty"), "received invalid webhook response: webhook response was absent"),
        (at("/other"), "received invalid webhook response: expected response.uid="),
        (at("/long"), "the answer is larger than 8388608 bytes"),
        (at("/patch"), "received invalid webhook response: validating webhook may not return response.patch"),
        (at("/nothing"), "the server could not find the requested resource"),
        (stranger.url.clone(), "tls: "),
        (format!("https://127.0.0.1:{closed}"), "dial tcp 127.0.0.1:"),
        (format!("https://127.0.0.1:{}", server.port), "tls: "),
    ];
    let asked = Asked::new("CREATE v1/configmaps n/a");
    for (url, expected) in cases {
        for policy in ["Fail", "Ignore"] {
            let bench = Bench::new();
            let fields = json!({"failurePolicy": policy, "timeoutSeconds": if url.ends_with("slow") { 1 } else { 20 }});
            bench.configure(VALIDATING, "c", json!([hook("h", &url, &server.ca_bundle, fields)]));
            match validate(&bench, &asked, &json!({})).await {
                Ok(_) => assert_eq!(policy, "Ignore", "{url}"),
                Err(Refusal::Failed(why)) => {
                    assert_eq!(policy, "Fail", "{url}");
                    assert!(
                        why.starts_with("failed calling webhook \"h\": ") && why.contains(expected),
                        "{url}: {why}"
                    );
                }
                Err(other) => panic!("{url}: {other:?}"),
            }
        }
    }
    assert!(!paths(&server).iter().any(|path| path.contains("elsewhere")), "no redirect was followed");
}

#[tokio::test]
async fn validating_webhooks_are_asked_at_once() {
    // Each answers only when all three have been asked.
    let meeting = Arc::new(tokio::sync::Barrier::new(3));
    let server = HookServer::start(|_, _| Reply::Allow).await;
    let bench = Bench::new();
    let hooks: Vec<Value> =
        (0..3).map(|at| hook(&format!("h{at}"), &server.url, &server.ca_bundle, json!({}))).collect();
    bench.configure(VALIDATING, "c", json!(hooks));
    let asked = Asked::new("CREATE v1/configmaps n/a");
    let request = asked.request();
    let index = bench.webhooks.index.load_full();
    let object = json!({});
    let calls = index.validating.iter().map(|hook| {
        let (meeting, request, object, metrics) = (Arc::clone(&meeting), &request, &object, &bench.webhooks.metrics);
        let shape = bench.webhooks.matches(hook, request, object).unwrap().unwrap();
        async move {
            meeting.wait().await;
            call::ask(hook, request, &shape, object, false, metrics).await
        }
    });
    let answers: Vec<_> = futures::stream::iter(calls).buffered(CALLS_AT_ONCE_MAX).collect().await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(validate(&bench, &asked, &object).await, Ok(Vec::new()));
    assert_eq!(server.seen().len(), 6);
}

#[tokio::test]
async fn dry_runs_reach_only_webhooks_without_side_effects() {
    let server = HookServer::start(|_, _| Reply::Allow).await;
    let asked = Asked { dry_run: true, ..Asked::new("CREATE v1/configmaps n/a") };
    for (effects, called) in [("None", true), ("NoneOnDryRun", true), ("Some", false), ("Unknown", false)] {
        let bench = Bench::new();
        let fields = json!({"sideEffects": effects, "failurePolicy": "Ignore"});
        bench.configure(MUTATING, "c", json!([hook("h", &server.url, &server.ca_bundle, fields)]));
        match mutate(&bench, &asked, &mut json!({})).await {
            Ok(_) => assert!(called, "{effects}"),
            Err(refusal) => {
                assert!(!called, "{effects}");
                let message = "admission webhook \"h\" does not support dry run";
                assert_eq!(refusal, Refusal::BadRequest(message.into()));
            }
        }
    }
    assert!(server.seen().iter().all(|(_, review)| review["request"]["dryRun"] == true));
}

#[tokio::test]
async fn configurations_of_webhooks_are_out_of_their_reach() {
    let bench = Bench::new();
    let fields = json!({"timeoutSeconds": 1});
    for resource in [MUTATING, VALIDATING] {
        bench.configure(resource, "c", json!([hook("h", "https://localhost:1/", "", fields.clone())]));
    }
    let asked = Asked::new("DELETE admissionregistration.k8s.io/v1/validatingwebhookconfigurations c");
    assert_eq!(mutate(&bench, &asked, &mut Value::Null).await, Ok(Vec::new()));
    assert_eq!(validate(&bench, &asked, &Value::Null).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_service_is_reached_through_its_endpoints() {
    let server = HookServer::start(|_, _| Reply::Allow).await;
    let bench = Bench::new();
    let config =
        json!({"service": {"namespace": "tools", "name": "hook", "path": "/check"}, "caBundle": server.ca_bundle});
    bench.configure(VALIDATING, "c", json!([hook("h", "", "", json!({"clientConfig": config}))]));
    let asked = Asked::new("CREATE v1/configmaps n/a");
    let failure = |why: &str| {
        let url = "https://hook.tools.svc:443/check?timeout=10s";
        Err(Refusal::Failed(format!("failed calling webhook \"h\": failed to call webhook: Post \"{url}\": {why}")))
    };
    assert_eq!(validate(&bench, &asked, &json!({})).await, failure("service \"hook\" not found"));
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "web", "port": 443}]}});
    bench.store(GroupResource::core("services"), "tools", service);
    assert_eq!(validate(&bench, &asked, &json!({})).await, failure("no endpoints available for service \"hook\""));
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}, {"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "web", "port": server.port}],
    });
    bench.store(GroupResource::new("discovery.k8s.io", "endpointslices"), "tools", slice);
    assert_eq!(validate(&bench, &asked, &json!({})).await, Ok(Vec::new()));
    assert_eq!(paths(&server), ["/check?timeout=10s"]);
}
