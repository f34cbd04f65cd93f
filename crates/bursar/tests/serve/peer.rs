//! A real kube-apiserver to compare with.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::etcd::{Ended, Etcd, free_port};
use crate::harness::{part, words};

/// A real kube-apiserver over a real etcd.
pub struct Kubernetes {
    server: Ended,
    etcd: Etcd,
    folder: tempfile::TempDir,
    port: u16,
    more: Vec<String>,
    arguments: Vec<String>,
    address: String,
}

const TOKEN: &str = "secret-of-the-test";

impl Kubernetes {
    pub fn start() -> Kubernetes {
        Kubernetes::start_with(&[])
    }

    /// `more` are further flags of kube-apiserver.
    pub fn start_with(more: &[String]) -> Kubernetes {
        let keep = tempfile::tempdir().expect("a folder");
        let folder = keep.path();
        let (etcd, api) = (Etcd::start(folder), free_port());
        std::fs::write(folder.join("tokens.csv"), format!("{TOKEN},admin,admin,system:masters\n")).expect("writes");
        let key = folder.join("sa.key");
        let made =
            Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").stderr(Stdio::null()).status();
        let made = made.expect("openssl makes the key that kube-apiserver wants: install openssl");
        assert!(made.success());
        let server = serve(folder, etcd.port, api, more);
        let address = format!("https://127.0.0.1:{api}");
        let arguments = vec![
            format!("--server={address}"),
            format!("--token={TOKEN}"),
            "--insecure-skip-tls-verify".into(),
            format!("--cache-dir={}", folder.join("cache").display()),
            "--kubeconfig=/dev/null".into(),
        ];
        let more = more.to_vec();
        let peer = Kubernetes { server, etcd, folder: keep, port: api, more, arguments, address };
        peer.get_ready();
        peer
    }

    fn get_ready(&self) {
        let start = Instant::now();
        while !self.run("get --raw /readyz", "").0 {
            assert!(start.elapsed() < Duration::from_secs(120), "kube-apiserver does not get ready");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Kills the API server and starts it again, over the same etcd and under the same address.
    pub fn restart(&mut self) {
        self.server.0.kill().expect("killed");
        self.server.0.wait().expect("gone");
        self.server = serve(self.folder.path(), self.etcd.port, self.port, &self.more);
        self.get_ready();
    }

    pub fn run(&self, line: &str, input: &str) -> (bool, String, String) {
        use std::io::Write as _;
        let mut child = Command::new(part("kubectl"))
            .args(&self.arguments)
            .args(words(line))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
        let output = child.wait_with_output().expect("kubectl ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    /// Where it is, and the token of its owner.
    pub fn access(&self) -> (&str, &'static str) {
        (&self.address, TOKEN)
    }

    /// A client of the cluster's owner.
    pub fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(self.address.parse().expect("an address"));
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(TOKEN.to_owned().into());
        kube::Client::try_from(config).expect("a client")
    }
}

fn serve(folder: &Path, etcd: u16, api: u16, more: &[String]) -> Ended {
    let key = folder.join("sa.key");
    let with = |flag: &str, path: &Path| format!("{flag}={}", path.display());
    Ended::start(
        Command::new(part("kube-apiserver"))
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", etcd))
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={api}")])
            .arg(with("--cert-dir", &folder.join("certs")))
            .arg("--service-account-issuer=https://test")
            .arg(with("--service-account-key-file", &key))
            .arg(with("--service-account-signing-key-file", &key))
            .arg(with("--token-auth-file", &folder.join("tokens.csv")))
            // Nobody makes service accounts without a controller manager.
            .args(["--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"])
            .args(["--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true"])
            .args(more),
    )
}
