//! Policies that cannot be compiled: written under other settings, by another version, or about a kind that is gone. No
//! quota is never the answer to that: such a policy refuses everything it would have looked at until it is mended or
//! deleted, and says so.

use std::sync::Arc;

use families::Uncompiled;
use kinds::{conditions, field_error};
use rules::{Compiled, Measure, MeasureError, Rule, Subject, Verdict};
use serde_json::Value;

use crate::engine::Engine;
use crate::identity::moment;
use crate::object::ObjectKey;

/// How the fingerprint of what stands in a broken policy's place begins, before the reason. No family's does: this is no
/// text.
const BROKEN: &[u8] = b"\xffbroken: ";

/// Refuses every write but those of the policy itself, which may mend it, and of what is on its way out.
struct Denying {
    policy: ObjectKey,
    message: String,
}

impl Measure for Denying {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        let ObjectKey { resource, namespace, name } = &self.policy;
        let itself = subject.resource == resource && subject.namespace == &**namespace && subject.name == &**name;
        let leaves = subject.object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
        if !itself && !leaves {
            out.deny(self.message.clone());
        }
        Ok(())
    }
}

impl Engine {
    /// The policy as it is, or as one that refuses in its place; `None` where the object is no policy.
    pub(crate) fn compile_or_deny(&self, key: &ObjectKey, object: &Value) -> Option<Compiled> {
        let Uncompiled { errors, would_look_at } = match self.try_compile(key, object) {
            Ok(compiled) => return compiled,
            Err(uncompiled) => uncompiled,
        };
        let why = field_error::join(&errors);
        tracing::error!(policy = %key, why, "a stored policy cannot be evaluated: it refuses all it would look at");
        let message = format!("{} \"{}\" cannot be evaluated: {why}", key.resource, key.name);
        let measure: Arc<dyn Measure> = Arc::new(Denying { policy: key.clone(), message: message.clone() });
        let name = rules::policy_name(&key.resource, &key.namespace, &key.name);
        let before = self.rulebook.id(&name).and_then(|id| self.rulebook.compiled(id));
        let before = before
            .into_iter()
            .flat_map(|before| &before.rules)
            .map(|rule| (rule.resources.clone(), rule.reach.clone()));
        let looks = before.chain(would_look_at.into_iter().map(|(resource, reach)| (vec![resource], reach)));
        let rules = looks.map(|(resources, reach)| Rule { resources, reach, measure: measure.clone() }).collect();
        let fingerprint = [BROKEN, message.as_bytes()].concat();
        Some(Compiled { accounts: Vec::new(), rules, fingerprint, until_ms: None })
    }

    /// Why a policy is in force only as one that refuses.
    pub(crate) fn broken(&self, key: &ObjectKey) -> Option<String> {
        let name = rules::policy_name(&key.resource, &key.namespace, &key.name);
        let compiled = self.rulebook.compiled(self.rulebook.id(&name)?)?;
        compiled.fingerprint.strip_prefix(BROKEN).map(|why| String::from_utf8_lossy(why).into_owned())
    }
}

/// Says in a status that its policy is broken; whether that was news. A ResourceQuota's status has no place for it.
pub(crate) fn tell(object: &mut Value, key: &ObjectKey, why: &str, now_ms: i64) -> bool {
    if key.resource.group.is_empty() {
        return false;
    }
    let known = conditions::of(object, "Ready");
    if known.is_some_and(|known| known["status"] == "False" && known["message"] == why) {
        return false;
    }
    let mut broken = conditions::condition("Ready", "False", "CannotBeEvaluated", why);
    conditions::since(&mut broken, "lastTransitionTime", known, conditions::NEWS, &moment(now_ms));
    let mut list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions::put(&mut list, broken);
    object["status"]["conditions"] = Value::Array(list);
    true
}
