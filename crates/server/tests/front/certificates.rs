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

#[test]
fn files_that_do_not_belong_together_stop_the_start_and_say_so() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let at = |name: &str| folder.path().join(name);
    let first = open(folder.path(), NOW);
    let foreign = open(other.path(), NOW);
    let refused = |now| Pki::open(folder.path(), &default_names("10.0.0.1"), now).expect_err("refused").to_string();
    for (name, text, expected) in [
        ("ca.key", &foreign.authority.key, "ca.key is not the key of"),
        ("ca.crt", &foreign.authority.certificate, "ca.key is not the key of"),
        ("ca.key", &first.token_key, "ca.key is not the key of"),
        ("ca.crt", &first.serving.certificate, "ca.crt is not a usable authority: it may not sign certificates"),
        ("ca.crt", &first.authority.key, "ca.crt is not a usable certificate"),
        ("ca.key", &first.authority.certificate, "ca.key is not a usable key"),
        ("sa.key", &first.authority.certificate, "sa.key is not a usable ECDSA P-256 key"),
    ] {
        let good = std::fs::read_to_string(at(name)).expect("readable");
        std::fs::write(at(name), text).expect("writes");
        let error = refused(NOW);
        assert!(error.contains(expected), "{name}: {error}");
        std::fs::write(at(name), good).expect("writes");
    }
    // A serving certificate and a key of another are made anew: the authority can make as many as it likes.
    std::fs::write(at("apiserver.key"), &foreign.serving.key).expect("writes");
    let mended = open(folder.path(), NOW);
    assert_eq!(mended.authority, first.authority);
    assert_ne!(mended.serving, first.serving);
    assert_ne!(mended.serving.key, foreign.serving.key);

    let error = refused(NOW + 3_655 * DAY);
    assert!(error.contains("ca.crt expired 5 days ago") && error.contains("leave the key"), "{error}");
    std::fs::remove_file(at("ca.crt")).expect("removes");
    assert_eq!(open(folder.path(), NOW + 3_655 * DAY).authority.key, first.authority.key, "as the message says");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("facts").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn what_others_could_read_is_made_private_and_what_they_could_write_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let pki = folder.path().join("pki");
    open(&pki, NOW);
    set_mode(&pki, 0o755);
    set_mode(&pki.join("ca.key"), 0o644);
    set_mode(&pki.join("ca.crt"), 0o666);
    let error = Pki::open(&pki, &[], NOW).expect_err("anybody may have written it").to_string();
    assert!(error.contains("ca.crt") && error.contains("everybody may write"), "{error}");
    assert_eq!((mode(&pki), mode(&pki.join("ca.key"))), (0o700, 0o600));
    set_mode(&pki.join("ca.crt"), 0o600);
    open(&pki, NOW);
    // A place such as /tmp is everybody's.
    set_mode(&pki, 0o1777);
    let error = Pki::open(&pki, &[], NOW).expect_err("a shared place").to_string();
    assert!(error.contains("a folder that everybody may use"), "{error}");
    assert_eq!(mode(&pki), 0o1777, "left as it was");
}

#[test]
fn what_says_the_same_already_is_not_written_again() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kubeconfig");
    let inode = || std::fs::metadata(&file).expect("facts").ino();
    server::certs::write_private(&file, b"one").expect("written");
    let first = inode();
    server::certs::write_private(&file, b"one").expect("fine as it is");
    assert_eq!(inode(), first);
    set_mode(&file, 0o644);
    server::certs::write_private(&file, b"one").expect("written");
    assert_eq!(mode(&file), 0o600, "readable by its owner only, whoever changed that");
    server::certs::write_private(&file, b"two").expect("written");
    assert_eq!(std::fs::read(&file).expect("readable"), b"two");
}
