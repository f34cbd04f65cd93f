//! Reaching a neighbour: by paths, names, references, selectors and refusals.

use crate::land::Land;

const READING: &str = r#"
star GET /api/v1/namespaces/victim/secrets -> 403
star GET /api/v1/namespaces/victim/secrets/key -> 403
star GET /api/v1/namespaces/victim/secrets/no-such -> 403
star GET /api/v1/secrets -> 403
star GET /api/v1/secrets?fieldSelector=metadata.namespace=team-a -> 403
star GET /api/v1/secrets?fieldSelector=metadata.namespace%3Dteam-a,metadata.name%3Down -> 403
star GET /api/v1/watch/secrets -> 403|404
star GET /api/v1/secrets?watch=true&timeoutSeconds=1 -> 403
star GET /api/v1/namespaces/victim/secrets?watch=true&timeoutSeconds=1 -> 403
star GET /api/v1/namespaces/victim/pods/app/log -> 403
star GET /api/v1/namespaces/victim/pods/app/proxy/ -> 403
star GET /api/v1/namespaces/victim/services/x/proxy/ -> 403
star GET /api/v1/namespaces/team-a/../victim/secrets -> 400|403|404
star GET /api/v1/namespaces/team-a%2f..%2fvictim/secrets -> 400|403|404
star GET /api/v1/namespaces/team-a/secrets/..%2f..%2fvictim%2fsecrets%2fkey -> 400|403|404
star GET /api/v1/namespaces/victim%2fsecrets/key -> 400|403|404
star GET /api/v1/namespaces//victim/secrets -> 400|403|404
star GET /api/v1//namespaces/victim/secrets -> 400|403|404
star GET //api/v1/namespaces/victim/secrets -> 400|403|404
star GET /API/v1/namespaces/victim/secrets -> 403|404
star GET /api/v1/namespaces/VICTIM/secrets -> 403|404
star GET /api/v1/namespaces/victim%00/secrets -> 400|403|404
star GET /api/v1/namespaces/team-a/secrets?namespace=victim&limit=1&fieldSelector=metadata.namespace%3Dvictim -> 200
star GET /apis/capsule.clastix.io/v1beta2/namespaces/victim/quantityledgers -> 403
star GET /apis/quota.openshift.io/v1/namespaces/victim/appliedclusterresourcequotas -> 403
star GET /apis/hnc.x-k8s.io/v1alpha2/namespaces/victim/hierarchicalresourcequotas/tree -> 403
"#;

const WRITING: &str = r#"
star POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "x", "namespace": "victim"}} -> 400
star PUT /api/v1/namespaces/team-a/configmaps/own {"metadata": {"name": "private", "namespace": "victim"}} -> 400
star PUT /api/v1/namespaces/team-a/configmaps/own {"metadata": {"name": "other"}} -> 400
star PATCH /api/v1/namespaces/team-a/configmaps/own merge {"metadata": {"namespace": "victim"}} -> 400|409|422
star PATCH /api/v1/namespaces/team-a/configmaps/own merge {"metadata": {"name": "private"}} -> 400|409|422
star PATCH /api/v1/namespaces/team-a/configmaps/own patch [{"op": "replace", "path": "/metadata/namespace", "value": "victim"}] -> 400|409|422
star PATCH /api/v1/namespaces/team-a/configmaps/x?fieldManager=m apply {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "victim"}} -> 400
star POST /api/v1/namespaces/victim/configmaps {"metadata": {"name": "x"}} -> 403
star POST /api/v1/namespaces/victim/configmaps?dryRun=All {"metadata": {"name": "x"}} -> 403
star POST /api/v1/configmaps {"metadata": {"name": "x", "namespace": "team-a"}} -> 403|405
star DELETE /api/v1/configmaps -> 403|405
star DELETE /api/v1/namespaces/victim/configmaps -> 403
star DELETE /api/v1/namespaces/victim/configmaps/private -> 403
star DELETE /api/v1/namespaces/victim -> 403
star PATCH /api/v1/namespaces/victim merge {"metadata": {"labels": {"tier": null}}} -> 403
star PUT /api/v1/namespaces/victim/finalize {"metadata": {"name": "victim"}, "spec": {"finalizers": []}} -> 403
star PATCH /api/v1/namespaces/victim/pods/app/status merge {"status": {"phase": "Failed"}} -> 403
star POST /api/v1/namespaces/victim/pods/app/eviction {"metadata": {"name": "app"}} -> 403
star POST /api/v1/namespaces/victim/pods/app/binding {"metadata": {"name": "app"}, "target": {"name": "n"}} -> 403
star PATCH /api/v1/namespaces/victim/resourcequotas/theirs merge {"spec": {"hard": {"pods": "0"}}} -> 403
star POST /api/v1/namespaces/team-a/events {"metadata": {"name": "e", "namespace": "team-a"}, "involvedObject": {"kind": "Pod", "namespace": "victim", "name": "app"}} -> 422
star POST /apis/apps/v1/namespaces/team-a/deployments {"metadata": {"name": "d", "namespace": "victim"}} -> 400
"#;

/// What a refusal says is the same whether the thing is there or not.
async fn refusals_tell_nothing(land: &mut Land) {
    for (there, missing) in [
        ("/api/v1/namespaces/victim/secrets/key", "/api/v1/namespaces/absent/secrets/key"),
        ("/api/v1/namespaces/victim", "/api/v1/namespaces/absent"),
        ("/api/v1/namespaces/victim/serviceaccounts/robot", "/api/v1/namespaces/absent/serviceaccounts/robot"),
    ] {
        for method in ["GET", "DELETE"] {
            let there = land.attempt(("star", method, there, "", ""), "403").await;
            let missing = land.attempt(("star", method, missing, "", ""), "403").await;
            assert_eq!(there.replace("victim", "absent"), missing);
            assert!(!there.contains("zebra"), "{there}");
        }
    }
}

#[tokio::test]
async fn nobody_reaches_his_neighbour() {
    let mut land = Land::start().await;
    land.play(READING).await;
    land.play(WRITING).await;
    refusals_tell_nothing(&mut land).await;
    assert!(land.end().await >= 58, "a table was cut short");
}
