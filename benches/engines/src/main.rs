//! Which engine under the embedded store? redb, fjall and our own log under the write mix of a server: every command writes one
//! object of 3 KB and one ledger row of 100 bytes, a group also rewrites the rows of three hot accounts, and a group is durable
//! before the next one begins. Engines take turns, several rounds; the median counts.
//!
//! `cargo run --release --manifest-path benches/engines/Cargo.toml [FOLDER]`

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use store::{Batch, EmbeddedStore, Store, Table};

const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_millis(1500);
const KEYS: u64 = 100_000;
const GROUPS: [u64; 4] = [1, 16, 64, 256];

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One group of commands: objects, their ledger rows, the hot accounts.
struct Group {
    rows: Vec<(u8, [u8; 16], Vec<u8>)>,
}

fn group(numbers: &mut u64, commands: u64) -> Group {
    let mut rows = Vec::new();
    for _ in 0..commands {
        *numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (*numbers >> 33) % KEYS;
        let mut key = [0; 16];
        // Spread like uids are.
        key[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
        let object = (0..3000_u64).map(|at| (at.wrapping_mul(*numbers | 1) >> 17) as u8).collect();
        rows.push((1, key, object));
        rows.push((3, key, numbers.to_be_bytes().repeat(12)));
    }
    for account in 0..3_u8 {
        rows.push((2, [account; 16], numbers.to_be_bytes().repeat(8)));
    }
    Group { rows }
}

trait Engine {
    fn commit(&mut self, group: &Group) -> Outcome<()>;
}

struct Redb(redb::Database);

const REDB_TABLES: [redb::TableDefinition<'_, &[u8], &[u8]>; 4] = [
    redb::TableDefinition::new("0"),
    redb::TableDefinition::new("1"),
    redb::TableDefinition::new("2"),
    redb::TableDefinition::new("3"),
];

impl Engine for Redb {
    fn commit(&mut self, group: &Group) -> Outcome<()> {
        let transaction = self.0.begin_write()?;
        for (number, definition) in REDB_TABLES.iter().enumerate() {
            let mut table = transaction.open_table(*definition)?;
            for (_, key, value) in group.rows.iter().filter(|(row_table, ..)| usize::from(*row_table) == number) {
                table.insert(key.as_slice(), value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }
}

struct Fjall {
    database: fjall::Database,
    tables: Vec<fjall::Keyspace>,
}

impl Engine for Fjall {
    fn commit(&mut self, group: &Group) -> Outcome<()> {
        let mut batch = self.database.batch().durability(Some(fjall::PersistMode::SyncData));
        for (table, key, value) in &group.rows {
            batch.insert(&self.tables[usize::from(*table)], key.as_slice(), value.as_slice());
        }
        Ok(batch.commit()?)
    }
}

struct Ours(EmbeddedStore, Batch);

impl Engine for Ours {
    fn commit(&mut self, group: &Group) -> Outcome<()> {
        self.1.clear();
        for (table, key, value) in &group.rows {
            self.1.put(Table(*table), key, value);
        }
        Ok(self.0.commit(&self.1)?)
    }
}

fn open(name: &str, folder: &Path) -> Outcome<Box<dyn Engine>> {
    Ok(match name {
        "redb" => Box::new(Redb(redb::Database::create(folder.join("redb"))?)),
        "fjall" => {
            let database = fjall::Database::builder(folder.join("fjall")).open()?;
            let tables = (0..4)
                .map(|table| database.keyspace(&table.to_string(), fjall::KeyspaceCreateOptions::default))
                .collect::<Result<_, _>>()?;
            Box::new(Fjall { database, tables })
        }
        _ => {
            let mut store = EmbeddedStore::open_folder(folder.join("ours"))?;
            store.load(&mut |_, _, _| {})?;
            Box::new(Ours(store, Batch::new()))
        }
    })
}

/// Commands per second, and the slowest commit of a hundred.
fn measure(name: &str, commands: u64, place: Option<&Path>) -> Outcome<(u64, Duration)> {
    let folder = match place {
        Some(place) => tempfile::tempdir_in(place)?,
        None => tempfile::tempdir()?,
    };
    let mut engine = open(name, folder.path())?;
    let mut numbers = 1;
    let groups: Vec<Group> = (0..(4096 / commands).max(16)).map(|_| group(&mut numbers, commands)).collect();
    let start = Instant::now();
    let mut times = Vec::new();
    for group in groups.iter().cycle() {
        let before = Instant::now();
        engine.commit(group)?;
        times.push(before.elapsed());
        if start.elapsed() > RUN {
            break;
        }
    }
    let rate = times.len() as u128 * u128::from(commands) * 1000 / start.elapsed().as_millis().max(1);
    times.sort_unstable();
    Ok((u64::try_from(rate)?, times[times.len() * 99 / 100]))
}

fn main() -> Outcome<()> {
    let place = std::env::args_os().nth(1);
    let place = place.as_deref().map(Path::new);
    println!("commands/s (p99 of a commit), median of {ROUNDS} rounds; one command = 3 KB object + 100 B ledger row");
    println!("{:>6} {:>22} {:>22} {:>22}", "group", "redb", "fjall", "log + snapshots");
    for commands in GROUPS {
        let mut results = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (name, results) in ["redb", "fjall", "ours"].iter().zip(&mut results) {
                results.push(measure(name, commands, place)?);
            }
        }
        let cells = results.map(|mut rounds| {
            rounds.sort_unstable();
            let (rate, slowest) = rounds[ROUNDS / 2];
            format!("{rate} ({:.1} ms)", slowest.as_secs_f64() * 1000.0)
        });
        println!("{commands:>6} {:>22} {:>22} {:>22}", cells[0], cells[1], cells[2]);
    }
    Ok(())
}
