//! A Capsule Tenant as far as its quotas go: what it may use in all, and what each of its namespaces uses now.

use std::collections::{BTreeMap, BTreeSet};

use quantity::Quantity;
use serde_json::{Map, Value};

/// Which tenant a namespace belongs to.
pub const TENANT_LABEL: &str = "capsule.clastix.io/tenant";

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

#[derive(Clone, Debug)]
pub struct Tenant {
    pub name: String,
    /// The quotas are shared by the namespaces, as opposed to given to each of them.
    pub is_shared: bool,
    pub items: Vec<Item>,
    /// As the Tenant's own status lists them.
    pub listed: BTreeSet<String>,
    /// As the namespaces' labels say; `None` when nobody looked.
    pub labelled: Option<BTreeSet<String>>,
    /// Namespaces that are being removed.
    pub terminating: BTreeSet<String>,
    /// What each namespace uses of each item, by namespace and place of the item.
    pub used: BTreeMap<(String, usize), Amounts>,
}

/// One ResourceQuotaSpec of a tenant.
#[derive(Clone, Debug)]
pub struct Item {
    pub hard: Amounts,
    /// `scopes` and `scopeSelector`, where given.
    pub scopes: Map<String, Value>,
}

impl Tenant {
    pub fn read(object: &Value) -> Result<Tenant, String> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err("a Tenant without a name".into());
        }
        let quotas = object.pointer("/spec/resourceQuotas").cloned().unwrap_or_default();
        let scope = quotas.get("scope").and_then(Value::as_str).unwrap_or("Tenant");
        let list = quotas.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        let items: Result<Vec<Item>, String> = list.iter().map(Item::read).collect();
        let items = items.map_err(|why| format!("tenant {name}: spec.resourceQuotas.items: {why}"))?;
        let listed = object.pointer("/status/namespaces").and_then(Value::as_array);
        Ok(Tenant {
            name: name.to_owned(),
            is_shared: scope != "Namespace",
            items,
            listed: listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
            labelled: None,
            terminating: BTreeSet::new(),
            used: BTreeMap::new(),
        })
    }

    /// The namespaces to migrate.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        self.labelled.as_ref().unwrap_or(&self.listed)
    }

    /// The name Capsule gives the ResourceQuota of an item in each namespace.
    pub fn quota_name(&self, item: usize) -> String {
        format!("capsule-{}-{item}", self.name)
    }

    /// Takes note of a ResourceQuota if it is one that Capsule made for this tenant.
    pub fn note_quota(&mut self, quota: &Value) -> Result<(), String> {
        let text = |path: &str| quota.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let Some(item) = (0..self.items.len()).find(|item| self.quota_name(*item) == name) else { return Ok(()) };
        if !self.namespaces().contains(&namespace) {
            return Ok(());
        }
        let used = amounts(quota.pointer("/status/used"));
        let used = used.map_err(|why| format!("ResourceQuota {namespace}/{name}: status.used: {why}"))?;
        self.used.insert((namespace, item), used);
        Ok(())
    }
}

impl Item {
    fn read(item: &Value) -> Result<Item, String> {
        let mut scopes = Map::new();
        for field in ["scopes", "scopeSelector"] {
            if let Some(value) = item.get(field).filter(|value| !value.is_null()) {
                scopes.insert(field.into(), value.clone());
            }
        }
        Ok(Item { hard: amounts(item.get("hard"))?, scopes })
    }
}

/// Reads a ResourceList.
pub fn amounts(list: Option<&Value>) -> Result<Amounts, String> {
    let mut read = Amounts::new();
    for (name, value) in list.and_then(Value::as_object).into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let amount = Quantity::parse(text.trim()).map_err(|error| format!("{name}: {text:?}: {error}"))?;
        read.insert(name.clone(), amount.canonical());
    }
    Ok(read)
}

/// Writes a ResourceList.
pub fn show(amounts: &Amounts) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), Value::String(amount.to_string()))).collect::<Map<_, _>>().into()
}
