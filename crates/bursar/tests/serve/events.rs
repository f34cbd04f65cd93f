//! What controllers tell, and how long it is remembered.

use crate::harness::Server;

#[test]
fn controllers_tell_what_they_do_and_old_events_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("bursar.yaml");
    std::fs::write(&config, "eventTtlSeconds: 15\n").expect("writes");
    let server = Server::start_with(&["--config", &config.display().to_string()]);
    server.kubectl("create namespace told");
    server.kubectl("-n told create deployment web --image=nginx --replicas=2");
    let about = |kind: &str| {
        format!("-n told get events --field-selector involvedObject.kind={kind} -o jsonpath={{.items[*].message}}")
    };
    server.until(&about("Deployment"), |out| out.contains("Scaled up replica set web-") && out.contains("from 0 to 2"));
    server.until(&about("ReplicaSet"), |out| out.matches("Created pod: web-").count() == 2);
    server.kubectl("-n told scale deployment web --replicas=1");
    server.until(&about("ReplicaSet"), |out| out.contains("Deleted pod: web-"));
    let described = server.kubectl("-n told describe deployment web");
    assert!(described.contains("ScalingReplicaSet") && described.contains("deployment-controller"), "{described}");

    let claim = |name: &str, class: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, namespace: told}}, \
             spec: {{accessModes: [ReadWriteOnce], {class} resources: {{requests: {{storage: 1Gi}}}}}}}}"
        )
    };
    server.kubectl_with("apply -f -", &claim("none", ""));
    server.kubectl_with("apply -f -", &claim("nosuch", "storageClassName: nosuch,"));
    server.until(&about("PersistentVolumeClaim"), |out| {
        out.contains("no persistent volumes available for this claim and no storage class is set")
            && out.contains("storageclass.storage.k8s.io \"nosuch\" not found")
    });

    // Each is deleted like any object when its time is over: a watch that begins now sees them go.
    let list: serde_json::Value =
        serde_json::from_str(&server.kubectl("get --raw /api/v1/namespaces/told/events")).expect("a list");
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    server.until("-n told get events -o name", str::is_empty);
    let path = format!("/api/v1/namespaces/told/events?watch=1&resourceVersion={version}&timeoutSeconds=1");
    let seen = server.kubectl(&format!("get --raw {path}"));
    assert!(seen.contains(r#""type":"DELETED""#), "{seen}");
}
