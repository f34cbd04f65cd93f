//! What ran to its end in a member and is gone there: nobody runs it again. It is known from what its Work told, or from the last that a
//! watch showed of it. Of one that goes by itself after its end, and went while nobody looked, nobody can know: it is not run a second time
//! either, and its Work says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::super::interpret;
use super::kind::{fingerprint, whole};

/// Objects of one kind that are remembered; and how long a status may be to be remembered, too.
const ENDED_MAX: usize = 1024;
const STATUS_BYTES_MAX: usize = 4096;

/// The objects of one kind that were seen to go after they had run to their end, with their last status, by uid.
#[derive(Clone, Default)]
pub struct Ended(Arc<Mutex<HashMap<String, Value>>>);

impl Ended {
    /// Notes the last that is seen of an object.
    pub fn note(&self, last: &DynamicObject, kind: &ApiResource) {
        let live = whole(last, kind);
        if !interpret::is_finished(&live) {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ENDED_MAX {
            known.clear();
        }
        let status = Some(&live["status"]).filter(|status| status.to_string().len() <= STATUS_BYTES_MAX);
        known.insert(last.uid().unwrap_or_default(), status.cloned().unwrap_or_default());
    }

    fn of(&self, uid: &str) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }
}

/// What is known of an object that was brought and is not there any more.
#[derive(Debug, PartialEq)]
pub enum Gone {
    /// It ran to its end: what its Work goes on telling.
    Ended(Value),
    /// It may have.
    Unknown,
}

/// What a run was made of. Who labels what has run does not ask for another run.
pub fn mark_of_run(manifest: &Value) -> String {
    format!("{:016x}", fingerprint(&manifest["spec"].to_string()))
}

/// What a Work told last of one of its manifests, if that asked for the same.
fn told<'a>(work: &'a DynamicObject, ordinal: usize, mark: &str) -> Option<&'a Value> {
    let told = work.data["status"]["manifestStatuses"].as_array()?;
    let entry = told.iter().find(|one| one["identifier"]["ordinal"] == ordinal)?;
    let is_same = entry["identifier"]["fingerprint"].as_str().is_none_or(|one| one == mark);
    (is_same && entry["identifier"]["uid"].is_string()).then_some(entry)
}

/// An object of a manifest's kind with this status.
fn with(status: &Value, manifest: &Value) -> Value {
    json!({"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "status": status})
}

/// Whether a Work has told that what it brought ran to its end.
pub fn is_ended(entry: &Value, manifest: &Value) -> bool {
    interpret::is_finished(&with(&entry["status"], manifest))
}

/// What became of an object that is not there; `None` where it is to be brought: it never was, or others took it away.
pub fn gone(work: &DynamicObject, ordinal: usize, manifest: &Value, seen: &Ended) -> Option<Gone> {
    let entry = told(work, ordinal, &mark_of_run(manifest))?;
    if is_ended(entry, manifest) {
        return Some(Gone::Ended(entry.clone()));
    }
    if let Some(status) = seen.of(entry["identifier"]["uid"].as_str().unwrap_or("")) {
        let mut entry = entry.clone();
        if status.is_object() {
            entry["health"] = json!(interpret::health(&with(&status, manifest)).name());
            entry["status"] = status;
        }
        return Some(Gone::Ended(entry));
    }
    interpret::goes_by_itself(manifest).then_some(Gone::Unknown)
}

#[cfg(test)]
mod tests {
    use super::super::kind::works;
    use super::super::tests::object;
    use super::*;

    fn job(ttl: Value) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"ttlSecondsAfterFinished": ttl}})
    }

    fn ended() -> Value {
        json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})
    }

    fn work(of: &Value, status: Value) -> DynamicObject {
        let identifier = json!({"ordinal": 0, "uid": "u", "fingerprint": mark_of_run(of)});
        let told = json!([{"identifier": identifier, "health": "Healthy", "status": status}]);
        object(&works(), "karmada-es-m1", "w", json!({"status": {"manifestStatuses": told}}))
    }

    #[test]
    fn what_ran_to_its_end_is_not_run_again() {
        let (seen, kept, goes) = (Ended::default(), job(Value::Null), job(json!(0)));
        let becomes = |work: &DynamicObject, manifest: &Value| gone(work, 0, manifest, &seen);
        let running = work(&kept, json!({"active": 1}));
        assert_eq!(becomes(&running, &kept), None, "somebody took it away while it ran");
        assert_eq!(becomes(&work(&goes, json!({"active": 1})), &goes), Some(Gone::Unknown));
        let told = work(&kept, ended());
        let as_told = Some(Gone::Ended(told.data["status"]["manifestStatuses"][0].clone()));
        assert_eq!(becomes(&told, &kept), as_told);
        let mut labelled = kept.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(becomes(&told, &labelled), as_told, "a label is no other run");
        assert_eq!(becomes(&told, &goes), None, "another spec is");
        let never = object(&works(), "karmada-es-m1", "w", json!({}));
        assert_eq!(becomes(&never, &goes), None, "it never was there");
        // It ended and went before anybody told.
        let kind = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("batch", "v1", "Job"));
        let mut last = object(&kind, "team", "j", json!({"status": {"active": 1}}));
        last.metadata.uid = Some("u".into());
        seen.note(&last, &kind);
        assert_eq!(becomes(&running, &kept), None);
        last.data["status"] = ended();
        seen.note(&last, &kind);
        let Some(Gone::Ended(entry)) = becomes(&running, &kept) else { panic!("it ended") };
        assert_eq!(entry["status"], ended());
    }
}
