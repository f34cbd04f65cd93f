//! Certificates are renewed before anybody minds.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use operator::certificates::{CertificateError, Certificates, Files, Source};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

const NAME: &str = "bursar.quota-system.svc";

fn names() -> Vec<String> {
    vec![NAME.to_owned()]
}

/// Whether somebody who trusts these gets through.
fn trusts(authorities: &str, server: &Arc<ServerConfig>) -> bool {
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(one.expect("PEM")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(NAME).expect("a name");
    let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let mut server = ServerConnection::new(server.clone()).expect("a server");
    for _ in 0..8 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("a buffer");
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("a buffer");
            if server.process_new_packets().is_err() {
                return false;
            }
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("a buffer");
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("a buffer");
            if client.process_new_packets().is_err() {
                return false;
            }
        }
    }
    if client.is_handshaking() || server.is_handshaking() {
        return false;
    }
    // And what is said arrives.
    client.writer().write_all(b"?").expect("room");
    let mut wire = Vec::new();
    client.write_tls(&mut wire).expect("a buffer");
    server.read_tls(&mut wire.as_slice()).expect("a buffer");
    server.process_new_packets().expect("what was said");
    let mut said = [0];
    server.reader().read_exact(&mut said).is_ok() && said == *b"?"
}

fn days(number: u64) -> Duration {
    Duration::from_secs(number * 24 * 60 * 60)
}

#[test]
fn one_that_is_made_here_is_renewed_and_nobody_is_shown_one_he_was_not_told_of() {
    // Long enough ago that the last of them is good by the clock of whoever connects.
    let begun = SystemTime::now() - days(73);
    let mut certificates = Certificates::new(Source::Own, names(), begun).expect("made");
    let tls = certificates.tls().expect("TLS");
    let first = certificates.authorities();
    assert!(trusts(&first, &tls));

    // Young ones stay; one that is old gets a successor, which is told before it is shown.
    certificates.look(begun + days(29));
    assert_eq!(certificates.authorities(), first);
    let due = begun + days(31);
    certificates.look(due);
    let both = certificates.authorities();
    assert!(both.contains(first.trim_end()) && both != first);
    certificates.look(due + days(1));
    assert!(trusts(&first, &tls), "nobody was told of another yet");
    let told = due + days(1);
    certificates.registered(told);
    certificates.look(told + Duration::from_secs(30));
    assert!(trusts(&first, &tls), "an API server may not have heard of it");
    certificates.look(told + Duration::from_secs(61));
    assert!(!trusts(&first, &tls) && trusts(&both, &tls), "the next one is shown");
    assert!(certificates.authorities().contains(first.trim_end()), "and the one before is trusted until then");

    // The one after it does away with the first.
    let later = told + days(40);
    certificates.look(later);
    certificates.registered(later);
    certificates.look(later + Duration::from_secs(61));
    let now = certificates.authorities();
    assert!(!now.contains(first.trim_end()) && trusts(&now, &tls));

    // Whoever stood by for a year begins with a fresh one.
    let mut standby = Certificates::new(Source::Own, names(), begun).expect("made");
    let before = standby.authorities();
    standby.begin(begun + days(365));
    assert!(!standby.authorities().contains(before.trim_end()));
}

/// Writes what an authority of its own would have somebody write.
fn write(files: &Files, with_key: bool) {
    let (authority_key, key) = (rcgen::KeyPair::generate().expect("a key"), rcgen::KeyPair::generate().expect("a key"));
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("signed");
    let issuer = rcgen::Issuer::new(params, authority_key);
    let leaf = rcgen::CertificateParams::new(names()).expect("names").signed_by(&key, &issuer).expect("signed");
    std::fs::write(&files.certificate, leaf.pem()).expect("writes");
    std::fs::write(&files.authority, authority.pem()).expect("writes");
    if with_key {
        std::fs::write(&files.key, key.serialize_pem()).expect("writes");
    }
}

#[test]
fn one_that_is_given_is_read_again_and_a_wrong_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let files = Files { certificate: path("tls.crt"), key: path("tls.key"), authority: path("ca.crt") };
    let now = SystemTime::now();
    let missing = Certificates::new(Source::Files(files.clone()), names(), now).err().expect("nothing is there");
    assert!(matches!(&missing, CertificateError::Read { path, .. } if *path == files.certificate), "{missing}");
    write(&files, true);
    let mut certificates = Certificates::new(Source::Files(files.clone()), names(), now).expect("read");
    let tls = certificates.tls().expect("TLS");
    let first = certificates.authorities();
    assert!(trusts(&first, &tls));

    // The certificate comes before its key: until both are there, the earlier one is shown.
    write(&files, false);
    certificates.look(now);
    certificates.registered(now);
    certificates.look(now + Duration::from_secs(61));
    assert!(trusts(&first, &tls) && certificates.authorities() == first);
    let mixed = Certificates::new(Source::Files(files.clone()), names(), now).err().expect("they do not go together");
    assert!(mixed.to_string().contains("does not go with"), "{mixed}");

    write(&files, true);
    certificates.look(now);
    assert!(trusts(&first, &tls));
    certificates.registered(now);
    certificates.look(now + Duration::from_secs(61));
    assert!(!trusts(&first, &tls) && trusts(&certificates.authorities(), &tls));
    // The same files again are no news.
    let same = certificates.authorities();
    certificates.look(now + Duration::from_secs(600));
    assert_eq!(certificates.authorities(), same);

    std::fs::write(&files.authority, "nothing").expect("writes");
    let wrong = Certificates::new(Source::Files(files), names(), now).err().expect("no authority");
    assert!(wrong.to_string().contains("ca.crt"), "{wrong}");
}
