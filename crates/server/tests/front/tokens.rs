//! Service account tokens: what is accepted, and the long list of what is not.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use server::authn::{
    Authenticator, Bound, BoundKind, DEFAULT_ISSUER, Mint, TOKEN_BYTES_MAX, TokenFile, TokenSigner, token_request,
    token_review,
};
use server::certs::Pki;

use crate::support::Known;

const NOW: u64 = 1_800_000_000;
const EXISTING: &str = "sa team-a/ci u-1\nsa team-a/other u-2\npod team-a/p p-1\nruns-as team-a/p ci
    pod team-a/q q-1\nruns-as team-a/q other\nsecret team-a/s s-1";

fn key() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    Pki::open(folder.path(), &[], NOW).expect("opens").token_key
}

fn authenticator(key: &str) -> Authenticator {
    let signer = TokenSigner::new(key, DEFAULT_ISSUER).expect("a signer");
    Authenticator::new(TokenFile::parse("static,bob,1").expect("parses"), signer, Arc::new(Known(EXISTING)))
}

fn mint(key: &str, issuer: &str, mint: Mint<'_>, now: u64) -> String {
    TokenSigner::new(key, issuer).expect("a signer").mint(&mint, now, "id-1").expect("a token").0
}

const CI: Mint<'static> =
    Mint { namespace: "team-a", name: "ci", uid: "u-1", audiences: &[], expiration_seconds: None, bound: None };

fn bearer(token: &str) -> HeaderMap {
    let value = format!("Bearer {token}").parse().expect("a header");
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

#[test]
fn a_good_token_is_its_service_account() {
    let key = key();
    let authenticator = authenticator(&key);
    let pod = Bound { kind: BoundKind::Pod, name: "p".into(), uid: "p-1".into() };
    let token = mint(&key, DEFAULT_ISSUER, Mint { bound: Some(&pod), ..CI }, NOW);
    // Twice: the second is answered from what was verified before.
    for at in [NOW, NOW + 3599] {
        let identity = authenticator.authenticate(None, &bearer(&token), at).expect("good");
        assert_eq!((identity.user.as_str(), identity.uid.as_str()), ("system:serviceaccount:team-a:ci", "u-1"));
        assert_eq!(identity.extra["authentication.kubernetes.io/pod-name"], ["p"]);
        assert_eq!(identity.extra["authentication.kubernetes.io/credential-id"], ["JTI=id-1"]);
    }
    assert!(authenticator.authenticate(None, &bearer(&token), NOW + 3600).is_err(), "remembered, but expired");
    assert!(authenticator.authenticate(None, &bearer(&token), NOW - 1).is_err(), "not valid yet");
}

#[test]
fn no_bad_token_is_accepted() {
    let key = key();
    let authenticator = authenticator(&key);
    let good = mint(&key, DEFAULT_ISSUER, CI, NOW);
    let parts: Vec<&str> = good.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("three parts") };
    let forge = |header: Value, claims: &str, signature: &str| {
        format!("{}.{claims}.{signature}", URL_SAFE_NO_PAD.encode(header.to_string()))
    };
    let mut other_claims: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("JSON");
    other_claims["sub"] = json!("system:serviceaccount:team-a:other");
    let other_claims = URL_SAFE_NO_PAD.encode(other_claims.to_string());
    let gone_pod = Bound { kind: BoundKind::Pod, name: "p".into(), uid: "p-0".into() };
    let gone_secret = Bound { kind: BoundKind::Secret, name: "x".into(), uid: "s-1".into() };
    let other_audience = ["vault".to_owned()];
    let mut flipped = signature.to_owned().into_bytes();
    flipped[10] = if flipped[10] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).expect("text");
    let cases = [
        ("empty", String::new()),
        ("whitespace", "  \t ".into()),
        ("two tokens", format!("{good} {good}")),
        ("oversize", "x".repeat(TOKEN_BYTES_MAX + 1)),
        ("oversize but well formed", format!("{header}.{}.{signature}", "A".repeat(TOKEN_BYTES_MAX))),
        ("not a token", "abc".into()),
        ("two parts", format!("{header}.{claims}")),
        ("four parts", format!("{good}.x")),
        ("no signature", format!("{header}.{claims}.")),
        ("changed signature", format!("{header}.{claims}.{flipped}")),
        ("changed claims", format!("{header}.{other_claims}.{signature}")),
        ("algorithm none", forge(json!({"alg": "none"}), claims, "")),
        ("symmetric algorithm", forge(json!({"alg": "HS256"}), claims, signature)),
        ("another algorithm", forge(json!({"alg": "RS256"}), claims, signature)),
        ("another key", mint(&self::key(), DEFAULT_ISSUER, CI, NOW)),
        ("another issuer", mint(&key, "https://elsewhere", Mint { audiences: &[DEFAULT_ISSUER.into()], ..CI }, NOW)),
        ("another audience", mint(&key, DEFAULT_ISSUER, Mint { audiences: &other_audience, ..CI }, NOW)),
        ("expired", mint(&key, DEFAULT_ISSUER, CI, NOW - 3600)),
        ("from the future", mint(&key, DEFAULT_ISSUER, CI, NOW + 10)),
        ("account recreated", mint(&key, DEFAULT_ISSUER, Mint { uid: "u-0", ..CI }, NOW)),
        ("account gone", mint(&key, DEFAULT_ISSUER, Mint { name: "gone", ..CI }, NOW)),
        ("account of another namespace", mint(&key, DEFAULT_ISSUER, Mint { namespace: "team-b", ..CI }, NOW)),
        ("bound pod recreated", mint(&key, DEFAULT_ISSUER, Mint { bound: Some(&gone_pod), ..CI }, NOW)),
        ("bound secret gone", mint(&key, DEFAULT_ISSUER, Mint { bound: Some(&gone_secret), ..CI }, NOW)),
        ("static, other case", "STATIC".into()),
        ("static, prefix", "stati".into()),
    ];
    assert!(authenticator.authenticate(None, &bearer(&good), NOW).is_ok());
    for (name, token) in &cases {
        assert!(authenticator.authenticate(None, &bearer(token), NOW).is_err(), "{name} was accepted");
        let review = token_review(&authenticator, &json!({"spec": {"token": token}}), NOW);
        assert_eq!(review["status"]["authenticated"], false, "{name}");
    }
    let mut twice = bearer(&good);
    twice.append(AUTHORIZATION, format!("Bearer {good}").parse().expect("a header"));
    assert!(authenticator.authenticate(None, &twice, NOW).is_err(), "two headers");
}

