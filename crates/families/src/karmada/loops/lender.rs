//! What a member was told it may use: a FederatedQuotaSlice where it knows them, which ends by itself, else a ResourceQuota.

use std::time::Duration;

use kinds::resources::quantity_of;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::super::lending::Amounts;
use super::super::slice::quota_name;
use super::kind::{MANAGED, resource_quotas, slices, within};
use super::standing::is_passing;

/// How long a member may take to enforce what it was told. What it was lent stays charged meanwhile.
const ENFORCED_LOOK: Duration = Duration::from_millis(100);
const ENFORCED_LOOKS_MAX: usize = 30;

/// The member's end of one lease.
pub struct Told {
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
        Told { api, kind, name: format!("{quota}-elastic"), names: names.to_vec() }
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

    pub async fn shown(&self) -> Result<Shown, String> {
        let there = self.api.get_opt(&self.name).await.map_err(|error| error.to_string())?;
        let version = there.as_ref().and_then(|one| one.metadata.resource_version.clone());
        let data = there.map(|one| one.data).unwrap_or_default();
        let (spec, status) = (&data["spec"], &data["status"]);
        let own: Vec<String> = self.names.iter().map(|name| self.name_there(name)).collect();
        let others =
            spec["hard"].as_object().into_iter().flat_map(|list| list.keys()).filter(|name| !own.contains(name));
        let terms = spec.is_object().then(|| Terms {
            others: others.cloned().collect(),
            hard: self.read(&spec["hard"]),
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
        let done = if let Some(version) = version {
            let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": spec}));
            self.api.patch(&self.name, &PatchParams::default(), &patch).await
        } else {
            let object = json!({
                "apiVersion": self.kind.api_version, "kind": self.kind.kind,
                "metadata": {"name": self.name, "labels": {MANAGED: "true"}}, "spec": spec,
            });
            let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
            self.api.create(&PostParams::default(), &object).await
        };
        done.map(drop).map_err(|error| error.to_string())
    }

    /// Waits until the member enforces what it was told, and returns what it uses then: a kube-apiserver goes by the status, which
    /// somebody else writes a moment later.
    pub async fn enforced(&self, hard: &Amounts) -> Result<Amounts, String> {
        for _ in 0..ENFORCED_LOOKS_MAX {
            let there = self.api.get(&self.name).await.map_err(|error| error.to_string())?;
            if self.read(&there.data["status"]["hard"]) == *hard {
                return Ok(self.read(&there.data["status"]["used"]));
            }
            tokio::time::sleep(ENFORCED_LOOK).await;
        }
        Err("the member does not enforce yet what it was told".into())
    }

    /// Takes it out of the member; whether it is gone.
    pub async fn withdraw(&self) -> bool {
        match self.api.delete(&self.name, &DeleteParams::default()).await {
            Ok(_) => true,
            Err(error) => is_passing(&error),
        }
    }
}

/// Amounts of a list, by the names it has them under.
pub fn read(list: &Value, names: &[String], name_there: impl Fn(&str) -> String) -> Amounts {
    let amount = |name: &String| quantity_of(name, list.get(name_there(name)).unwrap_or(&Value::Null));
    names.iter().map(|name| (name.clone(), amount(name).unwrap_or_default().canonical())).collect()
}
