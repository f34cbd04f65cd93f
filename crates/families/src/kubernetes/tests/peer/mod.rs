//! The same questions to Kubernetes' own code: what an object is charged, what may be written in a quota, what a
//! LimitRange does to a pod. The peer is a small Go program (tests/parts/cmd/quota), built by scripts/parts.

mod random;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use ledger::SubjectId;
use quantity::Quantity;
use rules::{GroupResource, Rulebook, Subject, policy_name};
use serde_json::{Value, json};

use crate::kubernetes::limit_range;
use crate::kubernetes::{Kubernetes, Settings};
use crate::{Admission, Family, Nothing, Operation, PolicyObject};
use random::Random;

const OBJECTS: usize = 6000;
const QUOTAS: usize = 6000;
const RANGES: usize = 6000;

/// Asks all questions of one run of the peer.
fn ask(questions: &[Value]) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(root.join("scripts/parts")).arg("quota").stderr(Stdio::inherit()).output();
    let built = built.expect("scripts/parts runs");
    assert!(built.status.success(), "the Go peer cannot be built; see above for what is missing");
    let program = String::from_utf8(built.stdout).expect("a path");
    let mut peer =
        Command::new(program.trim()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the peer starts");
    let mut stdin = peer.stdin.take().expect("a pipe");
    let lines: Vec<String> = questions.iter().map(Value::to_string).collect();
    let writer = thread::spawn(move || {
        for line in lines {
            writeln!(stdin, "{line}").expect("the peer reads");
        }
    });
    let output = peer.wait_with_output().expect("the peer ends");
    writer.join().expect("everything was asked");
    assert!(output.status.success(), "the peer failed");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_string()).collect()
}

#[test]
fn kubernetes_charges_the_same() {
    let mut random = Random(0xc0de);
    let questions: Vec<Value> = (0..OBJECTS)
        .map(|_| {
            let (resource, object) = random.object();
            json!({"ask": "measure", "quota": random.quota_for(resource), "resource": resource, "object": object})
        })
        .collect();
    let mut charged = 0;
    let mut refused = 0;
    for (question, theirs) in questions.iter().zip(ask(&questions)) {
        let mut wanted = BTreeMap::new();
        let mut wanted_refusals = Vec::new();
        if theirs["matches"] == true {
            for (name, value) in theirs["usage"].as_object().into_iter().flatten() {
                let value = Quantity::parse(value.as_str().unwrap()).unwrap();
                if !value.is_zero() {
                    wanted.insert(name.clone(), value.canonical().to_string());
                }
            }
            if let Some(missing) = theirs["missing"].as_str().filter(|missing| !missing.is_empty()) {
                wanted_refusals.push(format!("failed quota: q: {missing}"));
            }
        }
        charged += usize::from(!wanted.is_empty());
        refused += usize::from(!wanted_refusals.is_empty());
        let (ours, our_refusals) = charges(question, &theirs["object"]);
        assert_eq!(ours, wanted, "{question}\n{theirs}");
        assert_eq!(our_refusals, wanted_refusals, "{question}\n{theirs}");
    }
    assert!(charged > OBJECTS / 3 && refused > OBJECTS / 50, "{charged} charged, {refused} refused: too few");
}

fn charges(question: &Value, object: &Value) -> (BTreeMap<String, String>, Vec<String>) {
    let family = Kubernetes::new(Settings::default());
    let quotas = GroupResource::core("resourcequotas");
    let policy = json!({"spec": question["quota"]});
    let policy = PolicyObject { resource: &quotas, namespace: "ns", name: "q", object: &policy, in_force: None };
    let compiled = family.compile(&policy, &Nothing).unwrap();
    let mut rulebook = Rulebook::new();
    let id = rulebook.install(policy_name(&quotas, "ns", "q"), compiled);
    let resource = match question["resource"].as_str().unwrap() {
        "resourceclaims" => GroupResource::new("resource.k8s.io", "resourceclaims"),
        core => GroupResource::core(core),
    };
    let verdict = rulebook.measure(&Subject::new(SubjectId(1), &resource, "ns", "x", object)).unwrap();
    let accounts = &rulebook.compiled(id).unwrap().accounts;
    let name = |account: usize| accounts[account].resource.to_string();
    let lines = verdict.lines.iter();
    let lines = lines.map(|line| (name(line.account), Quantity::new(line.amount, line.format).to_string()));
    (lines.collect(), verdict.refusals.iter().map(|refusal| refusal.message.clone()).collect())
}

