//! What people type, typed.

use crate::harness::Server;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: team-a
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: nginx:1.25
        resources:
          requests: {cpu: 100m, memory: 64Mi}
";

#[test]
fn a_day_with_kubectl() {
    let server = Server::start();
    let kubectl = |line: &str| server.kubectl(line);
    assert!(kubectl("version").contains("Server Version"));
    kubectl("create namespace team-a");
    kubectl("-n team-a create quota compute --hard=pods=3,requests.cpu=1,requests.memory=1Gi");
    let described = server.until("-n team-a describe quota compute", |out| out.contains("requests.cpu"));
    assert!(described.contains("Name:"), "{described}");

    // create, apply, scale, wait
    server.kubectl_with("apply -f -", DEPLOYMENT);
    server.until("-n team-a get pods -l app=web -o name", |out| out.lines().count() == 2);
    let wide = kubectl("-n team-a get deployment web -o wide");
    assert!(wide.contains("CONTAINERS") && wide.contains("nginx:1.25"), "{wide}");
    assert!(kubectl("-n team-a get deployment web -o yaml").contains("replicas: 2"));
    watch_a_new_object(&server);
    assert!(server.kubectl_with("apply -f -", DEPLOYMENT).contains("unchanged"));
    kubectl("-n team-a scale deployment web --replicas=5");
    server.until("-n team-a get pods -l app=web -o name", |out| out.lines().count() == 3);
    let failure = server
        .until("-n team-a get rs -l app=web -o jsonpath={.items[*].status.conditions[*].message}", |out| {
            out.contains("exceeded quota")
        });
    assert!(failure.contains("exceeded quota: compute, requested: pods=1, used: pods=3, limited: pods=3"), "{failure}");
    let events = server.until("-n team-a get events", |out| out.contains("FailedCreate"));
    assert!(events.contains("replicaset/web-") && events.contains("exceeded quota: compute"), "{events}");
    kubectl("-n team-a wait deployment/web --for=jsonpath={.status.replicas}=3 --timeout=30s");
    kubectl("-n team-a scale deployment web --replicas=1");
    server.until("-n team-a get quota compute -o jsonpath={.status.used.pods}", |out| out == "1");

    // patch three ways, label, annotate, edit
    kubectl(
        r#"-n team-a patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:1.26"}]}}}}'"#,
    );
    let image = kubectl("-n team-a get deployment web -o jsonpath={.spec.template.spec.containers[0].image}");
    assert_eq!(image, "nginx:1.26", "a strategic merge patch changes one container in its list");
    kubectl(r#"-n team-a patch quota compute --type=merge -p '{"spec":{"hard":{"pods":"4"}}}'"#);
    kubectl(
        r#"-n team-a patch quota compute --type=json -p '[{"op":"replace","path":"/spec/hard/pods","value":"5"}]'"#,
    );
    assert_eq!(kubectl("-n team-a get quota compute -o jsonpath={.spec.hard.pods}"), "5");
    kubectl("-n team-a label quota compute tier=gold");
    assert!(kubectl("-n team-a get quota -l tier=gold -o name").contains("resourcequota/compute"));
    kubectl("-n team-a annotate quota compute note=hello");
    let edited = server
        .kubectl_command(&crate::harness::words("-n team-a edit quota compute"))
        .env("KUBE_EDITOR", "sed -i s/tier:.gold/tier:\\ iron/")
        .output()
        .expect("kubectl edit runs");
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    assert_eq!(kubectl("-n team-a get quota compute -o jsonpath={.metadata.labels.tier}"), "iron");

    // server-side apply, diff
    let quota =
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: ssa, namespace: team-a}, spec: {hard: {pods: '7'}}}";
    server.kubectl_with("apply --server-side -f -", quota);
    let conflict = quota.replace("'7'", "'8'");
    let (ok, _, error) = server.try_kubectl("apply --server-side --field-manager=other -f -", &conflict);
    assert!(!ok && error.contains("conflict with \"kubectl\""), "{error}");
    server.kubectl_with("apply --server-side --field-manager=other --force-conflicts -f -", &conflict);
    let (_, diff, _) = server.try_kubectl("diff -f -", &quota.replace("'7'", "'9'"));
    assert!(diff.contains("+    pods: \"9\"") || diff.contains("+    pods: '9'"), "{diff}");

    // explain, api-resources, auth, wait, delete
    assert!(kubectl("explain quota.spec.hard").contains("FIELD: hard"));
    let resources = kubectl("api-resources");
    for name in ["resourcequotas", "deployments", "customresourcedefinitions", "rolebindings"] {
        assert!(resources.contains(name), "{name} is missing");
    }
    assert_eq!(kubectl("auth can-i create pods").trim(), "yes");
    let denied = server.try_kubectl("auth can-i list secrets --as=jane -n team-a", "").1;
    assert_eq!(denied.trim(), "no");
    assert!(kubectl("auth whoami").contains("kubernetes-admin"));
    kubectl("-n team-a delete deployment web");
    server.until("-n team-a get pods -o name", |out| out.is_empty());
    kubectl("delete namespace team-a --wait=true");
    assert!(server.kubectl_fails("get namespace team-a").contains("not found"));
}

