//! PostgreSQL doing the same: one call of a stored function a claim, everything else as it is out of the box.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use super::{ACCOUNTS, Run, Shape, accounts_of, check_books};
use crate::probe::{Latencies, family_cpu};

/// Where Debian puts the server's programs, one folder a version.
const PROGRAMS: &str = "/usr/lib/postgresql";

const START: Duration = Duration::from_secs(30);

/// Locks the accounts in order, so that no two claims wait for each other; the hot account is the last to be locked.
const SCHEMA: &str = "
    CREATE TABLE accounts (id int PRIMARY KEY, cap bigint NOT NULL, used bigint NOT NULL) WITH (fillfactor = 50);
    CREATE TABLE claims (id bigserial PRIMARY KEY, a int NOT NULL, b int NOT NULL, c int NOT NULL);
    CREATE FUNCTION claim(x int, y int, z int) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE account int;
    BEGIN
        FOR account IN SELECT unnest(ARRAY[x, y, z]) ORDER BY 1 LOOP
            UPDATE accounts SET used = used + 1 WHERE id = account AND used + 1 <= cap;
            IF NOT FOUND THEN RAISE EXCEPTION 'account % is full', account; END IF;
        END LOOP;
        INSERT INTO claims (a, b, c) VALUES (x, y, z);
        RETURN true;
    END $$;";

pub struct Postgres {
    process: Child,
    folder: tempfile::TempDir,
    granted: u64,
}

impl Postgres {
    /// Starts a server of our own, with nothing in it.
    pub fn launch() -> anyhow::Result<Postgres> {
        let programs = programs()?;
        let folder = tempfile::tempdir()?;
        // PostgreSQL refuses to run as root; its own user must be able to get to the folder.
        let user = if is_root() { Some(postgres_user()?) } else { None };
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&data, Some(uid), Some(gid))?;
        }
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let made = command("initdb").args(["--auth=trust", "--username=bursar", "-D"]).arg(&data).status()?;
        ensure!(made.success(), "initdb failed");
        let process = command("postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-c", "listen_addresses=", "-c", "max_connections=100", "-c", "shared_buffers=256MB"])
            .spawn()?;
        Ok(Postgres { process, folder, granted: 0 })
    }

    /// The first connection, as soon as it answers.
    pub async fn ready(&self) -> anyhow::Result<Client> {
        let started = Instant::now();
        let client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(error) if started.elapsed() > START => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let version: String = client.query_one("SHOW server_version", &[]).await?.try_get(0)?;
        let fsync: String = client.query_one("SHOW fsync", &[]).await?.try_get(0)?;
        println!("PostgreSQL {version}, fsync {fsync}, started for this benchmark");
        Ok(client)
    }

    pub fn start(runtime: &Runtime) -> anyhow::Result<Postgres> {
        let postgres = Postgres::launch()?;
        runtime.block_on(async {
            let client = postgres.ready().await?;
            client.batch_execute(SCHEMA).await?;
            let fill = "INSERT INTO accounts SELECT n, 1000000000000, 0 FROM generate_series(0, $1 - 1) n";
            client.execute(fill, &[&i32::try_from(ACCOUNTS)?]).await?;
            client.batch_execute("VACUUM ANALYZE accounts").await?;
            anyhow::Ok(())
        })?;
        Ok(postgres)
    }

    pub async fn connect(&self) -> anyhow::Result<Client> {
        connect(self.folder()).await
    }

    /// Where its socket is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn run(&mut self, runtime: &Runtime, shape: Shape, length: Duration) -> anyhow::Result<Run> {
        let run = runtime.block_on(async {
            let observer = self.connect().await?;
            let mut connections = Vec::new();
            for _ in 0..shape.clients {
                connections.push(self.connect().await?);
            }
            let syncs = syncs(&observer).await?;
            let (cpu, started) = (family_cpu(self.process.id()), Instant::now());
            let deadline = started + length;
            let mut clients = tokio::task::JoinSet::new();
            for (number, client) in connections.into_iter().enumerate() {
                clients.spawn(load(client, shape, number as u64, deadline));
            }
            let mut latencies = Latencies::new()?;
            let mut connections = Vec::new();
            while let Some(client) = clients.join_next().await {
                let (client, measured) = client??;
                latencies.add(&measured)?;
                connections.push(client);
            }
            let (elapsed, cpu) = (started.elapsed(), family_cpu(self.process.id()) - cpu);
            // A connection hands its counts over with its next transaction once it was asked to.
            for client in &connections {
                client.batch_execute("SELECT pg_stat_force_next_flush()").await?;
            }
            let syncs = self::syncs(&observer).await?.saturating_sub(syncs);
            let (p50, p99) = (latencies.at(50.0), latencies.at(99.0));
            anyhow::Ok(Run { claims: latencies.count(), elapsed, cpu, syncs, p50, p99 })
        })?;
        self.granted += run.claims;
        runtime.block_on(self.check())?;
        Ok(run)
    }

    async fn check(&self) -> anyhow::Result<()> {
        let client = self.connect().await?;
        let claims: i64 = client.query_one("SELECT count(*) FROM claims", &[]).await?.try_get(0)?;
        let charged: String = client.query_one("SELECT sum(used)::text FROM accounts", &[]).await?.try_get(0)?;
        check_books("postgresql", u64::try_from(claims)?, self.granted, &charged)
    }
}

