//! Schemas and objects as data.

use serde_json::Value;

use super::*;
use crate::field_error::Path;
use crate::test_schema::yaml;

fn compile(schema: &str) -> Structural {
    let schema = yaml(schema);
    Structural::compile(&schema, &Path::new("spec.schema"))
        .unwrap_or_else(|errors| panic!("{}", crate::field_error::join(&errors)))
}

/// A schema whose `spec` is given.
fn with_spec(spec: &str) -> Structural {
    compile(&format!("{{type: object, properties: {{spec: {spec}}}}}"))
}

#[track_caller]
fn refused(schema: &str, errors: &[&str]) {
    let found = match Structural::compile(&yaml(schema), &Path::new("s")) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    assert_eq!(found, errors, "{schema}");
}

/// Validates `{spec: …}`.
#[track_caller]
fn judged(schema: &Structural, spec: &str, errors: &[&str]) {
    let object = serde_json::json!({"spec": yaml(spec)});
    let found: Vec<String> = schema.validate(&object, None).iter().map(ToString::to_string).collect();
    assert_eq!(found, errors, "{spec}");
}

#[test]
fn what_is_not_structural_is_refused() {
    refused("{}", &["s.type: Required value: must not be empty at the root"]);
    refused("{type: array, items: {type: string}}", &[r#"s.type: Invalid value: "array": must be object at the root"#]);
    refused(
        "{type: object, additionalProperties: {type: string}}",
        &["s.additionalProperties: Forbidden: must not be used at the root"],
    );
    for (spec, errors) in [
        ("{}", vec!["s.properties[spec].type: Required value: must not be empty for specified object fields"]),
        ("{type: array}", vec!["s.properties[spec].items: Required value: must be specified"]),
        (
            "{type: array, items: {}}",
            vec!["s.properties[spec].items.type: Required value: must not be empty for specified array items"],
        ),
        (
            "{type: array, items: [{type: string}]}",
            vec!["s.properties[spec].items: Forbidden: items must be a schema object and not an array"],
        ),
        (
            "{type: \"null\"}",
            vec!["s.properties[spec].type: Forbidden: type cannot be set to null, use nullable as an alternative"],
        ),
        (
            "{type: text}",
            vec![
                r#"s.properties[spec].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ],
        ),
        ("{type: object, $ref: '#/x'}", vec!["s.properties[spec].$ref: Forbidden: $ref is not supported"]),
        (
            "{type: array, items: {type: string}, uniqueItems: true}",
            vec![
                "s.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            "{type: object, properties: {a: {type: string}}, additionalProperties: {type: string}}",
            vec![
                "s.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            "{type: object, x-kubernetes-preserve-unknown-fields: false}",
            vec![
                "s.properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        ),
        (
            "{x-kubernetes-int-or-string: true, x-kubernetes-preserve-unknown-fields: true}",
            vec![
                "s.properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
            ],
        ),
        (
            "{x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}",
            vec!["s.properties[spec].type: Required value: must be object if x-kubernetes-embedded-resource is true"],
        ),
        (
            "{type: object, x-kubernetes-embedded-resource: true}",
            vec![
                "s.properties[spec].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ],
        ),
        (
            "{type: string, x-kubernetes-list-type: set}",
            vec![
                r#"s.properties[spec].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
            ],
        ),
        (
            "{type: object, x-kubernetes-map-type: deep}",
            vec![
                r#"s.properties[spec].x-kubernetes-map-type: Unsupported value: "deep": supported values: "atomic", "granular""#,
            ],
        ),
        (
            "{type: array, x-kubernetes-list-type: map, items: {type: object, properties: {name: {type: string}}}}",
            vec![
                "s.properties[spec].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, properties: {name: {type: string}}}}",
            vec![
                "s.properties[spec].items.properties[name].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], items: {type: object, properties: {name: {type: string}}}}",
            vec![
                r#"s.properties[spec].x-kubernetes-list-map-keys: Invalid value: ["id"]: entries must all be names of item properties"#,
            ],
        ),
        (
            "{type: array, x-kubernetes-list-type: set, items: {type: object, properties: {a: {type: string}}}}",
            vec![
                "s.properties[spec].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            "{type: object, anyOf: [{type: string}]}",
            vec!["s.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            "{type: object, oneOf: [{properties: {a: {minimum: 1}}}]}",
            vec![
                "s.properties[spec].properties[a]: Required value: because it is defined in s.properties[spec].oneOf[0].properties[a]",
            ],
        ),
        (
            "{type: object, not: {x-kubernetes-validations: [{rule: 'true'}]}}",
            vec!["s.properties[spec].not.x-kubernetes-validations: Forbidden: must be empty to be structural"],
        ),
        (
            "{type: integer, default: x}",
            vec![r#"s.properties[spec].default: Invalid value: "string":  in body must be of type integer: "string""#],
        ),
        (
            "{type: object, properties: {a: {type: string}}, default: {b: 1}}",
            vec![r#"s.properties[spec].default: Invalid value: {"b":1}: must not have unknown fields"#],
        ),
        (
            "{type: object, x-kubernetes-validations: [{rule: ' '}]}",
            vec!["s.properties[spec].x-kubernetes-validations[0].rule: Required value: rule is not specified"],
        ),
        (
            "{type: object, x-kubernetes-validations: [{rule: 'true', reason: Because}]}",
            vec![
                r#"s.properties[spec].x-kubernetes-validations[0].reason: Unsupported value: "Because": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
            ],
        ),
        (
            "{type: object, x-kubernetes-validations: [{rule: 'true', fieldPath: .a}]}",
            vec![
                r#"s.properties[spec].x-kubernetes-validations[0].fieldPath: Invalid value: ".a": must be a valid path"#,
            ],
        ),
    ] {
        refused(&format!("{{type: object, properties: {{spec: {spec}}}}}"), &errors);
    }
    refused(
        "{type: object, properties: {metadata: {type: object, properties: {labels: {type: object}}}}}",
        &[
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
}

#[test]
fn a_schema_too_deep_is_refused() {
    let mut schema = yaml("{type: string}");
    for _ in 0..SCHEMA_DEPTH_MAX + 1 {
        schema = serde_json::json!({"type": "object", "properties": {"a": schema}});
    }
    let errors = Structural::compile(&schema, &Path::new("s")).unwrap_err();
    assert!(errors[0].to_string().contains("nested deeper"), "{}", errors[0]);
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let schema = with_spec(
        "{type: object, properties: {a: {type: string}, free: {type: object, x-kubernetes-preserve-unknown-fields: true, \
         properties: {b: {type: object, properties: {c: {type: string}}}}}, \
         map: {type: object, additionalProperties: {type: object, properties: {x: {type: string}}}}, \
         list: {type: array, items: {type: object, properties: {y: {type: string}}}}, \
         inner: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}",
    );
    let mut object = yaml(
        "{apiVersion: g/v1, kind: K, metadata: {name: x, nonsense: 1}, top: 1, spec: {a: '1', b: 2, \
         free: {any: {thing: 1}, b: {c: '1', d: 2}}, map: {k: {x: '1', z: 2}}, list: [{y: '1'}, {q: 1}], \
         inner: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {x: 1}}}}",
    );
    let dropped = schema.prune(&mut object);
    assert_eq!(dropped, ["metadata.nonsense", "spec.b", "spec.free.b.d", "spec.list[1].q", "spec.map.k.z", "top"]);
    assert_eq!(
        object,
        yaml(
            "{apiVersion: g/v1, kind: K, metadata: {name: x}, spec: {a: '1', free: {any: {thing: 1}, b: {c: '1'}}, \
             map: {k: {x: '1'}}, list: [{y: '1'}, {}], inner: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {x: 1}}}}"
        )
    );
    assert_eq!(schema.prune(&mut object), Vec::<String>::new());
}

#[test]
fn defaults_fill_what_is_absent() {
    let schema = with_spec(
        "{type: object, default: {}, properties: {n: {type: integer, default: 3}, s: {type: string, nullable: true, default: d}, \
         plain: {type: string}, o: {type: object, default: {x: 1}, properties: {x: {type: integer}, w: {type: integer, default: 2}}}, \
         l: {type: array, items: {type: object, properties: {p: {type: string, default: TCP}}}}}}",
    );
    for (before, after) in [
        ("{}", "{spec: {n: 3, s: d, o: {x: 1, w: 2}}}"),
        ("{spec: {n: null, s: null, plain: null, o: {}}}", "{spec: {n: 3, s: null, o: {w: 2}}}"),
        ("{spec: {n: 0, l: [{}, {p: UDP}]}}", "{spec: {n: 0, s: d, o: {x: 1, w: 2}, l: [{p: TCP}, {p: UDP}]}}"),
    ] {
        let mut object = yaml(before);
        schema.default(&mut object).unwrap();
        assert_eq!(object, yaml(after), "{before}");
    }
}

#[test]
fn values_are_judged_in_kubernetes_words() {
    let schema = with_spec(
        "{type: object, required: [name], properties: {name: {type: string, minLength: 2, maxLength: 5, pattern: '^[a-z]+$'}, \
         replicas: {type: integer, minimum: 1, maximum: 10, format: int32}, half: {type: number, multipleOf: 0.5, exclusiveMinimum: true, minimum: 0}, \
         kind: {type: string, enum: [A, B]}, on: {type: boolean}, at: {type: string, format: date-time}, \
         port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}, \
         tags: {type: array, minItems: 1, maxItems: 2, x-kubernetes-list-type: set, items: {type: string}}, \
         items: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], items: {type: object, required: [id], properties: {id: {type: string}, v: {type: integer}}}}, \
         map: {type: object, maxProperties: 1, additionalProperties: {type: integer}}}}",
    );
    judged(
        &schema,
        "{name: abc, replicas: 3, half: 1.5, kind: A, on: true, at: '2026-01-01T00:00:00Z', port: 80, tags: [a], map: {a: 1}}",
        &[],
    );
    for (spec, errors) in [
        ("{}", vec!["spec.name: Required value"]),
        ("{name: a}", vec![r#"spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long"#]),
        ("{name: abcdef}", vec!["spec.name: Too long: may not be more than 5 bytes"]),
        ("{name: AB}", vec![r#"spec.name: Invalid value: "AB": spec.name in body should match '^[a-z]+$'"#]),
        (
            "{name: 5}",
            vec![r#"spec.name: Invalid value: "integer": spec.name in body must be of type string: "integer""#],
        ),
        (
            "{name: ab, replicas: 11}",
            vec!["spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10"],
        ),
        (
            "{name: ab, replicas: 0}",
            vec!["spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1"],
        ),
        (
            "{name: ab, replicas: many}",
            vec![r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#],
        ),
        ("{name: ab, half: 0}", vec!["spec.half: Invalid value: 0: spec.half in body should be greater than 0"]),
        ("{name: ab, half: 0.7}", vec!["spec.half: Invalid value: 0.7: spec.half in body should be a multiple of 0.5"]),
        ("{name: ab, kind: C}", vec![r#"spec.kind: Unsupported value: "C": supported values: "A", "B""#]),
        (
            "{name: ab, at: soon}",
            vec![r#"spec.at: Invalid value: "soon": spec.at in body must be of type date-time: "soon""#],
        ),
        (
            "{name: ab, port: 1.5}",
            vec![r#"spec.port: Invalid value: "number": spec.port in body must be of type integer,string: "number""#],
        ),
        ("{name: ab, tags: []}", vec!["spec.tags: Invalid value: 0: spec.tags in body should have at least 1 items"]),
        ("{name: ab, tags: [a, b, c]}", vec!["spec.tags: Too many: 3: must have at most 2 items"]),
        ("{name: ab, tags: [a, a]}", vec![r#"spec.tags[1]: Duplicate value: "a""#]),
        (
            "{name: ab, items: [{id: a, v: x}]}",
            vec![
                r#"spec.items[0].v: Invalid value: "string": spec.items[0].v in body must be of type integer: "string""#,
            ],
        ),
        ("{name: ab, items: [{id: a}, {id: a}]}", vec![r#"spec.items[1]: Duplicate value: {"id":"a"}"#]),
        ("{name: ab, map: {a: 1, b: 2}}", vec!["spec.map: Too many: 2: must have at most 1 item"]),
        (
            "{name: ab, map: {a: x}}",
            vec![r#"spec.map.a: Invalid value: "string": spec.map.a in body must be of type integer: "string""#],
        ),
        ("{name: null}", vec![r#"spec.name: Invalid value: "null": spec.name in body must be of type string: "null""#]),
    ] {
        judged(&schema, spec, &errors);
    }
}

#[test]
fn junctors_judge() {
    let schema = with_spec(
        "{type: object, properties: {a: {type: integer}, b: {type: integer}}, oneOf: [{required: [a]}, {required: [b]}], \
         not: {properties: {a: {minimum: 10}}, required: [a]}}",
    );
    judged(&schema, "{a: 1}", &[]);
    judged(
        &schema,
        "{}",
        &[
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.a: Required value",
        ],
    );
    judged(
        &schema,
        "{a: 1, b: 1}",
        &[
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    judged(&schema, "{a: 10}", &[r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#]);
    let schema = with_spec("{type: integer, allOf: [{minimum: 1}, {maximum: 3}]}");
    judged(
        &schema,
        "4",
        &[
            "spec: Invalid value: 4: spec in body should be less than or equal to 3",
            r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf)"#,
        ],
    );
}

#[test]
fn names_can_be_restricted() {
    let schema = compile(
        "{type: object, properties: {metadata: {type: object, properties: {name: {type: string, maxLength: 3}}}}}",
    );
    let error = schema.validate(&yaml("{metadata: {name: long}}"), None);
    assert_eq!(error[0].to_string(), "metadata.name: Too long: may not be more than 3 bytes");
}

#[test]
fn unchanged_fields_are_let_pass() {
    let schema = with_spec(
        "{type: object, properties: {a: {type: string, maxLength: 1}, b: {type: string}, l: {type: array, x-kubernetes-list-type: map, \
         x-kubernetes-list-map-keys: [id], items: {type: object, required: [id], properties: {id: {type: string}, v: {type: integer, maximum: 5}}}}}}",
    );
    let old = yaml("{spec: {a: long, b: x, l: [{id: p, v: 9}]}}");
    let count = |new: &str| schema.validate(&yaml(new), Some(&old)).len();
    assert_eq!(count("{spec: {a: long, b: z, l: [{id: q, v: 1}, {id: p, v: 9}]}}"), 0);
    assert_eq!(count("{spec: {a: longer, b: z, l: [{id: p, v: 8}]}}"), 2);
}

#[test]
fn custom_resources_apply_like_any_other() {
    let schema = with_spec(
        "{type: object, properties: {a: {type: string}, l: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], \
         items: {type: object, required: [id], properties: {id: {type: string}}}}, any: {x-kubernetes-preserve-unknown-fields: true}}}",
    );
    let by = crate::apply::Writer {
        catalogue: schema.catalogue(),
        ty: schema.root(),
        api_version: "g/v1",
        kind: "K",
        manager: "m",
        subresource: "",
        now: "t",
        reset: &[],
    };
    let mut object = yaml(
        "{apiVersion: g/v1, kind: K, metadata: {name: x, labels: {a: b}}, spec: {a: '1', l: [{id: p}], any: {x: [1], z: {q: 1}}}}",
    );
    assert_eq!(
        crate::apply::created_fields(&object, &by),
        r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{".":{},"f:a":{},"f:any":{".":{},"f:x":{},"f:z":{".":{},"f:q":{}}},"f:l":{".":{},"k:{\"id\":\"p\"}":{".":{},"f:id":{}}}}}"#
    );
    crate::apply::created(&mut object, &by);
    let other = crate::apply::Writer { manager: "n", ..by };
    let applied = yaml("{apiVersion: g/v1, kind: K, metadata: {name: x}, spec: {l: [{id: q}]}}");
    let result: Value = crate::apply::apply(Some(&object), &applied, &other, false).unwrap();
    assert_eq!(result["spec"]["l"], yaml("[{id: p}, {id: q}]"));
}

#[test]
fn defaults_stop_before_they_fill_the_memory() {
    let schema = with_spec(&format!(
        "{{type: object, properties: {{l: {{type: array, items: {{type: object, properties: {{p: {{type: string, default: {}}}}}}}}}, \
         m: {{type: object, additionalProperties: {{type: object, nullable: false, default: {{q: {}}}, properties: {{q: {{type: string}}}}}}}}}}}}",
        "x".repeat(200),
        "y".repeat(200)
    ));
    let list = |items: usize| serde_json::json!({"spec": {"l": vec![serde_json::json!({}); items]}});
    let mut fits = list(5_000);
    assert_eq!(schema.default(&mut fits), Ok(()));
    assert_eq!(fits["spec"]["l"][4_999]["p"].as_str().map(str::len), Some(200));
    let mut bomb = list(150_000);
    assert_eq!(schema.default(&mut bomb), Err(TooLarge));
    let filled = bomb["spec"]["l"].as_array().unwrap().iter().filter(|item| item.get("p").is_some()).count();
    assert!(filled < 8_000, "{filled} items were filled");
    let entries: serde_json::Map<String, Value> = (0..50_000).map(|n| (n.to_string(), Value::Null)).collect();
    assert_eq!(schema.default(&mut serde_json::json!({"spec": {"m": entries}})), Err(TooLarge));
}

#[test]
fn a_schema_whose_defaults_grow_is_refused() {
    let items =
        serde_json::json!({"type": "object", "properties": {"p": {"type": "string", "default": "x".repeat(2_000)}}});
    let list = serde_json::json!({"type": "array", "items": items, "default": vec![serde_json::json!({}); 1_000]});
    let fields: serde_json::Map<String, Value> = (0..1_000).map(|n| (format!("f{n}"), list.clone())).collect();
    let schema =
        serde_json::json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let errors = Structural::compile(&schema, &Path::new("s")).unwrap_err();
    assert!(errors[0].to_string().contains("with its defaults the object would be larger"), "{}", errors[0]);
}

#[test]
fn a_long_enum_is_looked_up() {
    let values: Vec<String> = (0..20_000).map(|n| format!("value-{n}")).collect();
    let item = serde_json::json!({"type": "string", "enum": values});
    let schema = serde_json::json!({"type": "object", "properties": {"l": {"type": "array", "items": item}}});
    let schema = Structural::compile(&schema, &Path::new("s")).unwrap();
    // Compared one by one these are two thousand million comparisons.
    let object = serde_json::json!({"l": vec!["value-19999"; 100_000]});
    assert_eq!(schema.validate(&object, None), []);
    let errors = schema.validate(&serde_json::json!({"l": vec!["x"; 100_000]}), None);
    assert_eq!(errors.len(), ERRORS_MAX);
    let text = errors[0].to_string();
    assert!(text.contains("\"value-255\", \"…\"") && text.len() < 20_000, "{}", text.len());
}

#[test]
fn a_validation_is_a_bounded_number_of_steps() {
    let branches: Vec<Value> = (0..500).map(|n| serde_json::json!({"enum": [n]})).collect();
    for (what, item) in [
        ("branches", serde_json::json!({"type": "integer", "anyOf": branches})),
        (
            "branches that must all hold",
            serde_json::json!({"type": "integer", "allOf": vec![serde_json::json!({"minimum": 0}); 500]}),
        ),
        ("branches that must not hold", serde_json::json!({"type": "integer", "oneOf": branches})),
    ] {
        let schema = serde_json::json!({"type": "object", "properties": {"l": {"type": "array", "items": item}}});
        let schema = Structural::compile(&schema, &Path::new("s")).unwrap();
        let few = schema.validate(&serde_json::json!({"l": vec![499; 100]}), None);
        assert_eq!(few, [], "{what}");
        let many = schema.validate(&serde_json::json!({"l": vec![499; 10_000]}), None);
        assert_eq!(
            many[0].to_string(),
            "<nil>: Forbidden: validating the object takes more than 2000000 steps",
            "{what}"
        );
    }
    let patterns: Vec<Value> = (0..50).map(|n| serde_json::json!({"pattern": format!("^a*.{n}")})).collect();
    let schema = serde_json::json!({"type": "object", "properties": {"s": {"type": "string", "allOf": patterns}}});
    let schema = Structural::compile(&schema, &Path::new("s")).unwrap();
    let errors = schema.validate(&serde_json::json!({"s": "a".repeat(1_000_000)}), None);
    assert!(errors.iter().any(|error| error.to_string().contains("steps")), "{errors:?}");
}

#[test]
fn the_patterns_of_a_schema_are_bounded_together() {
    let with = |patterns: usize, text: &str| {
        let field =
            |n: usize| (format!("f{n}"), serde_json::json!({"type": "string", "pattern": format!("{text}{n}")}));
        let fields: serde_json::Map<String, Value> = (0..patterns).map(field).collect();
        let schema =
            serde_json::json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        Structural::compile(&schema, &Path::new("s"))
    };
    assert!(with(300, "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$").is_ok());
    for hostile in ["(a{100}){90}", r"\p{L}{200}", "([a-z]{1,9}){300}"] {
        let errors = with(1_000, hostile).unwrap_err();
        assert!(
            errors.iter().any(|error| error.to_string().contains("too large together")),
            "{hostile}: {}",
            errors[0]
        );
    }
}
