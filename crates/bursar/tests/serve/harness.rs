//! Starting `bursar serve` and talking to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A test server on a free port; ended, by its process id, when dropped.
pub struct Server {
    child: Child,
    pub folder: PathBuf,
    keep: Option<tempfile::TempDir>,
    extra: Vec<String>,
    listen: String,
}

/// How long anything that happens by itself may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

impl Server {
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    pub fn start_with(extra: &[&str]) -> Server {
        let keep = tempfile::tempdir().expect("a temporary folder");
        let folder = keep.path().to_owned();
        let extra: Vec<String> = extra.iter().map(|&word| word.to_owned()).collect();
        let (child, listen) = spawn(&folder, "127.0.0.1:0", &extra);
        Server { child, folder, keep: Some(keep), extra, listen }
    }

    /// Ends the process without warning and starts it again on the same address and data.
    pub fn kill_and_restart(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ended");
        let (child, _) = spawn(&self.folder, &self.listen, &self.extra);
        self.child = child;
    }

    /// Asks the process to end, as an operator would, and starts it again.
    pub fn stop_and_restart(&mut self) {
        let status = self.stop();
        assert!(status.success(), "a graceful stop ends with {status}");
        let (child, _) = spawn(&self.folder, &self.listen, &self.extra);
        self.child = child;
    }

    pub fn stop(&mut self) -> std::process::ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        self.child.wait().expect("the server ended")
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> String {
        self.listen.clone()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Runs kubectl and returns its standard output; anything but success fails the test.
    pub fn kubectl(&self, line: &str) -> String {
        let (ok, out, err) = self.try_kubectl(line, "");
        assert!(ok, "kubectl {line}\n{out}{err}");
        out
    }

    /// Runs kubectl with something on its standard input.
    pub fn kubectl_with(&self, line: &str, input: &str) -> String {
        let (ok, out, err) = self.try_kubectl(line, input);
        assert!(ok, "kubectl {line}\n{out}{err}");
        out
    }

    /// Runs kubectl that must fail, and returns its error output.
    pub fn kubectl_fails(&self, line: &str) -> String {
        let (ok, out, err) = self.try_kubectl(line, "");
        assert!(!ok, "kubectl {line} should have failed\n{out}");
        err
    }

    pub fn try_kubectl(&self, line: &str, input: &str) -> (bool, String, String) {
        let mut child = self.kubectl_command(&words(line)).stdin(Stdio::piped()).spawn().expect("kubectl starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
        let output = child.wait_with_output().expect("kubectl ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    pub fn kubectl_command(&self, words: &[String]) -> Command {
        let mut command = Command::new(part("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(words)
            // Discovery is cached per user otherwise, and tests would see each other's.
            .arg(format!("--cache-dir={}", self.folder.join("kubectl-cache").display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Asks until the answer is as wanted.
    pub fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let (_, out, err) = self.try_kubectl(line, "");
            if wanted(&out) {
                return out;
            }
            assert!(start.elapsed() < PATIENCE, "kubectl {line} never answered as wanted, last:\n{out}{err}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let errors = std::fs::read_to_string(self.folder.join("serve.err")).unwrap_or_default();
            let tail: Vec<&str> = errors.lines().rev().take(20).collect();
            eprintln!("the server's last lines:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        drop(self.keep.take());
    }
}

fn spawn(folder: &Path, listen: &str, extra: &[String]) -> (Child, String) {
    let errors = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("serve.err")).expect("a log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .arg("serve")
        .args(["--listen", listen, "--data"])
        .arg(folder.join("data"))
        .arg("--kubeconfig")
        .arg(folder.join("kubeconfig"))
        .args(extra)
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .expect("bursar starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("ready at") {
        line.clear();
        let read = lines.read_line(&mut line).expect("the server prints");
        let log = || std::fs::read_to_string(folder.join("serve.err")).unwrap_or_default();
        assert!(read > 0, "the server ended before it was ready:\n{}", log());
    }
    let address = line.split("https://").nth(1).and_then(|rest| rest.split([',', ' ', '\n']).next());
    let address = address.expect("the greeting names the address").to_owned();
    // The rest of the greeting must not fill the pipe.
    std::thread::spawn(move || lines.read_to_string(&mut String::new()));
    (child, address)
}

/// The path of a real Kubernetes program, built once.
pub fn part(name: &'static str) -> PathBuf {
    static KUBECTL: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/parts");
        let output = Command::new(script).arg(name).stderr(Stdio::inherit()).output().expect("scripts/parts runs");
        assert!(output.status.success(), "scripts/parts {name} failed");
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    };
    if name == "kubectl" { KUBECTL.get_or_init(find).clone() } else { find() }
}

/// Splits a command line: spaces separate, single quotes hold together.
pub fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("there is always a word").push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
