//! `bursar manifests`: what it takes to run `bursar operator` in a cluster, for `kubectl apply -f -`.
//!
//! It is what the chart in deploy/chart renders, for those who do not use Helm; a test compares the two.

mod rights;
mod workload;

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::Context as _;
use operator::guests;
use serde_json::{Value, json};

/// The release that a chart's objects are named after.
pub const NAME: &str = "bursar";
/// Where the webhook listens in a pod.
const PORT: u16 = 9443;
/// More replicas than this only stand by.
const REPLICAS_MAX: u16 = 9;

#[derive(clap::Args)]
pub struct Args {
    /// The namespace of the operator; it is yours to create
    #[arg(long, value_name = "NAME", default_value = "quota-system")]
    namespace: String,
    /// The image, as the Containerfile makes it
    #[arg(long, value_name = "IMAGE", default_value = concat!("bursar:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Families that are switched on; rights are given for these alone
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "capsule,kubernetes")]
    families: Vec<String>,
    /// Namespaces whose objects are counted and never refused; the operator's own is added
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kube-system,kube-node-lease")]
    exempt: Vec<String>,
    /// Where it keeps what it holds: "folder", on a PersistentVolumeClaim, or etcd://HOST:PORT[,HOST:PORT…][/NAME], etcds:// for TLS
    #[arg(long, value_name = "STORE", default_value = "folder")]
    store: String,
    /// The Secret with ca.crt, tls.crt and tls.key for an etcds:// store
    #[arg(long, value_name = "SECRET")]
    etcd_secret: Option<String>,
    /// Pods [default: 1 with a folder, 3 with etcd]
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<u16>,
    /// Print the CustomResourceDefinitions of the families instead, for whoever applies them before
    #[arg(long)]
    definitions: bool,
}

/// What is installed, once the options were found to go together.
pub struct Plan {
    pub namespace: String,
    pub image: String,
    /// In the order of [`guests::GUESTS`].
    pub families: Vec<&'static str>,
    pub exempt: Vec<String>,
    pub store: Store,
    pub replicas: u16,
}

pub enum Store {
    Folder,
    Etcd { address: String, secret: Option<String> },
}

impl Args {
    fn plan(self) -> anyhow::Result<Plan> {
        check_name("--namespace", &self.namespace)?;
        self.exempt.iter().try_for_each(|namespace| check_name("--exempt", namespace))?;
        let image = &self.image;
        anyhow::ensure!(!image.is_empty() && !image.contains(char::is_whitespace), "--image: {image:?} is no image");
        let known: Vec<&str> = guests::GUESTS.iter().map(|(name, _)| *name).collect();
        if let Some(unknown) = self.families.iter().find(|name| !known.contains(&name.as_str())) {
            anyhow::bail!("--families: {unknown:?} is not among {}", known.join(", "));
        }
        let families = known.into_iter().filter(|name| self.families.iter().any(|chosen| chosen == name)).collect();
        let store = store(&self.store, self.etcd_secret)?;
        let replicas = match (&store, self.replicas) {
            (_, Some(number)) if !(1..=REPLICAS_MAX).contains(&number) => {
                anyhow::bail!("--replicas {number}: 1 to {REPLICAS_MAX} make sense")
            }
            (Store::Folder, Some(number)) if number > 1 => anyhow::bail!(
                "--replicas {number}: a folder is one process's at a time; several replicas share an etcd (--store etcd://…)"
            ),
            (Store::Folder, _) => 1,
            (Store::Etcd { .. }, number) => number.unwrap_or(3),
        };
        let mut exempt = self.exempt;
        exempt.push(self.namespace.clone());
        let mut known = BTreeSet::new();
        exempt.retain(|namespace| known.insert(namespace.clone()));
        Ok(Plan { namespace: self.namespace, image: self.image, families, exempt, store, replicas })
    }
}

fn store(store: &str, secret: Option<String>) -> anyhow::Result<Store> {
    let is_secure = store.starts_with("etcds://");
    let rest = store.strip_prefix("etcd://").or_else(|| store.strip_prefix("etcds://"));
    match (store, rest) {
        ("folder", _) if secret.is_some() => anyhow::bail!("--etcd-secret goes with an etcds:// store"),
        ("folder", _) => Ok(Store::Folder),
        (_, Some(rest)) if !rest.is_empty() => {
            anyhow::ensure!(
                !rest.contains('@'),
                "--store: a password has no place in a manifest; use the chart's addressSecret"
            );
            let secret_goes = secret.is_some() == is_secure;
            anyhow::ensure!(secret_goes, "--store {store}: etcds:// goes with --etcd-secret, and only that");
            if let Some(name) = &secret {
                check_name("--etcd-secret", name)?;
            }
            Ok(Store::Etcd { address: store.to_owned(), secret })
        }
        _ => anyhow::bail!("--store {store:?} is neither \"folder\" nor an etcd:// or etcds:// address"),
    }
}

/// What Kubernetes takes for a name, as far as it matters here: nothing that a manifest would be read differently with.
fn check_name(option: &str, name: &str) -> anyhow::Result<()> {
    let of_labels = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = name.bytes().all(of_labels) && !name.starts_with('-') && !name.ends_with('-');
    anyhow::ensure!(is_name && (1..=63).contains(&name.len()), "{option}: {name:?} is no name that Kubernetes takes");
    Ok(())
}

impl Plan {
    /// Everything, in the order in which it is applied, and in which it can be deleted: without rights the operator cannot write its
    /// registration again, and that goes before whoever answers for it: a webhook that nobody answers would refuse whatever quotas
    /// count.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = rights::objects(self);
        objects.push(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": operator::registration::CONFIGURATION},
        }));
        objects.extend(workload::objects(self));
        for object in &mut objects {
            object["metadata"]["labels"] = labels();
        }
        objects
    }

    pub fn is_folder(&self) -> bool {
        matches!(self.store, Store::Folder)
    }
}

fn selector() -> Value {
    json!({"app.kubernetes.io/name": "bursar", "app.kubernetes.io/instance": NAME})
}

fn labels() -> Value {
    let mut labels = selector();
    labels["app.kubernetes.io/component"] = json!("operator");
    labels["app.kubernetes.io/version"] = json!(env!("CARGO_PKG_VERSION"));
    labels["app.kubernetes.io/managed-by"] = json!("bursar");
    labels
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let definitions = args.definitions;
    let plan = args.plan()?;
    let objects = match definitions {
        true => guests::definitions(&rights::guests_of(&plan)),
        false => plan.objects(),
    };
    let mut out = std::io::stdout().lock();
    for object in objects {
        let text = serde_saphyr::to_string(&object).context("cannot be written as YAML")?;
        write!(out, "---\n{text}")?;
    }
    Ok(())
}
