//! `bursar migrate capsule-tenant` against the binary, with the tenant of Capsule's documentation.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::Server;

/// Capsule's Tenant as far as its quotas go. The kind is Capsule's own, so the test brings it.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tenants.capsule.clastix.io}
spec:
  group: capsule.clastix.io
  scope: Cluster
  names: {plural: tenants, singular: tenant, kind: Tenant, listKind: TenantList, shortNames: [tnt]}
  versions:
  - name: v1beta2
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              owners:
                type: array
                items: {type: object, x-kubernetes-preserve-unknown-fields: true}
              preventDeletion: {type: boolean}
              resourceQuotas:
                type: object
                properties:
                  scope: {type: string, enum: [Tenant, Namespace], default: Tenant}
                  items:
                    type: array
                    items:
                      type: object
                      properties:
                        hard:
                          type: object
                          additionalProperties: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
                        scopes: {type: array, items: {type: string}}
          status:
            type: object
            properties:
              namespaces: {type: array, items: {type: string}}
              size: {type: integer}
              state: {type: string}
";

const TENANT: &str = r#"
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: migration, labels: {kubernetes.io/metadata.name: migration}}
spec:
  owners: [{kind: User, name: bob, clusterRoles: [admin, capsule-namespace-deleter]}]
  resourceQuotas:
    scope: Tenant
    items:
    - hard: {limits.cpu: "2", limits.memory: 2Gi, requests.cpu: "2", requests.memory: 2Gi}
    - hard: {pods: "7"}
"#;

/// What the dry run prints for it.
const MANIFESTS: &str = include_str!("migrate.yaml");

fn migrate(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(["migrate", "capsule-tenant"]).args(arguments).env("KUBECONFIG", server.kubeconfig());
    command.output().expect("bursar runs")
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn works(server: &Server, arguments: &[&str]) -> String {
    let output = migrate(server, arguments);
    let (out, err) = said(&output);
    assert!(output.status.success(), "{arguments:?}\n{out}{err}");
    out
}

fn fails(server: &Server, arguments: &[&str]) -> String {
    let output = migrate(server, arguments);
    let (out, err) = said(&output);
    assert!(!output.status.success(), "{arguments:?} should have failed\n{out}{err}");
    err
}

/// A tenant's namespace as Capsule keeps it: labelled, owned, with a ResourceQuota for each item.
fn namespace(server: &Server, tenant: &str, name: &str, hard: &[Value]) {
    let uid = server.kubectl(&format!("get tenant {tenant} -o jsonpath={{.metadata.uid}}"));
    let owner = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": tenant, "uid": uid});
    let metadata =
        json!({"name": name, "labels": {"capsule.clastix.io/tenant": tenant}, "ownerReferences": [owner.clone()]});
    let mut items = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})];
    for (at, hard) in hard.iter().enumerate() {
        items.push(json!({
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {
                "name": format!("capsule-{tenant}-{at}"),
                "namespace": name,
                "labels": {"capsule.clastix.io/tenant": tenant, "capsule.clastix.io/resource-quota": at.to_string()},
                "ownerReferences": [owner.clone()],
            },
            "spec": {"hard": hard},
        }));
    }
    let documents: Vec<String> = items.iter().map(Value::to_string).collect();
    server.kubectl_with("apply -f -", &documents.join("\n---\n"));
}

fn list_namespaces(server: &Server, tenant: &str, names: &[&str]) {
    let patch = json!({"status": {"namespaces": names, "size": names.len(), "state": "Active"}});
    server.kubectl(&format!("patch tenant {tenant} --subresource=status --type=merge -p '{patch}'"));
}

fn pods(server: &Server, namespace: &str, count: usize) {
    for at in 0..count {
        let resources = json!({"cpu": "125m", "memory": "128Mi"});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{at}"), "namespace": namespace},
            "spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": resources.clone(), "limits": resources}},
            ]},
        });
        server.kubectl_with("apply -f -", &pod.to_string());
    }
    let used = format!("-n {namespace} get quota -o jsonpath={{.items[*].status.used.pods}}");
    server.until(&used, |out| out.trim() == count.to_string());
}