#[test]
fn kubernetes_accepts_the_same_quotas() {
    let mut random = Random(0xfee1);
    let questions: Vec<Value> = (0..QUOTAS)
        .map(|_| json!({"ask": "validate", "quota": random.written_quota(), "old": random.old_quota()}))
        .collect();
    let mut wrong = 0;
    for (question, theirs) in questions.iter().zip(ask(&questions)) {
        let theirs = strings(&theirs["errors"]);
        wrong += usize::from(!theirs.is_empty());
        let family = Kubernetes::new(Settings::default());
        let resource = GroupResource::core("resourcequotas");
        let mut object = question["quota"].clone();
        let old = Some(&question["old"]).filter(|old| !old.is_null());
        let mut request = Admission {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            resource: &resource,
            subresource: "",
            namespace: "ns",
            name: "q",
            object: &mut object,
            old,
            origin: &crate::Origin::default(),
        };
        family.admit(&mut request, &Nothing).unwrap();
        let mut ours: Vec<String> =
            family.validate(&request, &Nothing).errors.iter().map(ToString::to_string).collect();
        ours.sort();
        assert_eq!(ours, theirs, "{question}");
    }
    assert!(wrong > QUOTAS / 4 && wrong < QUOTAS * 19 / 20, "{wrong} of {QUOTAS} were wrong");
}

#[test]
fn kubernetes_ranges_limit_the_same() {
    let mut random = Random(0x11e7);
    let questions: Vec<Value> = (0..RANGES)
        .map(|_| {
            let (resource, object) = random.limited_object();
            json!({"ask": "limits", "range": random.limit_range(), "resource": resource, "object": object})
        })
        .collect();
    let (mut wrong, mut refused, mut filled) = (0, 0, 0);
    for (question, theirs) in questions.iter().zip(ask(&questions)) {
        let mut range = question["range"].clone();
        limit_range::defaults(&mut range);
        let mut ours: Vec<String> = limit_range::validate(&range).iter().map(ToString::to_string).collect();
        ours.sort();
        assert_eq!(ours, strings(&theirs["errors"]), "{question}");
        if !ours.is_empty() {
            wrong += 1;
            continue;
        }
        let range = limit_range::Range::read(&range).unwrap();
        let mut object = theirs["before"].clone();
        let mut complaints = if question["resource"] == "pods" {
            limit_range::fill_in(&mut object, &range);
            limit_range::check::pod(&range, &object).unwrap()
        } else {
            limit_range::check::volume_claim(&range, &object).unwrap()
        };
        complaints.sort();
        complaints.dedup();
        assert_eq!(complaints, strings(&theirs["refused"]), "{question}");
        refused += usize::from(!complaints.is_empty());
        filled += usize::from(object != theirs["before"]);
        for list in ["containers", "initContainers"] {
            let resources = |object: &Value| -> Vec<Value> {
                let containers = object["spec"][list].as_array().into_iter().flatten();
                containers.map(|container| container["resources"].clone()).collect()
            };
            assert_eq!(resources(&object), resources(&theirs["object"]), "{question}");
        }
        assert_eq!(object["metadata"]["annotations"], theirs["object"]["metadata"]["annotations"], "{question}");
    }
    let enough = |count: usize| count > RANGES / 50;
    assert!(enough(wrong) && enough(refused) && enough(filled), "{wrong} wrong, {refused} refused, {filled} filled in");
}
