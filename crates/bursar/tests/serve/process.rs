//! A running `bursar serve`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

pub struct Process {
    child: Child,
    kubeconfig: PathBuf,
    /// Kept open: a server whose output nobody reads must not trip over it.
    _output: Lines<BufReader<ChildStdout>>,
}

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.arg("serve").arg("--data").arg(data);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(arguments).kill_on_drop(true);
    command
}

impl Process {
    /// Starts it and returns when it has said how to use it.
    pub async fn start(data: &Path, arguments: &[&str]) -> Process {
        server::tls::install_provider();
        Process::spawned(&mut command(data, arguments)).await
    }

    async fn spawned(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        let kubeconfig = loop {
            let line = output.next_line().await.expect("readable").expect("it ended before it was ready");
            if let Some(path) = line.trim().strip_prefix("export KUBECONFIG=") {
                break PathBuf::from(path);
            }
        };
        Process { child, kubeconfig, _output: output }
    }

    /// The same with its log in a file.
    pub async fn start_logged(data: &Path, arguments: &[&str], log: &Path) -> Process {
        server::tls::install_provider();
        let log = std::fs::File::create(log).expect("a log");
        Process::spawned(command(data, arguments).stderr(log)).await
    }

    /// The same under a limit, as the shell sets it.
    pub async fn start_under(data: &Path, arguments: &[&str], limit: &str) -> Process {
        server::tls::install_provider();
        let ordinary = command(data, arguments);
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_bursar")]);
        limited.args(ordinary.as_std().get_args()).kill_on_drop(true);
        Process::spawned(&mut limited).await
    }

    /// Starts one that must not come up; its exit code and what it complained about.
    pub async fn fail(data: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let output = command(data, arguments).output().await.expect("starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The largest amount of memory the server has held so far, in megabytes.
    pub fn peak_megabytes(&self) -> u64 {
        let pid = self.child.id().expect("running");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
    }

    pub async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).expect("a client")
    }

    /// A client that shows this token and nothing else.
    pub async fn client_with_token(&self, token: &str) -> kube::Client {
        let mut config = self.config().await;
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        kube::Client::try_from(config).expect("a client")
    }

    pub async fn config(&self) -> kube::Config {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration")
    }

    pub async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("running").to_string();
        // The shell's own kill: nothing else in the workspace needs a way to send signals.
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().await.expect("a shell");
        assert!(sent.success());
    }

    /// Ends it without warning, and returns when it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it ended");
    }

    /// SIGTERM; the exit code.
    pub async fn stop(mut self) -> Option<i32> {
        self.signal("TERM").await;
        self.child.wait().await.expect("ended").code()
    }
}
