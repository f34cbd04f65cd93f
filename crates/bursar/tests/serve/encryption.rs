//! Secrets that cannot be read from the disk, and keys that come and go.

use std::path::Path;

use base64::Engine as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::backup::{bursar, text};
use crate::harness::PATIENCE;
use crate::object;
use crate::process::Process;

const PLAIN: &str = "the-plain-text-of-a-secret";
const IDENTITY: &str = "- identity: {}\n";

fn key(name: &str, byte: u8) -> String {
    let secret = base64::engine::general_purpose::STANDARD.encode([byte; 32]);
    format!("- aesgcm: {{keys: [{{name: {name}, secret: {secret}}}]}}\n")
}

fn configure(path: &Path, providers: &[&str]) {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
    let text = format!("{head}- resources: [secrets]\n  providers:\n{}", providers.concat().replace("- ", "  - "));
    std::fs::write(path, text).expect("writes");
}

/// Whether any file below the folder, or the file, holds the bytes.
fn found(path: &Path, wanted: &str) -> bool {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).expect("a folder");
        return entries.flatten().any(|entry| found(&entry.path(), wanted));
    }
    // Files come and go while a server runs.
    let bytes = std::fs::read(path).unwrap_or_default();
    // Most of a segment is zeros, which are not worth a look byte by byte.
    let zeros = [0; 4096];
    let bytes = bytes.chunks(4096).filter(|chunk| **chunk != zeros[..chunk.len()]).collect::<Vec<_>>().concat();
    bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

fn shows(path: &Path) -> bool {
    found(path, PLAIN) || found(path, &base64::engine::general_purpose::STANDARD.encode(PLAIN))
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn reads(process: &Process) {
    let secrets: Api<Secret> = Api::namespaced(process.client().await, "default");
    let secret = secrets.get("s").await.expect("the secret");
    assert_eq!(secret.data.expect("data")["k"].0, PLAIN.as_bytes());
}

#[tokio::test]
async fn secrets_are_encrypted_rotated_and_switched_off_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, saved, config) =
        (folder.path().join("data"), folder.path().join("saved"), folder.path().join("encryption.yaml"));
    let store = data.join("store");
    let encrypted = ["--encryption-provider-config", text(&config)];
    let (one, two) = (key("one", 1), key("two", 2));
    let with_key = |name: &str| found(&store, &format!("k8s:enc:aesgcm:v1:{name}:"));

    // On from the start: the plain text is nowhere.
    configure(&config, &[&one, IDENTITY]);
    let process = Process::start(&data, &encrypted).await;
    let secrets: Api<Secret> = Api::namespaced(process.client().await, "default");
    let secret = object(json!({"metadata": {"name": "s"}, "stringData": {"k": PLAIN}}));
    secrets.create(&PostParams::default(), &secret).await.expect("a secret");
    let (ok, said) = bursar(Some(process.kubeconfig()), &["backup", text(&saved)]).await;
    assert!(ok, "{said}");
    assert_eq!(process.stop().await, Some(0));
    assert!(with_key("one") && !shows(&data) && !shows(&saved));

    // Backups are verified with the keys, and not without.
    let (ok, said) = bursar(None, &["verify", text(&saved)]).await;
    assert!(!ok && said.contains(r#"/secrets/default/s is encrypted with the key "one""#), "{said}");
    let (ok, said) = bursar(None, &["verify", text(&saved), encrypted[0], encrypted[1]]).await;
    assert!(ok, "{said}");
    let again = folder.path().join("again");
    let (ok, said) = bursar(None, &["restore", text(&saved), "--data", text(&again), encrypted[0], encrypted[1]]).await;
    assert!(ok && !shows(&again), "{said}");

    // A new key first: what was written with the old one is written again, and the old one may go.
    configure(&config, &[&two, &one]);
    let process = Process::start(&data, &encrypted).await;
    reads(&process).await;
    until("the old key is still in use", || with_key("two") && !with_key("one")).await;
    assert_eq!(process.stop().await, Some(0));
    configure(&config, &[&two]);
    let process = Process::start(&data, &encrypted).await;
    reads(&process).await;
    assert_eq!(process.stop().await, Some(0));
    assert!(!shows(&data));

    // Without the key, and with another of its name.
    let (code, said) = Process::fail(&data, &[]).await;
    assert!(code == Some(1) && said.contains(r#"encrypted with the key "two", which"#), "{said}");
    configure(&config, &[&key("two", 9)]);
    let (code, said) = Process::fail(&data, &encrypted).await;
    assert!(code == Some(1) && said.contains(r#"with the key "two" and does not open"#), "{said}");

    // Off again: plain in the end, and no key is needed.
    configure(&config, &[IDENTITY, &two]);
    let process = Process::start(&data, &encrypted).await;
    until("a key is still in use", || !with_key("two")).await;
    assert_eq!(process.stop().await, Some(0));
    assert!(shows(&data));
    let process = Process::start(&data, &[]).await;
    reads(&process).await;
    assert_eq!(process.stop().await, Some(0));
}
