//! `bursar orgs`: every command of the API of organizations, made from the table that the server routes by; and `rebuild`, which
//! makes the views again from the events and compares.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kube::Client;
use kube::client::Body;
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

pub fn run(args: Args) -> anyhow::Result<()> {
    let matches = match program().try_get_matches_from(&args.words) {
        Ok(matches) => matches,
        // Help, or what is wrong with the command: in clap's own words, and with its exit code.
        Err(error) => error.exit(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        let client = Client::try_default().await.context("no server to speak to: is KUBECONFIG set?")?;
        match matches.subcommand() {
            Some(("rebuild", _)) => rebuild(&client).await,
            Some((name, given)) => match ENDPOINTS.iter().find(|one| command_name(one) == name) {
                Some(endpoint) => command(&client, endpoint, given).await,
                None => bail!("there is no command {name:?}"),
            },
            None => bail!("there is no command"),
        }
    })
}

fn program() -> Command {
    let mut program = Command::new("bursar orgs")
        .no_binary_name(true)
        .about("Organizations: their limits, and what they have")
        .subcommand_required(true)
        .arg_required_else_help(true);
    for endpoint in ENDPOINTS.iter().filter(|one| !matches!(one.action, Action::Stream)) {
        program = program.subcommand(subcommand(endpoint));
    }
    program.subcommand(Command::new("rebuild").about("Makes all views again from the events, and compares them"))
}

/// The parser wants names that last as long as the process, which ends with this one command.
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
    if endpoint.method == "GET" {
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

async fn command(client: &Client, endpoint: &Endpoint, given: &ArgMatches) -> anyhow::Result<()> {
    let mut path = String::new();
    for part in endpoint.path.trim_start_matches('/').split('/') {
        let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        let segment = name.map_or(part, |name| text(given, name).map_or("", String::as_str));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if segment.is_empty() || matches!(segment, "." | "..") || !segment.chars().all(plain) {
            bail!("{segment:?} is no name");
        }
        path = format!("{path}/{segment}");
    }
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
        if let Some(text) =
            text(given, name).filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)))
        {
            query.push(format!("{name}={text}"));
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
        if !answer.is_null() {
            println!("{}", serde_json::to_string_pretty(&answer)?);
        }
        return Ok(());
    }
    let said = answer["detail"].as_str().or(answer["message"].as_str()).unwrap_or("the server gave no reason");
    let code = answer["code"].as_str().unwrap_or("refused");
    eprintln!("bursar: {code}: {said}");
    if answer["details"].is_object() {
        eprintln!("{}", serde_json::to_string_pretty(&answer["details"])?);
    }
    std::process::exit(if status == http::StatusCode::CONFLICT { CONFLICT } else { 1 });
}

async fn send(client: &Client, request: http::Request<Body>) -> anyhow::Result<(http::StatusCode, Value)> {
    let response = client.send(request).await.context("the server cannot be reached")?;
    let status = response.status();
    let bytes = response.into_body().collect_bytes().await.context("the answer was cut off")?;
    Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    let (status, answer) = send(client, http::Request::get(path).body(Body::empty())?).await?;
    if !status.is_success() {
        bail!("the server refused {path}: {}", answer["message"].as_str().unwrap_or_default());
    }
    Ok(answer)
}

/// Reads all events, plays them, and compares what comes out with what the server shows.
async fn rebuild(client: &Client) -> anyhow::Result<()> {
    let views = get(client, "/v1/views").await?;
    let (mut events, mut after) = (Vec::new(), String::from("0"));
    loop {
        let page = get(client, &format!("/v1/events?after={after}")).await?;
        events.extend(page["items"].as_array().cloned().unwrap_or_default());
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let rebuilt = families::orgs::commands::rebuild(&events, views["now_ms"].as_i64().unwrap_or(0));
    let mut live: BTreeMap<(String, String, String), Value> = BTreeMap::new();
    for view in views["items"].as_array().into_iter().flatten() {
        let of = |field: &str| view[field].as_str().unwrap_or_default().to_owned();
        let kind = of("kind").chars().enumerate().fold(String::new(), |word, (at, c)| {
            let edge = if c.is_ascii_uppercase() && at > 0 { "_" } else { "" };
            format!("{word}{edge}{}", c.to_ascii_lowercase())
        });
        live.insert((kind, of("org_id"), of("id")), view["state"].clone());
    }
    let mut differing = rebuilt.gaps.clone();
    for key in live.keys().chain(rebuilt.views.keys()).collect::<std::collections::BTreeSet<_>>() {
        if live.get(key) != rebuilt.views.get(key) {
            differing.push(format!("{} {}/{}: the view is not what the events say", key.0, key.1, key.2));
        }
    }
    if !differing.is_empty() {
        bail!("{} differences (commands that ran meanwhile count as such):\n{}", differing.len(), differing.join("\n"));
    }
    println!("{} views made from {} events are those that the server shows", rebuilt.views.len(), rebuilt.events);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
