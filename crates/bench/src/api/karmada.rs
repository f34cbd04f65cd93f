//! `bursar bench karmada`: what a binding's write costs in a namespace with many, how many bindings are scheduled in a second, and
//! how soon what one member let go of runs in another.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use serde_json::{Value, json};

use super::http::Connection;
use super::load::{self, Stop, Work};
use super::options::Options;
use super::servers::Server;
use super::{Figures, make_namespace, micros, print_figures};
use crate::probe::{Latencies, median};

const FILL_CONNECTIONS: usize = 64;
/// Bindings in the small namespace.
const FEW: u64 = 10;
/// The binding of each namespace that is written while it is measured.
const MEASURED: &str = "measured";
/// Clusters that bindings are scheduled over.
const CLUSTERS: u64 = 20;
/// Releases of which the figure is made.
const RELEASES: usize = 5;
const LOOK: Duration = Duration::from_millis(5);
const WITHIN: Duration = Duration::from_secs(120);

const WORK: &str = "/apis/work.karmada.io/v1alpha2";
const POLICY: &str = "/apis/policy.karmada.io/v1alpha1";
const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    super::run(arguments, benchmark)
}

async fn benchmark(options: &Options) -> anyhow::Result<()> {
    let mut figures = growth(options).await?;
    figures.extend(scheduled(options).await?);
    figures.extend(wake(options).await?);
    print_figures(&figures);
    Ok(())
}

async fn make(connection: &mut Connection, path: &str, object: Value) -> anyhow::Result<()> {
    connection.create(path, Bytes::from(object.to_string())).await
}

/// A binding that another scheduler would place, so that only its writes are measured.
fn binding(scheduler: &str, clusters: Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"generateName": "web-"},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "1m", "memory": "1Mi"}},
            "placement": {
                "replicaScheduling": {"replicaSchedulingType": "Divided"}, "clusterTolerations": [{"operator": "Exists"}],
            },
            "schedulerName": scheduler, "clusters": clusters,
        },
    })
}

async fn quota(connection: &mut Connection, namespace: &str, cpu: &str) -> anyhow::Result<()> {
    let quota = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota", "metadata": {"name": "q"},
        "spec": {"overall": {"cpu": cpu, "memory": "1P"}},
    });
    make(connection, &format!("{POLICY}/namespaces/{namespace}/federatedresourcequotas"), quota).await
}

/// One connection that goes round two namespaces, one with few bindings and one with many, and grows and shrinks one binding of
/// each by a replica: every write changes what is charged, and neither namespace grows while it is measured.
async fn growth(options: &Options) -> anyhow::Result<Figures> {
    let server = Server::bursar(&options.bursar)?;
    let mut connection = server.target.connect().await?;
    let sizes = [("few", FEW), ("many", options.bindings.max(FEW))];
    for (namespace, count) in sizes {
        make_namespace(&mut connection, namespace).await?;
        quota(&mut connection, namespace, "1M").await?;
        let mut object = binding("nobody", placed(3));
        let path = format!("{WORK}/namespaces/{namespace}/resourcebindings");
        let body = Bytes::from(object.to_string());
        object["metadata"] = json!({"name": MEASURED});
        make(&mut connection, &path, object).await?;
        let work = move |_| Work { path: path.clone(), body: body.clone(), class: 0 };
        load::run(&server.target, FILL_CONNECTIONS, Stop::Requests(count - 1), 1, work).await?;
    }
    println!(
        "one connection, one binding more or less by a replica, in turn: among {FEW} bindings, among {}",
        sizes[1].1
    );
    println!("{:>5} {:>14} {:>14}", "round", "p50 µs, few", "p50 µs, many");
    let (mut ratios, mut replicas) = (Vec::new(), 3);
    for round in 1..=options.rounds {
        let mut latencies = [Latencies::new()?, Latencies::new()?];
        let begun = Instant::now();
        while begun.elapsed() < options.run {
            replicas = 7 - replicas;
            let patch = json!({"spec": {"clusters": placed(replicas)}});
            for ((namespace, _), latencies) in sizes.iter().zip(&mut latencies) {
                let path = format!("{WORK}/namespaces/{namespace}/resourcebindings/{MEASURED}");
                let asked = Instant::now();
                connection.merge_patch(&path, &patch).await?;
                latencies.record(asked.elapsed());
            }
        }
        let p50 = latencies.map(|one| micros(one.at(50.0)).max(1.0));
        println!("{round:>5} {:>14.0} {:>14.0}", p50[0], p50[1]);
        ratios.push(p50[1] / p50[0]);
    }
    for (namespace, count) in sizes {
        let quota = connection.get_json(&used(namespace)).await?;
        let said = &quota["status"]["overallUsed"]["cpu"];
        let charged = milli(3 * (count - 1) + replicas);
        ensure!(said.as_str() == charged.as_deref(), "{said} are used in {namespace}, and {charged:?} were charged");
    }
    Ok(vec![("binding_growth_10k".into(), format!("{:.3}", median(ratios.into_iter())))])
}

fn placed(replicas: u64) -> Value {
    json!([{"name": "m1", "replicas": replicas}])
}

fn used(namespace: &str) -> String {
    format!("{POLICY}/namespaces/{namespace}/federatedresourcequotas/q")
}

/// So many thousandths of a CPU as a status tells them.
fn milli(cpu: u64) -> Option<String> {
    quantity::Quantity::parse(&format!("{cpu}m")).ok().map(|all| all.canonical().to_string())
}

