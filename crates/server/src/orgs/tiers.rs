//! Tiers come from a file, which is read again when it changes: once all of it can be read, what it says becomes Tier objects.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use families::orgs::names::{GROUP, VERSION};
use families::orgs::tiers;
use kube::Client;
use serde_json::{Value, json};

use crate::files;

const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Between two looks at the file.
const LOOK: Duration = Duration::from_secs(2);

/// Keeps the tiers as the file says for as long as the server runs; without a file, those that are built in are there once.
pub async fn run(client: Client, file: Option<PathBuf>) {
    let Some(file) = file else {
        for (name, spec) in tiers::built_in() {
            if let Err(error) = put(&client, &name, &spec, false).await {
                tracing::error!(tier = name, %error, "a tier could not be made");
            }
        }
        return;
    };
    let mut seen: Option<SystemTime> = None;
    let mut told: Option<String> = None;
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tick.tick().await;
        let changed = tokio::fs::metadata(&file).await.and_then(|metadata| metadata.modified()).ok();
        if changed.is_some() && changed == seen {
            continue;
        }
        match load(&client, file.clone()).await {
            Ok(count) => {
                tracing::info!(tiers = count, "the tiers were read");
                (seen, told) = (changed, None);
            }
            // Those that were are those that are: a file that cannot be read limits nobody less. It is looked at again, also as it
            // is, since it may be the server that could not write; and a mistake is told once.
            Err(error) => {
                if told.as_ref() != Some(&error) {
                    tracing::error!(error, "the tiers stay as they were");
                }
                told = Some(error);
            }
        }
    }
}

/// Reads a file of tiers.
pub fn read(text: &str) -> Result<Vec<(String, Value)>, String> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
    tiers::read_file(&document)
}

async fn load(client: &Client, file: PathBuf) -> Result<usize, String> {
    let read = tokio::task::spawn_blocking(move || files::read_text(&file, FILE_BYTES_MAX)).await;
    let text = read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let tiers = self::read(&text)?;
    for (name, spec) in &tiers {
        put(client, name, spec, true).await.map_err(|error| format!("tier {name:?}: {error}"))?;
    }
    Ok(tiers.len())
}

/// Writes one tier; where it is there already, only if it may be replaced.
async fn put(client: &Client, name: &str, spec: &Value, replace: bool) -> Result<(), kube::Error> {
    let all = format!("/apis/{GROUP}/{VERSION}/tiers");
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Tier", "metadata": {"name": name}, "spec": spec,
    });
    match send(client, http::Method::POST, &all, &object, "application/json").await {
        Err(kube::Error::Api(status)) if status.code == 409 && replace => {
            // All of what was is replaced, a dimension that is no longer named included.
            let path = format!("{all}/{name}");
            let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
            send(client, http::Method::PATCH, &path, &patch, "application/json-patch+json").await
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        sent => sent,
    }
}

async fn send(
    client: &Client,
    method: http::Method,
    path: &str,
    body: &Value,
    content_type: &str,
) -> Result<(), kube::Error> {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header(http::header::CONTENT_TYPE, content_type);
    let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}
