//! Claims that objects come with: who is asked for one, when it goes, and that nobody gets away without.

use std::sync::Arc;

use families::{Identity, Origin};

use super::*;

fn things() -> GroupResource {
    resource("configmaps")
}

fn claim_policies() -> GroupResource {
    resource("claimcreationpolicies.quota.datumapis.com")
}

fn policy(constraints: &[&str], name: &str) -> Value {
    let constraints: Vec<Value> = constraints.iter().map(|expression| json!({"expression": expression})).collect();
    json!({"spec": {
        "trigger": {"resource": {"apiVersion": "v1", "kind": "ConfigMap"}, "constraints": constraints},
        "target": {"resourceClaimTemplate": {
            "metadata": {"name": name},
            "spec": {"resources": [{"name": COUNT, "quantity": "1"}]},
        }},
    }})
}

const NAME: &str = "{{ object.metadata.name }}-claim";

/// Two may be had.
fn two() -> Desk {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(COUNT, &[("2", json!({}))])])).unwrap();
    desk
}

impl Desk {
    fn by(&mut self, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let identity = Identity { user: user.into(), groups, ..Identity::default() };
        self.origin = Origin { identity: Arc::new(identity), ..Origin::default() };
    }

    fn thing(&mut self, name: &str, tier: &str) -> Result<(), String> {
        self.apply(&things(), "proj-abc", name, json!({"data": {"tier": tier}}))
    }

    fn made(&self) -> Vec<String> {
        let name = |claim: &Value| claim["metadata"]["name"].as_str().unwrap().to_owned();
        self.all(&claims()).iter().map(name).collect()
    }
}

#[test]
fn a_condition_about_the_writer_makes_claims_and_takes_none_away() {
    for condition in ["'tenants' in user.groups", "user.name == 'bob'", "request.verb == 'create'"] {
        let mut desk = two();
        desk.apply(&claim_policies(), "", "p", policy(&[condition], NAME)).unwrap();
        desk.by("bob", &["tenants"]);
        for (name, is_let_in) in [("a", true), ("b", true), ("c", false)] {
            assert_eq!(desk.thing(name, "gold").is_ok(), is_let_in, "{condition}");
        }
        // Whoever labels it, and whatever starts again.
        for (user, groups) in [("bob", ["tenants"]), ("staff", ["staff"])] {
            desk.by(user, &groups);
            desk.thing("a", "other").unwrap();
            desk.restart();
            assert_eq!(
                (desk.made(), desk.drawn("project-proj-abc", COUNT)),
                (vec!["a-claim".into(), "b-claim".into()], "2/2".into()),
                "{condition}"
            );
        }
        desk.by("bob", &["tenants"]);
        desk.thing("c", "gold").unwrap_err();
        desk.delete(&things(), "proj-abc", "a").unwrap();
        desk.thing("c", "gold").unwrap();
    }
}

#[test]
fn nobody_who_empties_or_collects_lets_go_of_a_claim_before_its_object() {
    let mut desk = two();
    desk.apply(&claim_policies(), "", "p", policy(&[], NAME)).unwrap();
    desk.thing("a", "gold").unwrap();
    let mut leaving = desk.projected(&things(), "proj-abc", "a");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["metadata"]["finalizers"] = json!(["example.com/mine"]);
    desk.apply(&things(), "proj-abc", "a", leaving).unwrap();
    // Whoever may write on a claim may say that it is owned by what is not there; whoever may delete a namespace has it emptied.
    let namespace = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating"},
    });
    for is_emptied in [false, true] {
        if is_emptied {
            desk.apply(&resource("namespaces"), "", "proj-abc", namespace.clone()).unwrap();
        }
        desk.origin = Origin::internal("controllers");
        let refused = desk.delete(&claims(), "proj-abc", "a-claim").unwrap_err();
        assert!(refused.contains("it was made for \"a\", which is still there"), "{refused}");
        assert_eq!(desk.drawn("project-proj-abc", COUNT), "1/2");
        desk.origin = Origin::default();
    }
    // Who tears it down, and was given the right to, may; and with the object it goes.
    desk.delete(&claims(), "proj-abc", "a-claim").unwrap();
    assert_eq!(desk.drawn("project-proj-abc", COUNT), "0/2");
}

