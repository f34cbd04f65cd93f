//! The tours, played by the same binary that users have.

use std::process::Command;

#[test]
fn every_tour_plays_to_its_end() {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .arg("tour")
        .env_remove("KUBECONFIG")
        .output()
        .expect("bursar tour runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("$ kubectl create -f 02-quota.yaml\n  resourcequota/compute created"), "{out}");
    assert!(out.contains("Custom quotas and resource pools\n================================"), "{out}");
    assert!(out.contains("One quota over many clusters\n==="), "{out}");
    assert!(out.contains("Definitions, grants and claims\n==="), "{out}");
    assert!(out.contains("Quotas of an organization\n==="), "{out}");
    assert!(out.contains("solar-pool   True    reconciled   False   claim is unused"), "{out}");
}

#[test]
fn the_tour_also_plays_with_real_kubectl() {
    let server = crate::harness::Server::start();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes");
    let file = |name: &str| folder.join(name).display().to_string();
    server.kubectl(&format!("create -f {}", file("01-namespace.yaml")));
    server.kubectl(&format!("create -f {}", file("02-quota.yaml")));
    server.kubectl(&format!("create -f {}", file("03-deployment.yaml")));
    server.kubectl(&format!("create -f {}", file("04-limit-range.yaml")));
    server.until("-n team-a get resourcequota compute -o jsonpath={.status.used.pods}", |out| out == "4");
    let described = server.kubectl("-n team-a describe resourcequota compute");
    for line in ["Resource         Used   Hard", "pods             4      10", "requests.memory  512Mi  1Gi"] {
        assert!(described.contains(line), "{described}");
    }
    let refused = server.kubectl_fails(&format!("create -f {}", file("05-pod.yaml")));
    assert!(refused.contains("exceeded quota: compute, requested: requests.cpu=400m"), "{refused}");
    // Whoever applies the folder is told of the one pod, and of nothing that is no manifest.
    let whole = server.kubectl_fails(&format!("apply -f {}", folder.display()));
    assert!(whole.contains("exceeded quota: compute") && !whole.contains("error validating"), "{whole}");
}

/// A newcomer applies a folder, and then the other, as its page says.
#[test]
fn the_examples_of_datum_are_applied_in_one_go() {
    let server = crate::harness::Server::start();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/datum");
    let applied = server.kubectl(&format!("apply -f {}", folder.display()));
    for made in ["claimcreationpolicy.quota.datumapis.com/instances created", "instance-abc123-claim created"] {
        assert!(applied.contains(made), "{applied}");
    }
    server.until("get crd instances.compute.datumapis.com -o jsonpath={.status.conditions[*].status}", |out| {
        out.contains("True") && !out.contains("False")
    });
    let instances = format!("apply -f {}", folder.join("instances").display());
    let refused = server.kubectl_fails(&instances);
    assert!(refused.contains("requested 999") && refused.matches("Error").count() == 1, "{refused}");
    assert_eq!(server.kubectl("-n proj-abc get instances -o name"), "instance.compute.datumapis.com/web\n");
    assert!(server.kubectl(&format!("apply -f {}", folder.display())).contains("shop unchanged"));
}

#[test]
fn an_unknown_tour_names_the_known_ones() {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar")).args(["tour", "nosuch"]).output().expect("bursar runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are: kubernetes, capsule, karmada, datum"));
}
