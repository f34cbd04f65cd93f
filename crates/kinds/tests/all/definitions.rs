//! CustomResourceDefinitions as Kubernetes judges them: those of well-known projects (`scripts/real-crds`) and a table of
//! made-up ones, accepted and refused for the same reasons, with the same estimated cost of every rule.
//!
//! The judge is a small Go program over k8s.io/apiextensions-apiserver (tests/parts/cmd/definitions).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use kinds::decode;
use kinds::field_error::Path;
use kinds::structural::Structural;
use serde_json::{Value, json};

use crate::parts;

#[derive(serde::Deserialize)]
struct Answer {
    errors: Vec<String>,
    costs: Vec<(usize, String, u64)>,
}

fn ask(definitions: &[Value]) -> Vec<Answer> {
    let mut child = Command::new(parts::program("definitions"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("definitions starts");
    let mut stdin = child.stdin.take().expect("piped");
    let text: String = definitions.iter().map(|definition| format!("{definition}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("definitions ends");
    writer.join().expect("no panic").expect("written");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let answers: Vec<Answer> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), definitions.len());
    answers
}

/// Where schemas stand in a definition; Kubernetes says `spec.validation` when all versions have one schema.
const SCHEMA: &str = "openAPIV3Schema";

/// How the two differ on one definition; empty where they agree.
fn differences(definition: &Value, answer: &Answer) -> Vec<String> {
    let unread = answer.errors.iter().filter(|error| error.starts_with("decode: "));
    let mut found: Vec<String> = unread.cloned().collect();
    for (i, version) in definition["spec"]["versions"].as_array().into_iter().flatten().enumerate() {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else { continue };
        let ours = Structural::compile(schema, &Path::new(SCHEMA));
        let prefixes = [format!("spec.versions[{i}].schema."), "spec.validation.".to_owned()];
        let here = |text: &str| {
            let prefix = prefixes.iter().find(|prefix| text.starts_with(prefix.as_str()))?;
            Some(text.replace(prefix.as_str(), ""))
        };
        let theirs: BTreeSet<String> = answer.errors.iter().filter_map(|error| here(error)).map(short).collect();
        match ours {
            Ok(structural) => {
                found.extend(theirs.iter().map(|error| format!("version {i}: accepted here, there: {error}")));
                let mut estimates = structural.estimates();
                let costs = answer.costs.iter().filter(|(version, ..)| *version == i);
                let mut costs: Vec<(String, u64)> = costs.map(|(_, rule, cost)| (rule.clone(), *cost)).collect();
                estimates.sort();
                costs.sort();
                for (ours, theirs) in estimates.iter().zip(&costs).filter(|(ours, theirs)| ours != theirs).take(3) {
                    found.push(format!("version {i}: {}: cost {} here, {} there", theirs.0, ours.1, theirs.1));
                }
                if estimates.len() != costs.len() {
                    found.push(format!("version {i}: {} rules here, {} there", estimates.len(), costs.len()));
                }
            }
            Err(errors) => {
                let ours: BTreeSet<String> = errors.iter().map(|error| short(error.to_string())).collect();
                found.extend(ours.difference(&theirs).map(|error| format!("version {i}: only here: {error}")));
                found.extend(theirs.difference(&ours).map(|error| format!("version {i}: only there: {error}")));
            }
        }
    }
    found
}

/// What must agree of an error: the place, and the words where they are no compiler's. The rule itself is shown there with
/// the names of Go's fields.
fn short(error: String) -> String {
    for word in ["compilation failed", "must evaluate to", "must be a valid regular expression"] {
        if let Some((place, _)) = error.split_once(": Invalid value: ").filter(|_| error.contains(word)) {
            return format!("{place}: {word}");
        }
    }
    error
}

fn check(cases: &[(String, Value)]) {
    let definitions: Vec<Value> = cases.iter().map(|(_, definition)| definition.clone()).collect();
    let answers = ask(&definitions);
    let mut report = String::new();
    for ((name, definition), answer) in cases.iter().zip(&answers) {
        for difference in differences(definition, answer).iter().take(4) {
            report.push_str(&format!("{name}: {difference:.600}\n"));
        }
    }
    assert!(report.is_empty(), "{} of {} definitions differ:\n{report}", report.lines().count(), cases.len());
}

#[test]
fn the_functions_of_expressions_are_kubernetes_own() {
    let output = Command::new(parts::program("definitions")).arg("functions").output().expect("definitions starts");
    let committed = std::fs::read_to_string(parts::root().join("crates/rules/data/functions.txt")).expect("functions");
    assert!(
        committed == String::from_utf8(output.stdout).expect("text"),
        "write the file anew: $(scripts/parts definitions) functions > crates/rules/data/functions.txt"
    );
}

#[test]
fn definitions_of_well_known_projects() {
    let script = Command::new(parts::root().join("scripts/real-crds")).output().expect("scripts/real-crds starts");
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
    let folder = String::from_utf8(script.stdout).expect("a path");
    // A project carries copies of a definition: the first of a name counts. Patches of a few lines are no definitions.
    let mut cases: BTreeMap<String, Value> = BTreeMap::new();
    let files = |folder: &std::path::Path| -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path()).collect();
        files.sort();
        files
    };
    for project in files(folder.trim_end().as_ref()) {
        for file in files(&project) {
            let text = std::fs::read_to_string(&file).expect("text");
            for document in text.split("\n---") {
                let name = document.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap_or_default();
                let name = format!("{} {name}", project.file_name().unwrap_or_default().display());
                if !document.contains("\nkind: CustomResourceDefinition") || cases.contains_key(&name) {
                    continue;
                }
                // What follows the dashes on their line is no part of the document.
                let body = document.split_once('\n').filter(|(rest, _)| rest.trim().is_empty());
                let body = body.map_or(document, |(_, body)| body);
                let Ok(parsed) = decode::yaml(body.as_bytes(), None) else { continue };
                let definition = parsed.value;
                if definition["spec"]["versions"][0]["schema"].is_object() && definition["spec"]["group"].is_string() {
                    cases.insert(name, definition);
                }
            }
        }
    }
    let cases: Vec<(String, Value)> = cases.into_iter().collect();
    assert!(cases.len() >= 200, "only {} definitions", cases.len());
    check(&cases);
}

/// A definition whose `spec` has this schema.
fn definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec},
            }}}],
        },
    })
}

#[test]
fn made_up_definitions() {
    let table = include_str!("definitions.txt");
    let mut cases = Vec::new();
    let mut schema = String::new();
    for line in table.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if let Some(text) = line.strip_prefix("schema ") {
            text.clone_into(&mut schema);
            if !schema.contains("RULES") {
                cases.push(schema.clone());
            }
            continue;
        }
        let rule = line.strip_prefix("rule ").map(|rule| json!([{"rule": rule}]).to_string());
        let rules = rule.unwrap_or_else(|| line.trim_start_matches("rules ").to_owned());
        cases.push(schema.replace("RULES", &format!("x-kubernetes-validations: {rules}")));
    }
    assert!(cases.len() >= 60, "only {} definitions", cases.len());
    let cases: Vec<(String, Value)> = cases
        .into_iter()
        .map(|text| {
            let spec = decode::yaml(text.as_bytes(), None).unwrap_or_else(|why| panic!("{text}: {why:?}")).value;
            (text, definition(&spec))
        })
        .collect();
    check(&cases);
}
