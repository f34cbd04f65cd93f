//! Conformance to itself: what was there before a stop, or a kill, is there after it.

use crate::harness::Server;

#[test]
fn objects_versions_and_usage_survive_a_stop_and_a_kill() {
    let mut server = Server::start();
    server.kubectl("create namespace kept");
    server.kubectl("-n kept create quota q --hard=configmaps=3");
    server.kubectl("-n kept create configmap a --from-literal=x=1");
    server.until("-n kept get quota q -o jsonpath={.status.used.configmaps}", |out| out == "2");
    // What a reader is shown comes from the ledger; it is stored a moment later, as a version of its own.
    let version = |server: &Server, what: &str| -> u64 {
        server
            .kubectl(&format!("-n kept get {what} -o jsonpath={{.metadata.resourceVersion}}"))
            .parse()
            .expect("a number")
    };
    let map = version(&server, "configmap a");
    server.until("-n kept get quota q -o jsonpath={.metadata.resourceVersion}", |out| {
        out.parse::<u64>().is_ok_and(|quota| quota > map)
    });
    let all = |server: &Server| {
        let line = "-n kept get quota,configmaps,serviceaccounts -o jsonpath='{range .items[*]}{.kind}{.metadata.name}{.metadata.uid}{.metadata.resourceVersion}{\"\\n\"}{end}'";
        server.kubectl(line)
    };
    let before = all(&server);
    assert!(before.lines().count() >= 4, "{before}");
    server.stop_and_restart();
    assert_eq!(all(&server), before);
    server.kill_and_restart();
    assert_eq!(all(&server), before);
    server.kubectl("-n kept create configmap b --from-literal=x=1");
    let refused = server.kubectl_fails("-n kept create configmap c --from-literal=x=1");
    assert!(
        refused.contains("exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3"),
        "{refused}"
    );
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::start();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(server.folder.join("data"))
        .output()
        .expect("bursar runs");
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("another process"), "{error}");
    server.kubectl("get ns");
}
