//! Stories of ownership: who writes what, what the object is then, who owns which fields.

use serde_json::{Value, json};

use super::*;
use crate::test_schema::{kind, yaml};

/// One object and the clock of its writes.
struct Story {
    catalogue: &'static Catalogue,
    ty: TypeId,
    api_version: &'static str,
    kind: &'static str,
    object: Option<Value>,
    writes: u32,
    now: String,
}

impl Story {
    fn of(kind_name: &'static str) -> Self {
        let (catalogue, ty) = kind(kind_name);
        let api_version = if kind_name == "Deployment" { "apps/v1" } else { "v1" };
        Self { catalogue, ty, api_version, kind: kind_name, object: None, writes: 0, now: String::new() }
    }

    fn writer<'a>(&'a self, manager: &'a str, subresource: &'a str) -> Writer<'a> {
        Writer {
            catalogue: self.catalogue,
            ty: self.ty,
            api_version: self.api_version,
            kind: self.kind,
            manager,
            subresource,
            now: &self.now,
            reset: if subresource.is_empty() { &["status"] } else { &["spec"] },
        }
    }

    /// The text as a whole object of this story's kind.
    fn object(&self, text: &str) -> Value {
        let mut object = yaml(text);
        object["apiVersion"] = self.api_version.into();
        object["kind"] = self.kind.into();
        object["metadata"]["name"] = "x".into();
        object
    }

    fn tick(&mut self) {
        self.writes += 1;
        self.now = format!("2026-01-01T00:00:{:02}Z", self.writes);
    }

    #[track_caller]
    fn create(&mut self, manager: &str, text: &str) -> &mut Self {
        self.tick();
        let mut object = self.object(text);
        object["metadata"]["uid"] = "u".into();
        created(&mut object, &self.writer(manager, ""));
        self.object = Some(object);
        self
    }

    fn put(&mut self, manager: &str, text: &str) -> &mut Self {
        self.put_to(manager, "", text)
    }

    fn put_to(&mut self, manager: &str, subresource: &str, text: &str) -> &mut Self {
        self.tick();
        let mut new = self.object(text);
        new["metadata"]["uid"] = "u".into();
        let old = self.object.take().expect("an object to update");
        updated(&old, &mut new, &self.writer(manager, subresource));
        self.object = Some(new);
        self
    }

    fn try_apply(&mut self, manager: &str, text: &str, force: bool) -> Result<(), ApplyError> {
        self.tick();
        let applied = self.object(text);
        let mut result = apply(self.object.as_ref(), &applied, &self.writer(manager, ""), force)?;
        result["metadata"]["uid"] = "u".into();
        self.object = Some(result);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, text: &str) -> &mut Self {
        self.try_apply(manager, text, false).unwrap_or_else(|why| panic!("{why}"));
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, text: &str) -> &mut Self {
        self.try_apply(manager, text, true).unwrap_or_else(|why| panic!("{why}"));
        self
    }

    #[track_caller]
    fn refuses(&mut self, manager: &str, text: &str, why: &str) -> &mut Self {
        let before = self.object.clone();
        assert_eq!(self.try_apply(manager, text, false).unwrap_err().to_string(), why);
        assert_eq!(self.object, before);
        self
    }

    /// The object, names and ownership aside.
    #[track_caller]
    fn is(&mut self, text: &str) -> &mut Self {
        let bare = |mut object: Value| {
            managed::strip_from(&mut object);
            object["metadata"]["uid"] = "u".into();
            object
        };
        assert_eq!(bare(self.object.clone().unwrap()), bare(self.object(text)));
        self
    }

    #[track_caller]
    fn owns(&mut self, manager: &str, fields: &str) -> &mut Self {
        let managed = Managed::of(self.object.as_ref().unwrap()).unwrap();
        let entry = managed.entries.iter().find(|entry| entry.manager == manager);
        let actual = entry.map_or(json!(null), |entry| entry.fields.clone().into_value());
        assert_eq!(actual.to_string(), serde_json::from_str::<Value>(fields).unwrap().to_string(), "{manager}");
        self
    }

    fn managers(&self) -> Vec<String> {
        let managed = Managed::of(self.object.as_ref().unwrap()).unwrap();
        let text = |entry: &Entry| {
            format!(
                "{} {} {} {}",
                entry.manager,
                entry.operation.as_str(),
                entry.subresource,
                entry.time.as_deref().unwrap_or("-")
            )
        };
        managed.entries.iter().map(text).collect()
    }
}

