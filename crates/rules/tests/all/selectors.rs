//! Label and field selectors: by table, against Kubernetes' own libraries, and on noise.

use std::collections::BTreeMap;

use rules::selector::{FieldSelector, LabelSelector, ProblemKind, SELECTOR_BYTES_MAX, SelectorError, problems};
use serde_json::{Value, json};

use super::peer::{ask, hex, unhex};
use super::random::Random;
use super::selector_harness;

/// `selector -> normalised form ; labels it matches ; labels it does not`
const TABLE: &str = "
    app=web               -> app=web              ; app=web        ; app=db | other=web
    app==web              -> app==web             ; app=web        ; app=db
    app!=web              -> app!=web             ; app=db | x=y   ; app=web
    app in (b,a,b)        -> app in (a,b)         ; app=a | app=b  ; app=c | x=y
    app notin (a)         -> app notin (a)        ; app=b | x=y    ; app=a
    app                   -> app                  ; app=           ; x=y
    !app                  -> !app                 ; x=y            ; app=
    z=1,a=2               -> a=2,z=1              ; a=2,z=1        ; a=2 | z=1
    app=                  -> app=                 ; app=           ; app=x | x=y
    app in ()             -> app in ()            ; app=           ; app=a
    app in (,a)           -> app in (,a)          ; app= | app=a   ; app=b
    in in (in,notin)      -> in in (in,notin)     ; in=in          ; in=x
    n>4                   -> n>4                  ; n=5            ; n=4 | n=x | x=y
    n<4                   -> n<4                  ; n=3            ; n=4 | n=x
    example.com/app=web   -> example.com/app=web  ; example.com/app=web ; app=web
";

#[test]
fn label_selectors_match() {
    for row in TABLE.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (text, rest) = row.split_once("->").expect("an arrow");
        let cells: Vec<&str> = rest.split(';').map(str::trim).collect();
        let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{row}: {error}"));
        assert_eq!(selector.to_string(), cells[0], "{row}");
        for (sets, expected) in [(cells[1], true), (cells[2], false)] {
            for set in sets.split('|').map(str::trim) {
                assert_eq!(selector.matches(&labels(set)), expected, "{row}: {set}");
            }
        }
    }
}

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split(',').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect()
}

#[test]
fn an_absent_selector_matches_nothing_and_an_empty_one_everything() {
    let none = labels("");
    assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(&none));
    assert!(LabelSelector::from_object(&json!({})).unwrap().matches(&none));
    assert!(LabelSelector::parse("").unwrap().is_everything());
}

#[test]
fn selectors_are_bounded() {
    let long = "a".repeat(SELECTOR_BYTES_MAX + 1);
    assert_eq!(LabelSelector::parse(&long), Err(SelectorError::TooLong));
    assert_eq!(FieldSelector::parse(&long), Err(SelectorError::TooLong));
    let values: Vec<String> = (0..2000).map(|at| format!("v{at}")).collect();
    let object = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": values}]});
    assert_eq!(LabelSelector::from_object(&object), Err(SelectorError::TooManyItems));
}

#[test]
fn an_object_of_the_wrong_shape_is_refused() {
    for object in [
        json!([]),
        json!({"matchLabels": []}),
        json!({"matchLabels": {"a": 1}}),
        json!({"matchExpressions": {}}),
        json!({"matchExpressions": [1]}),
        json!({"matchExpressions": [{"key": 1}]}),
        json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}),
    ] {
        assert!(matches!(LabelSelector::from_object(&object), Err(SelectorError::Invalid(_))), "{object}");
        assert!(problems(&object).is_err(), "{object}");
    }
}

#[test]
fn field_selectors_escape_and_match() {
    let selector = FieldSelector::parse(r"metadata.name=a\,b,status.phase!=Done").unwrap();
    assert_eq!(selector.exact("metadata.name"), Some("a,b"));
    assert_eq!(selector.exact("status.phase"), None);
    assert_eq!(selector.to_string(), r"metadata.name=a\,b,status.phase!=Done");
    let look_up = |field: &str| if field == "metadata.name" { "a,b" } else { "" };
    assert!(selector.matches(look_up));
    assert!(FieldSelector::parse("metadata.name").is_err());
}

const LABEL_PIECES: [&str; 30] = [
    "a",
    "app",
    "b",
    "in",
    "notin",
    " in ",
    " notin ",
    "(",
    ")",
    "(a,b)",
    "()",
    ",",
    ",",
    "=",
    "==",
    "!=",
    "!",
    ">",
    "<",
    " ",
    "1",
    "x y",
    "example.com/app",
    "/a",
    "a/b/c",
    "-",
    "é",
    "\t",
    "A_b.c-d",
    "_",
];

