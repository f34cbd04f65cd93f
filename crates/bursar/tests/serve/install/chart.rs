//! The chart says what `bursar manifests` prints, refuses what cannot work, and starts the operator with options that it has.

use super::said as said_of;
use super::*;

/// Without what says who made an object.
fn said_by_nobody(mut objects: Vec<Value>) -> BTreeMap<(String, String), Value> {
    for object in &mut objects {
        let labels = object["metadata"]["labels"].as_object_mut().expect("labels");
        labels.remove("helm.sh/chart");
        assert!(labels.remove("app.kubernetes.io/managed-by").is_some());
    }
    by_name(objects)
}

/// With these values, which are YAML, and files of values.
fn render(values: &str, files: &[PathBuf]) -> Said {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("values.yaml");
    std::fs::write(&path, values).expect("writes");
    let files: String = files.iter().map(|file| format!(" -f {}", file.display())).collect();
    helm(folder.path(), &format!("template bursar CHART --namespace {NAMESPACE} -f {}{files}", path.display()))
}

fn rendered(values: &str) -> Vec<Value> {
    let said = render(values, &[]);
    assert!(said.ok, "{values}\n{}", said.err);
    objects(&said.out)
}

#[test]
fn manifests_and_chart_say_the_same() {
    for (values, options) in [
        ("", ""),
        ("families: [capsule]", "--families capsule"),
        ("families: [kubernetes]", "--families kubernetes"),
        ("exempt: [kube-system, cni]", "--exempt kube-system,cni,quota-system"),
        ("image: {repository: 'example.com/bursar', tag: v2}", "--image example.com/bursar:v2"),
        ("store: {kind: etcd, etcd: {address: 'etcd://a:2379,b:2379/x'}}", "--store etcd://a:2379,b:2379/x"),
        (
            "store: {kind: etcd, etcd: {address: 'etcds://a:2379', tlsSecret: tls}}\nreplicas: 5",
            "--store etcds://a:2379 --etcd-secret tls --replicas 5",
        ),
    ] {
        let printed = manifests(options);
        assert!(printed.ok, "{options}: {}", printed.err);
        let (ours, charts) = (said_by_nobody(objects(&printed.out)), said_by_nobody(rendered(values)));
        assert_eq!(ours.keys().collect::<Vec<_>>(), charts.keys().collect::<Vec<_>>(), "{options}");
        for (name, ours) in &ours {
            assert_eq!(*ours, charts[name], "{options}: {name:?}");
        }
    }
    // What is deleted in the order in which it is printed leaves nobody waiting for a webhook that is gone, or is written again.
    let kinds: Vec<Value> = objects(&manifests("").out).into_iter().map(|object| object["kind"].clone()).collect();
    let place = |kind: &str| kinds.iter().rposition(|one| one == kind).expect("one of this kind");
    assert!(place("ClusterRoleBinding") < place("ValidatingWebhookConfiguration"), "{kinds:?}");
    assert!(
        place("ValidatingWebhookConfiguration") < place("Service") && place("Service") < place("Deployment"),
        "{kinds:?}"
    );
    assert_eq!(
        objects(&manifests("--namespace other").out)
            .iter()
            .filter(|one| one["metadata"]["namespace"] == "other")
            .count(),
        6
    );
}

#[test]
fn the_chart_is_clean_with_all_values_and_its_operator_understands_what_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut linted = vec![String::new()];
    linted.extend(values_files().iter().map(|file| format!(" -f {}", file.display())));
    for files in linted {
        // The address is left to whoever installs: without it a chart over etcd says so.
        let said = helm(folder.path(), &format!("lint --strict CHART{files}"));
        assert!(said.ok, "{files}: {}{}", said.out, said.err);
    }
    for file in values_files() {
        let said = render("", std::slice::from_ref(&file));
        assert!(said.ok, "{}: {}", file.display(), said.err);
        let objects = by_name(objects(&said.out));
        let deployment = &objects[&("Deployment".into(), "bursar".into())];
        let arguments = items(deployment, "/spec/template/spec/containers/0/args");
        let arguments = arguments.into_iter().map(|one| one.as_str().expect("a text").to_owned());
        let arguments: Vec<String> = arguments.collect();
        // The command line is read to its end before help is given.
        let told = said_of(Command::new(env!("CARGO_BIN_EXE_bursar")).args(&arguments).arg("--help"));
        assert!(told.ok && told.out.contains("--exempt"), "{arguments:?}: {}", told.err);
    }
}

