//! Service account tokens: made (TokenRequest) and verified here, ES256, with Kubernetes' claims.
//!
//! A token is good while its signature and dates are and while the account, and the object it was bound to, still
//! exist with the same uid: deleting the account revokes every token at once.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hashbrown::HashMap;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::token_file::key as digest_of;
use crate::identity::{Identity, service_account_user};
use crate::tls::CREDENTIAL_ID;

/// The issuer (and the API server's own audience) Kubernetes uses when nobody names another.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Kubernetes refuses to make shorter ones: clients renew at 80 % of the life time and must get the chance to.
pub const EXPIRATION_SECONDS_MIN: u64 = 600;
/// And longer ones: 2^32 seconds.
pub const EXPIRATION_SECONDS_MAX: u64 = 1 << 32;
pub const EXPIRATION_SECONDS_DEFAULT: u64 = 3600;
/// More audiences in one token only make it long.
pub const AUDIENCES_MAX: usize = 64;
/// Verified tokens remembered, by digest, because checking a signature costs more than answering most requests. When
/// full it starts over; that costs one signature check per live token.
const VERIFIED_MAX: usize = 8_192;

/// What the store knows; asked at every request with a service account token, so it must be answered from memory.
pub trait Accounts: Send + Sync {
    /// The uid of a service account that exists and is not being deleted.
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// The uid of an object that tokens can be bound to, if it exists.
    fn bound_uid(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<String>;
    /// The service account that a pod runs as, if the pod exists.
    fn pod_account(&self, namespace: &str, name: &str) -> Option<String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundKind {
    Pod,
    Secret,
    Node,
}

/// The object whose life a token shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub kind: BoundKind,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("not a token of this server")]
    Foreign,
    #[error("expired or not valid yet")]
    Date,
    #[error("not for this audience")]
    Audience,
    #[error("the service account or the object it is bound to is gone")]
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenRequestError {
    #[error("spec.expirationSeconds: Invalid value: {0}: may not specify a duration less than 10 minutes")]
    TooShort(u64),
    #[error("spec.expirationSeconds: Invalid value: {0}: may not specify a duration larger than 2^32 seconds")]
    TooLong(u64),
    #[error("spec.audiences: Too many: {0}: must have at most {AUDIENCES_MAX} items")]
    Audiences(usize),
    #[error("the token cannot be signed: {0}")]
    Sign(#[from] jsonwebtoken::errors::Error),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claims {
    #[serde(deserialize_with = "one_or_many")]
    aud: Vec<String>,
    exp: u64,
    iat: u64,
    nbf: u64,
    iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    jti: String,
    sub: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Private,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Private {
    namespace: String,
    serviceaccount: Reference,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Reference>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reference {
    name: String,
    uid: String,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(audience) => vec![audience],
        Either::Many(audiences) => audiences,
    })
}

/// Makes and verifies tokens with the server's key.
pub struct TokenSigner {
    issuer: String,
    signing: EncodingKey,
    verifying: DecodingKey,
    key_id: String,
    /// The point of the public key, as X9.62 writes it: 4, x, y.
    public_point: Vec<u8>,
    validation: Validation,
    /// What is only to be told apart by this server is sealed with it: nobody who has the seal learns what was sealed.
    seal: hmac::Key,
    /// Digest of a token whose signature held → its claims. Dates and existence are looked at every time.
    verified: Mutex<HashMap<[u8; 32], Arc<Verified>>>,
}

struct Verified {
    claims: Claims,
    identity: Arc<Identity>,
}

impl TokenSigner {
    /// `key_pem`: PKCS#8 PEM of an ECDSA P-256 key.
    pub fn new(key_pem: &str, issuer: &str) -> Result<TokenSigner, TokenSignerError> {
        let pair = KeyPair::from_pem_and_sign_algo(key_pem, &PKCS_ECDSA_P256_SHA256)?;
        let public_pem = pair.public_key_pem();
        let mut validation = Validation::new(Algorithm::ES256);
        // Dates, audience and issuer are compared below, against the time and audiences of the question.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        let key_id: String = digest_of(&public_pem)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(TokenSigner {
            issuer: issuer.to_owned(),
            signing: EncodingKey::from_ec_pem(key_pem.as_bytes())?,
            verifying: DecodingKey::from_ec_pem(public_pem.as_bytes())?,
            key_id,
            public_point: pair.public_key_raw().to_vec(),
            validation,
            seal: hmac::Key::new(hmac::HMAC_SHA256, &digest_of(&format!("bursar seal\n{key_pem}"))),
            verified: Mutex::default(),
        })
    }

    /// The public key, for whoever checks tokens without asking us.
    pub fn key_set(&self) -> Value {
        let part = |from: usize, to: usize| URL_SAFE_NO_PAD.encode(self.public_point.get(from..to).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256", "x": part(1, 33), "y": part(33, 65),
        }]})
    }

    pub fn seal(&self) -> &hmac::Key {
        &self.seal
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether a token for this audience is a token for the API server itself.
    pub fn is_own_audience(&self, audience: &str) -> bool {
        audience == self.issuer
    }

    /// Makes a token; returns it with its expiry in seconds since 1970. `id` is the token's own (a fresh uuid).
    pub fn mint(&self, request: &Mint<'_>, now: u64, id: &str) -> Result<(String, u64), TokenRequestError> {
        let seconds = request.expiration_seconds.unwrap_or(EXPIRATION_SECONDS_DEFAULT);
        if seconds < EXPIRATION_SECONDS_MIN {
            return Err(TokenRequestError::TooShort(seconds));
        }
        if seconds > EXPIRATION_SECONDS_MAX {
            return Err(TokenRequestError::TooLong(seconds));
        }
        if request.audiences.len() > AUDIENCES_MAX {
            return Err(TokenRequestError::Audiences(request.audiences.len()));
        }
        let audiences = match request.audiences {
            [] => vec![self.issuer.clone()],
            given => given.to_vec(),
        };
        let bound = |kind| {
            let bound = request.bound.filter(|bound| bound.kind == kind)?;
            Some(Reference { name: bound.name.clone(), uid: bound.uid.clone() })
        };
        let claims = Claims {
            aud: audiences,
            exp: now + seconds,
            iat: now,
            nbf: now,
            iss: self.issuer.clone(),
            jti: id.to_owned(),
            sub: service_account_user(request.namespace, request.name),
            kubernetes: Private {
                namespace: request.namespace.to_owned(),
                serviceaccount: Reference { name: request.name.to_owned(), uid: request.uid.to_owned() },
                pod: bound(BoundKind::Pod),
                secret: bound(BoundKind::Secret),
                node: bound(BoundKind::Node),
            },
        };
        let mut header = Header::new(Algorithm::ES256);
        header.typ = None;
        header.kid = Some(self.key_id.clone());
        Ok((encode(&header, &claims, &self.signing)?, claims.exp))
    }

    pub fn verify(
        &self,
        token: &str,
        audiences: &[String],
        accounts: &dyn Accounts,
        now: u64,
    ) -> Result<Arc<Identity>, TokenError> {
        let verified = self.verified(token)?;
        let claims = &verified.claims;
        if now >= claims.exp || now < claims.nbf {
            return Err(TokenError::Date);
        }
        let meant = match audiences {
            [] => claims.aud.iter().any(|audience| self.is_own_audience(audience)),
            asked => claims.aud.iter().any(|audience| asked.contains(audience)),
        };
        if !meant {
            return Err(TokenError::Audience);
        }
        let Private { namespace, serviceaccount, pod, secret, node } = &claims.kubernetes;
        let lives = accounts.service_account_uid(namespace, &serviceaccount.name).as_ref() == Some(&serviceaccount.uid);
        let bound_lives = |kind, bound: &Option<Reference>, namespace| {
            bound.as_ref().is_none_or(|to| accounts.bound_uid(kind, namespace, &to.name).as_ref() == Some(&to.uid))
        };
        let bounds = bound_lives(BoundKind::Pod, pod, namespace)
            && bound_lives(BoundKind::Secret, secret, namespace)
            // A node is named beside a pod for information; only a token bound to the node alone dies with it.
            && (pod.is_some() || bound_lives(BoundKind::Node, node, ""));
        if lives && bounds { Ok(Arc::clone(&verified.identity)) } else { Err(TokenError::Gone) }
    }

    /// The claims of a token whose signature, issuer and shape hold.
    fn verified(&self, token: &str) -> Result<Arc<Verified>, TokenError> {
        let digest = digest_of(token);
        if let Some(known) = self.verified.lock().get(&digest) {
            return Ok(Arc::clone(known));
        }
        let claims: Claims = decode(token, &self.verifying, &self.validation).map_err(|_| TokenError::Foreign)?.claims;
        let Private { namespace, serviceaccount, pod, node, .. } = &claims.kubernetes;
        if claims.iss != self.issuer || claims.sub != service_account_user(namespace, &serviceaccount.name) {
            return Err(TokenError::Foreign);
        }
        let mut identity = Identity::service_account(namespace, &serviceaccount.name, &serviceaccount.uid);
        let mut tell = |key: &str, value: String| identity.extra.insert(key.into(), vec![value]);
        if !claims.jti.is_empty() {
            tell(CREDENTIAL_ID, format!("JTI={}", claims.jti));
        }
        if let Some(pod) = pod {
            tell("authentication.kubernetes.io/pod-name", pod.name.clone());
            tell("authentication.kubernetes.io/pod-uid", pod.uid.clone());
        }
        if let Some(node) = node {
            tell("authentication.kubernetes.io/node-name", node.name.clone());
            tell("authentication.kubernetes.io/node-uid", node.uid.clone());
        }
        let fresh = Arc::new(Verified { claims, identity: Arc::new(identity) });
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(digest, Arc::clone(&fresh));
        Ok(fresh)
    }
}

/// A key that cannot sign tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenSignerError {
    #[error("the token signing key cannot be used: {0}")]
    Key(#[from] rcgen::Error),
    #[error("the token signing key cannot be used: {0}")]
    Token(#[from] jsonwebtoken::errors::Error),
}

/// What a token is to say.
#[derive(Clone, Copy, Debug)]
pub struct Mint<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// The service account's.
    pub uid: &'a str,
    /// None: the API server's own.
    pub audiences: &'a [String],
    pub expiration_seconds: Option<u64>,
    pub bound: Option<&'a Bound>,
}
