//! Getting more than a quota allows: by numbers that are not amounts, by moving, by hiding, by leaving.

use crate::land::Land;

const PODS: &str = r#"
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"overhead": {"cpu": "-1"}, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}} -> 403|422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"overhead": {"cpu": "1m"}, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}} -> 403|422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1"}}}]}} -> 422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "-5"}}}], "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}} -> 422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"resources": {"requests": {"cpu": "1m"}}, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}} -> 422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"resources": {"requests": {"cpu": "-2"}}, "containers": [{"name": "c", "image": "i"}]}} -> 422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}} -> 422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1e99"}}}]}} -> 400|403|422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "NaN"}}}]}} -> 400|422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1.5"}}}]}} -> 403 exceeded quota
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}} -> 403 must specify
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}], "ephemeralContainers": [{"name": "e", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}} -> 422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}, "status": {"phase": "Succeeded"}} -> 403 exceeded quota
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p", "deletionTimestamp": "2020-01-01T00:00:00Z"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}} -> 403 exceeded quota
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "p"}, "spec": {"runtimeClassName": "no-such", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}} -> 403|422
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "400m"}}}]}} -> 201
edit PATCH /api/v1/namespaces/team-a/pods/one/resize merge {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}} -> 403 exceeded quota
edit PATCH /api/v1/namespaces/team-a/pods/one/resize merge {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-3"}}}]}} -> 422
edit PATCH /api/v1/namespaces/team-a/pods/one/resize merge {"spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}} -> 403|422
edit PATCH /api/v1/namespaces/team-a/pods/one/resize merge {"spec": {"resources": {"requests": {"cpu": "-1"}}}} -> 422
edit PATCH /api/v1/namespaces/team-a/pods/one/resize merge {"spec": {"resources": {"requests": {"cpu": "1m"}}}} -> 422
edit PATCH /api/v1/namespaces/team-a/pods/one merge {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}} -> 422
edit PATCH /api/v1/namespaces/team-a/pods/one merge {"kind": "ConfigMap"} -> 400|409|422
edit PATCH /api/v1/namespaces/team-a/pods/one patch [{"op": "replace", "path": "/kind", "value": "Secret"}] -> 400|409|422
edit PATCH /api/v1/namespaces/team-a/pods/one patch [{"op": "replace", "path": "/apiVersion", "value": "v9"}] -> 400|409|422
edit PUT /api/v1/namespaces/team-a/pods/one {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one"}} -> 400
edit PATCH /api/v1/namespaces/team-a/pods/one/status merge {"status": {"phase": "Failed"}} -> 403
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "two"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "400m"}}}]}} -> 201
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"name": "three"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}} -> 403 exceeded quota
edit POST /api/v1/namespaces/team-a/pods?dryRun=All {"metadata": {"name": "three"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}} -> 403 exceeded quota
edit POST /api/v1/namespaces/team-a/pods {"metadata": {"generateName": "three-"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}} -> 403 exceeded quota
edit PATCH /api/v1/namespaces/team-a/pods/three?fieldManager=m apply {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "three"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}} -> 403 exceeded quota
"#;