#[test]
fn what_comes_to_be_meant_is_asked_although_it_would_have_asked_for_the_same() {
    let mut desk = two();
    desk.apply(&claim_policies(), "", "p", policy(&["object.data.tier == 'gold'"], NAME)).unwrap();
    for name in ["a", "b", "c"] {
        desk.thing(name, "silver").unwrap();
    }
    assert_eq!(desk.made(), Vec::<String>::new());
    desk.thing("a", "gold").unwrap();
    desk.thing("b", "gold").unwrap();
    desk.take_records();
    desk.by("bob", &[]);
    desk.thing("c", "gold").unwrap_err();
    assert_eq!(desk.made(), ["a-claim", "b-claim"]);
    let denials = desk.take_records();
    assert_eq!((denials.len(), denials[0].book), (1, families::Book::Denials), "{denials:?}");
    let (entry, refused) = (&denials[0].entry, &denials[0].entry["refused"]);
    assert_eq!(
        (&entry["user"], &refused["resource"], &refused["name"]),
        (&json!("bob"), &json!("configmaps"), &json!("c"))
    );
    assert!(entry["message"].as_str().unwrap().contains("requested 1, used 2, limit 2"), "{entry}");
    desk.thing("a", "silver").unwrap();
    desk.thing("c", "gold").unwrap();
    assert_eq!(desk.made(), ["b-claim", "c-claim"]);
}

#[test]
fn a_claim_that_was_made_does_not_follow_its_policy_but_its_object() {
    let mut desk = two();
    desk.apply(&claim_policies(), "", "p", policy(&[], NAME)).unwrap();
    desk.thing("a", "gold").unwrap();
    // The desk is audited with every write: nothing but a write of the object asks for anything else.
    desk.apply(&claim_policies(), "", "p", policy(&["object.data.tier == 'silver'"], NAME)).unwrap();
    desk.restart();
    assert_eq!(desk.made(), ["a-claim"]);
    desk.thing("a", "iron").unwrap();
    assert_eq!((desk.made(), desk.drawn("project-proj-abc", COUNT)), (vec![], "0/2".into()));
    // Where its name changes with the object it is another one, instead of one more.
    desk.apply(&claim_policies(), "", "p", policy(&[], "{{ object.data.tier }}-{{ object.metadata.name }}")).unwrap();
    for tier in ["b", "c", "d", "e", "f", "g"] {
        desk.thing("x", tier).unwrap();
        assert_eq!(desk.made(), [format!("{tier}-x")]);
        assert_eq!(desk.drawn("project-proj-abc", COUNT), "1/2");
    }
    desk.thing("y", "b").unwrap();
    // With both taken it is exchanged all the same.
    desk.thing("x", "z").unwrap();
    assert_eq!((desk.made(), desk.drawn("project-proj-abc", COUNT)), (vec!["b-y".into(), "z-x".into()], "2/2".into()));
    desk.delete(&things(), "proj-abc", "x").unwrap();
    assert_eq!(desk.made(), ["b-y"]);
}

#[test]
fn a_claim_that_nobody_counts_lets_nothing_in() {
    let mut desk = Desk::new();
    desk.namespace("proj-abc", &[]);
    desk.apply(&claim_policies(), "", "p", policy(&[], NAME)).unwrap();
    let refused = desk.thing("a", "gold").unwrap_err();
    assert!(
        refused.contains("policy \"p\" cannot make a claim: nothing is defined that could be claimed"),
        "{refused}"
    );
    assert!(desk.all(&things()).is_empty() && desk.made().is_empty());
    // What has no namespace has no project.
    let mut nodes = policy(&[], NAME);
    nodes["spec"]["trigger"]["resource"]["kind"] = json!("Node");
    let refused = desk.apply(&claim_policies(), "", "nodes", nodes).unwrap_err();
    assert!(refused.contains("spec.trigger.resource.kind: Invalid value: \"Node\": its objects are in no namespace"));
    let mut later = policy(&[], NAME);
    later["spec"]["trigger"]["resource"] = json!({"apiVersion": "example.com/v1", "kind": "Moon"});
    desk.apply(&claim_policies(), "", "moons", later).unwrap();
    let refused = desk.apply(&resource("moons.example.com"), "", "luna", json!({})).unwrap_err();
    assert!(refused.contains("policy \"moons\" cannot make a claim: it is in no namespace"), "{refused}");
}

