use rules::GroupResource;
use serde_json::{Value, json};

use crate::kubernetes::{Kubernetes, Settings};
use crate::{Admission, Family, Nothing, Operation, Remarks};

/// The errors of writing this object, `|` between them; then the object as admitted.
fn write(
    resource: &GroupResource,
    operation: Operation,
    object: Value,
    old: Option<Value>,
) -> (String, Value, Vec<String>) {
    let family = Kubernetes::new(Settings::default());
    let mut object = object;
    let mut request = Admission {
        operation,
        resource,
        subresource: "",
        namespace: "ns",
        name: "q",
        object: &mut object,
        old: old.as_ref(),
        origin: &crate::Origin::default(),
    };
    family.admit(&mut request, &Nothing).unwrap();
    let Remarks { errors, warnings } = family.validate(&request, &Nothing);
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    (texts.join(" | "), object, warnings)
}

fn quota(spec: Value) -> String {
    write(&GroupResource::core("resourcequotas"), Operation::Create, json!({"spec": spec}), None).0
}

#[test]
fn names_and_amounts() {
    let hard = |name: &str, value: &str| quota(json!({"hard": {name: value}}));
    for (name, value) in [
        ("pods", "10"),
        ("cpu", "1500m"),
        ("requests.storage", "1.5Gi"),
        ("hugepages-2Mi", "4Mi"),
        ("requests.hugepages-2Mi", "4Mi"),
        ("count/foo.bar", "1"),
        ("requests.example.com/gpu", "1500m"),
        ("never.counted/at-all", "1"),
        ("pods", "0"),
    ] {
        assert_eq!(hard(name, value), "", "{name}");
    }
    assert_eq!(
        hard("foo", "1"),
        "spec.hard[foo]: Invalid value: \"foo\": must be a standard resource type or fully qualified | \
         spec.hard[foo]: Invalid value: \"foo\": must be a standard resource for quota"
    );
    let storage = "spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota";
    assert_eq!(hard("storage", "1"), storage);
    assert!(hard("limits.hugepages-2Mi", "1").ends_with("must be a standard resource for quota"));
    assert_eq!(hard("pods", "1500m"), "spec.hard[pods]: Invalid value: \"1500m\": must be an integer");
    assert_eq!(hard("count/a.b", "1500m"), "spec.hard[count/a.b]: Invalid value: \"1500m\": must be an integer");
    assert_eq!(hard("cpu", "-1"), "spec.hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0");
    assert!(
        hard("a/b/c", "1").starts_with("spec.hard[a/b/c]: Invalid value: \"a/b/c\": a valid label key must consist")
    );
    assert!(hard("pods", "many").contains("quantities must match the regular expression"));
}

#[test]
fn scopes() {
    let scoped = |names: &[&str], hard: &str| quota(json!({"hard": {hard: "1"}, "scopes": names}));
    for name in ["Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"] {
        for hard in ["pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"] {
            assert_eq!(scoped(&[name], hard), "", "{name} {hard}");
        }
        for hard in ["services", "ephemeral-storage", "hugepages-2Mi", "requests.storage"] {
            let wanted = format!("spec.scopes: Invalid value: [\"{name}\"]: unsupported scope applied to resource");
            assert_eq!(scoped(&[name], hard), wanted, "{hard}");
        }
        assert_eq!(scoped(&[name], "count/pods"), "", "{name}");
    }
    assert_eq!(scoped(&["BestEffort"], "pods"), "");
    assert!(scoped(&["BestEffort"], "cpu").ends_with("unsupported scope applied to resource"));
    assert_eq!(scoped(&["VolumeAttributesClass"], "persistentvolumeclaims"), "");
    assert_eq!(scoped(&["VolumeAttributesClass"], "requests.storage"), "");
    assert!(scoped(&["VolumeAttributesClass"], "pods").ends_with("unsupported scope applied to resource"));
    assert_eq!(scoped(&["Foo"], "pods"), "spec.scopes: Invalid value: [\"Foo\"]: unsupported scope");
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        let wanted = format!("spec.scopes: Invalid value: [\"{}\",\"{}\"]: conflicting scopes", pair[0], pair[1]);
        assert_eq!(scoped(&pair, "pods"), wanted);
    }
}