#[test]
fn kubernetes_reads_label_selectors_the_same() {
    let mut random = Random(1);
    let sets = ["{}", r#"{"a":"b"}"#, r#"{"app":"a","n":"1"}"#, r#"{"in":"","a":"1"}"#];
    let cases: Vec<(String, &str)> = (0..60_000).map(|_| (random.row(&LABEL_PIECES, 7), random.pick(&sets))).collect();
    let questions: Vec<String> = cases.iter().map(|(text, set)| format!("label|{}|{}", hex(text), hex(set))).collect();
    for ((text, set), theirs) in cases.iter().zip(ask("selector", &questions)) {
        let set: BTreeMap<String, String> = serde_json::from_str(set).expect("labels");
        assert_eq!(answer(LabelSelector::parse(text), &set), readable(&theirs), "{text:?}");
    }
}

fn answer(selector: Result<LabelSelector, SelectorError>, set: &BTreeMap<String, String>) -> String {
    match selector {
        Ok(selector) => format!("ok|{selector}|{}", selector.matches(set)),
        Err(error) => format!("error|{error}"),
    }
}

/// The peer's answer with its hex word decoded.
fn readable(answer: &str) -> String {
    let words: Vec<&str> = answer.split('|').collect();
    let mut out = format!("{}|{}", words[0], unhex(words[1]));
    if let Some(matched) = words.get(2) {
        out.push_str(&format!("|{matched}"));
    }
    out
}

fn random_object(random: &mut Random) -> Value {
    let keys = ["a", "app", "example.com/a", "", "a b", "Ex.com/a", "n"];
    let values = ["", "b", "1", "-x", "ok_v", "a b"];
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "In", "Gt", ""];
    let mut object = json!({});
    // One label only: with more, which error comes first depends on Go's map order.
    if random.below(3) == 0 {
        object["matchLabels"] = json!({ random.pick(&keys): random.pick(&values) });
    }
    let expressions: Vec<Value> = (0..random.below(3))
        .map(|_| {
            let values: Vec<&str> = (0..random.below(3)).map(|_| random.pick(&values)).collect();
            json!({"key": random.pick(&keys), "operator": random.pick(&operators), "values": values})
        })
        .collect();
    object["matchExpressions"] = expressions.into();
    object
}

#[test]
fn kubernetes_reads_and_validates_selector_objects_the_same() {
    let mut random = Random(2);
    let set = labels("a=b,n=1");
    let objects: Vec<Value> = (0..20_000).map(|_| random_object(&mut random)).collect();
    let asked = |kind: &str| -> Vec<String> {
        let tail = if kind == "object" { format!("|{}", hex(r#"{"a":"b","n":"1"}"#)) } else { String::new() };
        objects.iter().map(|object| format!("{kind}|{}{tail}", hex(&object.to_string()))).collect()
    };
    for (object, theirs) in objects.iter().zip(ask("selector", &asked("object"))) {
        assert_eq!(answer(LabelSelector::from_object(object), &set), readable(&theirs), "{object}");
    }
    for (object, theirs) in objects.iter().zip(ask("selector", &asked("problems"))) {
        let mut lines: Vec<String> = problems(object)
            .expect("well shaped")
            .into_iter()
            .map(|problem| match problem.kind {
                ProblemKind::Required => format!("{}: Required value: {}", problem.path, problem.detail),
                ProblemKind::Forbidden => format!("{}: Forbidden: {}", problem.path, problem.detail),
                ProblemKind::Invalid(value) => format!("{}: Invalid value: {value}: {}", problem.path, problem.detail),
            })
            .collect();
        lines.sort();
        assert_eq!(format!("ok|{}", lines.join("\n")), readable(&theirs), "{object}");
    }
}

const FIELD_PIECES: [&str; 14] =
    ["metadata.name", "a", "b", "=", "==", "!=", "!", ",", "\\", "\\,", "\\=", "\\\\", "é", " "];

#[test]
fn kubernetes_reads_field_selectors_the_same() {
    let mut random = Random(3);
    let texts: Vec<String> = (0..40_000).map(|_| random.row(&FIELD_PIECES, 7)).collect();
    let questions: Vec<String> = texts.iter().map(|text| format!("field|{}", hex(text))).collect();
    for (text, theirs) in texts.iter().zip(ask("selector", &questions)) {
        let ours = match FieldSelector::parse(text) {
            Ok(selector) => format!("ok|{selector}"),
            Err(error) => format!("error|{error}"),
        };
        assert_eq!(ours, readable(&theirs), "{text:?}");
    }
}

#[test]
fn any_selector_text_is_answered() {
    let mut random = Random(4);
    for _ in 0..50_000 {
        selector_harness::check_bytes(random.row(&LABEL_PIECES, 9).as_bytes());
        selector_harness::check_bytes(random.row(&FIELD_PIECES, 9).as_bytes());
        selector_harness::check_bytes(&random.bytes(b"ab,=!()<> \\in\"{}[]:\0\xff1.", 20));
    }
}
