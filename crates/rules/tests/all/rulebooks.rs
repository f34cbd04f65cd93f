//! The rulebook: who looks where, found when asked and never written down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ledger::{Limit, SubjectId};
use quantity::{Amount, Format};
use rules::{
    Account, Compiled, GroupResource, Measure, MeasureError, Namespace, Reach, Rule, Rulebook, Subject, Verdict,
};
use serde_json::json;

struct One;

impl Measure for One {
    fn measure(&self, _: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        out.charge(0, Amount::from_units(1), Format::DecimalSi);
        Ok(())
    }
}

fn compiled(reach: Reach) -> Compiled {
    let account = Account { resource: "pods".into(), limit: Limit::Unlimited, limit_text: "".into(), discounts: false };
    let rule = Rule { resources: vec![GroupResource::core("pods")], reach, measure: Arc::new(One) };
    Compiled { accounts: vec![account], rules: vec![rule], fingerprint: Vec::new(), until_ms: None }
}

fn namespace(name: &str, team: &str) -> Namespace {
    let labels = [("team".to_owned(), team.to_owned())].into();
    Namespace { name: name.into(), labels, ..Namespace::default() }
}

fn charged(book: &Rulebook, namespace: &str) -> String {
    let (pods, pod) = (GroupResource::core("pods"), json!({}));
    let verdict = book.measure(&Subject::new(SubjectId(1), &pods, namespace, "p", &pod)).unwrap();
    let names = verdict.lines.iter().map(|line| book.name(line.policy).unwrap().to_string());
    names.collect::<Vec<_>>().join(" ")
}

fn of_team(team: &'static str) -> Reach {
    Reach::Selected(Arc::new(move |namespace| namespace.labels.get("team").is_some_and(|has| has == team)))
}

#[test]
fn rules_follow_policies_and_labels() {
    let mut book = Rulebook::new();
    assert!(book.namespace_changed(&namespace("n", "a"), true).is_empty());
    assert!(!book.concerns(&GroupResource::core("pods"), "n"));
    let b = book.install("z".into(), compiled(of_team("b")));
    let a = book.install("y".into(), compiled(of_team("a")));
    book.install("x".into(), compiled(Reach::Namespace("n".into())));
    book.install("all".into(), compiled(Reach::Cluster));
    assert_eq!((charged(&book, "n"), charged(&book, "")), ("x y".into(), "all".into()));
    assert_eq!(charged(&book, "unknown"), "");
    assert_eq!(book.namespace_changed(&namespace("n", "b"), true), [b, a], "by id");
    assert_eq!(charged(&book, "n"), "x z");
    assert_eq!((book.looks_into(a, "n"), book.looks_into(b, "n")), (false, true));
    assert_eq!(book.namespaces_of(b), ["n".into()]);
    assert!(book.namespace_changed(&namespace("n", "b"), true).is_empty(), "nothing moved");
    book.install("z".into(), compiled(of_team("c")));
    assert_eq!(charged(&book, "n"), "x");
    book.remove("x");
    assert_eq!(charged(&book, "n"), "");
    assert_eq!(book.namespace_changed(&namespace("n", "c"), true), [b]);
    assert_eq!(charged(&book, "n"), "z");
    assert_eq!(book.namespace_changed(&namespace("n", "c"), false), [b]);
    assert_eq!(charged(&book, "n"), "");
}

#[test]
fn many_policies_over_many_namespaces_cost_what_is_asked_of_them() {
    let mut book = Rulebook::new();
    for number in 0..2000 {
        book.namespace_changed(&namespace(&format!("n{number}"), "a"), true);
    }
    let asked = Arc::new(AtomicUsize::new(0));
    for number in 0..500 {
        let asked = asked.clone();
        let reach = Reach::Selected(Arc::new(move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            true
        }));
        book.install(format!("p{number}").into(), compiled(reach));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "to install a policy is to ask nothing");
    for _ in 0..3 {
        assert_eq!(charged(&book, "n7").split(' ').count(), 500);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 500, "each policy once about the one namespace that was measured in");
}