#[test]
fn a_tenant_is_migrated_whole_and_once() {
    let server = Server::start();
    server.kubectl_with("apply -f -", DEFINITION);
    server.kubectl("wait crd/tenants.capsule.clastix.io --for=condition=Established --timeout=30s");
    server.kubectl_with("apply -f -", TENANT);
    let compute = json!({"limits.cpu": "2", "limits.memory": "2Gi", "requests.cpu": "2", "requests.memory": "2Gi"});
    let hard = [compute, json!({"pods": "7"})];
    let names = ["migration-dev", "migration-prod", "migration-test"];
    for name in names {
        namespace(&server, "migration", name, &hard);
    }
    list_namespaces(&server, "migration", &names);
    pods(&server, "migration-dev", 3);
    pods(&server, "migration-prod", 1);
    server.until("-n migration-test get quota capsule-migration-1 -o jsonpath={.status.used.pods}", |out| out == "0");

    // A dry run changes nothing and always says the same, from the server and from files.
    assert_eq!(works(&server, &[]), MANIFESTS);
    assert_eq!(works(&server, &["migration"]), MANIFESTS);
    let file = server.folder.join("tenants.yaml");
    let listed = server.kubectl("get tenants -o yaml") + "\n---\n" + &server.kubectl("get resourcequotas -A -o json");
    std::fs::write(&file, listed).expect("writes");
    let from_file = ["-f", file.to_str().expect("a path")];
    assert_eq!(works(&server, &from_file), MANIFESTS);
    assert_eq!(server.kubectl("get resourcepools,resourcepoolclaims -A -o name"), "");

    let told = works(&server, &["--apply"]);
    for line in [
        "resourcepoolclaim migration-dev/migration-0 created",
        "resourcepool migration-1 created",
        "  4 claims are granted, 4 of them in use",
        "  pool migration-1 has what the tenant has: pods=7",
        "  none of its 3 namespaces is allowed less than it uses",
        "kubectl patch tenant migration --type=json",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let quota = server.kubectl("-n migration-dev get quota capsule-pool-migration-0 -o json");
    let quota: Value = serde_json::from_str(&quota).expect("JSON");
    let expected =
        json!({"limits.cpu": "375m", "limits.memory": "384Mi", "requests.cpu": "375m", "requests.memory": "384Mi"});
    assert_eq!((&quota["spec"]["hard"], &quota["status"]["used"]), (&expected, &expected));

    // Once more: nothing to do, and nothing is undone by usage that has changed since.
    server.kubectl("-n migration-dev delete pod p2 --grace-period=0 --force --wait=true");
    server.until("-n migration-dev get quota capsule-migration-1 -o jsonpath={.status.used.pods}", |out| out == "2");
    let again = works(&server, &["--apply"]);
    assert!(!again.contains("created") && !again.contains("configured") && again.contains("Verified"), "{again}");

    server.kubectl("patch tenant migration --type=json -p '[{\"op\":\"remove\",\"path\":\"/spec/resourceQuotas\"}]'");
    assert_eq!(works(&server, &["--apply"]), "Nothing to migrate.\n");
}

#[test]
fn what_cannot_be_migrated_whole_is_refused_or_taken_back() {
    let server = Server::start();
    assert!(fails(&server, &[]).contains("the server has no tenants.capsule.clastix.io; give their manifests with -f"));
    server.kubectl_with("apply -f -", DEFINITION);
    server.kubectl("wait crd/tenants.capsule.clastix.io --for=condition=Established --timeout=30s");
    server.kubectl_with("apply -f -", &TENANT.replace("migration", "wind"));
    let hard = [json!({"requests.cpu": "2"}), json!({"pods": "7"})];
    namespace(&server, "wind", "wind-a", &hard[..1]);
    list_namespaces(&server, "wind", &["wind-a", "wind-b"]);
    let why = fails(&server, &["--apply"]);
    for part in [
        "nothing was changed:",
        "tenant wind: namespace wind-b is in its status.namespaces and has no label capsule.clastix.io/tenant=wind",
        "tenant wind: namespace wind-a has no ResourceQuota capsule-wind-1",
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    assert!(fails(&server, &["sun"]).contains("there is no tenant \"sun\""));

    // The file says that a namespace belongs to the tenant, its labels do not: its claim is never granted.
    server.kubectl("create namespace stray");
    let stray = json!({
        "kind": "List",
        "items": [
            {"kind": "Tenant", "metadata": {"name": "stray"}, "status": {"namespaces": ["stray"]},
             "spec": {"resourceQuotas": {"items": [{"hard": {"pods": "4"}}]}}},
            {"kind": "ResourceQuota", "metadata": {"name": "capsule-stray-0", "namespace": "stray"},
             "status": {"used": {"pods": "1"}}},
        ],
    });
    let file = server.folder.join("stray.json");
    std::fs::write(&file, stray.to_string()).expect("writes");
    let file = file.to_str().expect("a path");
    let why = fails(&server, &["-f", file, "--apply", "--timeout", "2"]);
    assert!(why.contains("not as it should be after 2 seconds: claim stray/stray-0: "), "{why}");
    assert!(why.contains("Everything this run made was taken back"), "{why}");
    assert_eq!(server.kubectl("get resourcepools,resourcepoolclaims -A -o name"), "");

    // Somebody else's pool is not taken over.
    let pool = "{apiVersion: capsule.clastix.io/v1beta2, kind: ResourcePool, metadata: {name: stray-0}, \
                spec: {quota: {hard: {pods: '9'}}}}";
    server.kubectl_with("apply -f -", pool);
    let why = fails(&server, &["-f", file, "--apply"]);
    assert!(why.contains("there is a ResourcePool stray-0 that this migration did not make"), "{why}");
}
