//! Calls as an API server makes them.

use super::*;
use operator::registration::{Address, Asked, configuration, owner, says};
use operator::review::{Request, answer};
use operator::words::No;

fn call(operation: &str, object: Value, old: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "call-1", "operation": operation, "namespace": "a", "name": "x", "dryRun": false,
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": object, "oldObject": old,
    }})
}

fn read(call: &Value) -> Result<Option<Review>, No> {
    Request::read(call.to_string().as_bytes()).unwrap().into_review(0)
}

#[test]
fn a_call_says_what_is_to_be_stored_and_on_what_that_rests() {
    let object = value(&map("x"), 10, 7, amount(3));
    let review = read(&call("CREATE", object.clone(), Value::Null)).unwrap().unwrap();
    assert_eq!((review.key, review.base, review.dry_run), (map("x"), 0, false));
    assert_eq!(review.origin.identity.user, "jane");
    let old = value(&map("x"), 10, 7, amount(1));
    let review = read(&call("UPDATE", object.clone(), old.clone())).unwrap().unwrap();
    assert_eq!(review.base, 7);
    let mut dry = call("UPDATE", object.clone(), old.clone());
    dry["request"]["dryRun"] = json!(true);
    assert!(read(&dry).unwrap().unwrap().dry_run);
    // What goes takes nothing; whether it may, somebody may have to say.
    let end = read(&call("DELETE", Value::Null, old.clone())).unwrap().unwrap();
    assert!(matches!(end.wanted, Wanted::Gone { uid: SubjectId(10) }) && (end.key, end.base) == (map("x"), 7));
    assert!(read(&call("DELETE", Value::Null, json!({}))).is_err());
    // Of a collection that goes the call names nothing.
    let mut all = call("DELETE", Value::Null, old.clone());
    all["request"]["name"] = json!("");
    assert_eq!(read(&all).unwrap().unwrap().key, map("x"));
    let mut scale = call("UPDATE", json!({"metadata": object["metadata"], "spec": {}}), old);
    scale["request"]["subResource"] = json!("scale");
    let wanted = read(&scale).unwrap().unwrap().wanted;
    assert!(matches!(wanted, Wanted::Replicas { uid: SubjectId(10), replicas, .. } if replicas == json!(0)));
}

#[test]
fn a_name_that_was_generated_is_the_objects_own() {
    let mut generated = call("CREATE", value(&map("x-7fk2p"), 10, 0, amount(3)), Value::Null);
    generated["request"]["name"] = json!("");
    assert_eq!(read(&generated).unwrap().unwrap().key, map("x-7fk2p"));
}

#[test]
fn a_namespace_is_in_none_whatever_the_call_says() {
    let key = ObjectKey::new(GroupResource::core("namespaces"), "", "a");
    let mut made = call("CREATE", value(&key, 10, 0, json!({})), Value::Null);
    made["request"]["resource"]["resource"] = json!("namespaces");
    made["request"]["name"] = json!("a");
    assert_eq!(read(&made).unwrap().unwrap().key, key);
}

#[test]
fn what_cannot_be_counted_is_refused_with_why() {
    let no_uid = json!({"metadata": {"name": "x"}});
    assert!(read(&call("CREATE", no_uid, Value::Null)).unwrap_err().message.contains("uid"));
    let object = value(&map("x"), 10, 7, amount(3));
    let no_version = json!({"metadata": {"name": "x"}});
    assert!(read(&call("UPDATE", object, no_version)).unwrap_err().message.contains("resourceVersion"));
    assert!(Request::read(b"{}").is_err() && Request::read(b"nothing").is_err());
    // What is not read as it is, is not counted.
    let deep = serde_json::to_string(&value(&map("x"), 10, 0, json!({"data": "DEEP"}))).unwrap();
    let deep = deep.replace("\"DEEP\"", &format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)));
    let asked = |object: &str| {
        let asked = call("CREATE", json!("OBJECT"), Value::Null).to_string().replace("\"OBJECT\"", object);
        Request::read(asked.as_bytes()).unwrap().into_review(0)
    };
    assert!(asked(&deep).unwrap_err().message.contains("nests deeper"));
    let wide = serde_json::to_string(&value(&map("x"), 10, 0, json!({"data": vec![0; 300_000]}))).unwrap();
    assert!(asked(&wide).unwrap_err().message.contains("values"));
    let mut nameless = call("CREATE", json!({"metadata": {}}), Value::Null);
    nameless["request"]["name"] = json!("");
    assert_eq!(read(&nameless).unwrap_err().code, 400);
}

