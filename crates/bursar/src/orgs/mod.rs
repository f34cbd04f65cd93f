//! `bursar orgs`: every command of the API of organizations, made from the table that the server routes by; `rebuild`, which
//! makes the views again from the events and compares; and `agent`, which plays a node.

mod agent;
mod rebuild;
mod send;

use std::sync::LazyLock;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use futures::{AsyncBufReadExt as _, StreamExt as _};
use kube::Client;
use kube::client::Body;
use send::send;
use serde_json::{Map, Value, json};
use server::orgs::table::{Action, ENDPOINTS, Endpoint, command_name};

#[derive(clap::Args)]
pub struct Args {
    /// A command and its options; `help` lists them, and `help COMMAND` its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

/// What a command answers with when the server says that it does not go with the state as it is.
const CONFLICT: i32 = 5;

/// What a command printed, and how it ends.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    fn done(out: String) -> Said {
        Said { code: 0, out, err: String::new() }
    }
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let matches = match program().try_get_matches_from(&args.words) {
        Ok(matches) => matches,
        // Help, or what is wrong with the command: in clap's own words, and with its exit code.
        Err(error) => error.exit(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    let said = runtime.block_on(async {
        let speaks_to = "no server to speak to: is KUBECONFIG set?";
        let mut config = kube::Config::infer().await.context(speaks_to)?;
        // Who is to come back in an hour is told so, and does not wait for it here.
        config.default_retry = false;
        answer(&Client::try_from(config).context(speaks_to)?, &matches).await
    })?;
    print!("{}", said.out);
    eprint!("{}", said.err);
    if said.code != 0 {
        std::process::exit(said.code);
    }
    Ok(())
}

/// Does what these words say, which begin with the command.
pub async fn type_in(client: &Client, words: &[String]) -> anyhow::Result<Said> {
    answer(client, &program().try_get_matches_from(words)?).await
}

async fn answer(client: &Client, matches: &ArgMatches) -> anyhow::Result<Said> {
    match matches.subcommand() {
        Some(("rebuild", _)) => rebuild::rebuild(client).await.map(Said::done),
        Some(("agent", given)) => {
            let rounds = text(given, "rounds").map(|text| text.parse()).transpose().context("--rounds")?;
            let node = text(given, "node").map_or("", String::as_str);
            agent::play(client, name(node)?, rounds).await.map(Said::done)
        }
        Some((word, given)) => match ENDPOINTS.iter().find(|one| command_name(one) == word) {
            Some(endpoint) if matches!(endpoint.action, Action::Stream) => follow(client, endpoint, given).await,
            Some(endpoint) => command(client, endpoint, given).await,
            None => bail!("there is no command {word:?}"),
        },
        None => bail!("there is no command"),
    }
}

/// The parser, made once: tours type many commands.
fn program() -> Command {
    static PROGRAM: LazyLock<Command> = LazyLock::new(made);
    PROGRAM.clone()
}

fn made() -> Command {
    let mut program = Command::new("bursar orgs")
        .no_binary_name(true)
        .about("Organizations: their limits, and what they have")
        .subcommand_required(true)
        .arg_required_else_help(true);
    for endpoint in ENDPOINTS {
        program = program.subcommand(subcommand(endpoint));
    }
    let agent = Command::new("agent")
        .about("Plays a node: alive, and everything there does as it is told")
        .arg(Arg::new("node").long("node").required(true).value_name("NAME"))
        .arg(Arg::new("rounds").long("rounds").value_name("COUNT").help("End after so many rounds"));
    let rebuild = Command::new("rebuild").about("Makes all views again from the events, and compares them");
    program.subcommand(agent).subcommand(rebuild)
}

/// The parser wants names that last as long as the process does.
fn for_good(name: String) -> &'static str {
    Box::leak(name.into_boxed_str())
}

fn names(endpoint: &Endpoint) -> impl Iterator<Item = &'static str> {
    endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn subcommand(endpoint: &'static Endpoint) -> Command {
    let mut command = Command::new(for_good(command_name(endpoint))).about(endpoint.about);
    for name in names(endpoint) {
        command = command.arg(Arg::new(name).long(name).required(true).value_name("NAME"));
    }
    for (field, kind, required) in endpoint.fields {
        // A name that is in the path already is that one.
        if names(endpoint).any(|name| name == *field) {
            continue;
        }
        let long = for_good(field.replace('_', "-"));
        let shape = if matches!(*kind, "object" | "array" | "any") { "JSON" } else { "VALUE" };
        command = command.arg(Arg::new(*field).long(long).required(*required).value_name(shape));
    }
    if matches!(endpoint.action, Action::Run(_)) {
        command = command
            .arg(Arg::new("dry-run").long("dry-run").action(ArgAction::SetTrue).help("Say what would happen"))
            .arg(Arg::new("key").long("idempotency-key").value_name("KEY"))
            .arg(Arg::new("if-version").long("if-version").value_name("VERSION"));
    }
    if matches!(endpoint.action, Action::Stream) {
        command = command.arg(Arg::new("events").long("events").value_name("COUNT").help("End after so many events"));
    } else if endpoint.method == "GET" {
        command = command.arg(Arg::new("after").long("after")).arg(Arg::new("limit").long("limit"));
    }
    command
}