#[test]
fn an_object_is_told_what_is_wrong_with_its_claim() {
    let mut desk = two();
    let mut wrong = policy(&[], NAME);
    wrong["spec"]["target"]["resourceClaimTemplate"]["spec"]["resources"][0]["quantity"] =
        json!("{{ object.data.tier }}");
    desk.apply(&claim_policies(), "", "p", wrong).unwrap();
    for (quantity, why) in
        [("-1", "must be greater than 0"), ("1.5", "(InvalidQuantity)"), ("1Gi", "(InvalidQuantity)")]
    {
        let refused = desk.thing("a", quantity).unwrap_err();
        assert!(
            refused.starts_with("policy \"p\" cannot make a claim: spec.resources[0].quantity:")
                && refused.contains(why),
            "{refused}"
        );
    }
    desk.thing("a", "2").unwrap();
    // What was granted is granted, whatever becomes of its definition; more of it is not.
    desk.delete(&definitions(), "", "count").unwrap();
    let mut labelled = json!({"data": {"tier": "2"}});
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    desk.apply(&things(), "proj-abc", "a", labelled).unwrap();
    assert!(desk.thing("a", "3").unwrap_err().contains("UnknownResourceName"));
}

#[test]
fn a_claim_for_an_object_that_is_there_is_owned_by_it() {
    let mut desk = two();
    desk.apply(&things(), "proj-abc", "i", json!({"apiVersion": "v1", "kind": "ConfigMap"})).unwrap();
    let uid = desk.all(&things())[0]["metadata"]["uid"].clone();
    let of = |namespace: &str, uid: Value| {
        let mut claim = claim(&[(COUNT, "1")], json!({}));
        claim["spec"]["resourceRef"] = json!({"kind": "ConfigMap", "name": "i"});
        for (field, value) in [("namespace", json!(namespace)), ("uid", uid)] {
            if value != "" {
                claim["spec"]["resourceRef"][field] = value;
            }
        }
        claim
    };
    desk.namespace("other", &[]);
    desk.apply(&claims(), "proj-abc", "known", of("proj-abc", json!(""))).unwrap();
    let known = desk.projected(&claims(), "proj-abc", "known");
    assert_eq!(known["spec"]["resourceRef"]["uid"], uid);
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "i", "uid": uid}]);
    assert_eq!(known["metadata"]["ownerReferences"], owner);
    // Neither for another object of that name, nor for one in another namespace.
    desk.apply(&claims(), "proj-abc", "old", of("", json!("00000000-0000-0000-0000-0000000000ff"))).unwrap();
    desk.apply(&claims(), "other", "foreign", of("proj-abc", json!(""))).unwrap();
    for (namespace, name) in [("proj-abc", "old"), ("other", "foreign")] {
        let claim = desk.projected(&claims(), namespace, name);
        assert!(claim["metadata"]["ownerReferences"].is_null(), "{name}");
    }
    assert!(desk.projected(&claims(), "other", "foreign")["spec"]["resourceRef"]["uid"].is_null());
}

#[test]
fn a_policy_that_cannot_be_read_lets_nothing_in() {
    let mut desk = two();
    desk.thing("before", "gold").unwrap();
    desk.store(&claim_policies(), "", "p", policy(&["object.data.tier >"], NAME));
    for name in ["a", "before"] {
        let refused = desk.thing(name, "silver").unwrap_err();
        let expected =
            "policy \"p\" cannot be read, and it is not known what it asks: spec.trigger.constraints[0].expression";
        assert!(refused.starts_with(expected), "{refused}");
    }
    desk.restart();
    desk.thing("a", "gold").unwrap_err();
    desk.delete(&things(), "proj-abc", "before").unwrap();
    // Nobody else is kept from anything, and switched off it asks for nothing.
    desk.apply(&resource("secrets"), "proj-abc", "s", json!({})).unwrap();
    let mut off = policy(&["object.data.tier >"], NAME);
    off["spec"]["disabled"] = json!(true);
    desk.delete(&claim_policies(), "", "p").unwrap();
    desk.store(&claim_policies(), "", "p", off);
    desk.thing("a", "gold").unwrap();
    assert_eq!(desk.made(), Vec::<String>::new());
}

