//! Kubernetes' own merging is the oracle: random objects of real kinds, changed at random, are patched, created and applied
//! there and here, and must end the same.

use std::io::Write as _;
use std::process::{Command, Stdio};

use kinds::apply::{self, Managed, Operation, Writer};
use kinds::decode::fit;
use kinds::facts;
use kinds::patch::strategic;
use kinds::schema::TypeId;
use serde_json::{Value, json};

use crate::hostile::Random;
use crate::parts;
use crate::roundtrip::encodings;

/// Random objects of each kind.
const ROUNDS: u32 = 4;

struct Case {
    api_version: String,
    kind: String,
    ty: TypeId,
    a: Value,
}

/// Objects with metadata, as this server would store them.
fn cases(seed: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    for encoding in encodings(seed, ROUNDS) {
        // The program's scheme has no custom resource definitions; lists and options are not stored.
        let unknown = ["CustomResourceDefinition", "PartialObjectMetadata", "Status"];
        if unknown.contains(&&*encoding.kind) || encoding.kind.ends_with("List") {
            continue;
        }
        // A null in Go's text is a field of a struct that holds nothing: owned there, absent here.
        if encoding.json.replace(r#""creationTimestamp":null"#, "").contains(":null") {
            continue;
        }
        let ty = facts().kinds()[encoding.kind_index].ty;
        let value: Value = serde_json::from_str(&encoding.json).expect("JSON");
        let Ok(fitted) = fit(&facts().catalogue, ty, value) else { continue };
        let mut a = fitted.value;
        forget_owners(&mut a);
        let Some(metadata) = a.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
        metadata.insert("uid".into(), "u".into());
        metadata.insert("name".into(), "x".into());
        cases.push(Case { api_version: encoding.api_version, kind: encoding.kind, ty, a });
    }
    cases
}

/// Takes out the random managedFields, those of templates too: they are not what they are named for.
fn forget_owners(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("managedFields");
            fields.values_mut().for_each(forget_owners);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_owners),
        _ => {}
    }
}