#[test]
fn what_cannot_work_is_refused_with_a_word_about_it() {
    for (values, expected) in [
        ("families: [datum]", "families"),
        ("families: []", "families"),
        ("replicas: 2", "replicas"),
        ("replicas: 0", "replicas"),
        ("store: {kind: paper}", "store/kind"),
        ("store: {kind: etcd}", "store.etcd.address"),
        ("store: {kind: etcd, etcd: {address: 'redis://x'}}", "address"),
        ("store: {kind: etcd, etcd: {address: 'etcds://x'}}", "tlsSecret"),
        ("store: {kind: etcd, etcd: {address: 'etcd://x', addressSecret: {name: store}}}", "only one of them"),
        ("webhook: {port: 443}", "port"),
        ("webhook: {reach: pigeon}", "reach"),
        ("webhook: {reach: podAddress, tlsSecret: tls}", "reach to service"),
        ("networkPolicy: {from: [{}]}", "from"),
        ("rbac: {counted: [{apiGroups: [apps], resources: []}]}", "resources"),
        ("rbac: {counted: [{apiGroups: [apps], resources: [x], verbs: [delete]}]}", "verbs"),
        ("exempt: ['Not A Name']", "exempt"),
        ("imaeg: {tag: x}", "imaeg"),
    ] {
        let said = render(values, &[]);
        assert!(!said.ok && said.err.contains(expected), "{values}: {}{}", said.out, said.err);
    }
    for (options, expected) in [
        ("--families datum", "\"datum\" is not among capsule, kubernetes"),
        ("--replicas 3", "one process's at a time"),
        ("--replicas 0", "1 to 9"),
        ("--store redis://x", "neither \"folder\" nor"),
        ("--store etcd://", "neither \"folder\" nor"),
        ("--store etcds://x", "goes with --etcd-secret"),
        ("--store etcd://x --etcd-secret y", "goes with --etcd-secret"),
        ("--store etcd://user:secret@x", "a password has no place"),
        ("--etcd-secret y", "goes with an etcds:// store"),
        ("--namespace Not/A/Name", "no name that Kubernetes takes"),
        ("--namespace ''", "no name that Kubernetes takes"),
        ("--exempt a,-b", "no name that Kubernetes takes"),
    ] {
        let mut words = words(options);
        if options.ends_with("''") {
            words.push(String::new());
        }
        let said = said_of(Command::new(env!("CARGO_BIN_EXE_bursar")).arg("manifests").args(words));
        assert!(!said.ok && said.out.is_empty() && said.err.contains(expected), "{options}: {}{}", said.out, said.err);
    }
}

#[test]
fn rights_are_given_for_what_is_switched_on_and_nothing_is_written_by_a_wildcard() {
    let rules = |objects: Vec<Value>| -> Vec<Value> {
        let roles = objects.into_iter().filter(|object| object["kind"] == "ClusterRole");
        roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()).collect()
    };
    let mut values: Vec<Vec<Value>> = vec![objects(&manifests("").out)];
    for file in values_files() {
        values.push(objects(&render("", &[file]).out));
    }
    for rule in values.into_iter().flat_map(rules) {
        let verbs = items(&rule, "/verbs");
        let reads = verbs.iter().all(|verb| ["get", "list", "watch"].contains(&verb.as_str().unwrap_or_default()));
        let names_all = items(&rule, "/resources").iter().chain(&items(&rule, "/apiGroups")).any(|one| **one == "*");
        assert!(reads || !names_all, "{rule}");
        // What a pool keeps in a namespace goes when the namespace leaves the pool.
        let keeps = items(&rule, "/resources").iter().all(|one| **one == "resourcequotas");
        assert!(!verbs.iter().any(|verb| **verb == "*" || (**verb == "delete" && !keeps)), "{rule}");
    }
    for (family, group, other) in [
        ("capsule", "capsule.clastix.io", "quota.openshift.io"),
        ("kubernetes", "quota.openshift.io", "capsule.clastix.io"),
    ] {
        let text = manifests(&format!("--families {family}")).out;
        assert!(text.contains(group) && !text.contains(other), "{family}");
    }
    let definitions = objects(&manifests("--definitions --families capsule").out);
    let names: Vec<&str> = definitions.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    let own = ["customquotas", "globalcustomquotas", "resourcepools", "resourcepoolclaims"];
    assert_eq!(names, own.map(|one| format!("{one}.capsule.clastix.io")));
}

#[test]
fn versions_of_chart_program_and_image_are_the_same() {
    let chart: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(at("deploy/chart/Chart.yaml")).expect("a chart"))
            .expect("YAML");
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    // Everything that can be said is in the schema, and the other way round.
    let values: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(at("deploy/chart/values.yaml")).expect("values"))
            .expect("YAML");
    let schema = std::fs::read_to_string(at("deploy/chart/values.schema.json")).expect("a schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        keys.retain(|key| key != "global");
        keys.sort();
        keys
    };
    assert_eq!(keys(&values), keys(&schema["properties"]));
    assert_eq!(
        keys(&values["store"]["etcd"]),
        keys(&schema["properties"]["store"]["properties"]["etcd"]["properties"])
    );
    assert_eq!(
        keys(&values["store"]["folder"]),
        keys(&schema["properties"]["store"]["properties"]["folder"]["properties"])
    );
}
