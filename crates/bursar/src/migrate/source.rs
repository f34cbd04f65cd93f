//! Where Tenants and the usage of their namespaces come from: the server, or files.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::tenant::{TENANT_LABEL, Tenant};

/// Larger than any list of tenants and quotas a person pipes in; a wrong file is not read into memory.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub struct Source {
    tenants: Vec<Tenant>,
}

impl Source {
    pub async fn from_server(client: &Client, wanted: &[String]) -> anyhow::Result<Source> {
        let kind = GroupVersionKind::gvk("capsule.clastix.io", "v1beta2", "Tenant");
        let api: Api<DynamicObject> =
            Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "tenants"));
        let listed = api.list(&ListParams::default()).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => {
                anyhow!("the server has no tenants.capsule.clastix.io; give their manifests with -f")
            }
            other => anyhow!("cannot list tenants: {other}"),
        })?;
        let mut tenants = Vec::new();
        for object in listed.items.iter().filter(|one| wanted.is_empty() || wanted.contains(&one.name_any())) {
            let mut tenant = Tenant::read(&serde_json::to_value(object)?).map_err(|why| anyhow!(why))?;
            look_at_namespaces(client, &mut tenant).await?;
            tenants.push(tenant);
        }
        Ok(Source { tenants })
    }

    pub fn from_files(files: &[PathBuf]) -> anyhow::Result<Source> {
        let mut objects = Vec::new();
        for file in files {
            gather(read(file)?, &mut objects);
        }
        let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
        let mut tenants = Vec::new();
        for object in of_kind("Tenant") {
            let mut tenant = Tenant::read(object).map_err(|why| anyhow!(why))?;
            for quota in of_kind("ResourceQuota") {
                tenant.note_quota(quota).map_err(|why| anyhow!(why))?;
            }
            tenants.push(tenant);
        }
        if tenants.is_empty() {
            bail!("there is no Tenant in the files");
        }
        Ok(Source { tenants })
    }

    /// The tenants to migrate: those named, or all that have something to migrate.
    pub fn choose(mut self, wanted: &[String]) -> anyhow::Result<Vec<Tenant>> {
        self.tenants.sort_by(|a, b| a.name.cmp(&b.name));
        if wanted.is_empty() {
            let (chosen, skipped): (Vec<_>, Vec<_>) =
                self.tenants.into_iter().partition(|tenant| tenant.is_shared && !tenant.items.is_empty());
            for tenant in skipped.iter().filter(|tenant| !tenant.items.is_empty()) {
                eprintln!("note: tenant {} is left out: its quotas limit each namespace by itself", tenant.name);
            }
            return Ok(chosen);
        }
        for name in wanted {
            match self.tenants.iter().find(|tenant| tenant.name == *name) {
                None => bail!("there is no tenant {name:?}"),
                Some(tenant) if tenant.items.is_empty() => {
                    eprintln!("note: tenant {name} has no spec.resourceQuotas.items");
                }
                Some(_) => {}
            }
        }
        Ok(self.tenants.into_iter().filter(|one| wanted.contains(&one.name) && !one.items.is_empty()).collect())
    }
}

async fn look_at_namespaces(client: &Client, tenant: &mut Tenant) -> anyhow::Result<()> {
    let all: Api<Namespace> = Api::all(client.clone());
    let labelled = ListParams::default().labels(&format!("{TENANT_LABEL}={}", tenant.name));
    let found = all.list(&labelled).await.context("cannot list namespaces")?;
    tenant.terminating =
        found.iter().filter(|one| one.metadata.deletion_timestamp.is_some()).map(ResourceExt::name_any).collect();
    let names: BTreeSet<String> = found.iter().map(ResourceExt::name_any).collect();
    tenant.labelled = Some(names.clone());
    for namespace in names {
        let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), &namespace);
        let quotas = quotas.list(&ListParams::default()).await;
        for quota in quotas.with_context(|| format!("cannot list the ResourceQuotas of {namespace}"))? {
            tenant.note_quota(&serde_json::to_value(&quota)?).map_err(|why| anyhow!(why))?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let mut text = String::new();
    let shown = file.display();
    let reading = if file == Path::new("-") {
        std::io::stdin().lock().take(FILE_BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(FILE_BYTES_MAX).read_to_string(&mut text))
    };
    reading.with_context(|| format!("cannot read {shown}"))?;
    serde_saphyr::from_multiple(&text).map_err(|error| anyhow!("{shown}: {error}"))
}

/// Documents, and what is in lists.
fn gather(documents: Vec<Value>, objects: &mut Vec<Value>) {
    for mut document in documents {
        let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let kind = item_kind(&document["kind"]);
        match document.get_mut("items") {
            Some(Value::Array(items)) if is_list => {
                for mut item in std::mem::take(items) {
                    if let Some(fields) = item.as_object_mut() {
                        fields.entry("kind").or_insert_with(|| kind.clone());
                        objects.push(item);
                    }
                }
            }
            _ => objects.push(document),
        }
    }
}

/// What a list's items are when they do not say: `TenantList` holds Tenants.
fn item_kind(list: &Value) -> Value {
    let kind = list.as_str().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default();
    Value::String(kind.to_owned())
}
