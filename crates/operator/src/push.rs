//! Statuses on their way to the cluster: each rests on the version that it was worked out from. Where that is no longer the one
//! that is there, it is left: the watch shows the later one, and it is worked out anew.

use std::collections::HashMap;
use std::time::Duration;

use engine::ObjectKey;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::cluster::{Served, call};
use crate::core::Push;

/// How long a cluster that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// How resources are served, for whoever has to write their objects.
pub type Directory = std::sync::Arc<std::sync::RwLock<HashMap<rules::GroupResource, Served>>>;

/// Writes statuses until nobody has any more. Of one object the newest counts.
pub async fn run(client: Client, directory: Directory, mut pushes: UnboundedReceiver<Push>) {
    let mut waiting: HashMap<ObjectKey, Push> = HashMap::new();
    loop {
        if waiting.is_empty() {
            let Some(push) = pushes.recv().await else { return };
            waiting.insert(push.object.key.clone(), push);
        }
        while let Ok(push) = pushes.try_recv() {
            waiting.insert(push.object.key.clone(), push);
        }
        let Some(key) = waiting.keys().next().cloned() else { continue };
        let Some(push) = waiting.remove(&key) else { continue };
        if let Err(error) = write(&client, &directory, &push).await {
            tracing::warn!(%key, %error, "a status could not be written, and is tried again");
            waiting.entry(key).or_insert(push);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// `Err` for what may go well another time.
async fn write(client: &Client, directory: &Directory, push: &Push) -> Result<(), kube::Error> {
    let key = &push.object.key;
    let served = directory.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&key.resource).cloned();
    let Some(served) = served else { return Ok(()) };
    let path = format!("{}/status", served.path(&key.namespace, &key.name));
    match call(client, Method::PUT, &path, Some(&body(push))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(()),
        Err(kube::Error::Api(status))
            if (400..429).contains(&status.code) && status.code != 401 && status.code != 403 =>
        {
            tracing::error!(%key, %status, "a status was refused");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The whole object: on this path nothing but its status is taken from it.
fn body(push: &Push) -> Value {
    let mut value = push.object.value();
    value["metadata"]["resourceVersion"] = json!(push.version.to_string());
    value
}
