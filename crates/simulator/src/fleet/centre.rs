//! The control plane: the production engine with one quota, and how this world speaks to it.

use ::engine::desk::Desk;
use ::engine::{Draft, Expect, ObjectKey, Refused, Write, WriteKind};
use families::{Admission, Families, Operation, Origin, Settings};
use ledger::SubjectId;
use rules::GroupResource;
use rules::cel::Foresight;
use serde_json::{Value, json};

pub const NAMESPACE: &str = "a";
pub const QUOTA: &str = "q";

pub struct Centre {
    desk: Desk,
    families: Families,
    uids: u128,
}

pub fn quotas() -> GroupResource {
    GroupResource::new("policy.karmada.io", "federatedresourcequotas")
}

pub fn leases() -> GroupResource {
    GroupResource::new("policy.karmada.io", "federatedquotaleases")
}

pub fn bindings() -> GroupResource {
    GroupResource::new("work.karmada.io", "resourcebindings")
}

/// A quota of so many CPUs, lent to all, or to nobody.
pub fn quota(overall: u64, chunk: Option<u64>) -> Value {
    let mut spec = json!({"overall": {"cpu": overall.to_string()}});
    if let Some(chunk) = chunk {
        spec["elastic"] = json!({"chunk": {"cpu": chunk.to_string()}});
    }
    json!({ "spec": spec })
}

impl Centre {
    pub fn new(overall: u64, chunk: u64, enforcement: bool) -> Result<Centre, String> {
        let karmada = families::karmada::Settings { enforcement, ..Default::default() };
        let families = families::all(&Settings { karmada, ..Settings::default() });
        let mut centre = Centre { desk: Desk::new(families.clone()), families, uids: 0 };
        let namespaces = GroupResource::core("namespaces");
        centre.write(ObjectKey::new(namespaces, "", NAMESPACE), json!({}))?;
        centre.put(&quotas(), QUOTA, quota(overall, Some(chunk)))?;
        Ok(centre)
    }

    /// Ends without warning and starts again from what is kept.
    pub fn restarted(self) -> Centre {
        Centre { desk: self.desk.again(), ..self }
    }

    pub fn put(&mut self, of: &GroupResource, name: &str, object: Value) -> Result<(), String> {
        self.write(ObjectKey::new(of.clone(), NAMESPACE, name), object)
    }

    fn write(&mut self, key: ObjectKey, mut object: Value) -> Result<(), String> {
        self.uids += 1;
        let old = self.desk.get(&key).map(|stored| stored.value());
        let uid = json!(kinds::uid::text(SubjectId(self.uids)));
        object["metadata"]["name"] = json!(&*key.name);
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(&*key.namespace);
        }
        object["metadata"]["uid"] = old.as_ref().map_or(uid, |old| old["metadata"]["uid"].clone());
        let origin = Origin::default();
        let operation = if old.is_none() { Operation::Create } else { Operation::Update };
        for family in self.families.iter() {
            let view = self.desk.engine.view(0);
            let mut request = Admission {
                operation,
                resource: &key.resource,
                subresource: "",
                namespace: &key.namespace,
                name: &key.name,
                object: &mut object,
                old: old.as_ref(),
                origin: &origin,
            };
            family.admit(&mut request, &view)?;
            let errors = family.validate(&request, &view).errors;
            if !errors.is_empty() {
                return Err(format!("invalid: {}", kinds::field_error::join(&errors)));
            }
        }
        let draft = Draft::new(object).map_err(|error| error.to_string())?;
        self.decide(match old {
            None => (key, WriteKind::Create(draft)),
            Some(_) => (key, WriteKind::Update { draft, expect: Expect::default(), status: false }),
        })
    }

    pub fn delete(&mut self, of: &GroupResource, name: &str) -> Result<(), String> {
        let key = ObjectKey::new(of.clone(), NAMESPACE, name);
        if self.desk.get(&key).is_none() {
            return Ok(());
        }
        self.decide((key, WriteKind::Delete { expect: Expect::default(), last: None }))
    }

    fn decide(&mut self, (key, kind): (ObjectKey, WriteKind)) -> Result<(), String> {
        let (foresight, origin) = (Foresight::None, Origin::default());
        let written = self.desk.write(Write { key, kind, dry_run: false, now_ms: 0, foresight, origin });
        self.desk.publish(0);
        match written {
            Ok(_) => Ok(()),
            Err(Refused::Denied(_)) => Err(DENIED.into()),
            Err(Refused::Said { refusal, .. }) if refusal.message.contains("exceeded for resource") => {
                Err(DENIED.into())
            }
            Err(other) => Err(format!("{other:?}")),
        }
    }

    pub fn get(&self, of: &GroupResource, name: &str) -> Option<Value> {
        self.desk.get(&ObjectKey::new(of.clone(), NAMESPACE, name)).map(|stored| stored.value())
    }

    pub fn all(&self, of: &GroupResource) -> Vec<Value> {
        self.desk.list(of).map(|stored| stored.value()).collect()
    }

    /// What the quota says is used.
    pub fn shown(&self) -> Option<String> {
        let mut quota = self.get(&quotas(), QUOTA)?;
        self.families.of_projected(&quotas())?.project(&quotas(), &mut quota, &self.desk);
        quota["status"]["overallUsed"]["cpu"].as_str().map(str::to_owned)
    }
}

/// How a refusal for want of room is told here.
pub const DENIED: &str = "denied";