#[test]
fn nobody_is_served_for_what_is_no_more() {
    for way in ["deleted", "orphaned", "restarted"] {
        let mut desk = two();
        for name in ["a", "b", "c", "d"] {
            desk.apply(&things(), "proj-abc", name, json!({"apiVersion": "v1", "kind": "ConfigMap"})).unwrap();
            let mut claim = claim(&[(COUNT, "1")], json!({}));
            claim["spec"]["resourceRef"] = json!({"kind": "ConfigMap", "name": name});
            desk.apply(&claims(), "proj-abc", name, claim).unwrap();
        }
        for (name, phase) in [("b", "Granted/QuotaAvailable"), ("c", "Denied/QuotaExceeded")] {
            assert_eq!(desk.phase("proj-abc", name), phase);
        }
        match way {
            // As the collector does before it lets go of the owner. Who has what it wants may be left behind, who waits may not.
            "orphaned" => {
                for name in ["b", "c"] {
                    let mut orphan = desk.projected(&claims(), "proj-abc", name);
                    orphan["metadata"]["ownerReferences"] = json!([]);
                    desk.apply(&claims(), "proj-abc", name, orphan).unwrap();
                }
            }
            "restarted" => desk.restart(),
            _ => {}
        }
        for name in ["b", "c"] {
            desk.delete(&things(), "proj-abc", name).unwrap();
        }
        // No collector has come by yet: what was granted is granted, who waited does not any more.
        assert_eq!(desk.made(), ["a", "b", "d"], "{way}");
        desk.take_records();
        let more = grant("Project", "proj-abc", &[limit(COUNT, &[("9", json!({}))])]);
        desk.apply(&grants(), "proj-abc", "g", more).unwrap();
        assert_eq!(desk.drawn("project-proj-abc", COUNT), "3/9", "{way}");
        assert_eq!(desk.phase("proj-abc", "d"), "Granted/QuotaAvailable", "its object is there");
        desk.restart();
        assert_eq!(desk.made(), ["a", "b", "d"], "{way}");
    }
}

#[test]
fn what_is_scaled_to_nothing_asks_for_nothing() {
    let mut desk = two();
    let mut sized = policy(&[], NAME);
    sized["spec"]["target"]["resourceClaimTemplate"]["spec"]["resources"][0]["quantity"] =
        json!("{{ object.data.tier }}");
    desk.apply(&claim_policies(), "", "p", sized.clone()).unwrap();
    desk.thing("a", "0").unwrap();
    assert_eq!((desk.made(), desk.drawn("project-proj-abc", COUNT)), (vec![], "0/2".into()));
    // It is asked as soon as it wants anything, and lets go again.
    for (amount, made, drawn) in [("2", vec!["a-claim"], "2/2"), ("0", vec![], "0/2"), ("1", vec!["a-claim"], "1/2")] {
        desk.thing("a", amount).unwrap();
        assert_eq!(
            (desk.made(), desk.drawn("project-proj-abc", COUNT)),
            (made.iter().map(|one| (*one).into()).collect(), drawn.into())
        );
    }
    desk.thing("a", "3").unwrap_err();
    // Of several resources only what is wanted is claimed.
    let cpu = json!({"name": CPU, "quantity": "0"});
    sized["spec"]["target"]["resourceClaimTemplate"]["spec"]["resources"].as_array_mut().unwrap().push(cpu);
    desk.apply(&claim_policies(), "", "p", sized).unwrap();
    desk.thing("a", "2").unwrap();
    let claimed = desk.projected(&claims(), "proj-abc", "a-claim")["spec"]["resources"].clone();
    assert_eq!(claimed, json!([{"name": COUNT, "quantity": "2"}]));
}

#[test]
fn a_claim_of_a_policy_that_is_gone_is_whose_wants_one_of_its_name() {
    for gone in ["deleted", "switched off"] {
        let mut desk = two();
        let mut sized = policy(&[], NAME);
        sized["spec"]["target"]["resourceClaimTemplate"]["spec"]["resources"][0]["quantity"] =
            json!("{{ object.data.tier }}");
        desk.apply(&claim_policies(), "", "p", sized.clone()).unwrap();
        desk.thing("a", "1").unwrap();
        desk.apply(&claim_policies(), "", "renamed", sized.clone()).unwrap();
        // While both want it there cannot be both.
        let refused = desk.thing("b", "1").unwrap_err();
        assert!(refused.contains("\"b-claim\", which cannot be: another one"), "{refused}");
        match gone {
            "deleted" => desk.delete(&claim_policies(), "", "p").unwrap(),
            _ => {
                sized["spec"]["disabled"] = json!(true);
                desk.apply(&claim_policies(), "", "p", sized).unwrap();
            }
        }
        desk.restart();
        for (amount, drawn) in [("2", "2/2"), ("1", "1/2"), ("1", "1/2"), ("0", "0/2"), ("2", "2/2")] {
            desk.thing("a", amount).unwrap();
            assert_eq!(desk.drawn("project-proj-abc", COUNT), drawn, "{gone} {amount}");
        }
        desk.thing("a", "3").unwrap_err();
        desk.thing("b", "1").unwrap_err();
        desk.delete(&things(), "proj-abc", "a").unwrap();
        assert_eq!((desk.made(), desk.drawn("project-proj-abc", COUNT)), (vec![], "0/2".into()));
    }
}

