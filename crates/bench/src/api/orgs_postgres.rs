//! The same command as a service on PostgreSQL would do it: the organization's usage is locked, compared with its limits and
//! changed with the environment, and an event is appended, in one transaction. It has no HTTP in front of it, in its favour.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::orgs::UNIT_BYTES;
use crate::ledger::postgres::Postgres;
use crate::probe::Latencies;

const SCHEMA: &str = "
    CREATE TABLE usage (org int, dimension int, used bigint NOT NULL, cap bigint NOT NULL, PRIMARY KEY (org, dimension))
        WITH (fillfactor = 50);
    CREATE TABLE envs (org int PRIMARY KEY, desired bigint NOT NULL, version bigint NOT NULL) WITH (fillfactor = 50);
    CREATE TABLE events (id bigserial PRIMARY KEY, org int NOT NULL, body text NOT NULL);";

pub struct Peer {
    postgres: Postgres,
    orgs: u64,
    instances: u64,
}

/// What is prepared once a connection.
struct Statements {
    usage: Statement,
    env: Statement,
    charge: Statement,
    change: Statement,
    tell: Statement,
}

impl Peer {
    pub async fn start(orgs: u64, instances: u64) -> anyhow::Result<Peer> {
        let postgres = Postgres::launch()?;
        let client = postgres.ready().await?;
        client.batch_execute(SCHEMA).await?;
        let (count, each) = (i32::try_from(orgs)?, i64::try_from(instances)?);
        let fill = "INSERT INTO usage SELECT org, dimension, $2::bigint * (ARRAY[1::bigint, $3, 500])[dimension], 1000000000000000
            FROM generate_series(0, $1 - 1) org, generate_series(1, 3) dimension";
        client.execute(fill, &[&count, &each, &UNIT_BYTES]).await?;
        let fill = "INSERT INTO envs SELECT org, $2::bigint, 1 FROM generate_series(0, $1 - 1) org";
        client.execute(fill, &[&count, &each]).await?;
        for table in ["usage", "envs"] {
            client.batch_execute(&format!("VACUUM ANALYZE {table}")).await?;
        }
        Ok(Peer { postgres, orgs, instances })
    }

    pub async fn scales(&self, clients: usize, length: Duration) -> anyhow::Result<(Latencies, Duration)> {
        let mut ready = Vec::new();
        for _ in 0..clients {
            let client = self.postgres.connect().await?;
            let statements = prepare(&client).await?;
            ready.push((client, statements));
        }
        let started = Instant::now();
        let mut all = JoinSet::new();
        for (number, (mut client, statements)) in ready.into_iter().enumerate() {
            let (orgs, instances) = (self.orgs, i64::try_from(self.instances)?);
            all.spawn(async move {
                let mut latencies = Latencies::new()?;
                let mut round = 0;
                while started.elapsed() < length {
                    for org in (number as u64..orgs.max(number as u64 + 1)).step_by(clients) {
                        let desired = if round % 2 == 0 { (instances - 1).max(0) } else { instances.max(1) };
                        let asked = Instant::now();
                        scale(&mut client, &statements, i32::try_from(org % orgs)?, desired).await?;
                        latencies.record(asked.elapsed());
                        if started.elapsed() >= length {
                            break;
                        }
                    }
                    round += 1;
                }
                anyhow::Ok(latencies)
            });
        }
        let mut latencies = Latencies::new()?;
        while let Some(one) = all.join_next().await {
            latencies.add(&one??)?;
        }
        Ok((latencies, started.elapsed()))
    }
}

async fn prepare(client: &Client) -> anyhow::Result<Statements> {
    Ok(Statements {
        usage: client.prepare("SELECT used, cap FROM usage WHERE org = $1 ORDER BY dimension FOR UPDATE").await?,
        env: client.prepare("SELECT desired, version FROM envs WHERE org = $1 FOR UPDATE").await?,
        charge: client
            .prepare(
                "UPDATE usage SET used = used + $2::bigint * (ARRAY[1::bigint, $3, 500])[dimension] WHERE org = $1",
            )
            .await?,
        change: client.prepare("UPDATE envs SET desired = $2, version = version + 1 WHERE org = $1").await?,
        tell: client.prepare("INSERT INTO events (org, body) VALUES ($1, $2)").await?,
    })
}

async fn scale(client: &mut Client, statements: &Statements, org: i32, desired: i64) -> anyhow::Result<()> {
    let step = client.transaction().await?;
    let usage = step.query(&statements.usage, &[&org]).await?;
    let env = step.query_one(&statements.env, &[&org]).await?;
    let (had, version): (i64, i64) = (env.try_get(0)?, env.try_get(1)?);
    let more = desired - had;
    for (row, unit) in usage.iter().zip([1, UNIT_BYTES, 500]) {
        let (used, cap): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        ensure!(more <= 0 || used + more * unit <= cap, "the quota is exceeded");
    }
    step.execute(&statements.charge, &[&org, &more, &UNIT_BYTES]).await?;
    step.execute(&statements.change, &[&org, &desired]).await?;
    let body = format!(
        "{{\"event_type\":\"env.scale_set\",\"org_id\":\"o{org}\",\"aggregate_seq\":{},\"actor_id\":\"bench\",\
         \"old\":{{\"desired\":{had}}},\"new\":{{\"desired\":{desired}}}}}",
        version + 1
    );
    step.execute(&statements.tell, &[&org, &body]).await?;
    step.commit().await?;
    Ok(())
}