#[test]
fn nobody_from_outside_is_a_part_of_this_program() {
    let mut forged = call("CREATE", value(&map("x"), 10, 7, amount(3)), Value::Null);
    forged["request"]["userInfo"]["username"] = json!("system:bursar:engine");
    assert_eq!(read(&forged).unwrap().unwrap().origin.identity.user, "system:anonymous");
}

#[test]
fn an_answer_is_to_its_call() {
    let said = answer("call-1", Err(No::forbidden("no")));
    assert_eq!((&said["response"]["uid"], &said["response"]["allowed"]), (&json!("call-1"), &json!(false)));
    assert_eq!(said["response"]["status"]["message"], "no");
    assert_eq!(answer("call-1", Ok(()))["response"]["allowed"], json!(true));
}

#[test]
fn the_api_server_asks_about_what_is_counted_and_about_nothing_else() {
    let served = operator::cluster::Served {
        resource: GroupResource::new("apps", "deployments"),
        version: "v1".into(),
        kind: "Deployment".into(),
        namespaced: true,
        subresources: vec!["scale".into()],
    };
    let address = Address::Service { namespace: "quota".into(), name: "bursar".into(), port: 443 };
    let everywhere = Asked { served: served.clone(), within: None, ends: false };
    let written =
        configuration("one", "today", &address, "PEM", &["kube-system".into()], std::slice::from_ref(&everywhere));
    let [creates, changes] = [0, 1].map(|place: usize| &written["webhooks"][place]);
    for (webhook, operation) in [(creates, "CREATE"), (changes, "UPDATE")] {
        assert_eq!(
            webhook["rules"],
            json!([{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "deployments/scale"],
                "operations": [operation], "scope": "Namespaced",
            }])
        );
        assert_eq!(webhook["namespaceSelector"]["matchExpressions"][0]["values"], json!(["kube-system"]));
        assert_eq!(webhook["failurePolicy"], "Fail");
    }
    assert_eq!(owner(&written), Some("one"));
    // What goes, goes; and what it takes to start is nobody's to refuse. Of creates there is nothing to find out.
    assert_eq!(creates["matchConditions"], Value::Null);
    let conditions = changes["matchConditions"].to_string();
    assert!(
        conditions.contains("finalizers") && conditions.contains("customquotas.capsule.clastix.io"),
        "{conditions}"
    );
    let mut there = written.clone();
    there["metadata"]["uid"] = json!("x");
    there["webhooks"][0]["objectSelector"] = json!({});
    assert!(says(&there, &written), "what the API server adds");
    there["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
    assert!(!says(&there, &written));
    let guarded = Asked { ends: true, ..everywhere.clone() };
    let guarded = configuration("one", "today", &address, "PEM", &[], &[guarded]);
    let operations = |place: usize| guarded["webhooks"][place]["rules"][0]["operations"].clone();
    assert_eq!([operations(0), operations(1)], [json!(["CREATE"]), json!(["UPDATE", "DELETE"])]);
    // Whoever makes a definition is asked with conditions as well: one of them is about that.
    let definitions = operator::cluster::Served {
        resource: GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"),
        namespaced: false,
        ..served.clone()
    };
    let written =
        configuration("one", "today", &address, "PEM", &[], &[Asked { served: definitions, ..everywhere.clone() }]);
    let [webhook] = written["webhooks"].as_array().unwrap().as_slice() else { panic!("{written}") };
    assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
    assert!(webhook["matchConditions"].is_array());
    // What is counted in some namespaces is nobody else's matter.
    let there = |resource: &str, namespaces: &[&str]| Asked {
        served: operator::cluster::Served { resource: GroupResource::core(resource), ..served.clone() },
        within: Some(namespaces.iter().map(|name| Arc::from(*name)).collect()),
        ends: false,
    };
    let asked = [everywhere, there("pods", &["a", "b"]), there("secrets", &["a", "b"]), there("leases", &["a"])];
    let written = configuration("one", "today", &address, "PEM", &["kube-system".into()], &asked);
    let told: Vec<(usize, Value)> = written["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|webhook| {
            (
                webhook["rules"].as_array().unwrap().len(),
                webhook["namespaceSelector"]["matchExpressions"][1]["values"].clone(),
            )
        })
        .collect();
    let (everywhere, one, both) = ((1, Value::Null), (1, json!(["a"])), (2, json!(["a", "b"])));
    assert_eq!(told, [everywhere.clone(), everywhere, one.clone(), one, both.clone(), both]);
    let names: HashSet<&str> =
        written["webhooks"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names.len(), 6);
    assert_eq!(address.names(), ["bursar.quota.svc"]);
    assert_eq!(Address::Url("https://[::1]:9443".into()).names(), ["::1"]);
    assert_eq!(served.path("a", "web"), "/apis/apps/v1/namespaces/a/deployments/web");
}

