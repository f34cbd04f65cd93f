//! Backup, restore and verify with the binary, as an operator uses them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::process::Command;

use crate::harness::PATIENCE;
use crate::object;
use crate::process::Process;

/// Runs `bursar` and returns whether it succeeded and what it said.
pub async fn bursar(kubeconfig: Option<&Path>, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).env("KUBECONFIG", kubeconfig.unwrap_or(Path::new("/does/not/exist")));
    let output = command.kill_on_drop(true).output().await.expect("bursar runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// The log's last segment, and its length up to the last frame.
fn last_segment(store: &Path) -> (std::path::PathBuf, usize) {
    let names = std::fs::read_dir(store).expect("a folder").map(|entry| entry.expect("an entry").path());
    let path = names.filter(|path| text(path).contains("/log-")).max().expect("a segment");
    let bytes = std::fs::read(&path).expect("readable");
    (path, bytes.iter().rposition(|byte| *byte != 0).expect("frames") + 1)
}

/// The maps of the storm. The one with the certificates of the authority is not the same after a restore without `pki`.
async fn maps(client: &kube::Client) -> BTreeMap<String, u64> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team-a");
    let list = maps.list(&ListParams::default()).await.expect("a list");
    list.into_iter()
        .filter(|map| map.metadata.name.as_ref().is_some_and(|name| name.starts_with("m-")))
        .map(|map| (map.metadata.uid.unwrap(), map.metadata.resource_version.unwrap().parse().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_in_a_storm_of_writes_is_the_state_of_one_revision() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, saved, restored) =
        (folder.path().join("data"), folder.path().join("saved"), folder.path().join("again"));
    let process = Process::start(&data, &[]).await;
    let client = process.client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let team = object(json!({"metadata": {"name": "team-a"}}));
    namespaces.create(&PostParams::default(), &team).await.expect("a namespace");
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "team-a");
    let quota = object(json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "100000"}}}));
    quotas.create(&PostParams::default(), &quota).await.expect("a quota");

    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let storm: Vec<_> = (0..8)
        .map(|writer| {
            let (client, stop, made) = (client.clone(), stop.clone(), made.clone());
            tokio::spawn(async move {
                let maps: Api<ConfigMap> = Api::namespaced(client, "team-a");
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let map = object(json!({
                        "metadata": {"name": format!("m-{writer}-{number}")},
                        "data": {"filler": "x".repeat(2000)},
                    }));
                    maps.create(&PostParams::default(), &map).await.expect("a map");
                    made.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let begun = std::time::Instant::now();
    while made.load(Ordering::Relaxed) < 50 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
    let (ok, said) = bursar(Some(process.kubeconfig()), &["backup", text(&saved)]).await;
    assert!(ok, "{said}");
    stop.store(true, Ordering::Relaxed);
    for writer in storm {
        writer.await.expect("no writer fails");
    }
    let live = maps(&client).await;

    // Nobody else may have it, nor read a folder that is in use.
    let pods = process.client_with_token("nobody").await;
    let refused = pods.request_text(http::Request::get("/bursar/backup").body(Vec::new()).unwrap()).await;
    assert!(refused.is_err());
    let (ok, said) = bursar(None, &["verify", text(&data)]).await;
    assert!(!ok && said.contains("in use by another process"), "{said}");
    let (ok, said) = bursar(None, &["backup", text(&folder.path().join("other")), "--data", text(&data)]).await;
    assert!(!ok && said.contains("is in use"), "{said}");
    assert!(!folder.path().join("other").exists() && !folder.path().join("other.new").exists());

    let (ok, said) = bursar(None, &["verify", text(&saved)]).await;
    assert!(ok && said.contains("the ledger is what the objects add up to"), "{said}");
    let revision: u64 =
        said.split("at revision ").nth(1).and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap();
    let (ok, said) = bursar(None, &["restore", text(&saved), "--data", text(&restored)]).await;
    assert!(ok, "{said}");
    assert_eq!(process.stop().await, Some(0));

    let process = Process::start(&restored, &[]).await;
    let client = process.client().await;
    let again = maps(&client).await;
    let expected: BTreeMap<String, u64> = live.into_iter().filter(|(_, made_at)| *made_at <= revision).collect();
    assert!(expected.len() >= 50, "{}", expected.len());
    assert_eq!(again, expected, "not the state of revision {revision}");
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "team-a");
    let (begun, wanted) = (std::time::Instant::now(), (again.len() + 1).to_string());
    // A status may be written later than what it tells of.
    while quotas.get("q").await.expect("the quota").status.unwrap().used.unwrap()["configmaps"].0 != wanted {
        assert!(begun.elapsed() < PATIENCE, "not {wanted}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(process.stop().await, Some(0));
    let (ok, said) = bursar(None, &["restore", text(&saved), "--data", text(&restored)]).await;
    assert!(!ok && said.contains("is not empty"), "{said}");
    let (ok, said) = bursar(None, &["verify", text(&restored)]).await;
    assert!(ok, "{said}");
}

#[tokio::test]
async fn a_cut_log_is_refused_told_and_accepted_only_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let process = Process::start(&data, &[]).await;
    let maps: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
    for number in 0..5 {
        let map = object(json!({"metadata": {"name": format!("m-{number}")}}));
        maps.create(&PostParams::default(), &map).await.expect("a map");
    }
    assert_eq!(process.stop().await, Some(0));
    let (segment, end) = last_segment(&data.join("store"));
    let file = std::fs::OpenOptions::new().write(true).open(&segment).expect("a segment");
    let length = file.metadata().expect("facts").len();
    file.set_len(end as u64 - 1).expect("cut");
    file.set_len(length).expect("filled with zeros");
    let name = segment.file_name().unwrap().to_str().unwrap();

    let (ok, said) = bursar(None, &["verify", text(&data)]).await;
    assert!(!ok && said.contains(name) && said.contains("1 more were acknowledged"), "{said}");
    let (code, said) = Process::fail(&data, &["--listen", "127.0.0.1:0"]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("1 more were acknowledged") && said.contains("--accept-data-loss"), "{said}");
    let process = Process::start(&data, &["--accept-data-loss"]).await;
    let metrics = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = process.client().await.request_text(metrics).await.expect("metrics");
    assert!(metrics.contains("\nbursar_store_lost_writes 1\n"), "{metrics}");
    assert_eq!(process.stop().await, Some(0));
    let (ok, said) = bursar(None, &["verify", text(&data)]).await;
    assert!(ok, "{said}");
}

#[tokio::test]
async fn verify_names_every_damaged_file_and_leaves_the_folder_as_it_was() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let process = Process::start(&data, &[]).await;
    assert_eq!(process.stop().await, Some(0));
    let store = data.join("store");
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o755)).expect("opened");
    let (ok, said) = bursar(None, &["verify", text(&data)]).await;
    assert!(ok, "{said}");
    let (segment, _) = last_segment(&store);
    for file in [&segment, &store.join("synced")] {
        let mut bytes = std::fs::read(file).expect("readable");
        bytes[9] ^= 1;
        std::fs::write(file, bytes).expect("writable");
    }
    let (ok, said) = bursar(None, &["verify", text(&data)]).await;
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(!ok && said.contains("2 problems") && said.contains(name) && said.contains("synced"), "{said}");
    assert_eq!(std::fs::metadata(&store).expect("facts").permissions().mode() & 0o777, 0o755, "it was only read");
}

