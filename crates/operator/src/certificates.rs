//! The webhook's certificate. It is made here, under an authority of its own, and made anew long before it ends; or it is given in
//! files that somebody else renews. The API server is told with the registration whom to trust, so an authority is told before any
//! certificate of it is shown, and the one before stays trusted: there is no moment in which a call fails for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How long a certificate that is made here is good, and after how long the next one is made.
const LASTS: Duration = Duration::from_secs(90 * 24 * 60 * 60);
const RENEWED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Clocks differ.
const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);
/// How long every API server is given to hear whom to trust, before that is needed.
const HEARD: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
    #[error("a key cannot be used: {0}")]
    Key(&'static str),
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {why}")]
    Pem { path: PathBuf, why: String },
}

/// Where certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Own,
    Files(Files),
}

/// In PEM each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, with those between it and its authority behind it.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Whom the API server has to trust.
    pub authority: PathBuf,
}

/// A certificate with its key, and whom to trust for it.
struct Issued {
    authority: String,
    shown: Arc<CertifiedKey>,
    at: SystemTime,
    /// What the files said, where it is from files.
    read: Option<[Vec<u8>; 3]>,
}

/// What is shown to whoever connects.
#[derive(Debug)]
struct Shown(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

pub struct Certificates {
    source: Source,
    /// What it must be good for, where it is made here.
    names: Vec<String>,
    shown: Arc<Shown>,
    current: Issued,
    /// To be shown once every API server knows whom to trust for it; since when they are told.
    next: Option<(Issued, Option<SystemTime>)>,
    /// Of what was shown before.
    before: Option<String>,
    /// What was said of files that cannot be used, so that it is said once.
    trouble: Option<String>,
}

impl Certificates {
    pub fn new(source: Source, names: Vec<String>, now: SystemTime) -> Result<Certificates, CertificateError> {
        let current = issue(&source, &names, now)?;
        let shown = Arc::new(Shown(ArcSwap::new(current.shown.clone())));
        Ok(Certificates { source, names, shown, current, next: None, before: None, trouble: None })
    }

    /// How a server shows whatever is to be shown.
    pub fn tls(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.shown.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Whom the API server has to trust, in PEM.
    pub fn authorities(&self) -> String {
        let next = self.next.as_ref().map(|(next, _)| &next.authority);
        let mut all: Vec<&String> = Vec::new();
        for one in [Some(&self.current.authority), next, self.before.as_ref()].into_iter().flatten() {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all.into_iter().map(|one| format!("{}\n", one.trim_end())).collect()
    }

    /// Looks whether there has to be another certificate by now, and shows it once it is known.
    pub fn look(&mut self, now: SystemTime) {
        if let Some((_, Some(told))) = &self.next
            && now.duration_since(*told).is_ok_and(|passed| passed >= HEARD)
            && let Some((next, _)) = self.next.take()
        {
            self.shown.0.store(next.shown.clone());
            self.before = Some(std::mem::replace(&mut self.current, next).authority);
        }
        if self.next.is_some() || !self.is_due(now) {
            return;
        }
        match issue(&self.source, &self.names, now) {
            Ok(issued) => {
                (self.next, self.trouble) = (Some((issued, None)), None);
            }
            // What is shown goes on being shown.
            Err(error) => {
                let why = error.to_string();
                if self.trouble.as_ref() != Some(&why) {
                    tracing::error!(why, "the webhook's certificate cannot be renewed");
                }
                self.trouble = Some(why);
            }
        }
    }

    /// Before anybody is told whom to trust: who stood by for long may have what has ended.
    pub fn begin(&mut self, now: SystemTime) {
        self.look(now);
        if let Some((next, _)) = self.next.take() {
            self.shown.0.store(next.shown.clone());
            self.current = next;
        }
    }

    /// The registration carries all [`Certificates::authorities`].
    pub fn registered(&mut self, now: SystemTime) {
        if let Some((_, told)) = &mut self.next {
            told.get_or_insert(now);
        }
    }

    fn is_due(&self, now: SystemTime) -> bool {
        match &self.source {
            // A clock that was set back, too.
            Source::Own => now.duration_since(self.current.at).map_or(true, |age| age >= RENEWED),
            Source::Files(files) => files.read().map_or(true, |read| self.current.read.as_ref() != Some(&read)),
        }
    }
}

fn issue(source: &Source, names: &[String], now: SystemTime) -> Result<Issued, CertificateError> {
    match source {
        Source::Own => make(names, now),
        Source::Files(files) => files.issue(now),
    }
}

/// An authority, and a certificate of it. The authority's key is nowhere afterwards.
fn make(names: &[String], now: SystemTime) -> Result<Issued, CertificateError> {
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
    let lasting = |params: &mut CertificateParams| {
        (params.not_before, params.not_after) = ((now - BACKDATED).into(), (now + LASTS).into());
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "bursar operator");
    lasting(&mut params);
    let authority_key = key()?;
    let authority = params.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(params, authority_key);
    let leaf_key = key()?;
    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name.push(DnType::CommonName, "bursar webhook");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    lasting(&mut leaf);
    let certificate = leaf.signed_by(&leaf_key, &issuer)?;
    let private = PrivateKeyDer::try_from(leaf_key.serialize_der()).map_err(CertificateError::Key)?;
    let shown = CertifiedKey::from_der(vec![certificate.der().clone()], private, &default_provider())?;
    Ok(Issued { authority, shown: Arc::new(shown), at: now, read: None })
}

impl Files {
    fn read(&self) -> Result<[Vec<u8>; 3], CertificateError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| CertificateError::Read { path: path.clone(), source })
        };
        Ok([read(&self.certificate)?, read(&self.key)?, read(&self.authority)?])
    }

    fn issue(&self, now: SystemTime) -> Result<Issued, CertificateError> {
        let read = self.read()?;
        let [certificate, key, authority] = &read;
        let wrong = |path: &PathBuf, why: String| CertificateError::Pem { path: path.clone(), why };
        let chain = |path: &PathBuf, text: &[u8]| {
            let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
            let found = found.map_err(|error| wrong(path, error.to_string()))?;
            if found.is_empty() { Err(wrong(path, "there is no certificate in it".into())) } else { Ok(found) }
        };
        let shown = chain(&self.certificate, certificate)?;
        chain(&self.authority, authority)?;
        let private = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(&self.key, error.to_string()))?;
        // A certificate that was renewed before its key was is of another: it is read again.
        let shown = CertifiedKey::from_der(shown, private, &default_provider()).map_err(|error| {
            wrong(&self.key, format!("it does not go with {}: {error}", self.certificate.display()))
        })?;
        let authority = String::from_utf8_lossy(authority).into_owned();
        Ok(Issued { authority, shown: Arc::new(shown), at: now, read: Some(read) })
    }
}