#[test]
fn token_reviews_answer_for_the_audiences_asked() {
    let key = key();
    let authenticator = authenticator(&key);
    let audiences = ["vault".to_owned(), "db".to_owned()];
    let token = mint(&key, DEFAULT_ISSUER, Mint { audiences: &audiences, ..CI }, NOW);
    let review = |token: &str, audiences: Value| {
        token_review(&authenticator, &json!({"spec": {"token": token, "audiences": audiences}}), NOW)["status"].take()
    };
    let status = review(&token, json!(["db", "mail"]));
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["db"])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:team-a:ci");
    assert_eq!(review(&token, Value::Null)["authenticated"], false);
    assert_eq!(review("static", Value::Null)["user"]["username"], "bob");
    assert_eq!(review("static", json!(["vault"]))["authenticated"], false);
}

#[test]
fn token_requests_are_checked_and_filled_in() {
    let key = key();
    let signer = TokenSigner::new(&key, DEFAULT_ISSUER).expect("a signer");
    let ask = |spec: Value| {
        token_request(&signer, &Known(EXISTING), ("team-a", "ci", "u-1"), &json!({"spec": spec}), NOW, "id")
            .map_err(|error| error.to_string())
    };
    let answer = ask(json!({})).expect("a token");
    assert_eq!(answer["status"]["expirationTimestamp"], "2027-01-15T09:00:00Z");
    assert_eq!(answer["spec"], json!({"audiences": [DEFAULT_ISSUER], "expirationSeconds": 3600}));
    let token = answer["status"]["token"].as_str().expect("a token");
    assert!(authenticator(&key).authenticate(None, &bearer(token), NOW).is_ok());
    let pod = |uid: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}});
    assert!(ask(pod("p-1")).is_ok() && ask(pod("")).is_ok());
    let cases = [
        (
            json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "q-1"}}),
            "cannot bind token for serviceaccount \"ci\" to pod running with different serviceaccount name.",
        ),
        (json!({"expirationSeconds": 599}), "may not specify a duration less than 10 minutes"),
        (json!({"expirationSeconds": -1}), "must be a whole number of seconds"),
        (json!({"expirationSeconds": 1_u64 << 33}), "may not specify a duration larger than 2^32 seconds"),
        (json!({"audiences": vec!["a"; 65]}), "must have at most 64 items"),
        (
            json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Shoe"}}),
            "cannot bind token for serviceaccount \"ci\"",
        ),
        (json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "x"}}), "pods \"x\" not found"),
        (pod("p-0"), "does not match the UID in record"),
    ];
    for (spec, expected) in cases {
        let error = ask(spec.clone()).expect_err("refused");
        assert!(error.contains(expected), "{spec}: {error}");
    }
}
