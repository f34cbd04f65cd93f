//! The two servers: `bursar serve`, and kube-apiserver with etcd; children on free loopback ports, gone when dropped.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{JSON, Target};
use crate::parts;
use crate::probe::{family_cpu, resident_bytes_of};

/// Nothing on any machine takes longer to start.
const START: Duration = Duration::from_secs(120);

/// Between two looks whether a server answers.
const LOOK: Duration = Duration::from_millis(20);

/// How much of a server's log is shown when it does not start.
const LOG_TAIL_LINES: usize = 10;

const TOKEN: &str = "benchmark";

/// A name that is in the certificate kube-apiserver makes for itself.
const KUBE_NAME: &str = "kubernetes";

pub struct Server {
    pub name: &'static str,
    pub target: Target,
    processes: Vec<Ended>,
    folder: TempDir,
    /// Where its etcd listens, if it has one.
    etcd: Option<String>,
}

/// A child that does not outlive us.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may be dead already.
        let _dead = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Server {
    /// The disk is the one that holds temporary files, for both.
    pub fn bursar(program: &Path) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir()?;
        let (process, target) = start_bursar(program, folder.path(), "embedded", None)?;
        Ok(Server { name: "bursar", target, processes: vec![process], folder, etcd: None })
    }

    /// One that knows us by a token, which comes with every request.
    pub fn bursar_with_token(program: &Path, token: &str) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir()?;
        let (process, target) = start_bursar(program, folder.path(), "embedded", Some(token))?;
        Ok(Server { name: "bursar", target, processes: vec![process], folder, etcd: None })
    }

    /// Over the etcd of another server: the same disk, the same syncs.
    pub fn bursar_over(program: &Path, other: &Server) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir()?;
        let etcd = other.etcd.as_deref().context("it has no etcd")?;
        let (process, target) = start_bursar(program, folder.path(), &format!("etcd://{etcd}"), None)?;
        Ok(Server { name: "bursar on etcd", target, processes: vec![process], folder, etcd: None })
    }

    /// Ends Bursar as an operator would and starts it again on the same data; how long the start took.
    pub fn restart_bursar(&mut self, program: &Path) -> anyhow::Result<Duration> {
        let Some(mut process) = self.processes.pop() else { bail!("nothing runs") };
        // The shell's own kill: nothing else here needs a way to send signals.
        let told = Command::new("sh").args(["-c", &format!("kill -TERM {}", process.0.id())]).status()?;
        ensure!(told.success(), "the server cannot be told to end");
        let status = process.0.wait()?;
        ensure!(status.success(), "the server ended with {status}\n{}", tail(&self.folder.path().join("bursar.log")));
        let started = Instant::now();
        let (process, target) = start_bursar(program, self.folder.path(), "embedded", None)?;
        let took = started.elapsed();
        self.processes.push(process);
        self.target = target;
        Ok(took)
    }

    /// As a cluster runs it, durable writes included. There is no controller-manager, so nobody makes service accounts.
    pub async fn kube() -> anyhow::Result<Server> {
        let folder = tempfile::tempdir()?;
        let [etcd_client, etcd_peer, kube] = parts::free_addresses()?;
        let etcd = start_etcd(folder.path(), &etcd_client, &etcd_peer)?;
        let mut api = start_kube(folder.path(), &etcd_client, &kube)?;
        let target = until_ready(&mut api, folder.path(), &kube).await?;
        Ok(Server { name: "kube-apiserver", target, processes: vec![api, etcd], folder, etcd: Some(etcd_client) })
    }

    /// Where others reach it, and whom they have to trust for that, as its kubeconfig says it.
    pub fn address(&self) -> anyhow::Result<(String, String)> {
        let text = std::fs::read_to_string(self.folder.path().join("kubeconfig"))?;
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key));
            line.map(|line| line.trim().trim_matches('"').to_owned())
                .with_context(|| format!("no {key} in the kubeconfig"))
        };
        Ok((value("server:")?, value("certificate-authority-data:")?))
    }

    /// For a client of kube-apiserver's owner.
    pub fn kubeconfig(&self) -> anyhow::Result<Value> {
        let authority = self.folder.path().join("certificates/apiserver.crt");
        Ok(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{}", self.target.address()), "tls-server-name": KUBE_NAME,
                "certificate-authority-data": STANDARD.encode(std::fs::read(authority)?),
            }}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }))
    }

    /// CPU time of its processes so far.
    pub fn cpu(&self) -> Duration {
        self.processes.iter().map(|process| family_cpu(process.0.id())).sum()
    }

    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.processes.iter().map(|process| resident_bytes_of(&process.0.id().to_string())).sum()
    }

    /// Bytes of everything it has written.
    pub fn stored_bytes(&self) -> anyhow::Result<u64> {
        fn below(folder: &Path) -> std::io::Result<u64> {
            let mut sum = 0;
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                sum += if metadata.is_dir() { below(&entry.path())? } else { metadata.len() };
            }
            Ok(sum)
        }
        Ok(below(self.folder.path())?)
    }
}