/// `get -w` shows what is there, and then what comes.
fn watch_a_new_object(server: &Server) {
    use std::io::BufRead;
    let mut child = server
        .kubectl_command(&crate::harness::words("-n team-a get configmaps -w --no-headers"))
        .spawn()
        .expect("kubectl starts");
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("kube-root-ca.crt ")), "what is there");
    server.kubectl("-n team-a create configmap seen --from-literal=a=b");
    assert!(lines.any(|line| line.starts_with("seen ")), "what comes");
    child.kill().expect("kubectl can be ended");
    child.wait().expect("kubectl ended");
}

#[test]
fn columns_are_those_of_kubernetes() {
    let server = Server::start();
    let heads = |line: &str| {
        let (_, out, err) = server.try_kubectl(line, "");
        let line = out.lines().next().map(str::to_owned).unwrap_or(err);
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    server.kubectl("create namespace columns");
    server.kubectl("-n columns run p --image=nginx");
    server.kubectl("-n columns create quota q --hard=pods=1,limits.cpu=2");
    server.kubectl("-n columns create service clusterip s --tcp=80");
    server.kubectl("-n columns create deployment d --image=nginx --replicas=0");
    server.kubectl("-n columns create configmap c --from-literal=a=b");
    server.kubectl("-n columns create secret generic t --from-literal=a=b");
    for (line, wanted) in [
        ("get ns", "NAME STATUS AGE"),
        ("-n columns get quota", "NAME REQUEST LIMIT AGE"),
        ("-n columns get pods", "NAME READY STATUS RESTARTS AGE"),
        ("-n columns get svc", "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE"),
        ("-n columns get deployments", "NAME READY UP-TO-DATE AVAILABLE AGE"),
        ("-n columns get rs", "NAME DESIRED CURRENT READY AGE"),
        ("-n columns get cm", "NAME DATA AGE"),
        ("-n columns get secrets", "NAME TYPE DATA AGE"),
        ("-n columns get sa", "NAME AGE"),
        ("get crd", "NAME CREATED AT"),
        ("get clusterroles", "NAME CREATED AT"),
        ("get priorityclasses", "NAME VALUE GLOBAL-DEFAULT AGE PREEMPTIONPOLICY"),
    ] {
        assert_eq!(heads(line), wanted, "kubectl {line}");
    }
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"addresses":
        [{"type": "InternalIP", "address": "10.0.0.9"}], "nodeInfo": {"kernelVersion": "6.1", "osImage": "Debian"}}}"#;
    server.kubectl_with("create -f -", node);
    assert_eq!(
        heads("get nodes -o wide"),
        "NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME"
    );
    let row = server.kubectl("get nodes -o wide --no-headers");
    assert!(row.contains("10.0.0.9") && row.contains("<none>") && row.contains("Debian"), "{row}");
    let row = server.until("-n columns get quota q --no-headers", |out| out.contains("pods: 1/1"));
    assert!(row.contains("pods: 1/1") && row.contains("limits.cpu: 0/2"), "{row}");
}
