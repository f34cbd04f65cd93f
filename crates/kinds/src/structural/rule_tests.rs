//! CEL rules as data: a schema with rules, objects, what is said about them.

use serde_json::json;

use super::*;
use crate::test_schema::yaml;

fn compile(spec: &str) -> Result<Structural, Vec<String>> {
    let schema = yaml(&format!("{{type: object, properties: {{spec: {spec}}}}}"));
    Structural::compile(&schema, &Path::new("s")).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn judged(spec: &str, new: &str, old: Option<&str>, errors: &[&str]) {
    let schema = compile(spec).unwrap_or_else(|errors| panic!("{errors:?}"));
    let (new, old) = (json!({"spec": yaml(new)}), old.map(|old| json!({"spec": yaml(old)})));
    let found: Vec<String> = schema.validate(&new, old.as_ref()).iter().map(ToString::to_string).collect();
    assert_eq!(found, errors, "{spec}\n{new}");
}

#[track_caller]
fn refused(spec: &str, error: &str) {
    let errors = compile(spec).err().unwrap_or_default();
    assert!(errors.iter().any(|found| found.contains(error)), "{errors:?}\nlacks {error}");
}

const RANGE: &str = "{type: object, properties: {min: {type: integer}, max: {type: integer}, x-y: {type: string}}, \
    x-kubernetes-validations: [{rule: 'self.min <= self.max'}]}";

#[test]
fn a_rule_that_is_false_is_an_error_of_its_node() {
    judged(RANGE, "{min: 1, max: 2}", None, &[]);
    judged(RANGE, "{min: 3, max: 2}", None, &["spec: Invalid value: failed rule: self.min <= self.max"]);
    judged(
        RANGE,
        "{min: 3}",
        None,
        &[r#"spec: Invalid value: "object": no such key: max evaluating rule: self.min <= self.max"#],
    );
    judged(
        RANGE,
        "{min: x, max: 1}",
        None,
        &[
            r#"spec.min: Invalid value: "string": spec.min in body must be of type integer: "string""#,
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ],
    );
}

#[test]
fn messages_reasons_and_paths_are_the_rules_own() {
    let with = |rest: &str| {
        format!(
            "{{type: object, properties: {{n: {{type: integer}}, m: {{type: object, additionalProperties: {{type: string}}}}}}, \
             x-kubernetes-validations: [{{rule: 'self.n < 5', {rest}}}]}}"
        )
    };
    for (rest, error) in [
        ("message: too many", "spec: Invalid value: too many"),
        ("messageExpression: \"'n is ' + (self.n > 6 ? 'large' : 'small')\"", "spec: Invalid value: n is large"),
        ("message: fallback, messageExpression: \"' '\"", "spec: Invalid value: fallback"),
        ("message: m, reason: FieldValueForbidden", "spec: Forbidden: m"),
        ("message: m, reason: FieldValueRequired, fieldPath: .n", "spec.n: Required value: m"),
        ("message: m, fieldPath: \".m['a']\"", "spec.m.a: Invalid value: m"),
    ] {
        judged(&with(rest), "{n: 7}", None, &[error]);
    }
    judged(
        "{type: integer, x-kubernetes-validations: [{rule: 'self % 2 == 0', message: must be even}]}",
        "3",
        None,
        &["spec: Invalid value: 3: must be even"],
    );
}

#[test]
fn transition_rules_see_the_old_value() {
    let fixed = "{type: object, properties: {a: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: immutable}]}, b: {type: string}}}";
    judged(fixed, "{a: x}", None, &[]);
    judged(fixed, "{a: x, b: z}", Some("{a: x}"), &[]);
    judged(fixed, "{a: w}", Some("{a: x}"), &[r#"spec.a: Invalid value: "w": immutable"#]);
    let keyed = "{type: array, maxItems: 10, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], items: {type: object, required: [id], \
        properties: {id: {type: string}, v: {type: integer}}, x-kubernetes-validations: [{rule: self.v >= oldSelf.v, message: shrinks}]}}";
    judged(keyed, "[{id: b, v: 1}, {id: a, v: 1}]", Some("[{id: a, v: 2}]"), &["spec[1]: Invalid value: shrinks"]);
    let optional = "{type: integer, x-kubernetes-validations: [{rule: 'oldSelf.hasValue() || self == 1', optionalOldSelf: true, message: starts at 1}]}";
    judged(optional, "2", None, &["spec: Invalid value: 2: starts at 1"]);
    judged(optional, "1", None, &[]);
    judged(optional, "2", Some("1"), &[]);
}

#[test]
fn unchanged_values_are_let_pass() {
    let rule = "{type: object, properties: {a: {type: string, x-kubernetes-validations: [{rule: 'self.size() < 3'}]}, b: {type: string}}}";
    judged(rule, "{a: long, b: z}", Some("{a: long}"), &[]);
    judged(
        rule,
        "{a: longer, b: z}",
        Some("{a: long}"),
        &[r#"spec.a: Invalid value: "longer": failed rule: self.size() < 3"#],
    );
}

#[test]
fn schemas_give_values_their_types() {
    for (schema, good) in [
        (
            "{type: object, properties: {x-y: {type: integer}}, x-kubernetes-validations: [{rule: self.x__dash__y == 1}]}",
            "{x-y: 1}",
        ),
        (
            "{type: object, properties: {namespace: {type: string}}, x-kubernetes-validations: [{rule: self.__namespace__ == 'a'}]}",
            "{namespace: a}",
        ),
        ("{type: number, x-kubernetes-validations: [{rule: self / 2.0 == 0.5}]}", "1"),
        (
            "{type: string, format: date-time, x-kubernetes-validations: [{rule: \"self > timestamp('2020-01-01T00:00:00Z')\"}]}",
            "'2026-01-01T00:00:00Z'",
        ),
        ("{type: string, format: duration, x-kubernetes-validations: [{rule: \"self > duration('1m')\"}]}", "1h"),
        (
            "{type: object, maxProperties: 9, additionalProperties: {type: integer}, x-kubernetes-validations: [{rule: \"self.all(k, self[k] > 0) && 'a-b' in self\"}]}",
            "{a-b: 1}",
        ),
        (
            "{type: array, items: {type: string}, x-kubernetes-validations: [{rule: 'self.exists(x, x.startsWith(\"a\"))'}]}",
            "[b, a1]",
        ),
        ("{type: string, x-kubernetes-validations: [{rule: 'quantity(self).isLessThan(quantity(\"2Gi\"))'}]}", "1Gi"),
        (
            "{type: object, properties: {a: {type: string}}, x-kubernetes-validations: [{rule: '!has(self.a) || self.a == \"x\"'}]}",
            "{}",
        ),
    ] {
        judged(schema, good, None, &[]);
    }
}

#[test]
fn rules_that_cannot_work_are_refused_with_the_crd() {
    let rule = |rule: &str| {
        format!(
            "{{type: object, properties: {{a: {{type: string}}}}, x-kubernetes-validations: [{{rule: \"{rule}\"}}]}}"
        )
    };
    refused(&rule("self.a =="), "s.properties[spec].x-kubernetes-validations[0].rule: Invalid value");
    refused(&rule("self.b == 'x'"), "compilation failed: ERROR: undefined field 'b'");
    refused(&rule("request.user == 'x'"), "undeclared reference to 'request'");
    refused(&rule("nosuch(self.a)"), "undeclared reference to 'nosuch'");
    refused(
        "{type: array, items: {type: string, x-kubernetes-validations: [{rule: self == oldSelf}]}}",
        "oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec]",
    );
    refused(
        "{type: string, x-kubernetes-validations: [{rule: self != '', optionalOldSelf: true}]}",
        "may not be set if oldSelf is not used in rule",
    );
    refused(
        "{type: string, x-kubernetes-validations: [{rule: self != '', messageExpression: 'self +'}]}",
        "messageExpression: Invalid value",
    );
    let metadata = yaml("{type: object, x-kubernetes-validations: [{rule: self.metadata.labels.size() > 0}]}");
    assert!(Structural::compile(&metadata, &Path::new("s")).is_err());
    let name = yaml("{type: object, x-kubernetes-validations: [{rule: self.metadata.name.startsWith('a')}]}");
    let schema = Structural::compile(&name, &Path::new("s")).unwrap();
    assert_eq!(
        schema.validate(&yaml("{metadata: {name: b}}"), None)[0].to_string(),
        "<nil>: Invalid value: failed rule: self.metadata.name.startsWith('a')"
    );
}

#[test]
fn hostile_rules_are_refused_with_the_crd_or_on_the_object() {
    let nested = "self.all(a, self.all(b, self.all(c, a + b + c > 0)))";
    refused(
        &format!("{{type: array, items: {{type: integer}}, x-kubernetes-validations: [{{rule: '{nested}'}}]}}"),
        "estimated rule cost exceeds budget by factor of",
    );
    refused(
        &format!("{{type: string, x-kubernetes-validations: [{{rule: \"{}\"}}]}}", "(".repeat(1000)),
        "compilation failed",
    );
    // Bounded in the schema, the same rule is welcome.
    judged(
        &format!(
            "{{type: array, maxItems: 20, items: {{type: integer}}, x-kubernetes-validations: [{{rule: '{nested}'}}]}}"
        ),
        "[1, 2, 3]",
        None,
        &[],
    );
    // Without a bound quadratic work is refused; within one it is stopped on an object that is too large for it.
    let pairs = "{type: array, maxItems: 1000, items: {type: integer}, x-kubernetes-validations: [{rule: 'self.all(a, self.all(b, a + b > 0))'}]}";
    let schema = compile(pairs).unwrap();
    let object = json!({"spec": vec![1; 900]});
    assert_eq!(
        schema.validate(&object, None)[0].to_string(),
        r#"spec: Invalid value: "array": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all(a, self.all(b, a + b > 0))"#
    );
}
