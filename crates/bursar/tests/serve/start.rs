//! What stops a start, with what to do about it; what a start leaves to its owner alone; what a signal does.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Request;
use serde_json::Value;

use crate::harness::PATIENCE;
use crate::process::Process;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("facts").permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_stop_the_start_and_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writes");
    write("tokens.csv", "t,alice,1\n");
    set_mode(Path::new(&at("tokens.csv")), 0o666);
    write("open-tokens.yaml", &format!("tokenFile: {}\n", at("tokens.csv")));
    write("twice.csv", "t,alice,1\nt,bob,2\n");
    write("twice.yaml", &format!("tokenFile: {}\n", at("twice.csv")));
    write("most.yaml", "limits: {connections: 18446744073709551615}\n");
    write("none.yaml", "limits: {readsInFlight: 0}\n");
    write("ttl.yaml", "eventTtlSeconds: 18446744073709551615\n");
    write("open.yaml", "log: info\n");
    set_mode(Path::new(&at("open.yaml")), 0o646);
    write("huge.yaml", &"# nothing\n".repeat(200_000));
    assert!(std::process::Command::new("mkfifo").arg(at("pipe.yaml")).status().expect("mkfifo").success());
    let config = |name: &str| vec!["--config".to_owned(), at(name)];
    let flags = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let cases = [
        (config("open-tokens.yaml"), "tokens.csv: everybody may write to it"),
        (config("twice.yaml"), "token file, line 2: the token is in the file twice"),
        (config("most.yaml"), "limits.connections is 18446744073709551615: use a number from 1 to 1048576"),
        (config("none.yaml"), "limits.readsInFlight is 0: use a number from 1 to 65536"),
        (config("ttl.yaml"), "eventTtlSeconds is 18446744073709551615"),
        (config("open.yaml"), "open.yaml: everybody may write to it"),
        (config("huge.yaml"), "huge.yaml: it is larger than 1048576 bytes"),
        (config("pipe.yaml"), "pipe.yaml: it is not a regular file"),
        (config("."), "it is not a regular file"),
        (config("missing.yaml"), "No such file"),
        (flags(&["--log", "shout"]), "\"shout\" is not a log level: use off, error, warn, info, debug, trace"),
        (
            flags(&["--disable-admission", "ResourceQuota,Foo"]),
            "\"Foo\" is no admission step that can be left out; those are",
        ),
    ];
    let tried = cases.iter().enumerate().map(|(number, (arguments, expected))| {
        let data = folder.path().join(format!("data-{number}"));
        async move {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let (code, said) = tokio::time::timeout(PATIENCE, Process::fail(&data, &words)).await.expect("it hangs");
            assert_eq!(code, Some(1), "{arguments:?}: {said}");
            assert!(said.contains(expected), "{arguments:?}: {said}");
            assert!(!said.contains("panicked"), "{said}");
        }
    });
    futures::future::join_all(tried).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_are_private_and_another_authoritys_key_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, other) = (folder.path().join("data"), folder.path().join("other"));
    let process = Process::start(&data, &["--log", "error"]).await;
    let private = || {
        for (path, expected) in
            [("", 0o700), ("store", 0o700), ("pki", 0o700), ("pki/ca.key", 0o600), ("admin.kubeconfig", 0o600)]
        {
            assert_eq!(mode(&data.join(path)), expected, "{path}");
        }
    };
    private();
    assert_eq!(process.stop().await, Some(0));
    for path in ["", "store", "pki"] {
        set_mode(&data.join(path), 0o755);
    }
    let process = Process::start(&data, &["--log", "error"]).await;
    private();
    assert_eq!(process.stop().await, Some(0));

    let process = Process::start(&other, &["--log", "error"]).await;
    assert_eq!(process.stop().await, Some(0));
    std::fs::copy(other.join("pki/ca.key"), data.join("pki/ca.key")).expect("copied");
    let (code, said) = Process::fail(&data, &[]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ca.key is not the key of") && said.contains("pair that belongs together"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_reads_the_tokens_again_and_a_request_has_a_line_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tokens, config, log) =
        (folder.path().join("tokens.csv"), folder.path().join("bursar.yaml"), folder.path().join("log"));
    std::fs::write(&tokens, "old,alice,1\n").expect("writes");
    std::fs::write(&config, format!("tokenFile: {}\n", tokens.display())).expect("writes");
    let arguments = ["--config", &config.display().to_string(), "--log", "debug"];
    let process = Process::start_logged(&folder.path().join("data"), &arguments, &log).await;
    let lines = || std::fs::read_to_string(&log).expect("a log");
    let ask = async |token: &str| {
        let client = process.client_with_token(token).await;
        client.request::<Value>(Request::get("/version?secret=1").body(Vec::new()).expect("a request")).await.is_ok()
    };
    let logged = async |text: &str| {
        let begun = Instant::now();
        while !lines().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "no {text:?} in the log:\n{}", lines());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(ask("old").await && !ask("new").await);
    std::fs::write(&tokens, "new,alice\n").expect("writes");
    process.signal("HUP").await;
    logged("the tokens stay as they were").await;
    assert!(ask("old").await && !ask("new").await, "a file with a mistake changes nothing");
    std::fs::write(&tokens, "new,alice,1\n").expect("writes");
    process.signal("HUP").await;
    logged("the token file was read again").await;
    assert!(!ask("old").await && ask("new").await);
    assert_eq!(process.stop().await, Some(0));

    let lines = lines();
    let line = lines.lines().find(|line| line.contains("path=\"/version\"") && line.contains("status=200"));
    let line = line.unwrap_or_else(|| panic!("no line for a request:\n{lines}"));
    assert!(line.contains("DEBUG") && line.contains("method=GET") && line.contains("user=\"alice\""), "{line}");
    assert!(line.contains("milliseconds="), "{line}");
    assert!(lines.lines().any(|line| line.contains("path=\"/version\"") && line.contains("status=401")), "{lines}");
    assert!(!lines.contains("secret="), "queries are nobody's business");
    assert!(!lines.contains("SNI"), "clients that connect to an address are nothing to warn of");
}
