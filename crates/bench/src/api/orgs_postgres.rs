//! The peer of the commands of organizations: PostgreSQL, filled with the same organizations, and a service in front of it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::http::Target;
use super::options::Options;
use super::orgs::{TOKEN, UNIT_BYTES};
use super::orgs_service::NAME;
use super::servers::Ended;
use crate::ledger::postgres::Postgres;

const SCHEMA: &str = include_str!("orgs_schema.sql");
const UNIT_CPU_MILLI: i64 = 500;
/// Of every dimension: more than anybody asks for.
const LIMIT: i64 = 1 << 50;

/// So many organizations, with so many instances each of the one process type of their one environment.
fn fill(orgs: u64, instances: u64) -> String {
    let dimensions = "ARRAY['max_instances', 'max_total_memory_bytes', 'max_total_cpu_request']";
    let all = format!("generate_series(0, {orgs} - 1) n");
    format!(
        "INSERT INTO orgs SELECT 'o' || n, 'scale' FROM {all};
        INSERT INTO tier_limits SELECT 'scale', d, {LIMIT} FROM unnest({dimensions}) d;
        INSERT INTO org_usage_view SELECT 'o' || n, d, {instances}::bigint * unit
            FROM {all}, unnest({dimensions}, ARRAY[1, {UNIT_BYTES}, {UNIT_CPU_MILLI}]) u(d, unit);
        INSERT INTO envs_view SELECT 'o' || n, 'shop', 'prod', 1, jsonb_build_object('web', jsonb_build_object(
            'desired', {instances}, 'allocated', {instances}, 'memory_bytes', {UNIT_BYTES}, 'cpu_milli', {UNIT_CPU_MILLI},
            'release', 'shop.1')) FROM {all};"
    )
}

pub struct Peer {
    pub target: Target,
    postgres: Postgres,
    /// Ended before its database is.
    service: Option<Ended>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.service.take());
    }
}

impl Peer {
    /// `this_command` are the words that make this program a benchmark.
    pub async fn start(options: &Options, this_command: &[&str]) -> anyhow::Result<Peer> {
        let postgres = Postgres::launch()?;
        let client = postgres.ready().await?;
        client.batch_execute(SCHEMA).await?;
        client.batch_execute(&fill(options.orgs, options.instances)).await?;
        client.batch_execute("VACUUM ANALYZE").await?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(this_command)
            .arg(crate::ORGS_SERVICE)
            .arg(postgres.folder())
            .arg(options.connections.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
        let service = Some(Ended(child));
        let mut address = String::new();
        ensure!(output.read_line(&mut address)? > 0, "the service on PostgreSQL did not start");
        let mut certificate = String::new();
        while !certificate.contains("END CERTIFICATE") {
            ensure!(output.read_line(&mut certificate)? > 0, "the service on PostgreSQL has no certificate");
        }
        // The rest must not fill the pipe, nor find it closed.
        std::thread::spawn(move || output.read_to_string(&mut String::new()));
        let target = Target::with_token(address.trim(), NAME, certificate.as_bytes(), TOKEN)?;
        Ok(Peer { target, postgres, service })
    }

    /// That no command was carried out twice or without its event. `commands` were asked for, and at most `idle` of them asked for
    /// what was so already.
    pub async fn check(&self, commands: u64, idle: u64) -> anyhow::Result<()> {
        let client = self.postgres.connect().await?;
        let events: i64 = client.query_one("SELECT count(*) FROM events", &[]).await?.try_get(0)?;
        let versions: i64 =
            client.query_one("SELECT sum(version - 1)::bigint FROM envs_view", &[]).await?.try_get(0)?;
        let told = u64::try_from(events)?;
        ensure!(events == versions, "versions have come to {versions}, and there are {events} events");
        ensure!(told <= commands && told + idle >= commands, "{events} events of {commands} commands");
        Ok(())
    }
}
