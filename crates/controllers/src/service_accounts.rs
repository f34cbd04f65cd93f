//! What every namespace has from the start: the ServiceAccount `default` and the certificate authority to trust.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::Settings;
use crate::run::{Failed, Guarded, drive, exists_is_fine, gone_is_fine, guarded};

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_KEY: &str = "ca.crt";

struct Context {
    client: Client,
    settings: Settings,
}

pub async fn run(client: Client, settings: Settings) {
    // Only the two names matter: a namespace is looked at again when one of them is deleted or changed.
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let controller = Controller::new(Api::<Guarded<Namespace>>::all(client.clone()), watcher::Config::default())
        .watches(Api::<Guarded<ServiceAccount>>::all(client.clone()), named(ACCOUNT), |account| {
            owner(account.namespace())
        })
        .watches(Api::<Guarded<ConfigMap>>::all(client.clone()), named(ROOT_CA), |map| owner(map.namespace()));
    drive(
        controller,
        guarded("service accounts", reconcile),
        Arc::new(Context { client, settings }),
        "service accounts",
    )
    .await;
}

fn owner(namespace: Option<String>) -> Option<ObjectRef<Guarded<Namespace>>> {
    namespace.map(|name| ObjectRef::new(&name))
}

async fn reconcile(namespace: Arc<Namespace>, context: Arc<Context>) -> Result<Action, Failed> {
    if namespace.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let name = namespace.name_any();
    let accounts = Api::<ServiceAccount>::namespaced(context.client.clone(), &name);
    if accounts.get_metadata_opt(ACCOUNT).await?.is_none() {
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(ACCOUNT.into());
        settled(exists_is_fine(accounts.create(&PostParams::default(), &account).await))?;
    }
    root_ca(&name, &context).await?;
    Ok(Action::await_change())
}

async fn root_ca(namespace: &str, context: &Context) -> Result<(), Failed> {
    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), namespace);
    let data = BTreeMap::from([(ROOT_CA_KEY.to_owned(), context.settings.root_ca_pem.clone())]);
    match maps.get_opt(ROOT_CA).await? {
        None => {
            let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
            map.metadata.name = Some(ROOT_CA.into());
            let note = "Contains a CA bundle that can be used to verify the API server.";
            map.metadata.annotations = Some(BTreeMap::from([("kubernetes.io/description".into(), note.into())]));
            settled(exists_is_fine(maps.create(&PostParams::default(), &map).await))?;
        }
        Some(map) if map.data.as_ref() != Some(&data) => {
            let patch = Patch::Merge(json!({"data": data}));
            gone_is_fine(maps.patch(ROOT_CA, &PatchParams::default(), &patch).await)?;
        }
        Some(_) => {}
    }
    Ok(())
}

/// A namespace that went away, or is about to, in the meantime needs nothing; a quota that forbids it is respected
/// until it changes.
fn settled<T>(result: Result<Option<T>, Failed>) -> Result<(), Failed> {
    match result {
        Ok(_) => Ok(()),
        Err(Failed::Api(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Err(Failed::Api(kube::Error::Api(status))) if status.code == 403 && status.message.contains("terminated") => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}
