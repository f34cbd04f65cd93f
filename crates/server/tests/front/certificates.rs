//! The certificate folder: made once, kept, renewed in time, private.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use server::certs::{CertError, Pki, admin_kubeconfig, default_names};

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

fn open(folder: &Path, now: u64) -> Pki {
    Pki::open(folder, &default_names("10.0.0.1"), now).expect("opens")
}

#[test]
fn a_second_start_finds_the_same_certificates() {
    let folder = tempfile::tempdir().expect("a folder");
    let pki = folder.path().join("deep/pki");
    let first = open(&pki, NOW);
    let second = open(&pki, NOW + 300 * DAY);
    assert_eq!(first.authority, second.authority);
    assert_eq!((&first.serving, &first.admin), (&second.serving, &second.admin));
    assert_eq!(first.token_key, second.token_key);
    for entry in std::fs::read_dir(&pki).expect("readable") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("facts").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
    assert_eq!(std::fs::metadata(&pki).expect("facts").permissions().mode() & 0o777, 0o700);
}

#[test]
fn leaves_are_renewed_before_they_expire_and_the_authority_keeps_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path(), NOW);
    let renewed = open(folder.path(), NOW + 340 * DAY);
    assert_eq!(first.authority, renewed.authority);
    assert_ne!(first.serving.certificate, renewed.serving.certificate);
    assert_ne!(first.admin.certificate, renewed.admin.certificate);
    let old = open(folder.path(), NOW + 3640 * DAY);
    assert_ne!(first.authority.certificate, old.authority.certificate);
    assert_eq!(first.authority.key, old.authority.key);
}

#[test]
fn a_new_name_gets_a_new_serving_certificate_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path(), NOW);
    let mut names = default_names("10.0.0.1");
    names.push("bursar.example.com".into());
    let second = Pki::open(folder.path(), &names, NOW).expect("opens");
    assert_ne!(first.serving, second.serving);
    assert_eq!(first.admin, second.admin);
    // Fewer names need no new one.
    assert_eq!(open(folder.path(), NOW).serving, second.serving);
}

#[test]
fn damage_is_reported_or_mended_never_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let first = open(folder.path(), NOW);
    std::fs::write(at("apiserver.crt"), "not a certificate").expect("writes");
    std::fs::remove_file(at("admin.key")).expect("removes");
    let mended = open(folder.path(), NOW);
    assert_eq!(first.authority, mended.authority);
    assert_ne!(first.serving, mended.serving);

    std::fs::write(at("sa.key"), "not a key").expect("writes");
    let error = Pki::open(folder.path(), &[], NOW).expect_err("an unusable key");
    assert!(matches!(error, CertError::Unusable { .. }), "{error}");
    std::fs::write(at("sa.key"), &first.token_key).expect("writes");

    std::fs::remove_file(at("ca.crt")).expect("removes");
    let again = open(folder.path(), NOW);
    assert_eq!(again.authority.key, first.authority.key, "the same authority, written again");
    std::fs::remove_file(at("ca.key")).expect("removes");
    let error = Pki::open(folder.path(), &[], NOW).expect_err("no key").to_string();
    assert!(error.contains("ca.crt is there but") && error.contains("move both away"), "{error}");
}

#[test]
fn the_kubeconfig_is_one_kubectl_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let pki = open(folder.path(), NOW);
    let text = admin_kubeconfig(&pki, "https://127.0.0.1:6443");
    let config = kube::config::Kubeconfig::from_yaml(&text).expect("parses");
    assert_eq!(config.current_context.as_deref(), Some("bursar"));
    let cluster = config.clusters[0].cluster.as_ref().expect("a cluster");
    assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
    assert!(config.auth_infos[0].auth_info.as_ref().expect("a user").client_certificate_data.is_some());
}
