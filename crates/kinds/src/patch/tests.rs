//! Patches as data: object, patch, result. The strategic cases are what kubectl's apply, edit, patch, label and set send.

use serde_json::{Value, json};

use super::*;
use crate::bounds::{DEPTH_MAX, is_deeper};
use crate::test_schema::{kind, yaml};

fn smp(kind_name: &str, original: &str, patch: &str) -> Result<Value, PatchError> {
    let (catalogue, ty) = kind(kind_name);
    strategic(yaml(original), yaml(patch), catalogue, ty)
}

#[track_caller]
fn check(kind_name: &str, original: &str, patch: &str, expected: &str) {
    match smp(kind_name, original, patch) {
        Ok(result) => assert_eq!(result, yaml(expected), "\n{kind_name}\n{original}\n+\n{patch}"),
        Err(why) => panic!("{why}\n{patch}"),
    }
}

#[track_caller]
fn check_refused(kind_name: &str, original: &str, patch: &str, expected: PatchError) {
    assert_eq!(smp(kind_name, original, patch), Err(expected), "\n{patch}");
}

#[test]
fn fields_merge_and_null_deletes() {
    check(
        "ResourceQuota",
        "{spec: {hard: {pods: '5', cpu: '1'}}}",
        "{spec: {hard: {pods: '10', cpu: null, memory: 1Gi}}}",
        "{spec: {hard: {pods: '10', memory: 1Gi}}}",
    );
    check(
        "ResourceQuota",
        "{metadata: {name: q}}",
        "{metadata: {labels: {a: b, gone: null}, annotations: null}}",
        "{metadata: {name: q, labels: {a: b}}}",
    );
    check(
        "ResourceQuota",
        "{spec: {scopes: [BestEffort]}}",
        "{spec: {scopes: [Terminating]}}",
        "{spec: {scopes: [Terminating]}}",
    );
    // A changed type replaces; decoding refuses it later if the schema does.
    check("ResourceQuota", "{spec: {hard: {a: '1'}}}", "{spec: [1]}", "{spec: [1]}");
    check("Pod", "{}", "{}", "{}");
}

#[test]
fn list_items_merge_by_their_key() {
    check(
        "Deployment",
        "{spec: {template: {spec: {containers: [{name: a, image: a:1}, {name: b, image: b:1}]}}}}",
        "{spec: {template: {spec: {containers: [{name: b, image: b:2}]}}}}",
        "{spec: {template: {spec: {containers: [{name: a, image: a:1}, {name: b, image: b:2}]}}}}",
    );
    // kubectl patch: a new item goes first, before those the patch does not name.
    check(
        "Pod",
        "{spec: {containers: [{name: a}, {name: b}]}}",
        "{spec: {containers: [{name: new, env: [{name: X, value: null}]}]}}",
        "{spec: {containers: [{name: new, env: [{name: X}]}, {name: a}, {name: b}]}}",
    );
    check(
        "Pod",
        "{spec: {containers: [{name: a, env: [{name: X, value: '1'}, {name: Y, value: '2'}]}]}}",
        "{spec: {containers: [{name: a, env: [{name: Y, value: '3'}, {name: Z, value: '4'}]}]}}",
        "{spec: {containers: [{name: a, env: [{name: X, value: '1'}, {name: Y, value: '3'}, {name: Z, value: '4'}]}]}}",
    );
    // Merge keys are single although apply's keys are not: both protocols of a port are one item to this patch.
    check(
        "Service",
        "{spec: {ports: [{port: 53, protocol: TCP}, {port: 80, protocol: TCP, nodePort: 30000}]}}",
        "{spec: {ports: [{port: 80, targetPort: http}]}}",
        "{spec: {ports: [{port: 53, protocol: TCP}, {port: 80, protocol: TCP, nodePort: 30000, targetPort: http}]}}",
    );
}

#[test]
fn items_are_deleted_and_lists_replaced_by_directive() {
    check(
        "Pod",
        "{spec: {containers: [{name: a}, {name: b}]}}",
        "{spec: {containers: [{name: a, $patch: delete}]}}",
        "{spec: {containers: [{name: b}]}}",
    );
    check(
        "Pod",
        "{spec: {containers: [{name: a}, {name: b}]}}",
        "{spec: {containers: [{name: c, image: c}, {$patch: replace}]}}",
        "{spec: {containers: [{name: c, image: c}]}}",
    );
    check(
        "Pod",
        "{metadata: {labels: {a: '1', b: '2'}}}",
        "{metadata: {labels: {$patch: replace, c: '3'}}}",
        "{metadata: {labels: {c: '3'}}}",
    );
    check(
        "Pod",
        "{metadata: {labels: {a: '1'}}}",
        "{metadata: {labels: {$patch: delete}}}",
        "{metadata: {labels: {}}}",
    );
    // A directive for a value that is not there has nothing to do.
    check("Pod", "{metadata: {}}", "{metadata: {labels: {$patch: delete}}}", "{metadata: {}}");
    check(
        "Pod",
        "{spec: {}}",
        "{spec: {containers: [{name: a, $patch: delete}, {name: b}]}}",
        "{spec: {containers: [{name: b}]}}",
    );
    check(
        "Pod",
        "{spec: {tolerations: [{key: a}]}}",
        "{spec: {tolerations: [{key: b}]}}",
        "{spec: {tolerations: [{key: b}]}}",
    );
}

