//! Every dimension at its limit: one command, one code, the numbers that say why.

use families::orgs::dimensions::Dimension;
use serde_json::{Value, json};

use super::{ENV, done, exceeded, limit, send, shop, usage};

#[tokio::test]
async fn each_dimension_refuses_with_its_numbers() {
    let server = shop().await;
    done(&server, "PUT /v1/nodes/n1", json!({"allocatable_memory_bytes": 1_i64 << 34, "cpu_cores": 4})).await;
    done(&server, &format!("POST {ENV}/deploys"), json!({"release": 1})).await;
    let id = |value: Value| value["id"].as_str().unwrap().to_owned();
    let instance = json!({"app": "shop", "env": "prod", "process_type": "web", "node": "n1"});
    let instance = id(done(&server, "POST /v1/orgs/acme/instances", instance).await);
    let volume = id(done(&server, "POST /v1/orgs/acme/volumes", json!({"size_bytes": 1_i64 << 30})).await);
    let snapshots = format!("POST /v1/orgs/acme/volumes/{volume}/snapshots");
    let snapshot = id(done(&server, &snapshots, Value::Null).await);
    let status = format!("PUT /v1/orgs/acme/snapshots/{snapshot}/status");
    done(&server, &status, json!({"status": "succeeded"})).await;
    let (scale, exec) = (format!("PUT {ENV}/scale"), format!("POST /v1/orgs/acme/instances/{instance}/exec"));
    let three = json!({"scales": [{"process_type": "web", "desired": 3}]});
    let route = (format!("POST {ENV}/routes"), json!({"hostname": "a.example.com"}));
    let new_volume = ("POST /v1/orgs/acme/volumes".to_owned(), json!({"size_bytes": 1_i64 << 30}));
    // In the order of the dimensions: a command, what is used, and what it asks for.
    let unit = 192_i64 << 20;
    let rows: [((String, Value), Value, Value); 17] = [
        ((scale.clone(), three.clone()), json!(1), json!(2)),
        ((scale.clone(), three.clone()), json!(unit), json!(2 * unit)),
        ((scale, three), json!(0.5), json!(1)),
        (("POST /v1/orgs/acme/apps/shop/envs".into(), json!({"name": "test"})), json!(1), json!(1)),
        (("POST /v1/orgs/acme/apps".into(), json!({"name": "blog"})), json!(1), json!(1)),
        (route.clone(), json!(0), json!(1)),
        (route.clone(), json!(0), json!(1)),
        ((format!("POST {ENV}/networking/ipv4"), Value::Null), json!(0), json!(1)),
        (route, json!(0), json!(1)),
        (new_volume.clone(), json!(1), json!(1)),
        (new_volume, json!(1_i64 << 30), json!(1_i64 << 30)),
        (
            (format!("POST {ENV}/volume-attachments"), json!({"volume": volume, "mount_path": "/data"})),
            json!(0),
            json!(1),
        ),
        ((snapshots, Value::Null), json!(0), json!(1)),
        ((format!("POST /v1/orgs/acme/volumes/{volume}/restore"), json!({"snapshot": snapshot})), json!(0), json!(1)),
        ((format!("GET {ENV}/logs/stream"), Value::Null), json!(0), json!(1)),
        ((exec.clone(), Value::Null), json!(0), json!(1)),
        ((exec, Value::Null), json!(0), json!(1)),
    ];
    for (dimension, ((line, body), used, requested)) in Dimension::ALL.into_iter().zip(rows) {
        let name = dimension.name();
        limit(&server, name, json!(0)).await;
        let said = exceeded(&server, &line, body.clone()).await;
        assert_eq!(said, json!([name, 0, used, requested]), "{line}");
        let whole = send(&server, &line, body).await;
        let details = &whole.value["details"];
        assert_eq!(details["limit_source"], "override", "{line}: {details}");
        let key = if dimension == Dimension::SnapshotsPerVolume { json!(volume) } else { Value::Null };
        assert_eq!(details["key"], key, "{line}: {details}");
        assert_eq!(details["violations"].as_array().map(Vec::len), Some(1), "{line}: {details}");
        if dimension != Dimension::SnapshotsPerVolume {
            assert_eq!(usage(&server, name).await, used, "{line}: a refusal takes nothing");
        }
        done(&server, &format!("DELETE /v1/orgs/acme/quotas/{name}"), json!({"reason": "next"})).await;
    }
}