/// A client may remember a revision that the backup does not know.
#[tokio::test]
async fn a_restored_server_gives_no_revision_a_second_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, saved, restored) = (folder.path().join("a"), folder.path().join("saved"), folder.path().join("b"));
    let process = Process::start(&data, &[]).await;
    let maps: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
    let map = |name: &str| object::<ConfigMap>(json!({"metadata": {"name": name}}));
    maps.create(&PostParams::default(), &map("in-it")).await.expect("a map");
    let (ok, said) = bursar(Some(process.kubeconfig()), &["backup", text(&saved)]).await;
    assert!(ok, "{said}");
    let lost = maps.create(&PostParams::default(), &map("lost")).await.expect("a map");
    let remembered = lost.metadata.resource_version.expect("a version");
    assert_eq!(process.stop().await, Some(0));
    let again = folder.path().join("c");
    for place in [&restored, &again] {
        let (ok, said) = bursar(None, &["restore", text(&saved), "--data", text(place)]).await;
        assert!(ok, "{said}");
    }
    let mut known: Option<u64> = None;
    // The same folder again, and then another that the same backup was restored into.
    for (round, place) in [&restored, &restored, &again].into_iter().enumerate() {
        let process = Process::start(place, &[]).await;
        let maps: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
        let made = maps.create(&PostParams::default(), &map(&format!("after-{round}"))).await.expect("a map");
        let revision: u64 = made.metadata.resource_version.expect("a version").parse().expect("a number");
        assert!(revision > 1_000_000_000, "{revision}");
        assert!(known.is_none_or(|known| known < revision), "{known:?} came again: {revision}");
        let jumped = known.is_some_and(|known| revision > known + 10_000);
        assert_eq!(jumped, round == 2, "once, and not at every start: {known:?} {revision}");
        known = Some(revision);
        let mut events = Box::pin(maps.watch(&Default::default(), &remembered).await.expect("a watch"));
        match futures::StreamExt::next(&mut events).await {
            Some(Ok(kube::api::WatchEvent::Error(status))) => assert_eq!(status.code, 410, "{status:?}"),
            other => panic!("what happened since is not known: {other:?}"),
        }
        drop(events);
        assert_eq!(process.stop().await, Some(0));
    }
}