#[test]
fn element_order_is_what_apply_asked_for() {
    // kubectl apply after moving a container to the front.
    check(
        "Deployment",
        "{spec: {template: {spec: {containers: [{name: a, image: a}, {name: b, image: b}]}}}}",
        "{spec: {template: {spec: {$setElementOrder/containers: [{name: b}, {name: a}], containers: [{name: b, image: b2}]}}}}",
        "{spec: {template: {spec: {containers: [{name: b, image: b2}, {name: a, image: a}]}}}}",
    );
    // An item somebody else injected stays where it is among its neighbours.
    check(
        "Pod",
        "{spec: {containers: [{name: a}, {name: sidecar}, {name: b}]}}",
        "{spec: {$setElementOrder/containers: [{name: a}, {name: b}, {name: c}], containers: [{name: c}]}}",
        "{spec: {containers: [{name: a}, {name: sidecar}, {name: b}, {name: c}]}}",
    );
    // Deleting one item with apply: order names the survivors, the item carries the directive.
    check(
        "Service",
        "{spec: {ports: [{port: 80}, {port: 81}, {port: 82}]}}",
        "{spec: {$setElementOrder/ports: [{port: 80}, {port: 82}], ports: [{port: 81, $patch: delete}]}}",
        "{spec: {ports: [{port: 80}, {port: 82}]}}",
    );
    // Reordering alone.
    check(
        "Service",
        "{spec: {ports: [{port: 80}, {port: 81}]}}",
        "{spec: {$setElementOrder/ports: [{port: 81}, {port: 80}]}}",
        "{spec: {ports: [{port: 81}, {port: 80}]}}",
    );
    check("Pod", "{spec: {}}", "{spec: {$setElementOrder/containers: [{name: a}]}}", "{spec: {}}");
    check(
        "Pod",
        "{metadata: {finalizers: [a, b]}}",
        "{metadata: {$setElementOrder/finalizers: [b, c, a], finalizers: [c]}}",
        "{metadata: {finalizers: [b, c, a]}}",
    );
}

#[test]
fn primitive_lists_merge_as_sets() {
    check(
        "Pod",
        "{metadata: {finalizers: [a, b]}}",
        "{metadata: {finalizers: [b, c]}}",
        "{metadata: {finalizers: [a, b, c]}}",
    );
    check(
        "Pod",
        "{metadata: {finalizers: [a, b, c]}}",
        "{metadata: {$deleteFromPrimitiveList/finalizers: [b]}}",
        "{metadata: {finalizers: [a, c]}}",
    );
    check(
        "Pod",
        "{metadata: {finalizers: [a, b]}}",
        "{metadata: {$deleteFromPrimitiveList/finalizers: [a], $setElementOrder/finalizers: [c, b], finalizers: [c]}}",
        "{metadata: {finalizers: [c, b]}}",
    );
    check("Pod", "{metadata: {}}", "{metadata: {$deleteFromPrimitiveList/finalizers: [b]}}", "{metadata: {}}");
}

#[test]
fn retain_keys_drops_the_other_member_of_a_union() {
    check(
        "Deployment",
        "{spec: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}}}",
        "{spec: {strategy: {$retainKeys: [type], type: Recreate}}}",
        "{spec: {strategy: {type: Recreate}}}",
    );
    check(
        "Pod",
        "{spec: {volumes: [{name: v, emptyDir: {medium: Memory}}]}}",
        "{spec: {volumes: [{$retainKeys: [name, hostPath], name: v, hostPath: {path: /x}}]}}",
        "{spec: {volumes: [{name: v, hostPath: {path: /x}}]}}",
    );
}