#[test]
fn a_creator_owns_what_kubernetes_says_it_owns() {
    Story::of("Pod")
        .create(
            "kubectl-create",
            "{metadata: {labels: {run: x}}, spec: {containers: [{name: c, image: nginx, resources: {}, \
             args: [a], ports: [{containerPort: 80, protocol: TCP}]}], restartPolicy: Always, securityContext: {}}}",
        )
        .owns(
            "kubectl-create",
            r#"{"f:metadata":{"f:labels":{".":{},"f:run":{}}},
                "f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:args":{},"f:image":{},"f:name":{},
                  "f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},
                  "f:resources":{}}},
                "f:restartPolicy":{},"f:securityContext":{}}}"#,
        );
    Story::of("Deployment")
        .create(
            "c",
            "{spec: {replicas: 1, selector: {matchLabels: {a: b}}, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%}}, \
             template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}}, status: {replicas: 1}}",
        )
        .owns(
            "c",
            r#"{"f:spec":{"f:replicas":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{}},"f:type":{}},
                "f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:name":{}}}}}}}"#,
        );
}

#[test]
fn an_update_takes_what_it_changes() {
    let mut story = Story::of("ResourceQuota");
    story
        .create("a", "{spec: {hard: {pods: '1', cpu: '1'}}}")
        .put("b", "{spec: {hard: {pods: '2', cpu: '1', memory: 1Gi}}}")
        .owns("a", r#"{"f:spec":{"f:hard":{".":{},"f:cpu":{}}}}"#)
        .owns("b", r#"{"f:spec":{"f:hard":{"f:memory":{},"f:pods":{}}}}"#)
        .put_to(
            "controller",
            "status",
            "{spec: {hard: {pods: '2', cpu: '1', memory: 1Gi}}, status: {used: {pods: '0'}}}",
        )
        .owns("controller", r#"{"f:status":{"f:used":{".":{},"f:pods":{}}}}"#);
    assert_eq!(
        story.managers(),
        [
            "a Update  2026-01-01T00:00:01Z",
            "b Update  2026-01-01T00:00:02Z",
            "controller Update status 2026-01-01T00:00:03Z"
        ]
    );
    // The same again changes nothing, not even a time.
    let before = story.object.clone();
    story.put("c", "{spec: {hard: {pods: '2', cpu: '1', memory: 1Gi}}, status: {used: {pods: '0'}}}");
    assert_eq!(story.object, before);
    // What is removed is nobody's.
    story
        .put("c", "{spec: {hard: {cpu: '1'}}, status: {used: {pods: '0'}}}")
        .owns("a", r#"{"f:spec":{"f:hard":{".":{},"f:cpu":{}}}}"#)
        .owns("b", "null")
        .owns("c", "null");
}

#[test]
fn request_managed_fields_replace_or_reset_the_stored_ones() {
    let mut story = Story::of("ConfigMap");
    story.create("a", "{data: {k: v}}");
    let kept = story.object.clone().unwrap()["metadata"]["managedFields"].clone();
    story.put("b", "{metadata: {managedFields: []}, data: {k: v}}");
    assert_eq!(story.object.as_ref().unwrap()["metadata"].get("managedFields"), None);
    story.put("b", "{data: {k: w}}");
    assert_eq!(story.object.as_ref().unwrap()["metadata"].get("managedFields"), None);
    // Migrating clients write the list themselves.
    story.tick();
    let mut new = story.object.clone().unwrap();
    new["metadata"]["managedFields"] = kept.clone();
    let old = story.object.take().unwrap();
    updated(&old, &mut new, &story.writer("m", ""));
    assert_eq!(new["metadata"]["managedFields"], kept);
    // Nonsense is ignored in favour of what is stored.
    let stored = new.clone();
    for nonsense in [json!([{"operation": "Dance"}]), json!("x"), json!([{"operation": "Update", "apiVersion": "v1"}])]
    {
        let mut next = stored.clone();
        next["metadata"]["managedFields"] = nonsense;
        updated(&stored, &mut next, &story.writer("m", ""));
        assert_eq!(next, stored);
    }
}

#[test]
fn applying_creates_changes_and_removes() {
    Story::of("ResourceQuota")
        .apply("a", "{spec: {hard: {pods: '1', cpu: '1'}}}")
        .owns("a", r#"{"f:spec":{"f:hard":{"f:cpu":{},"f:pods":{}}}}"#)
        .apply("a", "{spec: {hard: {pods: '2'}}}")
        .is("{spec: {hard: {pods: '2'}}}")
        .apply("b", "{spec: {hard: {memory: 1Gi}}}")
        .is("{spec: {hard: {pods: '2', memory: 1Gi}}}")
        .apply("a", "{}")
        .is("{spec: {hard: {memory: 1Gi}}}")
        .owns("a", "null")
        .owns("b", r#"{"f:spec":{"f:hard":{"f:memory":{}}}}"#);
}

#[test]
fn a_field_of_another_manager_with_another_value_is_a_conflict() {
    let mut story = Story::of("ResourceQuota");
    story
        .apply("a", "{spec: {hard: {pods: '1', cpu: '1'}}}")
        .refuses(
            "b",
            "{spec: {hard: {pods: '2'}}}",
            "Apply failed with 1 conflict: conflict with \"a\": .spec.hard.pods",
        )
        .refuses(
            "b",
            "{spec: {hard: {pods: '2', cpu: '2'}}}",
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.hard.cpu\n- .spec.hard.pods",
        )
        // The same value is shared, and stays when one of the owners leaves it.
        .apply("b", "{spec: {hard: {pods: '1'}}}")
        .apply("a", "{spec: {hard: {cpu: '1'}}}")
        .is("{spec: {hard: {pods: '1', cpu: '1'}}}")
        .force("c", "{spec: {hard: {pods: '3'}}}")
        .is("{spec: {hard: {pods: '3', cpu: '1'}}}")
        .owns("b", "null")
        .owns("c", r#"{"f:spec":{"f:hard":{"f:pods":{}}}}"#);
    story.put("kubectl-edit", "{spec: {hard: {pods: '4', cpu: '1'}}}").refuses(
        "c",
        "{spec: {hard: {pods: '3', cpu: '7'}}}",
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.hard.cpu\n\
             conflicts with \"kubectl-edit\" using v1:\n- .spec.hard.pods",
    );
    let error = story.try_apply("c", "{spec: {hard: {pods: '3'}}}", false).unwrap_err();
    let ApplyError::Conflict(conflicts) = error else { panic!("{error}") };
    assert_eq!(
        conflicts.causes(),
        [
            json!({"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-edit\" using v1", "field": ".spec.hard.pods"})
        ]
    );
}

#[test]
fn list_items_have_owners() {
    let mut story = Story::of("Pod");
    story
        .apply("app", "{spec: {containers: [{name: a, image: a:1, ports: [{containerPort: 80}]}]}}")
        .owns(
            "app",
            r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{},
                "f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}"#,
        )
        .apply("mesh", "{spec: {containers: [{name: proxy, image: p:1}]}}")
        .is("{spec: {containers: [{name: a, image: a:1, ports: [{containerPort: 80}]}, {name: proxy, image: p:1}]}}")
        .refuses(
            "mesh",
            "{spec: {containers: [{name: a, image: a:2}]}}",
            "Apply failed with 1 conflict: conflict with \"app\": .spec.containers[name=\"a\"].image",
        )
        .apply("app", "{spec: {containers: [{name: b}, {name: a, image: a:1}]}}")
        .is("{spec: {containers: [{name: b}, {name: a, image: a:1}, {name: proxy, image: p:1}]}}")
        .apply("mesh", "{}")
        .is("{spec: {containers: [{name: b}, {name: a, image: a:1}]}}");
    Story::of("ConfigMap")
        .apply("a", "{metadata: {finalizers: [x.y/a]}}")
        .apply("b", "{metadata: {finalizers: [x.y/b]}}")
        .is("{metadata: {finalizers: [x.y/a, x.y/b]}}")
        .owns("b", r#"{"f:metadata":{"f:finalizers":{"v:\"x.y/b\"":{}}}}"#)
        .apply("a", "{}")
        .is("{metadata: {finalizers: [x.y/b]}}");
}

#[test]
fn atomic_values_are_owned_whole() {
    Story::of("Service")
        .apply("a", "{spec: {selector: {app: x}}}")
        .owns("a", r#"{"f:spec":{"f:selector":{}}}"#)
        .refuses(
            "b",
            "{spec: {selector: {tier: w}}}",
            "Apply failed with 1 conflict: conflict with \"a\": .spec.selector",
        )
        .force("b", "{spec: {selector: {tier: w}}}")
        .is("{spec: {selector: {tier: w}}}");
}

#[test]
fn the_first_apply_finds_former_writers() {
    let mut story = Story::of("ResourceQuota");
    story
        .create("old", "{spec: {hard: {pods: '1', cpu: '1'}}}")
        .put("old", "{metadata: {managedFields: []}, spec: {hard: {pods: '1', cpu: '1'}}}");
    story
        .refuses(
            "a",
            "{spec: {hard: {pods: '2'}}}",
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .spec.hard.pods",
        )
        .apply("a", "{spec: {hard: {pods: '1'}}}")
        .apply("a", "{}")
        .is("{spec: {hard: {pods: '1', cpu: '1'}}}");
}

#[test]
fn kubectl_takes_over_from_its_client_side_apply() {
    let last = r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"x"},"spec":{"hard":{"pods":"1"}}}"#;
    let mut story = Story::of("ResourceQuota");
    let text = format!(
        "{{metadata: {{annotations: {{'{LAST_APPLIED}': '{last}'}}}}, spec: {{hard: {{pods: '1', cpu: '1'}}}}}}"
    );
    story
        .create("kubectl-client-side-apply", &text)
        .refuses(
            "other",
            "{spec: {hard: {pods: '2'}}}",
            "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .spec.hard.pods",
        )
        .refuses(
            "kubectl",
            "{spec: {hard: {pods: '2', cpu: '2'}}}",
            "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .spec.hard.cpu",
        )
        .apply("kubectl", "{spec: {hard: {pods: '2'}}}");
    let annotation = &story.object.as_ref().unwrap()["metadata"]["annotations"][LAST_APPLIED];
    assert!(annotation.as_str().unwrap().contains(r#""pods":"2""#), "{annotation}");
}

#[test]
fn configurations_the_schema_does_not_know_are_refused() {
    let prefix = "failed to create typed patch object (/x; /v1, Kind=Pod): ";
    let mut story = Story::of("Pod");
    for (text, why) in [
        ("{spec: {hardd: 1}}", ".spec.hardd: field not declared in schema"),
        ("{spec: {containers: [{name: a}, {name: a}]}}", ".spec.containers: duplicate entries for key [name=\"a\"]"),
        (
            "{spec: {containers: [null]}}",
            ".spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (
            "{spec: {activeDeadlineSeconds: x}}",
            ".spec.activeDeadlineSeconds: expected numeric (int or float), got string",
        ),
        ("{spec: [1]}", ".spec: expected map, got [1]"),
        (
            "{metadata: {labels: {a: 1, b: true}}}",
            "errors:\n  .metadata.labels.a: expected string, got 1\n  .metadata.labels.b: expected string, got true",
        ),
    ] {
        story.tick();
        let error = apply(None, &story.object(text), &story.writer("a", ""), false).unwrap_err();
        assert_eq!(error, ApplyError::BadRequest(format!("{prefix}{why}")));
    }
    let mut wrong = story.object("{}");
    wrong["kind"] = "Service".into();
    let error = apply(None, &wrong, &story.writer("a", ""), false).unwrap_err();
    assert_eq!(error.to_string(), "invalid object type: /v1, Kind=Service");
    let owned = story.object("{metadata: {managedFields: []}}");
    let error = apply(None, &owned, &story.writer("a", ""), false).unwrap_err();
    assert_eq!(error.to_string(), "metadata.managedFields must be nil");
}

#[test]
fn the_oldest_updaters_become_one() {
    let mut story = Story::of("ConfigMap");
    story.create("m0", "{data: {k0: v}}");
    let mut data = String::from("k0: v");
    for i in 1..15 {
        data.push_str(&format!(", k{i}: v"));
        story.put(&format!("m{i}"), &format!("{{data: {{{data}}}}}"));
    }
    let managers = story.managers();
    assert_eq!(managers.len(), UPDATERS_MAX);
    assert!(managers[0].starts_with("ancient-changes Update"), "{managers:?}");
    story.owns("ancient-changes", r#"{"f:data":{".":{},"f:k0":{},"f:k1":{},"f:k2":{},"f:k3":{},"f:k4":{},"f:k5":{}}}"#);
}

#[test]
fn user_agents_name_managers() {
    assert_eq!(manager_of_user_agent("kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(manager_of_user_agent("a\u{7}b"), "ab");
    assert_eq!(manager_of_user_agent(&"é".repeat(100)).len(), MANAGER_BYTES_MAX);
}

#[test]
fn field_sets_read_foreign_spellings() {
    let foreign =
        json!({"f:a": {".": {}, "k:{ \"b\": 1, \"a\": \"x\" }": {".": {}}, "v: 1": {}, "i:03": {}, "z:new": {}}});
    let set = FieldSet::read(&foreign).unwrap();
    let written = json!({"f:a": {".": {}, "k:{\"a\":\"x\",\"b\":1}": {}, "v:1": {}, "i:3": {}}});
    assert_eq!(set.clone().into_value(), written);
    assert_eq!(set.paths(), [".a", ".a[3]", ".a[a=\"x\",b=1]", ".a[=1]"]);
    for bad in [
        json!([]),
        json!({"nocolon": {}}),
        json!({"k:x": {}}),
        json!({"k:1": {}}),
        json!({"i:x": {}}),
        json!({"f:a": 1}),
    ] {
        assert!(FieldSet::read(&bad).is_err(), "{bad}");
    }
}

#[test]
fn an_empty_list_that_is_applied_stays() {
    Story::of("Pod")
        .apply("a", "{spec: {}}")
        .apply("b", "{spec: {containers: []}}")
        .apply("a", "{spec: {containers: []}}")
        .is("{spec: {containers: []}}")
        .apply("a", "{spec: {containers: []}}")
        .is("{spec: {containers: []}}");
}
