//! Replicas over etcd, started with the very arguments of the chart's pods, take over from each other.

use crate::etcd::{Ended, Etcd, free_port};
use crate::failover::until;

use super::rights::{Land, POLICIES};
use super::*;

/// A pod of the chart's, but on a port of its own and with the kubeconfig that a pod is given by Kubernetes.
fn replica(arguments: &[String], port: u16, kubeconfig: &Path) -> Ended {
    let here = arguments.iter().map(|argument| {
        let (option, _) = argument.split_once('=').unwrap_or((argument, ""));
        match option {
            "--listen" => format!("--listen=127.0.0.1:{port}"),
            "--url" => argument.replace("$(POD_ADDRESS)", "127.0.0.1").replace(":9443", &format!(":{port}")),
            _ => argument.clone(),
        }
    });
    Ended::start(Command::new(env!("CARGO_BIN_EXE_bursar")).args(here).arg("--kubeconfig").arg(kubeconfig))
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_the_chart_take_over_and_forget_nothing() {
    let land = Land::start();
    let etcd = Etcd::start(&land.at("store"));
    // Kinds that somebody else applied are enough: nothing is created then.
    kubectl(&land.cluster, "apply --server-side -f -", &manifests("--definitions").out);
    let store = format!("store.kind=etcd,store.etcd.address=etcd://127.0.0.1:{}", etcd.port);
    land.helm(&format!("install bursar CHART --set {store} --set rbac.createDefinitions=false"));
    let rendered = by_name(objects(&land.helm("get manifest bursar")));
    let deployment = &rendered[&("Deployment".into(), "bursar".into())];
    assert_eq!(deployment["spec"]["replicas"], 3);
    let arguments = items(deployment, "/spec/template/spec/containers/0/args");
    let arguments: Vec<String> = arguments.iter().map(|one| one.as_str().expect("a text").to_owned()).collect();
    let account = land.account();
    let ports = [free_port(), free_port()];
    let mut replicas = ports.map(|port| (port, Some(replica(&arguments, port, &account))));
    let leader = || {
        let address = land.registered("{.webhooks[0].clientConfig.url}");
        ports.iter().position(|port| address == format!("https://127.0.0.1:{port}/review"))
    };
    until("one of them is registered", async || leader().is_some()).await;
    kubectl(&land.cluster, "create namespace team-a", "");
    kubectl(&land.cluster, "apply -f -", POLICIES);
    until("the quota is in force", async || {
        let stored = ["one", "two", "three"].map(|name| land.create("team-a", "ConfigMap", name).0);
        let is_exact = stored == [true; 3] && land.refuses("ConfigMap");
        if !is_exact {
            kubectl(&land.cluster, "-n team-a delete configmap --all", "");
        }
        is_exact
    })
    .await;

    let first = leader().expect("one leads");
    drop(replicas[first].1.take());
    until("the other one is registered", async || leader() == Some(1 - first)).await;
    until("it answers, and knows what is there", async || land.refuses("ConfigMap")).await;
    assert!(!land.create("team-a", "ConfigMap", "four").0);
    kubectl(&land.cluster, "-n team-a delete configmap one", "");
    until("there is room", async || land.create("team-a", "ConfigMap", "four").0).await;
    assert!(!land.create("team-a", "ConfigMap", "five").0);
}
