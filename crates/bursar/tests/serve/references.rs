//! What users write into the references of their objects holds up nothing that belongs to others.

use crate::harness::Server;

fn owned(namespace: &str, name: &str, owner: &str, finalizers: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"namespace": "{namespace}", "name": "{name}", "finalizers": [{finalizers}], "ownerReferences": [{owner}]}}}}"#
    )
}

#[test]
fn no_reference_holds_up_what_is_not_its_writers() {
    let server = Server::start();
    server.kubectl("create namespace a");
    server.kubectl("create namespace b");
    let create = |object: &str| server.kubectl_with("create -f -", object);
    // Texts that would be another request in the place of a name or a version.
    for (at, (version, name)) in [
        ("apps/v1?watch=true&x=", "web"),
        ("apps/v1", "?watch=true"),
        ("apps/v1", "web?watch=true"),
        ("apps/v1", "../../../pods?watch=true"),
        ("apps/v7", "web"),
    ]
    .into_iter()
    .enumerate()
    {
        let owner =
            format!(r#"{{"apiVersion": "{version}", "kind": "Deployment", "name": "{name}", "uid": "u-{at}"}}"#);
        create(&owned("b", &format!("odd-{at}"), &owner, ""));
    }
    let two_slashes = r#"{"apiVersion": "apps/v1/pods", "kind": "Deployment", "name": "web", "uid": "u"}"#;
    let refused = server.try_kubectl("create -f -", &owned("b", "refused", two_slashes, ""));
    assert!(!refused.0 && refused.2.contains("version must not be empty"), "{refused:?}");
    create(
        r#"{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "b", "name": "odd"}, "spec": {"volumeName": "?watch=true", "storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}"#,
    );
    // The collector goes on: an object whose owner never was goes, and so does an owner that only a stranger holds.
    let never = r#"{"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "n"}"#;
    create(&owned("a", "child", never, ""));
    server.until("-n a get configmaps child --ignore-not-found -o name", str::is_empty);
    server.kubectl("-n a create configmap owner");
    let uid = server.kubectl("-n a get configmap owner -o jsonpath={.metadata.uid}");
    let owner = format!(
        r#"{{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid}", "blockOwnerDeletion": true}}"#
    );
    create(&owned("b", "stranger", &owner, r#""example.com/hold""#));
    server.kubectl("-n a delete configmap owner --cascade=foreground --wait=false");
    server.until("-n a get configmaps owner --ignore-not-found -o name", str::is_empty);
    server.kubectl(r#"-n b patch configmap stranger --type=merge -p '{"metadata":{"finalizers":null}}'"#);
    // Whose owner is in another namespace has none.
    server.until("-n b get configmaps -o name", |out| !out.contains("stranger") && !out.contains("odd-4"));
}