#[test]
fn a_registration_is_never_too_long_to_be_stored() {
    let address = Address::Url("https://127.0.0.1:9443".into());
    let asked = |number: usize| {
        let resource = GroupResource::core(&format!("things-{number}"));
        let served = operator::cluster::Served {
            resource,
            version: "v1".into(),
            kind: "Thing".into(),
            namespaced: true,
            subresources: Vec::new(),
        };
        // Each in nearly the same namespaces, and the first in few.
        let namespaces = if number == 0 { 3 } else { 1_900 };
        let within = (0..namespaces).map(|name| Arc::from(format!("{:a>63}", number * 3 + name)));
        Asked { served, within: Some(within.collect()), ends: false }
    };
    let all: Vec<Asked> = (0..50).map(asked).collect();
    let written = configuration("one", "today", &address, "PEM", &[], &all);
    let length = written.to_string().len();
    assert!(length < 1_000_000, "{length} bytes");
    let webhooks = written["webhooks"].as_array().unwrap();
    let rules: usize = webhooks.iter().map(|webhook| webhook["rules"].as_array().unwrap().len()).sum();
    assert_eq!(rules, 100, "what is not named in some namespaces is asked about in all; creates, and changes");
    assert!(webhooks.iter().any(|webhook| {
        webhook["namespaceSelector"]["matchExpressions"][0]["values"].as_array().map(Vec::len) == Some(3)
    }));
}

#[test]
fn whoever_else_is_asked_about_a_resource_is_waited_for() {
    let webhook = |groups: Value, resources: Value, seconds: Value| json!({"rules": [{"apiGroups": groups, "resources": resources}], "timeoutSeconds": seconds});
    let ours =
        json!({"metadata": {"name": "bursar-quota"}, "webhooks": [webhook(json!([""]), json!(["pods"]), json!(30))]});
    let other = json!({"metadata": {"name": "other"}, "webhooks": [
        webhook(json!([""]), json!(["pods", "pods/resize"]), json!(7)),
        webhook(json!(["apps"]), json!(["*/*"]), Value::Null),
        webhook(json!(["*"]), json!(["secrets"]), json!(3)),
    ]});
    let all = json!({"items": [ours, other]});
    let longest =
        |group: &str, resource: &str| operator::registration::longest_ms(&all, &GroupResource::new(group, resource));
    assert_eq!((longest("", "pods"), longest("", "secrets"), longest("", "services")), (7_000, 3_000, 0));
    assert_eq!(longest("apps", "deployments"), 10_000);
}

#[test]
fn only_the_kinds_that_are_kept_are_brought() {
    let definitions = operator::guests::definitions(&families());
    let mut names: Vec<&str> = definitions.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    names.sort_unstable();
    let kept = [
        "clusterresourcequotas.quota.openshift.io",
        "customquotas.capsule.clastix.io",
        "globalcustomquotas.capsule.clastix.io",
        "resourcepoolclaims.capsule.clastix.io",
        "resourcepools.capsule.clastix.io",
    ];
    assert_eq!(names, kept);
    assert_eq!(guests(&Settings::default(), |name| name == "capsule").iter().count(), 1);
}

#[test]
fn capsules_own_webhooks_are_known_by_the_names_of_all_its_releases() {
    let named = |name: &str| json!({"items": [{"metadata": {"name": "it"}, "webhooks": [{"name": name}]}]});
    for (name, decides) in [
        ("calculation.custom-quotas.projectcapsule.dev", true),
        ("cluster.custom-quotas.validating.projectcapsule.dev", true),
        ("resourcepools.projectcapsule.dev", true),
        ("resourcepoolclaims.validating.projectcapsule.dev", true),
        ("tenants.validating.projectcapsule.dev", false),
        ("custom-quotas.example.com", false),
        ("quota.bursar.dev", false),
    ] {
        let found = operator::registration::of_capsule(&named(name));
        assert_eq!(found.map(|(_, webhook)| webhook), decides.then(|| name.to_owned()), "{name}");
    }
    // Beside them pools are Capsule's.
    let beside = operator::guests::guests_beside_capsule(&Settings::default(), |_| true);
    let definitions = operator::guests::definitions(&beside);
    let own = definitions.iter().filter_map(|one| one.pointer("/spec/names/plural")?.as_str());
    assert_eq!(
        own.collect::<HashSet<_>>(),
        HashSet::from(["customquotas", "globalcustomquotas", "clusterresourcequotas"])
    );
    assert!(!operator::guests::understood_by(&beside).contains(&GroupResource::core("resourcequotas")));
}