fn ask(questions: &[Value]) -> Vec<Value> {
    let mut child = Command::new(parts::program("merge"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("merge starts");
    let mut stdin = child.stdin.take().expect("piped");
    let text: String = questions.iter().map(|question| format!("{question}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("merge ends");
    writer.join().expect("no panic").expect("written");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

/// The value with fields dropped, texts changed and items left out here and there. Fields Go writes even when they are
/// empty stay: as nulls they would be owned there, and there are no such nulls here.
fn changed(random: &mut Random, value: &Value, ty: Option<TypeId>, depth: usize) -> Value {
    let catalogue = &facts().catalogue;
    let child = |name: &str| ty.and_then(|ty| catalogue.child(ty, name));
    match value {
        Value::Object(fields) => {
            let is_fixed =
                |name: &str| ty.and_then(|ty| catalogue.field(ty, name)).is_some_and(|field| !field.omit_empty);
            let mut kept = Vec::new();
            for (name, field) in fields {
                if depth < 2 || is_fixed(name) || random.below(5) > 0 {
                    kept.push((name.clone(), changed(random, field, child(name), depth + 1)));
                }
            }
            Value::Object(kept.into_iter().collect())
        }
        Value::Array(items) => {
            let kept: Vec<&Value> = items.iter().filter(|_| random.below(5) > 0).collect();
            Value::Array(kept.into_iter().map(|item| changed(random, item, child(""), depth + 1)).collect())
        }
        Value::String(text) if random.below(8) == 0 && depth > 2 => format!("{text}x").into(),
        other => other.clone(),
    }
}

fn fitted(case: &Case, value: Value) -> Option<Value> {
    let mut value = fit(&facts().catalogue, case.ty, value).ok()?.value;
    let metadata = value.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("name".into(), "x".into());
    metadata.insert("uid".into(), "u".into());
    Some(value)
}

#[test]
fn what_kubectl_sends_patches_as_in_kubernetes() {
    let mut random = Random(11);
    let cases: Vec<(Case, Value)> = cases(5)
        .into_iter()
        .filter_map(|case| {
            let b = fitted(&case, changed(&mut random, &case.a, Some(case.ty), 0))?;
            Some((case, b))
        })
        .collect();
    let question = |(case, b): &(Case, Value)| json!({"op": "diff", "apiVersion": case.api_version, "kind": case.kind, "a": case.a, "b": b});
    let answers = ask(&cases.iter().map(question).collect::<Vec<_>>());
    let mut compared = 0;
    for ((case, _), answer) in cases.iter().zip(&answers) {
        let Some(patch) = answer.get("patch") else { continue };
        let ours = strategic(case.a.clone(), patch.clone(), &facts().catalogue, case.ty);
        assert_eq!(ours.as_ref(), Ok(&answer["result"]), "{}\n{}\n{patch}", case.kind, case.a);
        compared += 1;
    }
    assert!(compared > 50, "{compared} compared");
}

/// Manager, force, and the configuration it applies.
type Applied = (String, bool, Value);

#[test]
fn ownership_and_apply_end_as_in_kubernetes() {
    let mut random = Random(12);
    let cases: Vec<(Case, Vec<Applied>)> = cases(6)
        .into_iter()
        .map(|case| {
            let mut steps = Vec::new();
            for (manager, force) in [("a", true), ("b", true), ("a", true), ("b", false)] {
                if let Some(mut applied) = fitted(&case, changed(&mut random, &case.a, Some(case.ty), 0)) {
                    applied["metadata"].as_object_mut().expect("metadata").remove("uid");
                    steps.push((manager.to_owned(), force, applied));
                }
            }
            (case, steps)
        })
        .collect();
    let question = |(case, steps): &(Case, Vec<(String, bool, Value)>)| {
        let steps: Vec<Value> = steps
            .iter()
            .map(|(manager, force, applied)| json!({"manager": manager, "force": force, "applied": applied}))
            .collect();
        json!({"op": "apply", "apiVersion": case.api_version, "kind": case.kind, "a": case.a, "steps": steps})
    };
    let answers = ask(&cases.iter().map(question).collect::<Vec<_>>());
    let (mut same, mut differ) = (0, Vec::new());
    for ((case, steps), answer) in cases.iter().zip(&answers) {
        let by = |manager| Writer {
            catalogue: &facts().catalogue,
            ty: case.ty,
            api_version: &case.api_version,
            kind: &case.kind,
            manager,
            subresource: "",
            now: "2026-01-01T00:00:00Z",
            reset: &[],
        };
        let mut object = case.a.clone();
        apply::created(&mut object, &by("m"));
        let mut error = None;
        for (manager, force, applied) in steps {
            match apply::apply(Some(&object), applied, &by(manager), *force) {
                Ok(result) => object = fit(&facts().catalogue, case.ty, result).expect("what was applied fits").value,
                Err(why) => {
                    error = Some(why.to_string());
                    break;
                }
            }
        }
        let theirs = answer.get("error").and_then(Value::as_str).map(str::to_owned);
        // Their table of types has what can be applied with a typed client, and not reviews and the like.
        if theirs.as_ref().is_some_and(|why| why.contains("no type found matching") || why.contains("is not suitable"))
        {
            continue;
        }
        let is_same = match (&error, &theirs) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, None) => {
                let result =
                    fit(&facts().catalogue, case.ty, answer["result"].clone()).expect("their result fits").value;
                stripped(&object) == stripped(&result) && have_same_owners(&object, &result)
            }
            _ => false,
        };
        if is_same { same += 1 } else { differ.push((case, object, error, answer)) }
    }
    assert!(same > 50, "{same} compared");
    for (case, object, error, answer) in differ.iter().take(3) {
        println!("{}\nours   {object}\n       {error:?}\ntheirs {answer}", case.kind);
    }
    assert!(
        differ.is_empty(),
        "{} differ, {same} do not: {:?}",
        differ.len(),
        differ.iter().map(|d| &d.0.kind).collect::<Vec<_>>()
    );
}

fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    object
}

/// Appliers own exactly the same. The creator owns there, too, the nulls that Go's structs carry where nothing was
/// written; objects here have no such nulls.
fn have_same_owners(ours: &Value, theirs: &Value) -> bool {
    let entries = |object: &Value| {
        let mut entries = Managed::of(object).expect("managed fields").entries;
        entries.sort_by(|a, b| a.manager.cmp(&b.manager));
        entries
    };
    let (ours, theirs) = (entries(ours), entries(theirs));
    ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|(ours, theirs)| {
            let is_same = ours.is_same_manager(theirs);
            let is_part = ours.fields.intersection(&theirs.fields) == ours.fields;
            is_same && if ours.operation == Operation::Apply { ours.fields == theirs.fields } else { is_part }
        })
}
