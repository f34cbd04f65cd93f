//! Nobody is served for what is no more, whoever collects what it owned.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DeleteParams, PropagationPolicy};

use super::*;
use crate::harness::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_goes_with_its_object_however_that_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (process, client) = start(folder.path(), definition(CPU, "cores"), &[(CPU, "2")]).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), PROJECT);
    for name in ["granted", "orphaned", "deleted", "stays"] {
        let map = crate::object(json!({"metadata": {"name": name}}));
        maps.create(&PostParams::default(), &map).await.expect("an object");
        let mut spec = claim(&[(CPU, if name == "granted" { "2" } else { "1" })]);
        spec["resourceRef"] = json!({"kind": "ConfigMap", "name": name});
        create(&client, &claims(), name, spec).await.expect("a claim");
    }
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    maps.delete("granted", &orphan).await.expect("a deletion");
    maps.delete("orphaned", &orphan).await.expect("a deletion");
    maps.delete("deleted", &DeleteParams::default()).await.expect("a deletion");
    let gone = async {
        while maps.list(&ListParams::default()).await.expect("a list").iter().any(|map| map.name_any() == "orphaned") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it is let go of");
    edit(&client, &grants(), "g", limits(&[(CPU, "9")])).await;
    // Who has what it wants may be left behind. Who waited is not there to be granted anything.
    let left = api(&client, &claims()).list(&ListParams::default()).await.expect("a list");
    let left: Vec<String> = left.iter().map(|claim| format!("{} {}", claim.name_any(), phase(claim))).collect();
    assert_eq!(left, ["granted Granted/QuotaAvailable", "stays Granted/QuotaAvailable"]);
    used_becomes(&client, CPU, "3").await;
    assert_eq!(process.stop().await, Some(0));
}
