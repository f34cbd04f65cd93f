//! What a member was told it may use: a FederatedQuotaSlice where it knows them, which ends by itself, else a ResourceQuota.

use std::time::Duration;

use kinds::resources::quantity_of;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::super::lending::Amounts;
use super::super::slice::quota_name;
use super::kind::{MANAGED, TEMPLATE_MARK, resource_quotas, slices, within};
use super::standing::is_passing;
use super::works::create_in;

/// A member that does not answer within this does not answer. Only what is asked of members is given up: a write to the control plane
/// whose end nobody knows could become true after the next one went by what was before.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a member may take to enforce what it was told. What it was lent stays charged meanwhile.
const ENFORCED_LOOK: Duration = Duration::from_millis(100);
const ENFORCED_LOOKS_MAX: usize = 30;

/// The member's end of one lease.
pub struct Told {
    member: Client,
    namespace: String,
    api: Api<DynamicObject>,
    kind: ApiResource,
    name: String,
    names: Vec<String>,
}

/// What the member has been told.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub hard: Amounts,
    pub valid_until: Option<String>,
    pub gates: bool,
    /// Names it was told of that the quota has no more.
    pub others: Vec<String>,
}

/// What it says of that.
pub struct Shown {
    /// `None` where it was told nothing yet.
    pub terms: Option<Terms>,
    pub version: Option<String>,
    pub used: Amounts,
    pub waiting: Amounts,
}

impl Told {
    pub fn of(member: &Client, namespace: &str, quota: &str, knows_slices: bool, names: &[String]) -> Told {
        let kind = if knows_slices { slices() } else { resource_quotas() };
        let api = within(member, &kind, namespace);
        let (member, namespace) = (member.clone(), namespace.to_owned());
        Told { member, namespace, api, kind, name: format!("{quota}-elastic"), names: names.to_vec() }
    }

    pub fn knows_slices(&self) -> bool {
        self.kind.kind == slices().kind
    }

    /// Extended resources have another name in a ResourceQuota.
    fn name_there(&self, name: &str) -> String {
        if self.knows_slices() { name.to_owned() } else { quota_name(name) }
    }

    fn read(&self, list: &Value) -> Amounts {
        read(list, &self.names, |name| self.name_there(name))
    }

    /// The limits of a list. A name that it does not have is not limited, which is not the same as limited to nothing.
    fn limits(&self, list: &Value) -> Amounts {
        let mut limits = self.read(list);
        limits.retain(|name, _| list.get(self.name_there(name)).is_some());
        limits
    }

    /// Whether a ResourceQuota of this name is not ours, but a Work's or one that was there before.
    fn is_foreign(&self, there: &DynamicObject) -> bool {
        let is_ours = there.labels().contains_key(MANAGED) && !there.annotations().contains_key(TEMPLATE_MARK);
        !self.knows_slices() && !is_ours
    }

    pub async fn shown(&self) -> Result<Shown, String> {
        let there = patiently(self.api.get_opt(&self.name)).await?;
        if there.as_ref().is_some_and(|there| self.is_foreign(there)) {
            return Err(format!("{} {} in the member is somebody else's", self.kind.kind, self.name));
        }
        let version = there.as_ref().and_then(|one| one.metadata.resource_version.clone());
        let data = there.map(|one| one.data).unwrap_or_default();
        let (spec, status) = (&data["spec"], &data["status"]);
        let own: Vec<String> = self.names.iter().map(|name| self.name_there(name)).collect();
        let others =
            spec["hard"].as_object().into_iter().flat_map(|list| list.keys()).filter(|name| !own.contains(name));
        let terms = spec.is_object().then(|| Terms {
            others: others.cloned().collect(),
            hard: self.limits(&spec["hard"]),
            valid_until: spec["validUntil"].as_str().map(str::to_owned),
            gates: spec["whenFull"] == "Gate",
        });
        Ok(Shown { terms, version, used: self.read(&status["used"]), waiting: self.read(&status["waiting"]) })
    }

    /// Tells the member what it may use. A word that was held up somewhere means nothing once another has arrived: it goes by the
    /// version of what was there.
    pub async fn tell(&self, terms: &Terms, version: Option<&str>) -> Result<(), String> {
        let hard: Map<String, Value> = terms
            .hard
            .iter()
            .map(|(name, amount)| (self.name_there(name), json!(amount.canonical().to_string())))
            .collect();
        let mut spec = json!({ "hard": hard });
        for gone in &terms.others {
            spec["hard"][gone] = Value::Null;
        }
        if self.knows_slices() {
            spec["validUntil"] = json!(terms.valid_until);
            spec["whenFull"] = json!(if terms.gates { "Gate" } else { "Refuse" });
        }
        if let Some(version) = version {
            let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": spec}));
            patiently(self.api.patch(&self.name, &PatchParams::default(), &patch)).await.map(drop)
        } else {
            let object = json!({
                "apiVersion": self.kind.api_version, "kind": self.kind.kind,
                "metadata": {"name": self.name, "labels": {MANAGED: "true"}}, "spec": spec,
            });
            let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
            // With the namespace, where that is missing: what is limited from the beginning never was without.
            patiently(create_in(&self.member, &self.api, &self.namespace, &object)).await
        }
    }

    /// Waits until the member enforces what it was told, and returns what it uses then: a kube-apiserver goes by the status, which
    /// somebody else writes a moment later.
    pub async fn enforced(&self, hard: &Amounts) -> Result<Amounts, String> {
        for _ in 0..ENFORCED_LOOKS_MAX {
            let there = patiently(self.api.get(&self.name)).await?;
            if self.limits(&there.data["status"]["hard"]) == *hard {
                return Ok(self.read(&there.data["status"]["used"]));
            }
            tokio::time::sleep(ENFORCED_LOOK).await;
        }
        Err("the member does not enforce yet what it was told".into())
    }

    /// Takes it out of the member; whether it is gone.
    pub async fn withdraw(&self) -> bool {
        match patiently(self.api.get_opt(&self.name)).await {
            Ok(there) if there.as_ref().is_none_or(|there| self.is_foreign(there)) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        let done = tokio::time::timeout(PATIENCE, self.api.delete(&self.name, &DeleteParams::default())).await;
        match done {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => is_passing(&error),
            Err(_) => false,
        }
    }
}

async fn patiently<T>(asked: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("no answer in time".into()),
    }
}

/// Amounts of a list, by the names it has them under.
pub fn read(list: &Value, names: &[String], name_there: impl Fn(&str) -> String) -> Amounts {
    let amount = |name: &String| quantity_of(name, list.get(name_there(name)).unwrap_or(&Value::Null));
    names.iter().map(|name| (name.clone(), amount(name).unwrap_or_default().canonical())).collect()
}
