//! The peers of the commands of organizations: PostgreSQL, filled with the same organizations, and services in front of it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::http::Target;
use super::options::Options;
use super::orgs::{CLIENTS, HOT, HOT_INSTANCES, TOKEN, UNIT_BYTES};
use super::orgs_lanes::{Lane, by_type, is_full};
use super::orgs_service::{FUNCTION, NAME, STATEMENTS};
use super::servers::Ended;
use crate::ledger::postgres::Postgres;

const SCHEMA: &str = include_str!("orgs_schema.sql");
const UNIT_CPU_MILLI: i64 = 500;
/// Of every dimension: more than anybody asks for.
const LIMIT: i64 = 1 << 50;

/// So many organizations, with so many instances each of the two process types of their one environment; and the hot one.
fn fill(orgs: u64, instances: u64) -> String {
    let dimensions = "ARRAY['max_instances', 'max_total_memory_bytes', 'max_total_cpu_request']";
    let process = |desired: u64| {
        format!(
            "jsonb_build_object('desired', {desired}, 'memory_bytes', {UNIT_BYTES}, 'cpu_milli', {UNIT_CPU_MILLI}, 'release', 'shop.1')"
        )
    };
    let mut all = format!("INSERT INTO tier_limits SELECT 'scale', d, {LIMIT} FROM unnest({dimensions}) d;");
    let mut add = |names: &str, envs: &str, web: u64, worker: u64, instances: u64| {
        all.push_str(&format!(
            "INSERT INTO orgs SELECT org, 'scale' FROM {names};
            INSERT INTO org_usage_view SELECT org, d, {instances}::bigint * unit
                FROM {names}, unnest({dimensions}, ARRAY[1, {UNIT_BYTES}, {UNIT_CPU_MILLI}]) u(d, unit);
            INSERT INTO envs_view SELECT org, 'shop', env, 1, jsonb_build_object('web', {}, 'worker', {}) FROM {names}, {envs};
            INSERT INTO instances_desired_view SELECT org, 'i-' || env || '-' || process_type || '-' || n, 'shop', env,
                    process_type, 'n1', 'shop.1', 'running', {UNIT_BYTES}, {UNIT_CPU_MILLI}
                FROM {names}, {envs}, (VALUES ('web', {web}), ('worker', {worker})) p(process_type, many),
                generate_series(1, many) n;",
            process(web),
            process(worker)
        ));
    };
    let [(_, web), (_, worker)] = by_type(instances);
    let names = format!("(SELECT 'o' || n AS org FROM generate_series(0, {orgs} - 1) n) o");
    add(&names, "(VALUES ('prod')) e(env)", web, worker, instances);
    let envs = format!("(SELECT 'e' || n AS env FROM generate_series(0, {CLIENTS} - 1) n) e");
    add(&format!("(VALUES ('{HOT}')) o(org)"), &envs, 1, 1, HOT_INSTANCES);
    for org in (0..orgs).filter(|org| is_full(*org)) {
        all.push_str(&format!("INSERT INTO org_quotas VALUES ('o{org}', 'max_instances', {instances});"));
    }
    all
}

pub struct Peer {
    /// What answers a command with one call of a stored function, and with a statement for each thing to do.
    pub function: Target,
    pub statements: Target,
    postgres: Postgres,
    /// Ended before their database is.
    services: Vec<Ended>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.services.clear();
    }
}

/// A service in front of the database in this folder.
fn serve(folder: &Path, options: &Options, this_command: &[&str], way: &str) -> anyhow::Result<(Ended, Target)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(this_command)
        .arg(crate::ORGS_SERVICE)
        .arg(folder)
        .arg(options.connections.to_string())
        .arg(way)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
    let service = Ended(child);
    let mut address = String::new();
    ensure!(output.read_line(&mut address)? > 0, "the service on PostgreSQL did not start");
    let mut certificate = String::new();
    while !certificate.contains("END CERTIFICATE") {
        ensure!(output.read_line(&mut certificate)? > 0, "the service on PostgreSQL has no certificate");
    }
    // The rest must not fill the pipe, nor find it closed.
    std::thread::spawn(move || output.read_to_string(&mut String::new()));
    let target = Target::with_token(address.trim(), NAME, certificate.as_bytes(), TOKEN)?;
    Ok((service, target))
}

impl Peer {
    /// `this_command` are the words that make this program a benchmark.
    pub async fn start(options: &Options, this_command: &[&str]) -> anyhow::Result<Peer> {
        let postgres = Postgres::launch()?;
        let client = postgres.ready().await?;
        client.batch_execute(SCHEMA).await?;
        client.batch_execute(&fill(options.orgs, options.instances)).await?;
        client.batch_execute("VACUUM ANALYZE").await?;
        let (one, function) = serve(postgres.folder(), options, this_command, FUNCTION)?;
        let (other, statements) = serve(postgres.folder(), options, this_command, STATEMENTS)?;
        Ok(Peer { function, statements, postgres, services: vec![one, other] })
    }

    /// That no command was carried out twice, or without its event or its usage, and no refusal without its entry.
    pub async fn check(&self, lanes: &[&Lane]) -> anyhow::Result<()> {
        let client = self.postgres.connect().await?;
        let number = async |query: &str| {
            let found: i64 = client.query_one(query, &[]).await?.try_get(0)?;
            anyhow::Ok(u64::try_from(found)?)
        };
        let sum = |of: &dyn Fn(&Lane) -> u64| lanes.iter().map(|lane| of(lane)).sum::<u64>();
        let (changed, refused) = (sum(&Lane::changed), sum(&Lane::refused));
        let events = number("SELECT count(*) FROM events").await?;
        ensure!(events == changed, "{events} events of {changed} commands");
        let versions = number("SELECT sum(version - 1)::bigint FROM envs_view").await?;
        ensure!(events == versions, "versions have come to {versions}, and there are {events} events");
        let last =
            number("SELECT coalesce(sum(n), 0)::bigint FROM (SELECT max(event_id) n FROM events GROUP BY org_id) e");
        let last = last.await?;
        ensure!(events == last, "{events} events have come to {last}");
        let audited = number("SELECT count(*) FROM audit").await?;
        ensure!(audited == refused, "{audited} in the audit trail of {refused} refusals");
        let runs = number("SELECT count(*) FROM instances_desired_view").await?;
        let used = number("SELECT sum(usage)::bigint FROM org_usage_view WHERE dimension = 'max_instances'").await?;
        let more = sum(&Lane::more);
        ensure!(used == runs + more, "{used} are used, and not {runs} and {more}");
        Ok(())
    }
}
