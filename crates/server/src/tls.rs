//! TLS for the listener: our certificate out, an optional client certificate in.
//!
//! A client certificate is verified against our authority during the handshake; what it says about its holder is read
//! once per connection ([`Peer`]) and reused by every request on it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certs::Pair;
use crate::identity::Identity;

/// Where Kubernetes puts what identifies the credential itself, so that a log line can name the very certificate.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("a certificate or key cannot be read: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
    #[error("client certificates cannot be verified: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Chooses the process-wide cryptography. Call it first thing; calling it again is harmless.
pub fn install_provider() {
    // An error means that one is installed already, which is what we want.
    let _ = default_provider().install_default();
}

/// The serving certificate, replaceable while connections come in.
#[derive(Debug)]
pub struct ServingCert {
    current: ArcSwap<CertifiedKey>,
}

impl ServingCert {
    pub fn new(pair: &Pair) -> Result<Arc<ServingCert>, TlsError> {
        Ok(Arc::new(ServingCert { current: ArcSwap::from_pointee(certified(pair)?) }))
    }

    /// New connections see the new certificate; open ones keep theirs.
    pub fn replace(&self, pair: &Pair) -> Result<(), TlsError> {
        self.current.store(Arc::new(certified(pair)?));
        Ok(())
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn certified(pair: &Pair) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    Ok(CertifiedKey::from_der(chain, key, &default_provider())?)
}

/// Offers HTTP/2 and HTTP/1.1; asks for a client certificate of our authority but does not insist.
pub fn server_config(serving: Arc<ServingCert>, authority_pem: &str) -> Result<Arc<ServerConfig>, TlsError> {
    let provider: Arc<CryptoProvider> = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authority_pem.as_bytes()) {
        roots.add(authority?)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What a verified client certificate says: common name is the user, organizations are the groups.
#[derive(Clone, Debug)]
pub struct Peer {
    pub identity: Arc<Identity>,
    /// Seconds since 1970. A connection can outlive its certificate, so each request looks.
    pub not_after: u64,
}

impl Peer {
    /// `None` when the certificate names nobody.
    pub fn from_certificate(der: &[u8]) -> Option<Peer> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().next()?.as_str().ok()?;
        if user.is_empty() {
            return None;
        }
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let mut identity = Identity::authenticated(user, groups);
        let fingerprint = digest::digest(&digest::SHA256, der);
        let hex: String = fingerprint.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        identity.extra.insert(CREDENTIAL_ID.into(), vec![format!("X509SHA256={hex}")]);
        let not_after = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        Some(Peer { identity: Arc::new(identity), not_after })
    }
}
