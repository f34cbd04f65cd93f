//! Tokens that nobody gave out, and claims that we never signed ourselves: nobody becomes an account that is not there.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use server::authn::{Accounts, BoundKind, DEFAULT_ISSUER, TokenSigner};

const NOW: u64 = 1_800_000_000;

/// One account, and one pod of it.
struct One;

impl Accounts for One {
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        (namespace == "team-a" && name == "ci").then(|| "u-1".to_owned())
    }

    fn bound_uid(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
        (kind == BoundKind::Pod && namespace == "team-a" && name == "p").then(|| "u-2".to_owned())
    }

    fn pod_account(&self, namespace: &str, name: &str) -> Option<String> {
        (namespace == "team-a" && name == "p").then(|| "ci".to_owned())
    }
}

/// The first byte: the rest is a whole token, or claims that are signed with the right key, or with another one.
pub fn check_bytes(bytes: &[u8]) {
    let &[form, ref rest @ ..] = bytes else { return };
    let (signer, key) = pair();
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let token = match form % 3 {
        0 => text.to_owned(),
        form => {
            let Ok(claims) = serde_json::from_str::<serde_json::Value>(text) else { return };
            let other = EncodingKey::from_ec_pem(new_key().as_bytes()).expect("a key");
            let key = if form == 1 { key } else { &other };
            let Ok(token) = encode(&Header::new(Algorithm::ES256), &claims, key) else { return };
            token
        }
    };
    if let Ok(identity) = signer.verify(&token, &[], &One, NOW) {
        assert_eq!(form % 3, 1, "a token that we did not sign holds");
        assert_eq!(&*identity.user, "system:serviceaccount:team-a:ci", "an account that is there");
    }
}

fn new_key() -> String {
    rcgen::KeyPair::generate().expect("a key").serialize_pem()
}

fn pair() -> &'static (TokenSigner, EncodingKey) {
    static PAIR: std::sync::OnceLock<(TokenSigner, EncodingKey)> = std::sync::OnceLock::new();
    PAIR.get_or_init(|| {
        let pem = new_key();
        let signer = TokenSigner::new(&pem, DEFAULT_ISSUER).expect("a signer");
        (signer, EncodingKey::from_ec_pem(pem.as_bytes()).expect("a key"))
    })
}