#[test]
fn two_policies_make_two_claims_or_none() {
    let mut desk = desk();
    desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[limit(COUNT, &[("4", json!({}))])])).unwrap();
    desk.apply(&claim_policies(), "", "p", policy(&[], NAME)).unwrap();
    desk.thing("a", "gold").unwrap();
    // As neither names its claims.
    desk.apply(&claim_policies(), "", "q", policy(&[], NAME)).unwrap();
    for name in ["b", "a-claim"] {
        let refused = desk.thing(name, "gold").unwrap_err();
        let why = format!("it comes with \"{name}-claim\", which cannot be: another one that comes with it is");
        assert!(refused.starts_with(&why), "{refused}");
    }
    assert_eq!((desk.made(), desk.drawn("project-proj-abc", COUNT)), (vec!["a-claim".into()], "1/4".into()));
    desk.apply(&claim_policies(), "", "q", policy(&[], "{{ object.metadata.name }}-other")).unwrap();
    desk.thing("b", "gold").unwrap();
    assert_eq!(desk.made(), ["a-claim", "b-claim", "b-other"]);
    assert_eq!(desk.drawn("project-proj-abc", COUNT), "3/4");
    desk.thing("c", "gold").unwrap_err();
    assert_eq!(desk.drawn("project-proj-abc", COUNT), "3/4");
}

#[test]
fn nothing_that_policies_say_keeps_an_object_from_going() {
    for now in ["cannot be read", "cannot be evaluated", "asks for more", "is counted by nobody"] {
        let mut desk = two();
        let mut sized = policy(&[], NAME);
        sized["spec"]["target"]["resourceClaimTemplate"]["spec"]["resources"][0]["quantity"] =
            json!("{{ object.data.tier }}");
        desk.thing("before", "1").unwrap();
        desk.apply(&claim_policies(), "", "p", sized.clone()).unwrap();
        desk.thing("a", "1").unwrap();
        match now {
            "cannot be read" => desk.store(&claim_policies(), "", "q", policy(&["object.data.tier >"], NAME)),
            "cannot be evaluated" => {
                desk.apply(&claim_policies(), "", "p", policy(&["object.data.none == 'a'"], NAME)).unwrap();
            }
            "asks for more" => {
                sized["spec"]["target"]["resourceClaimTemplate"]["spec"]["resources"][0]["quantity"] =
                    json!("{{ object.data.tier }}0");
                desk.apply(&claim_policies(), "", "p", sized).unwrap();
            }
            _ => desk.delete(&definitions(), "", "count").unwrap(),
        }
        for name in ["before", "a"] {
            // As it is deleted while somebody holds it, held by another, and let go of.
            let leaving = |finalizers: Value, tier: &str| {
                let metadata = json!({
                    "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0, "finalizers": finalizers,
                });
                json!({"metadata": metadata, "data": {"tier": tier}})
            };
            for finalizers in [json!(["x.example.com/a", "x.example.com/b"]), json!(["x.example.com/b"])] {
                desk.apply(&things(), "proj-abc", name, leaving(finalizers, "1")).unwrap();
            }
            let refused = desk.apply(&things(), "proj-abc", name, leaving(json!(["x.example.com/b"]), "9"));
            assert!(refused.is_err(), "{now}: nobody grows on his way out");
            if name == "a" {
                assert!(desk.made().contains(&"a-claim".to_owned()), "{now}: it has what it had until it is gone");
            }
            desk.delete(&things(), "proj-abc", name).unwrap();
        }
        assert!(!desk.made().contains(&"a-claim".to_owned()), "{now}");
    }
}
