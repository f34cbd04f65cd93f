//! An etcd that wants TLS and a client certificate, shared by two clusters that do not see each other.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::etcd::Etcd;
use crate::object;
use crate::process::Process;

fn openssl(folder: &Path, line: &str) {
    let output = Command::new("openssl").current_dir(folder).args(line.split_whitespace()).output();
    let output = output.expect("openssl makes the certificates of this test: install openssl");
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and certificates for the server and for a client.
fn certificates(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder, &format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"));
    std::fs::write(
        folder.join("extensions"),
        "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n",
    )
    .expect("writes");
    for name in ["etcd", "client"] {
        openssl(folder, &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days 2 -extfile extensions"
            ),
        );
    }
}

#[tokio::test]
async fn state_is_kept_in_an_etcd_with_tls_under_the_name_of_its_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    certificates(place);
    let file = |name: &str| place.join(name).display().to_string();
    let etcd = Etcd::start_with(
        place,
        "https",
        &[
            format!("--cert-file={}", file("etcd.crt")),
            format!("--key-file={}", file("etcd.key")),
            format!("--trusted-ca-file={}", file("ca.crt")),
            "--client-cert-auth".to_owned(),
        ],
    );
    let (ca, certificate, key) = (file("ca.crt"), file("client.crt"), file("client.key"));
    let start = async |cluster: &str, data: &str| {
        // The second member is not there; one that answers is enough.
        let store = format!("etcds://127.0.0.1:{},127.0.0.1:1/{cluster}", etcd.port);
        let arguments =
            ["--store", &store, "--etcd-cafile", &ca, "--etcd-certfile", &certificate, "--etcd-keyfile", &key];
        Process::start(&place.join(data), &arguments).await
    };
    let names = async |process: &Process| -> bool {
        let namespaces: Api<Namespace> = Api::all(process.client().await);
        namespaces.get_opt("kept").await.expect("an answer").is_some()
    };
    let process = start("one", "one").await;
    let namespaces: Api<Namespace> = Api::all(process.client().await);
    let kept = object(json!({"metadata": {"name": "kept"}}));
    namespaces.create(&PostParams::default(), &kept).await.expect("a namespace");
    let other = start("two", "two").await;
    assert!(!names(&other).await, "another cluster in the same etcd");
    assert_eq!(other.stop().await, Some(0));
    assert_eq!(process.stop().await, Some(0));
    let again = start("one", "three").await;
    assert!(names(&again).await, "the state is in etcd, not in the folder");
    assert_eq!(again.stop().await, Some(0));

    let store = format!("etcds://127.0.0.1:{}", etcd.port);
    let (code, complaint) =
        Process::fail(&place.join("four"), &["--store", &store, "--etcd-certfile", &certificate]).await;
    assert_eq!(code, Some(1));
    assert!(complaint.contains("needs its key"), "{complaint}");

    // An authority that etcd's certificate is not from: what is said is what failed.
    openssl(place, "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout other.key -out other.crt -subj /CN=other");
    let arguments = ["--store", &store, "--etcd-cafile", &file("other.crt")];
    let (code, complaint) = Process::fail(&place.join("five"), &arguments).await;
    assert_eq!(code, Some(1));
    assert!(complaint.contains("certificate"), "{complaint}");
}