fn start_bursar(program: &Path, folder: &Path, store: &str, token: Option<&str>) -> anyhow::Result<(Ended, Target)> {
    let log = folder.join("bursar.log");
    let (tokens, config) = (folder.join("tokens.csv"), folder.join("config.yaml"));
    let known = token.map(|token| format!("{token},benchmark,benchmark,system:masters\n"));
    std::fs::write(&tokens, known.unwrap_or_default())?;
    std::fs::write(
        &config,
        if token.is_some() { format!("tokenFile: {}\n", tokens.display()) } else { "{}\n".into() },
    )?;
    let child = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--store", store, "--data"])
        .arg(folder.join("data"))
        .arg("--config")
        .arg(config)
        .arg("--kubeconfig")
        .arg(folder.join("kubeconfig"))
        .stdout(Stdio::piped())
        .stderr(File::create(&log)?)
        .spawn();
    let process = Ended(child.with_context(|| format!("{} cannot be started", program.display()))?);
    let process = greeted(process, "ready at", &log)?;
    let kubeconfig = std::fs::read_to_string(folder.join("kubeconfig"))?;
    Ok((process, Target::from_kubeconfig(&kubeconfig, token)?))
}

/// Waits until a program of ours says that it is ready.
pub fn greeted(mut process: Ended, greeting: &str, log: &Path) -> anyhow::Result<Ended> {
    let mut output = BufReader::new(process.0.stdout.take().context("no pipe")?);
    let mut line = String::new();
    while !line.contains(greeting) {
        line.clear();
        ensure!(output.read_line(&mut line)? > 0, "bursar did not start:\n{}", tail(log));
    }
    // The rest of the greeting must not fill the pipe.
    std::thread::spawn(move || output.read_to_string(&mut String::new()));
    Ok(process)
}

fn start_etcd(folder: &Path, client: &str, peer: &str) -> anyhow::Result<Ended> {
    let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
    let child = Command::new(parts::binary("etcd")?)
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
        .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &format!("default={peer_url}"), "--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("etcd.log"))?)
        .spawn()?;
    Ok(Ended(child))
}

fn start_kube(folder: &Path, etcd: &str, address: &str) -> anyhow::Result<Ended> {
    let (key, public) = (folder.join("service-accounts.key"), folder.join("service-accounts.pub"));
    let pair = rcgen::KeyPair::generate()?;
    std::fs::write(&key, pair.serialize_pem())?;
    std::fs::write(&public, pair.public_key_pem())?;
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, format!("{TOKEN},benchmark,benchmark,system:masters\n"))?;
    let port = address.rsplit_once(':').context("an address without a port")?.1;
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    let child = Command::new(parts::binary("kube-apiserver")?)
        .args([format!("--etcd-servers=http://{etcd}"), format!("--secure-port={port}")])
        .args(["--bind-address=127.0.0.1", "--authorization-mode=RBAC", "--allow-privileged=true"])
        .args(["--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://benchmark.example"])
        .args([file("service-account-key-file", &public), file("service-account-signing-key-file", &key)])
        .args([file("token-auth-file", &tokens), file("cert-dir", &folder.join("certificates"))])
        .arg("--disable-admission-plugins=ServiceAccount")
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("kube.log"))?)
        .spawn()?;
    Ok(Ended(child))
}

async fn until_ready(process: &mut Ended, folder: &Path, address: &str) -> anyhow::Result<Target> {
    let started = Instant::now();
    loop {
        match ask_ready(folder, address).await {
            Ok(target) => return Ok(target),
            Err(error) if started.elapsed() > START || process.0.try_wait()?.is_some() => {
                bail!("kube-apiserver did not start: {error}\n{}", tail(&folder.join("kube.log")))
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

async fn ask_ready(folder: &Path, address: &str) -> anyhow::Result<Target> {
    let certificate = std::fs::read(folder.join("certificates/apiserver.crt"))?;
    let target = Target::with_token(address, KUBE_NAME, &certificate, TOKEN)?;
    target.connect().await?.get("/readyz", JSON).await?;
    Ok(target)
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
