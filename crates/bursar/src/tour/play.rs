//! Playing a script: say, run, compare.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::examples::Example;
use super::kubectl::{Kubectl, Said, split};
use super::members::Members;

/// How long a step may wait for a controller.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    title: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// One sentence of what happens and why.
    say: String,
    /// The command as one would type it; or `start` and `kill` with the name of a member cluster.
    run: String,
    /// Texts the answer must contain.
    #[serde(default)]
    expect: Vec<String>,
    /// The command must be refused.
    #[serde(default)]
    fails: bool,
    /// The command is repeated until the texts appear: a controller does it in its own time.
    #[serde(default)]
    eventually: bool,
}

/// Why a tour stopped.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("the script of {0:?} cannot be read: {1}")]
    Script(&'static str, String),
    #[error("`{command}` answered\n{answer}\nwhere {wanted:?} was expected")]
    Unexpected { command: String, answer: String, wanted: String },
    #[error("`{command}` should have been refused, and answered\n{answer}")]
    Accepted { command: String, answer: String },
    #[error("`{command}` failed: {answer}")]
    Refused { command: String, answer: String },
    #[error(transparent)]
    Output(#[from] std::io::Error),
}

/// Plays an example from beginning to end, writing it down as it goes.
pub async fn play(
    example: &Example,
    kubectl: &Kubectl<'_>,
    members: &mut Members<'_>,
    out: &mut dyn Write,
) -> Result<(), Failed> {
    let script: Script =
        serde_saphyr::from_str(example.script).map_err(|error| Failed::Script(example.name, error.to_string()))?;
    writeln!(out, "{}\n{}\n", script.title, "=".repeat(script.title.chars().count()))?;
    for step in &script.steps {
        let said = run(step, kubectl, members).await;
        writeln!(out, "{}\n\n  $ {}", step.say, step.run)?;
        for line in said.text.trim_end().lines() {
            writeln!(out, "  {line}")?;
        }
        writeln!(out)?;
        check(step, said)?;
    }
    Ok(())
}

async fn run(step: &Step, kubectl: &Kubectl<'_>, members: &mut Members<'_>) -> Said {
    if let Some(said) = members.run(&step.run).await {
        return said;
    }
    let there = members.kubectl(&step.run);
    let start = Instant::now();
    loop {
        let said = match (&there, step.run.strip_prefix("bursar orgs ")) {
            (Some((kubectl, line)), _) => kubectl.run(line).await,
            (None, Some(line)) => orgs(line, kubectl).await,
            (None, None) => kubectl.run(&step.run).await,
        };
        let done = !step.eventually || step.expect.iter().all(|wanted| said.text.contains(wanted.as_str()));
        if done || start.elapsed() > PATIENCE {
            return said;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A line of `bursar orgs`, as the program itself would do it.
async fn orgs(line: &str, kubectl: &Kubectl<'_>) -> Said {
    match crate::orgs::type_in(kubectl.client(), &split(line)).await {
        Ok(said) => Said { ok: said.code == 0, text: said.out + &said.err },
        Err(error) => Said { ok: false, text: format!("{error:#}\n") },
    }
}

fn check(step: &Step, said: Said) -> Result<(), Failed> {
    let command = step.run.clone();
    match (said.ok, step.fails) {
        (true, true) => return Err(Failed::Accepted { command, answer: said.text }),
        (false, false) => return Err(Failed::Refused { command, answer: said.text }),
        _ => {}
    }
    match step.expect.iter().find(|wanted| !said.text.contains(wanted.as_str())) {
        Some(wanted) => Err(Failed::Unexpected { command, answer: said.text, wanted: wanted.clone() }),
        None => Ok(()),
    }
}
