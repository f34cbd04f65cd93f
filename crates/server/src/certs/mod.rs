//! The server's own certificates: made on the first start, kept in a folder, renewed before they expire.
//!
//! ```text
//! ca.crt ca.key                the authority every client trusts; its key never changes by itself
//! apiserver.crt apiserver.key  what the listener shows
//! admin.crt admin.key          the owner's client certificate, put into the admin kubeconfig
//! sa.key                       signs service account tokens
//! ```
//!
//! Standby replicas of one control plane share this folder's contents (copy it), so that a client that fails over
//! meets the same authority and its tokens stay good.

mod files;
mod kubeconfig;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

pub use files::{create_private_dir, write_private};
pub use kubeconfig::{Kubeconfig, admin_kubeconfig};

use crate::identity::MASTERS;

const DAY: u64 = 24 * 60 * 60;
/// Long, because every client keeps a copy of the authority and must be given a new one by hand.
const AUTHORITY_DAYS: u64 = 3650;
/// Kubernetes' own installers give a year; renewal needs nobody, so there is no reason for more.
const LEAF_DAYS: u64 = 365;
/// Renewed when less than this is left, so that a server restarted once a month never shows an expired certificate.
const RENEW_DAYS: u64 = 30;
/// Clocks of clients may be behind ours by this much.
const BACKDATE_SECONDS: u64 = 60 * 60;

pub const ADMIN_USER: &str = "kubernetes-admin";

/// Builds the date type of the certificate library, which cannot be named here, from seconds since 1970.
macro_rules! at {
    ($seconds:expr) => {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs($seconds)
    };
}

#[derive(Debug, thiserror::Error)]
pub enum CertError {
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} is not a usable {what}: {why}; restore it from a backup, or move it away to have a new one made")]
    Unusable { path: PathBuf, what: &'static str, why: String },
    #[error("{present} is there but {missing} is not; restore it, or move both away to make a new authority")]
    Incomplete { present: PathBuf, missing: PathBuf },
    #[error(
        "{key} is not the key of {certificate}: put back the pair that belongs together, from a backup or from another replica"
    )]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error(
        "{path} expired {days} days ago, and every client that trusts it has stopped doing so; move it away (and leave the \
         key where it is) to have it made again with the same key, and give clients the new one"
    )]
    Expired { path: PathBuf, days: u64 },
    #[error("{path} is a folder that everybody may use; name one of its own")]
    Shared { path: PathBuf },
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl CertError {
    /// Whether nothing can be written at the moment, which is no reason not to serve.
    fn is_no_room(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        matches!(self, CertError::File { action: "write", source, .. }
            if matches!(source.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem))
    }
}

/// How files are written.
type Keep<'a> = &'a dyn Fn(&Path, &[u8]) -> Result<(), CertError>;

/// A certificate with its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// Everything in the folder, loaded.
#[derive(Clone, Debug)]
pub struct Pki {
    pub authority: Pair,
    pub serving: Pair,
    pub admin: Pair,
    /// PKCS#8 PEM of the ECDSA P-256 key that signs service account tokens.
    pub token_key: String,
}

impl Pki {
    /// Loads the folder, making what is missing and renewing what is about to expire. `names` are the host names and
    /// addresses the serving certificate must be good for; `now` is in seconds since 1970.
    pub fn open(folder: &Path, names: &[String], now: u64) -> Result<Pki, CertError> {
        Pki::open_with(folder, names, now, &write_private)
    }

    fn open_with(folder: &Path, names: &[String], now: u64, keep: Keep<'_>) -> Result<Pki, CertError> {
        create_private_dir(folder)?;
        for key in ["ca.key", "apiserver.key", "admin.key", "sa.key"] {
            files::make_key_private(&folder.join(key));
        }
        let authority = authority(folder, now, keep)?;
        let key = KeyPair::from_pem(&authority.key)?;
        let issuer = Issuer::from_ca_cert_pem(&authority.certificate, key)?;
        let serving = leaf(folder, "apiserver", &issuer, now, names, keep, || {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name = name_of("bursar", None);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            Ok(params)
        })?;
        let admin = leaf(folder, "admin", &issuer, now, &[], keep, || {
            let mut params = CertificateParams::default();
            params.distinguished_name = name_of(ADMIN_USER, Some(MASTERS));
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            Ok(params)
        })?;
        Ok(Pki { authority, serving, admin, token_key: token_key(folder, keep)? })
    }

