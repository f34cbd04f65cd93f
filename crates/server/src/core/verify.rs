//! Whether a stored state is sound.

use std::sync::Arc;

use engine::Verified;
use families::Families;
use store::{Store, Table};

use super::encryption::Encryption;
use super::load::{LoadError, Rows, read_object};

/// Looks at everything. The store is loaded twice: as it is, and as a server would. Where a server would not start because of
/// objects that cannot be read, all of them are told. What objects are charged may depend on the time.
pub fn verify(
    store: &mut dyn Store,
    families: Families,
    encryption: Arc<Encryption>,
    now_ms: i64,
) -> Result<Verified, LoadError> {
    let mut unreadable = Verified::default();
    store.load(&mut |table, key, value| {
        if table == Table::OBJECTS {
            unreadable.objects += 1;
            if let Err(why) = read_object(&encryption, key, value) {
                unreadable.problem(why.to_string());
            }
        }
    })?;
    if !unreadable.problems.is_empty() {
        return Ok(unreadable);
    }
    let loaded = Rows::read(store, &encryption)?.loaded;
    let ledger = loaded.ledger.clone();
    let (engine, _) = engine::Engine::start(loaded, families);
    Ok(engine.verify(&ledger, now_ms))
}
