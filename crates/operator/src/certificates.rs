//! The webhook's own authority and certificate. They are made anew at every start, and the API server is told the authority with
//! the registration: nothing secret is kept, and nothing has to be renewed.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::PrivateKeyDer;

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
    #[error("a key cannot be used: {0}")]
    Key(&'static str),
}

/// The authority, in PEM, and how a server shows a certificate of it that is good for these names.
pub fn make(names: &[String]) -> Result<(String, Arc<ServerConfig>), CertificateError> {
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "bursar operator");
    let authority_key = key()?;
    let authority = params.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(params, authority_key);
    let leaf_key = key()?;
    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name.push(DnType::CommonName, "bursar webhook");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = leaf.signed_by(&leaf_key, &issuer)?;
    let private = PrivateKeyDer::try_from(leaf_key.serialize_der()).map_err(CertificateError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((authority, Arc::new(config)))
}