/// Bindings over many clusters, until the last one is placed and says so.
async fn scheduled(options: &Options) -> anyhow::Result<Figures> {
    let server = Server::bursar(&options.bursar)?;
    let mut connection = server.target.connect().await?;
    for number in 0..CLUSTERS {
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": format!("m{number}")},
            // Nobody answers there: placing needs no member.
            "spec": {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:9"},
        });
        make(&mut connection, CLUSTER, cluster).await?;
    }
    let count = options.scheduled.max(1);
    make_namespace(&mut connection, "team").await?;
    quota(&mut connection, "team", "1M").await?;
    let body = Bytes::from(binding("default-scheduler", json!([])).to_string());
    let path = format!("{WORK}/namespaces/team/resourcebindings");
    let work = move |_| Work { path: path.clone(), body: body.clone(), class: 0 };
    let begun = Instant::now();
    load::run(&server.target, FILL_CONNECTIONS, Stop::Requests(count), 1, work).await?;
    let all = milli(3 * count);
    loop {
        let quota = connection.get_json(&used("team")).await?;
        let said = &quota["status"]["overallUsed"]["cpu"];
        if said.as_str() == all.as_deref() {
            break;
        }
        ensure!(begun.elapsed() < WITHIN, "{count} bindings are not scheduled in time: {said}");
        tokio::time::sleep(LOOK).await;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("\n{count} bindings over {CLUSTERS} clusters: {rate:.0} scheduled in a second");
    Ok(vec![("scheduled_per_second".into(), format!("{rate:.0}"))])
}

/// A member that the control plane reaches with a token of its own.
async fn register(connection: &mut Connection, name: &str, member: &Server) -> anyhow::Result<()> {
    let mut there = member.target.connect().await?;
    make_namespace(&mut there, "team").await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "centre"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "centre", "namespace": "team"}],
    });
    make(&mut there, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "centre"}});
    make(&mut there, "/api/v1/namespaces/team/serviceaccounts", account).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let path = "/api/v1/namespaces/team/serviceaccounts/centre/token";
    let (status, body) = there.post(path, Bytes::from(request.to_string())).await?;
    ensure!(status.is_success(), "no token: {}", String::from_utf8_lossy(&body));
    let answer: Value = serde_json::from_slice(&body)?;
    let (url, authority) = member.address()?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"token": answer["status"]["token"]}, "data": {"caBundle": authority},
    });
    make(connection, "/api/v1/namespaces/default/secrets", secret).await?;
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Push", "apiEndpoint": url, "secretRef": {"namespace": "default", "name": name}},
    });
    make(connection, CLUSTER, cluster).await
}

/// A workload in one member is deleted, and one that waited is there in another.
async fn wake(options: &Options) -> anyhow::Result<Figures> {
    let centre = Server::bursar(&options.bursar)?;
    let members = [Server::bursar(&options.bursar)?, Server::bursar(&options.bursar)?];
    let mut connection = centre.target.connect().await?;
    make_namespace(&mut connection, "team").await?;
    quota(&mut connection, "team", "1").await?;
    let policies = format!("{POLICY}/namespaces/team/propagationpolicies");
    for (place, member) in members.iter().enumerate() {
        let name = format!("m{place}");
        register(&mut connection, &name, member).await?;
        let policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": name},
            "spec": {
                "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": {"matchLabels": {"to": name}}}],
                "placement": {"clusterAffinity": {"clusterNames": [name]}, "replicaScheduling": {}},
            },
        });
        make(&mut connection, &policies, policy).await?;
    }
    let pods = "/api/v1/namespaces/team/pods";
    let pod = |name: &str, to: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"to": to}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}]},
        })
    };
    let mut there = [members[0].target.connect().await?, members[1].target.connect().await?];
    make(&mut connection, pods, pod("p0", "m0")).await?;
    until_there(&mut there[0], "p0").await?;
    let mut times = Vec::new();
    for turn in 1..=RELEASES {
        let (from, to) = ((turn - 1) % 2, turn % 2);
        let (old, new) = (format!("p{}", turn - 1), format!("p{turn}"));
        make(&mut connection, pods, pod(&new, &format!("m{to}"))).await?;
        until_waits(&mut connection, &new).await?;
        let begun = Instant::now();
        connection.delete(&format!("{pods}/{old}")).await?;
        until_there(&mut there[to], &new).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        let gone = there[from].get_json(&format!("{pods}/{old}")).await;
        ensure!(gone.is_err(), "{old} still runs");
    }
    let middle = median(times.into_iter());
    println!("\nfrom a release in one member until what waited is in another: median {middle:.0} ms");
    Ok(vec![("wake_across_members_ms".into(), format!("{middle:.1}"))])
}

async fn until_there(member: &mut Connection, pod: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    while member.get_json(&format!("/api/v1/namespaces/team/pods/{pod}")).await.is_err() {
        ensure!(begun.elapsed() < WITHIN, "{pod} never comes");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

async fn until_waits(connection: &mut Connection, pod: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let binding = connection.get_json(&format!("{WORK}/namespaces/team/resourcebindings/{pod}-pod")).await;
        let conditions =
            binding.ok().and_then(|one| one["status"]["conditions"].as_array().cloned()).unwrap_or_default();
        if conditions.iter().any(|one| one["reason"] == "QuotaExceeded") {
            return Ok(());
        }
        ensure!(begun.elapsed() < WITHIN, "{pod} never waits");
        tokio::time::sleep(LOOK).await;
    }
}