#[test]
fn scope_selectors() {
    let selected = |scope: &str, operator: &str, values: Value| {
        let expression = json!({"scopeName": scope, "operator": operator, "values": values});
        quota(json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}}))
    };
    let at = "spec.scopeSelector.matchExpressions";
    for operator in ["In", "NotIn"] {
        assert_eq!(selected("PriorityClass", operator, json!(["a"])), "");
        assert_eq!(
            selected("PriorityClass", operator, json!([])),
            format!(
                "{at}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            )
        );
    }
    for operator in ["Exists", "DoesNotExist"] {
        assert_eq!(selected("PriorityClass", operator, json!([])), "");
        assert_eq!(
            selected("PriorityClass", operator, json!(["a"])),
            format!(
                "{at}.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            )
        );
    }
    assert_eq!(
        selected("PriorityClass", "Gt", json!(["1"])),
        format!("{at}.operator: Invalid value: \"Gt\": not a valid selector operator")
    );
    assert_eq!(
        selected("Terminating", "In", json!(["a"])),
        format!(
            "{at}.operator: Invalid value: \"In\": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
             ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
             ResourceQuotaScopeCrossNamespacePodAffinity"
        )
    );
    assert_eq!(
        selected("Foo", "Exists", json!([])),
        format!("{at}.scopeName: Invalid value: \"Foo\": unsupported scope")
    );
    assert_eq!(
        selected("VolumeAttributesClass", "Exists", json!(null)),
        format!(
            "{at}: Invalid value: {{\"MatchExpressions\":[{{\"ScopeName\":\"VolumeAttributesClass\",\
             \"Operator\":\"Exists\",\"Values\":null}}]}}: unsupported scope applied to resource"
        )
    );
}

#[test]
fn scopes_are_fixed_for_life_but_not_their_order() {
    let resource = GroupResource::core("resourcequotas");
    let with = |scopes: Value| json!({"spec": {"hard": {"pods": "1"}, "scopes": scopes}});
    let change = |old: Value, new: Value| write(&resource, Operation::Update, with(new), Some(with(old))).0;
    assert_eq!(change(json!(["Terminating", "NotBestEffort"]), json!(["NotBestEffort", "Terminating"])), "");
    assert_eq!(change(json!([]), json!(null)), "");
    assert_eq!(
        change(json!(["Terminating"]), json!(["NotBestEffort"])),
        "spec.scopes: Invalid value: [\"NotBestEffort\"]: field is immutable"
    );
}

#[test]
fn a_written_status_is_checked_like_a_spec() {
    let status = json!({"spec": {"hard": {"foo": "1"}}, "status": {"hard": {"pods": "-1"}, "used": {"foo": "1u"}}});
    let (errors, object, _) = write(&GroupResource::core("resourcequotas"), Operation::Status, status, None);
    assert!(errors.starts_with("status.hard[pods]: Invalid value: \"-1\": must be greater"), "{errors}");
    assert!(errors.contains("status.used[foo]: Invalid value: \"foo\": must be a standard resource for quota"));
    assert!(!errors.contains("spec."));
    assert_eq!(object["status"]["used"]["foo"], "1m");
}

#[test]
fn amounts_are_rounded_up_to_a_thousandth_when_written() {
    let spec = json!({"spec": {"hard": {"cpu": "1500u", "memory": "1.500", "requests.cpu": "100n"}}});
    let (errors, object, _) = write(&GroupResource::core("resourcequotas"), Operation::Create, spec, None);
    assert_eq!(errors, "");
    assert_eq!(object["spec"]["hard"], json!({"cpu": "2m", "memory": "1.500", "requests.cpu": "1m"}));
}

#[test]
fn requests_above_limits_are_warned_about_on_create() {
    let resource = GroupResource::core("resourcequotas");
    let object = json!({"spec": {"hard": {
        "requests.cpu": "2", "limits.cpu": "1", "memory": "3Gi", "limits.memory": "2Gi", "pods": "1",
        "requests.ephemeral-storage": "1Gi", "limits.ephemeral-storage": "1Gi",
    }}});
    let (_, _, warnings) = write(&resource, Operation::Create, object.clone(), None);
    assert_eq!(
        warnings,
        [
            "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)",
            "ResourceQuota memory (3Gi) should be less than limits.memory (2Gi)",
        ]
    );
    assert_eq!(write(&resource, Operation::Update, object.clone(), Some(object)).2, Vec::<String>::new());
}

#[test]
fn monstrous_quotas_are_refused_before_they_cost_anything() {
    let many = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
    let hard: serde_json::Map<String, Value> =
        many(1025).into_iter().map(|at| (format!("count/a{at}.b"), json!("1"))).collect();
    assert_eq!(quota(json!({"hard": hard})), "spec.hard: Too many: 1025: must have at most 1024 items");
    assert_eq!(quota(json!({"scopes": many(65)})), "spec.scopes: Too many: 65: must have at most 64 items");
    let expression = json!({"scopeName": "PriorityClass", "operator": "In", "values": many(257)});
    let at = "spec.scopeSelector.matchExpressions";
    assert_eq!(
        quota(json!({"scopeSelector": {"matchExpressions": vec![expression; 65]}})),
        format!(
            "{at}: Too many: 65: must have at most 64 items | {at}.values: Too many: 257: must have at most 256 items"
        )
    );
    let limits = GroupResource::core("limitranges");
    let range = |spec: Value| write(&limits, Operation::Create, json!({"spec": spec}), None).0;
    let items = vec![json!({"type": "a/b"}); 65];
    assert_eq!(range(json!({"limits": items})), "spec.limits: Too many: 65: must have at most 64 items");
    let names: serde_json::Map<String, Value> =
        many(257).into_iter().map(|at| (format!("a.b/c{at}"), json!("1"))).collect();
    assert_eq!(
        range(json!({"limits": [{"type": "Pod", "max": names}]})),
        "spec.limits[0].max: Too many: 257: must have at most 256 items"
    );
}
