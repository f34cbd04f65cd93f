//! The engine on a store: what a backup that was put back means, and what goes with several writes.

use families::Families;
use ledger::SubjectId;
use rules::GroupResource;
use sequencer::Engine as _;
use serde_json::json;
use store::{Batch, Journal, MemoryStore, PageLimit, Store};

use super::engine::REVISION_ROW;
use super::*;

/// A store that somebody put back to an older backup.
struct Restored(MemoryStore);

impl Store for Restored {
    fn load(&mut self, visit: &mut store::Visit<'_>) -> Result<(), store::StoreError> {
        self.0.load(visit)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), store::StoreError> {
        self.0.commit(batch)
    }

    fn rewound(&self) -> bool {
        true
    }

    fn close(self: Box<Self>) -> Result<(), store::StoreError> {
        Ok(())
    }
}

#[test]
fn revisions_of_a_restored_store_go_on_far_above_those_it_knew() {
    let mut store = MemoryStore::new();
    let mut batch = Batch::new();
    batch.put(store::Table::META, REVISION_ROW, &41_u64.to_le_bytes());
    store.commit(&batch).unwrap();
    let (engine, cache) = Engine::load(&mut Restored(store), Families::new(Vec::new())).unwrap();
    assert!(engine.revision() >= 1_000_000_041, "{}", engine.revision());
    assert_eq!(engine.revision(), cache.revision());
}

/// The same backup, or an older one, after a server that went on from it has said more.
#[test]
fn no_two_restores_go_on_with_the_same_revisions() {
    let at = |ms: u64| std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
    let (monday, busy) = (1_800_000_000_000, 60_000 * 1_000);
    let first = load::beyond(41, at(monday));
    for backup in [41, 7, 0] {
        assert!(
            load::beyond(backup, at(monday + 60_000)) >= first + busy,
            "a minute of a thousand writes a millisecond"
        );
    }
    // Without a clock that is right it is as far as a week of writes, and never less than what was known.
    for wrong in [at(0), at(5), std::time::UNIX_EPOCH - std::time::Duration::from_secs(1)] {
        assert_eq!(load::beyond(41, wrong), 1_000_000_041);
    }
    assert_eq!(load::beyond(u64::MAX - 1, at(monday)), u64::MAX);
}

#[test]
fn entries_of_a_journal_go_with_the_writes_or_not_at_all() {
    let mut store = MemoryStore::new();
    let journals = store.journals();
    let (mut engine, _) = Engine::load(&mut store, Families::new(Vec::new())).unwrap();
    let mut write = |name: &str, dry_run: bool, entry: Vec<u8>| {
        let value = json!({"metadata": {"name": name, "uid": kinds::uid::text(SubjectId(7))}});
        let key = ObjectKey::new(GroupResource::core("namespaces"), "", name);
        let writes = vec![(key, WriteKind::Create(Draft::new(value).unwrap()))];
        let writes = Writes { writes, dry_run, now_ms: 5, origin: families::Origin::default() };
        let all = WriteAll { writes, entries: vec![(Journal::EVENTS, entry)] };
        let (mut batch, mut publication) = (Batch::new(), Publication::default());
        let answer = engine.step(Command::WriteAll(Box::new(all)), &mut batch, &mut publication);
        engine.seal(&mut batch, &mut publication);
        store.commit(&batch).unwrap();
        matches!(answer, Answer::WrittenAll(Ok(_)))
    };
    assert!(write("dry", true, b"dry".to_vec()));
    assert!(write("a", false, b"made".to_vec()));
    assert!(!write("a", false, b"again".to_vec()), "it exists");
    assert!(!write("b", false, vec![0; store::ENTRY_BYTES_MAX + 1]), "one that no commit could take");
    let page = journals.forward(Journal::EVENTS, 0, PageLimit::default()).unwrap();
    let entries: Vec<(i64, Vec<u8>)> = page.entries.into_iter().map(|entry| (entry.at_ms, entry.value)).collect();
    assert_eq!(entries, [(5, b"made".to_vec())]);
}