#[test]
fn bad_patches_are_refused_in_kubernetes_words() {
    let bad = |text: &str| PatchError::BadRequest(text.into());
    let unfit = |text: &str| PatchError::Unprocessable(text.into());
    let pod = "{metadata: {finalizers: [a]}, spec: {containers: [{name: a}]}}";
    for (patch, error) in [
        ("[]", bad("invalid JSON document")),
        ("{metadata: {$retainKeys: x}}", bad("invalid patch format of retainKeys")),
        ("{metadata: {$retainKeys: [a], b: c}}", bad("invalid patch format of retainKeys")),
        ("{metadata: {$setElementOrder: [a]}}", bad("invalid patch format of setElementOrder list")),
        ("{metadata: {$deleteFromPrimitiveList: [a]}}", bad("invalid patch format of primitive list")),
        ("{metadata: {$deleteFromPrimitiveList/finalizers: a}}", bad("invalid patch format of primitive list")),
        ("{metadata: {$patch: nonsense, a: b}}", unfit("unknown patch type: nonsense in map: map[a:b]")),
        ("{spec: {containers: [{image: x}]}}", unfit("map: map[image:x] does not contain declared merge key: name")),
        (
            "{spec: {containers: [{image: x, $patch: delete}]}}",
            unfit("map: map[$patch:delete image:x] does not contain declared merge key: name"),
        ),
        (
            "{spec: {containers: [{name: a, $patch: merge}]}}",
            unfit("merging lists cannot yet be specified in the patch"),
        ),
        ("{spec: {containers: [a]}}", unfit("list element types are not identical: [[map[name:a]] [a]]")),
        ("{metadata: {finalizers: [[a]], x: 1}}", unfit("list element types are not identical: [[a] [[a]]]")),
        (
            "{spec: {$setElementOrder/containers: {a: b}}}",
            unfit("expected a []interface {}, but received a map[string]interface {}"),
        ),
        (
            "{spec: {$setElementOrder/containers: [{name: x}], containers: [{name: w}]}}",
            unfit("The order in patch list:\n[map[name:w]]\n doesn't match $setElementOrder list:\n[map[name:x]]\n"),
        ),
    ] {
        check_refused("Pod", pod, patch, error);
    }
}

#[test]
fn long_lists_merge_in_near_linear_time() {
    let (catalogue, ty) = kind("Pod");
    let items = |from: usize| -> Vec<Value> { (from..from + 20_000).map(|i| json!({"name": i.to_string()})).collect() };
    let original = json!({"spec": {"containers": items(0)}});
    let patch = json!({"spec": {"containers": items(10_000)}});
    let result = strategic(original, patch, catalogue, ty).unwrap();
    assert_eq!(result["spec"]["containers"].as_array().unwrap().len(), 30_000);
}

#[test]
fn merge_patch_is_rfc_7396() {
    // The table of the RFC's appendix A, as far as its patches are objects.
    for (original, patch, result) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        (r#"{}"#, r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ] {
        let parse = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        assert_eq!(merge_patch(parse(original), &parse(patch)), Ok(parse(result)), "{original} {patch}");
    }
    assert_eq!(merge_patch(json!({}), &json!([])), Err(PatchError::BadRequest("Invalid JSON Patch".into())));
}

#[test]
fn json_patch_operations() {
    for (original, patch, result) in [
        (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
        (
            json!({"a/b": 1, "c~d": 2}),
            json!([{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}]),
            json!({}),
        ),
        (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": {"b": 1}}), json!([{"op": "move", "from": "/a/b", "path": "/c"}]), json!({"a": {}, "c": 1})),
        (
            json!({"a": {"b": 1}}),
            json!([{"op": "copy", "from": "/a", "path": "/c"}]),
            json!({"a": {"b": 1}, "c": {"b": 1}}),
        ),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}]), json!({})),
        (json!({"a": 1}), json!([{"op": "test", "path": "/b", "value": null}]), json!({"a": 1})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
    ] {
        assert_eq!(json_patch(original, &patch), Ok(result), "{patch}");
    }
}

