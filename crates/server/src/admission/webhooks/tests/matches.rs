//! Which requests concern a webhook.

use super::*;

fn matched(bench: &Bench, fields: Value, asked: &Asked, object: &Value) -> String {
    let configuration = json!({"webhooks": [hook("h", "https://localhost:1/", "", fields)]});
    let hooks = Hook::all(&configuration, &Arc::downgrade(&bench.cache));
    match bench.webhooks.matches(&hooks[0], &asked.request(), object) {
        Ok(None) => "no".into(),
        Ok(Some(shape)) => shape.version.map_or("yes".into(), |version| format!("as {version}")),
        Err(refusal) => format!("{refusal:?}"),
    }
}

#[test]
fn rules_name_operations_groups_versions_resources_and_scope() {
    let bench = Bench::new();
    // operations groups versions resources scope | request | expected
    let cases = "
        CREATE * * pods *                         | CREATE v1/pods n/a                    | yes
        CREATE * * pods *                         | UPDATE v1/pods n/a                    | no
        CREATE,DELETE * * pods *                  | DELETE v1/pods n/a                    | yes
        * - v1 pods *                             | CREATE v1/pods n/a                    | yes
        * - v1 pods *                             | CREATE apps/v1/deployments n/a        | no
        * apps v1 * *                             | CREATE apps/v1/deployments n/a        | yes
        * apps v1beta1 deployments *              | CREATE apps/v1/deployments n/a        | no
        * * * pods *                              | UPDATE v1/pods:status n/a             | no
        * * * pods/status *                       | UPDATE v1/pods:status n/a             | yes
        * * * pods/status *                       | UPDATE v1/pods n/a                    | no
        * * * pods/* *                            | UPDATE v1/pods n/a                    | yes
        * * * pods/* *                            | UPDATE v1/pods:resize n/a             | yes
        * * * */scale *                           | UPDATE apps/v1/deployments:scale n/a  | yes
        * * * */scale *                           | UPDATE apps/v1/deployments n/a        | no
        * * * * *                                 | UPDATE v1/pods:status n/a             | no
        * * * */* *                               | UPDATE v1/pods:status n/a             | yes
        * * * * Cluster                           | CREATE v1/pods n/a                    | no
        * * * * Namespaced                        | CREATE v1/pods n/a                    | yes
        * * * * Cluster                           | CREATE v1/nodes a                     | yes
        * * * * Namespaced                        | CREATE v1/nodes a                     | no
        * * * * Cluster                           | CREATE v1/namespaces a/a              | yes
        * * * * Namespaced                        | CREATE v1/namespaces a/a              | no
    ";
    for case in cases.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let parts: Vec<&str> = case.split('|').map(str::trim).collect();
        let words: Vec<Vec<String>> = parts[0]
            .split_whitespace()
            .map(|list| list.split(',').map(|one| if one == "-" { String::new() } else { one.into() }).collect())
            .collect();
        let rule = json!({
            "operations": words[0], "apiGroups": words[1], "apiVersions": words[2], "resources": words[3],
            "scope": words[4][0],
        });
        let answer = matched(&bench, json!({"rules": [rule]}), &Asked::new(parts[1]), &json!({}));
        assert_eq!(answer, parts[2], "{case}");
    }
}

#[test]
fn selectors_look_at_namespaces_and_at_objects_before_and_after() {
    let bench = Bench::new();
    bench.namespace("prod", json!({"env": "prod"}));
    bench.namespace("dev", json!({}));
    let prod = json!({"matchLabels": {"env": "prod"}});
    let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
    let by_namespace = json!({"namespaceSelector": prod});
    let by_object = json!({"objectSelector": prod});
    let cases = [
        (&by_namespace, "CREATE v1/pods prod/a", None, json!({}), "yes"),
        (&by_namespace, "CREATE v1/pods dev/a", None, json!({}), "no"),
        (&by_namespace, "CREATE v1/pods gone/a", None, json!({}), "no"),
        (&by_namespace, "CREATE v1/nodes a", None, json!({}), "yes"),
        (&by_namespace, "CREATE v1/namespaces new/new", None, labelled(json!({"env": "prod"})), "yes"),
        (&by_namespace, "UPDATE v1/namespaces prod/prod", None, labelled(json!({})), "no"),
        (&by_namespace, "DELETE v1/namespaces prod/prod", None, Value::Null, "yes"),
        (&by_object, "CREATE v1/pods dev/a", None, labelled(json!({"env": "prod"})), "yes"),
        (&by_object, "CREATE v1/pods dev/a", None, json!({}), "no"),
        (&by_object, "UPDATE v1/pods dev/a", Some(labelled(json!({"env": "prod"}))), json!({}), "yes"),
        (&by_object, "DELETE v1/pods dev/a", Some(labelled(json!({"env": "prod"}))), Value::Null, "yes"),
    ];
    for (fields, line, old, object, expected) in cases {
        let asked = Asked { old, ..Asked::new(line) };
        assert_eq!(matched(&bench, fields.clone(), &asked, &object), expected, "{line} {fields}");
    }
}

#[test]
fn conditions_decide_last_and_failures_follow_the_policy() {
    let bench = Bench::new();
    let cases = [
        ("Fail", vec!["object.data.a == 'x'"], "yes"),
        ("Fail", vec!["object.data.a == 'y'"], "no"),
        ("Fail", vec!["request.userInfo.username == 'alice'", "request.operation == 'CREATE'"], "yes"),
        ("Fail", vec!["oldObject == null"], "yes"),
        ("Fail", vec!["object.data.missing == 'x'", "object.data.a == 'y'"], "no"),
        ("Ignore", vec!["object.data.missing == 'x'"], "no"),
        ("Fail", vec!["object.data.missing == 'x'"], "Forbidden"),
    ];
    for (policy, expressions, expected) in cases {
        let conditions: Vec<Value> =
            expressions.iter().map(|expression| json!({"name": "c", "expression": expression})).collect();
        let fields = json!({"failurePolicy": policy, "matchConditions": conditions});
        let answer = matched(&bench, fields, &Asked::new("CREATE v1/configmaps n/a"), &json!({"data": {"a": "x"}}));
        assert!(answer.starts_with(expected), "{expressions:?}: {answer}");
    }
}

#[test]
fn a_rule_for_another_version_means_this_one_too_unless_told_otherwise() {
    let bench = Bench::new();
    let version = |name: &str, storage: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let definition = json!({
        "metadata": {"name": "boats.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    bench.webhooks.registry.definition_changed("boats.example.com", Some(&definition));
    let rule =
        json!([{"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["boats"]}]);
    let asked = Asked::new("CREATE example.com/v2/boats n/a");
    assert_eq!(matched(&bench, json!({"rules": rule, "matchPolicy": "Equivalent"}), &asked, &json!({})), "as v1");
    assert_eq!(matched(&bench, json!({"rules": rule, "matchPolicy": "Exact"}), &asked, &json!({})), "no");
}