const OTHERS: &str = r#"
edit PATCH /api/v1/namespaces/team-a/persistentvolumeclaims/volume merge {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "other"}}} -> 403|422
edit PATCH /api/v1/namespaces/team-a/persistentvolumeclaims/volume merge {"spec": {"storageClassName": "other"}} -> 422
edit PATCH /api/v1/namespaces/team-a/persistentvolumeclaims/volume merge {"spec": {"resources": {"requests": {"storage": "2Gi"}}}} -> 403|422
edit PATCH /api/v1/namespaces/team-a/persistentvolumeclaims/volume merge {"spec": {"resources": {"requests": {"storage": "1Mi"}}}} -> 403|422
edit PATCH /api/v1/namespaces/team-a/persistentvolumeclaims/volume merge {"spec": {"resources": {"requests": {"storage": "-1Gi"}}}} -> 403|422
edit POST /api/v1/namespaces/team-a/persistentvolumeclaims {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "-5Gi"}}}} -> 422
edit POST /api/v1/namespaces/team-a/persistentvolumeclaims {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}}} -> 422
edit POST /api/v1/namespaces/team-a/persistentvolumeclaims {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "11Gi"}}}} -> 403 exceeded quota
edit POST /api/v1/namespaces/team-a/services {"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "healthCheckNodePort": 30123, "ports": [{"port": 80}]}} -> 422
edit POST /api/v1/namespaces/team-a/services {"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30123}]}} -> 422
edit POST /api/v1/namespaces/team-a/services {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}} -> 403 exceeded quota
edit POST /apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some", "count": 5}}]}}} -> 422
edit POST /apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 5}, "firstAvailable": [{"name": "x", "deviceClassName": "gpu", "count": 1}]}]}}} -> 422
edit POST /apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": -5}}]}}} -> 422
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "m"}, "data": {"disk": "11"}} -> 403 exceeds limit
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "m"}, "data": {"disk": "-11"}} -> 403 greater than or equal to 0
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "m"}, "data": {"disk": "100 -100"}} -> 403
edit POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "m"}, "data": {"disk": "plenty"}} -> 403
edit PATCH /api/v1/namespaces/team-a/configmaps/own merge {"data": {"disk": "11"}} -> 403 exceeds limit
star PATCH /apis/capsule.clastix.io/v1beta2/namespaces/team-a/customquotas/disks merge {"spec": {"limit": "-1"}} -> 422
"#;

const MOVING: &str = r#"
star PATCH /api/v1/namespaces/team-a merge {"metadata": {"labels": {"tier": null}}} -> 403
star PATCH /api/v1/namespaces/team-a merge {"metadata": {"labels": {"tier": "silver"}}} -> 403
star PATCH /api/v1/namespaces/team-a patch [{"op": "remove", "path": "/metadata/labels/tier"}] -> 403
star PATCH /api/v1/namespaces/team-a?fieldManager=m&force=true apply {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": {"tier": "silver"}}} -> 403
star PUT /api/v1/namespaces/team-a {"metadata": {"name": "team-a"}} -> 403
star POST /apis/capsule.clastix.io/v1beta2/namespaces/team-a/resourcepoolclaims {"metadata": {"name": "c"}, "spec": {"pool": "shared", "claim": {"services": "-4"}}} -> 422
star POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/team-a/subnamespaceanchors {"metadata": {"name": "a.b"}} -> 422
# An anchor with the name of a namespace that is there is an anchor without a namespace: nothing happens to that one.
star POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/team-a/subnamespaceanchors {"metadata": {"name": "victim"}} -> 201|403|409|422
star DELETE /apis/hnc.x-k8s.io/v1alpha2/namespaces/team-a/subnamespaceanchors/victim -> 200|404
"#;

const DECOYS: &str = r#"
# Whoever may write quotas in a namespace may write labels on them. What a pool keeps is known by its name.
star POST /api/v1/namespaces/team-a/resourcequotas {"metadata": {"name": "zz", "labels": {"projectcapsule.dev/pool": "shared", "projectcapsule.dev/managed-by": "controller"}}, "spec": {"hard": {"services": "99"}}} -> 201
star PATCH /api/v1/namespaces/team-a/resourcequotas/capsule-pool-shared merge {"metadata": {"labels": null, "ownerReferences": null}, "spec": {"hard": {"services": "99"}}} -> 200
star POST /api/v1/namespaces/team-a/services {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}} -> 403 exceeded quota: capsule-pool-shared
"#;

/// The kept quota is marked as the pool's again, and the decoy is nobody's.
async fn decoys(land: &mut Land) {
    land.play(DECOYS).await;
    let quotas = "/api/v1/namespaces/team-a/resourcequotas";
    let owner = |quota: &serde_json::Value| quota["metadata"]["ownerReferences"][0]["name"].clone();
    land.until(&format!("{quotas}/capsule-pool-shared"), |kept| {
        kept["metadata"]["labels"]["projectcapsule.dev/pool"] == "shared" && owner(kept) == "shared"
    })
    .await;
    land.until(&format!("{quotas}/zz"), |decoy| owner(decoy).is_null()).await;
}

#[tokio::test]
async fn nobody_gets_more_than_his_quota() {
    let mut land = Land::start().await;
    land.play(PODS).await;
    land.play(OTHERS).await;
    land.play(MOVING).await;
    decoys(&mut land).await;
    assert!(land.end().await >= 61, "a table was cut short");
}