#[test]
fn json_patch_refusals() {
    let unfit = |text: &str| PatchError::Unprocessable(text.into());
    for (patch, error) in [
        (json!([{"op": "test", "path": "/a", "value": 2}]), unfit("testing value /a failed: test failed")),
        (
            json!([{"op": "add", "path": "/x/y", "value": 2}]),
            unfit("add operation does not apply: doc is missing path: \"/x/y\": missing value"),
        ),
        (
            json!([{"op": "remove", "path": "/x"}]),
            unfit("error in remove for path: '/x': Unable to remove nonexistent key: x: missing value"),
        ),
        (
            json!([{"op": "remove", "path": "/x/y"}]),
            unfit("remove operation does not apply: doc is missing path: \"/x/y\": missing value"),
        ),
        (
            json!([{"op": "replace", "path": "/l/7", "value": 1}]),
            unfit("replace operation does not apply: doc is missing key: /l/7: missing value"),
        ),
        (
            json!([{"op": "add", "path": "/l/7", "value": 1}]),
            unfit("error in add for path: '/l/7': Unable to access invalid index: 7: invalid index referenced"),
        ),
        (
            json!([{"op": "add", "path": "/l/99999999999999999999", "value": 1}]),
            unfit(
                "error in add for path: '/l/99999999999999999999': value was not a proper array index: '99999999999999999999': strconv.Atoi: parsing \"99999999999999999999\": invalid syntax",
            ),
        ),
        (json!([{"op": "dance", "path": "/a"}]), unfit("Unexpected kind: dance")),
        (json!([{"path": "/a"}]), unfit("Unexpected kind: unknown")),
        (json!([{"op": "add"}]), unfit("add operation failed to decode path: missing value")),
        (
            json!({}),
            PatchError::BadRequest("json: cannot unmarshal object into Go value of type jsonpatch.Patch".into()),
        ),
        (
            json!(vec![json!({"op": "test", "path": "/a", "value": 1}); OPERATIONS_MAX + 1]),
            PatchError::TooLarge("The allowed maximum operations in a JSON patch is 10000, got 10001".into()),
        ),
    ] {
        assert_eq!(json_patch(json!({"a": 1, "l": [1, 2]}), &patch), Err(error));
    }
}

#[test]
fn copies_of_copies_stay_bounded() {
    let mut operations = Vec::new();
    for _ in 0..60 {
        operations.push(json!({"op": "copy", "from": "/a", "path": "/a/-"}));
    }
    let why = json_patch(json!({"a": ["x".repeat(1000)]}), &Value::Array(operations)).unwrap_err();
    assert!(why.to_string().starts_with("Unable to complete the copy"), "{why}");
}

#[test]
fn a_patch_nests_no_deeper_than_anything_may() {
    let deeper = [
        json!({"op": "add", "path": "/b", "value": {}}),
        json!({"op": "move", "from": "/a", "path": "/b/a"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let nested = |rounds: usize| {
        let rounds = deeper.iter().cycle().take(3 * rounds).cloned();
        json_patch(json!({"a": {}}), &Value::Array(rounds.collect()))
    };
    let deepest = nested(DEPTH_MAX - 3).unwrap();
    assert!(!is_deeper(&deepest, DEPTH_MAX - 1) && is_deeper(&deepest, DEPTH_MAX - 2));
    let why = nested(3_000).unwrap_err();
    assert_eq!(why, PatchError::Unprocessable("move operation does not apply: /b/a: exceeded max depth".into()));
    // The same by copies, which double the depth, by long paths, and by values.
    let copies = vec![json!({"op": "copy", "from": "/a", "path": "/a/b"}); 1_000];
    assert!(json_patch(json!({"a": {}}), &Value::Array(copies)).unwrap_err().to_string().contains("max depth"));
    let long = (1..5_000).map(|steps| json!({"op": "add", "path": "/a".repeat(steps), "value": {}}));
    assert!(json_patch(json!({}), &Value::Array(long.collect())).unwrap_err().to_string().contains("max depth"));
    let deep = (0..DEPTH_MAX - 1).fold(json!([]), |inner, _| json!([inner]));
    for op in ["add", "replace"] {
        let patch = |path: &str| json!([{"op": op, "path": path, "value": deep}]);
        assert!(json_patch(json!({"a": {}}), &patch("/a")).unwrap_err().to_string().contains("max depth"), "{op}");
    }
}

#[test]
fn a_patch_moves_no_more_than_a_bounded_number_of_values() {
    let list = || json!({"l": vec![0; 100_000], "m": {}});
    let insert = vec![json!({"op": "add", "path": "/l/0", "value": 1}); 1_000];
    let remove = vec![json!({"op": "remove", "path": "/l/0"}); 1_000];
    let carry =
        [json!({"op": "move", "from": "/l", "path": "/m/l"}), json!({"op": "move", "from": "/m/l", "path": "/l"})];
    let carry = carry.iter().cycle().take(1_000).cloned().collect();
    for operations in [insert, remove, carry] {
        let why = json_patch(list(), &Value::Array(operations)).unwrap_err();
        assert!(matches!(&why, PatchError::TooLarge(why) if why.contains("may move 10000000 values")), "{why}");
    }
    // What an editor of a long list sends is far below.
    let append = vec![json!({"op": "add", "path": "/l/-", "value": 1}); OPERATIONS_MAX];
    assert!(json_patch(list(), &Value::Array(append)).is_ok());
    let front = vec![json!({"op": "add", "path": "/l/0", "value": 1}); 1_000];
    assert!(json_patch(json!({"l": vec![0; 1_000]}), &Value::Array(front)).is_ok());
}