fn text<'a>(given: &'a ArgMatches, name: &str) -> Option<&'a String> {
    given.try_get_one::<String>(name).ok().flatten()
}

/// A value as its field wants it. What is not JSON is a text.
fn value(kind: &str, text: &str) -> anyhow::Result<Value> {
    Ok(match kind {
        "string" => json!(text),
        "any" => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        _ => serde_json::from_str(text).with_context(|| format!("{text:?} is no JSON"))?,
    })
}

/// A text as it can stand in a query, whatever it is.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// A name as it can stand in a path.
fn name(text: &str) -> anyhow::Result<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.is_empty() || matches!(text, "." | "..") || !text.chars().all(plain) {
        bail!("{text:?} is no name");
    }
    Ok(text)
}

fn path_of(endpoint: &Endpoint, given: &ArgMatches) -> anyhow::Result<String> {
    let mut path = String::new();
    for part in endpoint.path.trim_start_matches('/').split('/') {
        let named = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        let segment = named.map_or(part, |name| text(given, name).map_or("", String::as_str));
        path = format!("{path}/{}", name(segment)?);
    }
    Ok(path)
}

/// Prints events as they come, until the server ends, or so many were there.
async fn follow(client: &Client, endpoint: &Endpoint, given: &ArgMatches) -> anyhow::Result<Said> {
    let count = text(given, "events").map(|text| text.parse::<u64>()).transpose().context("--events")?;
    let request = http::Request::get(path_of(endpoint, given)?).body(Vec::new())?;
    let mut lines = client.request_stream(request).await.context("the server refused the stream")?.lines();
    let mut seen = 0;
    while count.is_none_or(|count| seen < count)
        && let Some(line) = lines.next().await
    {
        let line = line.context("the stream was cut off")?;
        seen += u64::from(line.is_empty());
        println!("{line}");
    }
    Ok(Said::done(String::new()))
}

async fn command(client: &Client, endpoint: &Endpoint, given: &ArgMatches) -> anyhow::Result<Said> {
    let mut path = path_of(endpoint, given)?;
    let mut body = Map::new();
    for (field, kind, _) in endpoint.fields {
        if let Some(given) = text(given, field) {
            body.insert((*field).to_owned(), value(kind, given).with_context(|| format!("--{field}"))?);
        }
    }
    let mut query = Vec::new();
    if matches!(endpoint.action, Action::Run(_)) && given.get_flag("dry-run") {
        query.push("dry_run=true".to_owned());
    }
    for name in ["after", "limit"] {
        if let Some(text) = text(given, name) {
            query.push(format!("{name}={}", encoded(text)));
        }
    }
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    let mut request =
        http::Request::builder().method(endpoint.method).uri(path).header("content-type", "application/json");
    for (name, header) in [("key", "idempotency-key"), ("if-version", "if-match")] {
        if let Some(text) = text(given, name) {
            request = request.header(header, text);
        }
    }
    let bytes = if endpoint.fields.is_empty() { Vec::new() } else { Value::Object(body).to_string().into_bytes() };
    let (status, answer) = send(client, request.body(Body::from(bytes))?).await?;
    if status.is_success() {
        let text = if answer.is_null() { String::new() } else { serde_json::to_string_pretty(&answer)? + "\n" };
        return Ok(Said::done(text));
    }
    let said = answer["detail"].as_str().or(answer["message"].as_str()).unwrap_or("the server gave no reason");
    let code = answer["code"].as_str().unwrap_or("refused");
    let mut err = format!("bursar: {code}: {said}\n");
    if answer["details"].is_object() {
        err += &serde_json::to_string_pretty(&answer["details"])?;
        err.push('\n');
    }
    let code = if status == http::StatusCode::CONFLICT { CONFLICT } else { 1 };
    Ok(Said { code, out: String::new(), err })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_go_on_is_sent_whatever_it_is_made_of() {
        assert_eq!(encoded("App/acme/shop-1.x"), "App%2Facme%2Fshop-1.x");
        assert_eq!(encoded("a&b=ü%"), "a%26b%3D%C3%BC%25");
    }

    #[test]
    fn every_endpoint_is_a_command_with_a_name_of_its_own() {
        program().debug_assert();
        let mut names: Vec<String> = ENDPOINTS.iter().map(command_name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
