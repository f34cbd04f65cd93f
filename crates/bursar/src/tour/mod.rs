//! `bursar tour`: a family's example played step by step, for someone with no cluster, no kubectl and five minutes.
//!
//! The steps are the files under `examples/`; the tests play the same ones. Each step prints the command as one would
//! type it, the server's real answer, and one sentence of what just happened and why.

mod examples;
mod kubectl;
mod members;
mod play;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use examples::{Example, find, names};
use kube::Client;
use kubectl::Kubectl;
use members::Members;

#[derive(clap::Args)]
pub struct Args {
    /// Which family's tour; all of them when not given
    family: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(tour(args.family.as_deref(), &mut std::io::stdout().lock()))
}

/// Plays the tour of `family`, or all of them, on the server that KUBECONFIG names, or else on one that is gone afterwards.
async fn tour(family: Option<&str>, out: &mut dyn Write) -> anyhow::Result<()> {
    let wanted: Vec<&Example> = match family {
        Some(name) => {
            let known = || format!("there is no tour {name:?}; there are: {}", names().join(", "));
            vec![find(name).with_context(known)?]
        }
        None => examples::ALL.iter().collect(),
    };
    if std::env::var_os("KUBECONFIG").is_some_and(|path| !path.is_empty()) {
        let client = Client::try_default().await.context("KUBECONFIG names a server that cannot be used")?;
        writeln!(out, "Using the server that KUBECONFIG names.\n")?;
        return play_all(&wanted, client, out).await;
    }
    let server = ThrowAway::start()?;
    let kubeconfig = kube::config::Kubeconfig::read_from(server.folder.path().join("kubeconfig"))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    writeln!(out, "Started a throw-away server at {}\n", config.cluster_url)?;
    play_all(&wanted, Client::try_from(config)?, out).await
}

/// A server that keeps nothing and ends with the tour.
struct ThrowAway {
    process: Child,
    folder: tempfile::TempDir,
}

impl ThrowAway {
    fn start() -> anyhow::Result<ThrowAway> {
        let folder = tempfile::tempdir().context("a folder for the throw-away server")?;
        let config = folder.path().join("bursar.yaml");
        // Nobody on a tour waits for the better part of a minute until a member is taken for lost.
        std::fs::write(&config, "karmada: {heartbeatSeconds: 1, graceSeconds: 3}\n")?;
        let arguments: [OsString; 10] = [
            "--store".into(),
            "memory".into(),
            "--listen".into(),
            "127.0.0.1:0".into(),
            "--config".into(),
            config.into_os_string(),
            "--data".into(),
            folder.path().join("data").into_os_string(),
            "--kubeconfig".into(),
            folder.path().join("kubeconfig").into_os_string(),
        ];
        Ok(ThrowAway { process: spawn(&arguments)?, folder })
    }
}

/// Starts a server of this program, and returns when it is ready.
fn spawn(arguments: &[OsString]) -> anyhow::Result<Child> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["serve", "--log", "error"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .context("a server cannot be started")?;
    let lines = process.stdout.take().map(BufReader::new).context("the server says nothing")?;
    if !lines.lines().map_while(Result::ok).any(|line| line.contains("ready at")) {
        let _ = process.kill();
        let _ = process.wait();
        anyhow::bail!("the server ended before it was ready");
    }
    Ok(process)
}

impl Drop for ThrowAway {
    fn drop(&mut self) {
        // It holds nothing worth a graceful end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn play_all(examples: &[&Example], client: Client, out: &mut dyn Write) -> anyhow::Result<()> {
    for example in examples {
        let mut members = Members::new(client.clone(), example)?;
        play::play(example, &Kubectl::new(client.clone(), example), &mut members, out).await?;
    }
    Ok(())
}
