//! A real kube-apiserver takes everything that is rendered, and its pods under the strictest of the pod security standards.

use super::*;

/// A cluster with a namespace that takes restricted pods alone.
fn cluster() -> Kubernetes {
    let cluster = Kubernetes::start();
    kubectl(&cluster, &format!("create namespace {NAMESPACE}"), "");
    kubectl(&cluster, &format!("label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=restricted"), "");
    cluster
}

/// The pods that a Deployment would make.
fn pod_of(deployment: &Value, name: &str) -> Value {
    let mut metadata = deployment["spec"]["template"]["metadata"].clone();
    metadata["name"] = json!(name);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deployment["spec"]["template"]["spec"]})
}

#[test]
fn everything_that_is_rendered_is_taken_by_a_real_api_server_and_leaves_nothing_behind() {
    let cluster = cluster();
    let folder = tempfile::tempdir().expect("a folder");
    let mut streams = vec![("bursar manifests".to_owned(), manifests("").out)];
    streams.push(("bursar manifests, etcd".into(), manifests("--store etcds://a:2379 --etcd-secret tls").out));
    for file in values_files() {
        let line = format!("template bursar CHART --namespace {NAMESPACE} -f {}", file.display());
        streams.push((file.display().to_string(), helm(folder.path(), &line).out));
    }
    for (index, (what, text)) in streams.iter().enumerate() {
        let count = objects(text).len();
        assert!(count >= 8, "{what}: {count} objects");
        for way in ["--dry-run=server", "", "--server-side --force-conflicts"] {
            let (ok, out, err) = cluster.run(&format!("apply --validate=strict {way} -f -"), text);
            assert!(ok && !err.contains("Warning"), "{what}, {way}: {out}{err}");
            assert_eq!(out.lines().count(), count, "{what}: {out}");
        }
        let deployment = &by_name(objects(text))[&("Deployment".into(), "bursar".into())];
        let mut pod = pod_of(deployment, &format!("pod-{index}"));
        let (ok, _, err) = cluster.run(&format!("-n {NAMESPACE} create --validate=strict -f -"), &pod.to_string());
        assert!(ok && !err.contains("Warning"), "{what}: {err}");
        // The namespace would have refused anything less.
        pod["metadata"]["name"] = json!("lax");
        pod["spec"]["containers"][0]["securityContext"]["capabilities"] = json!({});
        let (ok, _, err) = cluster.run(&format!("-n {NAMESPACE} create -f -"), &pod.to_string());
        assert!(!ok && err.contains("PodSecurity"), "{what}: {err}");
        kubectl(&cluster, &format!("-n {NAMESPACE} delete pod pod-{index} --force --grace-period=0"), "");
        kubectl(&cluster, "delete --wait=false -f -", text);
        let kinds = "serviceaccounts,services,deployments,persistentvolumeclaims,poddisruptionbudgets,networkpolicies,clusterroles,\
                     clusterrolebindings,validatingwebhookconfigurations";
        let left = kubectl(&cluster, &format!("get -A -o name -l app.kubernetes.io/name=bursar {kinds}"), "");
        // Volumes are protected until a controller has looked, which is not here.
        let left: Vec<&str> = left.lines().filter(|name| !name.starts_with("persistentvolumeclaim")).collect();
        assert!(left.is_empty(), "{what}: {left:?}");
        cluster.run(
            &format!("-n {NAMESPACE} patch pvc bursar --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"),
            "",
        );
    }
}