    /// A client certificate for `user`, signed by the authority: for tests and for handing out access by hand.
    pub fn client(&self, user: &str, group: Option<&str>, from: u64, until: u64) -> Result<Pair, CertError> {
        let issuer = Issuer::from_ca_cert_pem(&self.authority.certificate, KeyPair::from_pem(&self.authority.key)?)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name_of(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = at!(from);
        params.not_after = at!(until);
        sign(params, &issuer)
    }
}

/// What this machine calls itself, where that can be read from a file.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Names and addresses every serving certificate is good for, besides the configured ones.
pub fn default_names(listen_host: &str) -> Vec<String> {
    let fixed = ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut names: Vec<String> = fixed.iter().map(|name| name.to_string()).collect();
    let host = host_name();
    for name in [host.as_deref(), Some(listen_host)].into_iter().flatten() {
        let name = name.trim_start_matches('[').trim_end_matches(']');
        // An unspecified address is where we listen, not where anybody connects.
        if !name.is_empty() && name != "0.0.0.0" && name != "::" && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn authority(folder: &Path, now: u64, keep: Keep<'_>) -> Result<Pair, CertError> {
    let (certificate_path, key_path) = (folder.join("ca.crt"), folder.join("ca.key"));
    let (certificate, key) = (files::read(&certificate_path)?, files::read(&key_path)?);
    let unusable = |path: &Path, what, why: String| CertError::Unusable { path: path.into(), what, why };
    // One that is good for a while, and about to be renewed.
    let mut valid = None;
    let key = match (certificate, key) {
        (None, None) => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
        (Some(_), None) => return Err(CertError::Incomplete { present: certificate_path, missing: key_path }),
        // A start that was cut short. The same key and name: whoever trusts an earlier certificate trusts the new one.
        (None, Some(key)) => KeyPair::from_pem(&key).map_err(|why| unusable(&key_path, "key", why.to_string()))?,
        (Some(certificate), Some(key)) => {
            let facts = Facts::read(&certificate).map_err(|why| unusable(&certificate_path, "certificate", why))?;
            let pair = KeyPair::from_pem(&key).map_err(|why| unusable(&key_path, "key", why.to_string()))?;
            if !facts.is_authority {
                return Err(unusable(&certificate_path, "authority", "it may not sign certificates".into()));
            }
            if facts.public_key != pair.public_key_raw() {
                return Err(CertError::Mismatch { certificate: certificate_path, key: key_path });
            }
            if facts.expires <= now {
                return Err(CertError::Expired { path: certificate_path, days: (now - facts.expires) / DAY });
            }
            if facts.expires > now + RENEW_DAYS * DAY {
                return Ok(Pair { certificate, key });
            }
            // Likewise under a new date: what the old certificate signed stays valid.
            valid = Some(Pair { certificate, key });
            pair
        }
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = name_of("bursar-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = at!(now.saturating_sub(BACKDATE_SECONDS));
    params.not_after = at!(now + AUTHORITY_DAYS * DAY);
    let pair = Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
    // The key first: a key without its certificate is finished at the next start, the other way round it is lost.
    let kept = keep(&key_path, pair.key.as_bytes()).and_then(|()| keep(&certificate_path, pair.certificate.as_bytes()));
    match (kept, valid) {
        (Err(error), Some(valid)) if error.is_no_room() => {
            tracing::error!(%error, "the authority is about to expire and cannot be renewed: it stays as it is");
            Ok(valid)
        }
        (kept, _) => kept.map(|()| pair),
    }
}

/// Loads a leaf certificate, or makes it when it is missing, unreadable, about to expire, from another authority, or
/// not good for all of `names`. A leaf is never precious: the authority can make another.
fn leaf(
    folder: &Path,
    stem: &str,
    issuer: &Issuer<'_, KeyPair>,
    now: u64,
    names: &[String],
    keep: Keep<'_>,
    params: impl FnOnce() -> Result<CertificateParams, CertError>,
) -> Result<Pair, CertError> {
    let (certificate_path, key_path) = (folder.join(format!("{stem}.crt")), folder.join(format!("{stem}.key")));
    if let (Some(certificate), Some(key)) = (files::read(&certificate_path)?, files::read(&key_path)?) {
        let good = Facts::read(&certificate).is_ok_and(|facts| {
            facts.expires > now + RENEW_DAYS * DAY
                && facts.signed_by(issuer.key())
                && KeyPair::from_pem(&key).is_ok_and(|pair| pair.public_key_raw() == facts.public_key)
                && names.iter().all(|name| facts.names.contains(name))
        });
        if good {
            return Ok(Pair { certificate, key });
        }
        tracing::info!(
            path = %certificate_path.display(),
            "made anew: about to expire, not for all our names, or not of this authority and key"
        );
    }
    let mut params = params()?;
    params.not_before = at!(now.saturating_sub(BACKDATE_SECONDS));
    params.not_after = at!(now + LEAF_DAYS * DAY);
    let pair = sign(params, issuer)?;
    let kept = keep(&key_path, pair.key.as_bytes()).and_then(|()| keep(&certificate_path, pair.certificate.as_bytes()));
    match kept {
        // The authority can make another at the next start, so that this one need not be kept to be used.
        Err(error) if error.is_no_room() => {
            tracing::error!(%error, "a renewed certificate cannot be kept: it is used until this process ends");
            Ok(pair)
        }
        kept => kept.map(|()| pair),
    }
}

fn sign(mut params: CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Result<Pair, CertError> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    Ok(Pair { certificate: params.signed_by(&key, issuer)?.pem(), key: key.serialize_pem() })
}

fn token_key(folder: &Path, keep: Keep<'_>) -> Result<String, CertError> {
    let path = folder.join("sa.key");
    if let Some(key) = files::read(&path)? {
        return match KeyPair::from_pem_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256) {
            Ok(_) => Ok(key),
            // Making another would silently turn every token that was ever handed out into garbage.
            Err(why) => Err(CertError::Unusable { path, what: "ECDSA P-256 key", why: why.to_string() }),
        };
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?.serialize_pem();
    keep(&path, key.as_bytes())?;
    Ok(key)
}

fn name_of(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common);
    name
}

/// What we need to know of a certificate we made earlier.
struct Facts {
    expires: u64,
    names: Vec<String>,
    public_key: Vec<u8>,
    is_authority: bool,
    der: CertificateDer<'static>,
}

impl Facts {
    fn read(pem: &str) -> Result<Facts, String> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
        let expires = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        let public_key = parsed.public_key().subject_public_key.data.to_vec();
        let is_authority = parsed.is_ca();
        let mut names = Vec::new();
        if let Ok(Some(extension)) = parsed.subject_alternative_name() {
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.push(name.to_string()),
                    GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        Ok(Facts { expires, names, public_key, is_authority, der })
    }

    fn signed_by(&self, authority: &KeyPair) -> bool {
        let Ok((_, parsed)) = X509Certificate::from_der(&self.der) else { return false };
        let signature = aws_lc_rs::signature::UnparsedPublicKey::new(
            &aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1,
            authority.public_key_raw(),
        );
        signature.verify(parsed.tbs_certificate.as_ref(), &parsed.signature_value.data).is_ok()
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let address = match bytes.len() {
        4 => std::net::IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => std::net::IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(address.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn failing(kind: ErrorKind) -> impl Fn(&Path, &[u8]) -> Result<(), CertError> {
        move |path, _| Err(CertError::File { action: "write", path: path.into(), source: kind.into() })
    }

    #[test]
    fn a_full_disk_keeps_no_server_from_starting_with_certificates_that_are_good() {
        let folder = tempfile::tempdir().unwrap();
        let names = default_names("10.0.0.1");
        // Nothing is there yet: an authority that nobody can keep is none.
        Pki::open_with(folder.path(), &names, NOW, &failing(ErrorKind::StorageFull)).unwrap_err();
        let first = Pki::open(folder.path(), &names, NOW).unwrap();
        // Leaves are about to expire, then have; the authority is about to.
        for days in [340, 400, AUTHORITY_DAYS - 5] {
            let now = NOW + days * DAY;
            for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem] {
                let pki = Pki::open_with(folder.path(), &names, now, &failing(kind)).unwrap();
                assert_eq!(pki.authority, first.authority);
                for (old, new) in [(&first.serving, &pki.serving), (&first.admin, &pki.admin)] {
                    let facts = Facts::read(&new.certificate).unwrap();
                    assert!(old != new && facts.expires > now + RENEW_DAYS * DAY, "{days} {kind:?}");
                }
            }
            Pki::open_with(folder.path(), &names, now, &failing(ErrorKind::PermissionDenied)).unwrap_err();
        }
        assert_eq!(Pki::open(folder.path(), &names, NOW).unwrap().serving, first.serving, "nothing was changed");
        let expired = NOW + (AUTHORITY_DAYS + 1) * DAY;
        Pki::open_with(folder.path(), &names, expired, &failing(ErrorKind::StorageFull)).unwrap_err();
    }
}