/// A connection to the server whose socket is in this folder.
pub async fn connect(folder: &Path) -> anyhow::Result<Client> {
    let mut config = tokio_postgres::Config::new();
    config.host_path(folder).user("bursar").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await?;
    // It ends with the client; an error then shows in the client's own calls.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A fast shutdown, so that it removes its shared memory; if that cannot be asked for, it is ended anyway.
        let asked = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _gone = self.process.kill();
        }
        let _reaped = self.process.wait();
    }
}

async fn load(client: Client, shape: Shape, number: u64, deadline: Instant) -> anyhow::Result<(Client, Latencies)> {
    let claim = client.prepare("SELECT claim($1, $2, $3)").await?;
    let mut latencies = Latencies::new()?;
    let mut random = number;
    let mut now = Instant::now();
    while now < deadline {
        let accounts = accounts_of(shape, &mut random);
        let [a, b, c] = accounts.map(|account| i32::try_from(account).unwrap_or(0));
        client.query_one(&claim, &[&a, &b, &c]).await?;
        let after = Instant::now();
        latencies.record(after - now);
        now = after;
    }
    Ok((client, latencies))
}

async fn syncs(client: &Client) -> anyhow::Result<u64> {
    client.batch_execute("SELECT pg_stat_clear_snapshot()").await?;
    let syncs: i64 = client.query_one("SELECT wal_sync FROM pg_stat_wal", &[]).await?.try_get(0)?;
    Ok(u64::try_from(syncs)?)
}

/// The newest installed server; installs Debian's when there is none.
fn programs() -> anyhow::Result<PathBuf> {
    if let Some(found) = installed() {
        return Ok(found);
    }
    let advice = "PostgreSQL is needed as the peer of this benchmark: install the package postgresql";
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        bail!("{advice}");
    }
    println!("PostgreSQL is missing; installing Debian's package postgresql as the peer of this benchmark");
    let status = Command::new("apt-get").args(["install", "-y", "-qq", "postgresql"]).status()?;
    ensure!(status.success(), "{advice}");
    installed().context(advice)
}

fn installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir(PROGRAMS).ok()?.flatten().map(|entry| entry.path().join("bin"));
    versions.filter(|programs| programs.join("initdb").exists()).max()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// User and group of the account that Debian's package makes.
fn postgres_user() -> anyhow::Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).context("there is no user postgres")?;
    let fields: Vec<&str> = line.split(':').collect();
    match fields.as_slice() {
        [_, _, uid, gid, ..] => Ok((uid.parse()?, gid.parse()?)),
        _ => bail!("the user postgres has no number"),
    }
}