/// A crash in the middle of a write: nobody was told of it, so everything else is saved, restored and served.
#[tokio::test]
async fn a_torn_log_is_told_saved_restored_and_served() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().expect("a folder");
    let (data, saved, restored) = (folder.path().join("a"), folder.path().join("saved"), folder.path().join("b"));
    let process = Process::start(&data, &[]).await;
    let maps: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
    let map = object(json!({"metadata": {"name": "whole"}}));
    maps.create(&PostParams::default(), &map).await.expect("a map");
    assert_eq!(process.stop().await, Some(0));
    let (segment, end) = last_segment(&data.join("store"));
    let file = std::fs::OpenOptions::new().write(true).open(&segment).expect("a segment");
    file.write_all_at(b"half of a head", end.next_multiple_of(32) as u64).expect("torn");
    let told = "ended in a write that was never finished";

    let (ok, said) = bursar(None, &["verify", text(&data)]).await;
    assert!(ok && said.contains(told), "{said}");
    let (ok, said) = bursar(None, &["backup", text(&saved), "--data", text(&data)]).await;
    assert!(ok, "{said}");
    let (ok, said) = bursar(None, &["verify", text(&saved)]).await;
    assert!(ok && !said.contains(told), "what was torn is not in it: {said}");
    // Cut anywhere, it is refused, and nothing is left behind.
    let bytes = std::fs::read(&saved).expect("a backup");
    let cut = folder.path().join("cut");
    for length in [0, 20, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&cut, &bytes[..length]).expect("written");
        for arguments in [&["verify", text(&cut)][..], &["restore", text(&cut), "--data", text(&restored)]] {
            let (ok, said) = bursar(None, arguments).await;
            assert!(!ok && said.contains("cut off"), "{said}");
        }
        assert!(!restored.exists(), "nothing is laid out");
    }
    let (ok, said) = bursar(None, &["restore", text(&saved), "--data", text(&restored)]).await;
    assert!(ok, "{said}");
    for folder in [&data, &restored] {
        let process = Process::start(folder, &[]).await;
        let maps: Api<ConfigMap> = Api::namespaced(process.client().await, "default");
        maps.get("whole").await.expect("it was acknowledged");
        assert_eq!(process.stop().await, Some(0));
        let (ok, said) = bursar(None, &["verify", text(folder)]).await;
        assert!(ok && !said.contains(told), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_fails_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(folder.path().join("file"), "no backup").expect("writes");
    let missing = "No such file or directory";
    let cases = [
        (vec!["verify".to_owned(), at("nothing")], vec![at("nothing"), missing.to_owned()]),
        (
            vec!["restore".to_owned(), at("nothing"), "--data".to_owned(), at("new")],
            vec![at("nothing"), missing.to_owned()],
        ),
        (vec!["backup".to_owned(), at("saved")], vec!["no server to speak to".to_owned(), missing.to_owned()]),
        (vec!["orgs".to_owned(), "list-orgs".to_owned()], vec!["no server to speak to".to_owned(), missing.to_owned()]),
        (vec!["verify".to_owned(), at("file")], vec!["the backup was cut off".to_owned()]),
    ];
    for (arguments, expected) in cases {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (worked, said) = bursar(None, &words).await;
        assert!(!worked, "{arguments:?}: {said}");
        for part in expected {
            assert_eq!(said.matches(&part).count(), 1, "{arguments:?} tells {part:?} once: {said}");
        }
    }
}
