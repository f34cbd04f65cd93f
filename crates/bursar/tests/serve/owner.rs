//! What the owner of a server finds: default roles that come back, keys that others can check tokens with.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::harness::Server;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn default_roles_are_mended_at_start_unless_kept() {
    let mut server = Server::start();
    let without_rules = r#"--type=merge -p '{"rules":[]}'"#;
    server.kubectl(&format!("patch clusterrole system:basic-user {without_rules}"));
    server
        .kubectl("annotate --overwrite clusterrole system:discovery rbac.authorization.kubernetes.io/autoupdate=false");
    server.kubectl(&format!("patch clusterrole system:discovery {without_rules}"));
    server.kubectl(
        r#"patch clusterrolebinding system:basic-user --type=merge -p '{"subjects":[{"kind":"User","name":"own"}]}'"#,
    );
    server.stop_and_restart();
    let rules = |name: &str| json(&server.kubectl(&format!("get clusterrole {name} -o json")))["rules"].clone();
    assert_eq!(rules("system:basic-user").as_array().map(Vec::len), Some(2));
    assert_eq!(rules("system:discovery").as_array().map_or(0, Vec::len), 0, "its owner wants it so");
    let subjects = server.kubectl("get clusterrolebinding system:basic-user -o jsonpath={.subjects[*].name}");
    assert_eq!(subjects, "own system:authenticated", "what was added stays, what was lost is back");
    // A second start finds nothing to do.
    let version =
        |server: &Server| server.kubectl("get clusterrole system:basic-user -o jsonpath={.metadata.resourceVersion}");
    let before = version(&server);
    server.stop_and_restart();
    assert_eq!(version(&server), before);

    // The keys of tokens are published as OpenID Connect wants them.
    let discovery = json(&server.kubectl("get --raw /.well-known/openid-configuration"));
    assert_eq!(discovery["issuer"], "https://kubernetes.default.svc.cluster.local");
    assert!(discovery["jwks_uri"].as_str().is_some_and(|uri| uri.ends_with("/openid/v1/jwks")), "{discovery}");
    let keys = json(&server.kubectl("get --raw /openid/v1/jwks"));
    let token = server.kubectl("create token default");
    let head = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap_or_default()).expect("base64");
    let head = json(&String::from_utf8_lossy(&head));
    let key = &keys["keys"][0];
    assert_eq!((&key["kid"], &key["alg"]), (&head["kid"], &head["alg"]));
    let point = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap_or_default()).expect("base64").len();
    assert_eq!((point("x"), point("y")), (32, 32));
}
