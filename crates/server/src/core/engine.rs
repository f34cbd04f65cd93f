//! The engine on a store: what its steps did becomes rows, in the batch of the commands that asked for it, and news for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Effects, EventKind, Fact, Foreseen, Object, ObjectKey, PostponedAll, Refused, Room};
use families::{Book, Record};
use rules::GroupResource;
use store::{Batch, ENTRY_BYTES_MAX, Journal, Space, Table};

use super::command::{Answer, Command, WriteAll};
use super::encryption::Encryption;
use super::event::{Event, Publication};
use super::row::{DUE_ROW, encode};

/// The engine and what is stored of it.
pub struct Engine {
    pub(super) engine: engine::Engine,
    /// Resources written in this group, with the revision of their last change.
    pub(super) last_changes: BTreeMap<GroupResource, u64>,
    /// Whether the store has room for more.
    pub(super) space: Space,
    pub(super) encryption: Arc<Encryption>,
    /// Objects that are stored otherwise than they would be now.
    pub(super) outdated: Vec<ObjectKey>,
}

/// Rows, and about how many bytes of them, written again in one step: others are let in between, and no store finds them too many.
const ENCRYPTED_MAX: usize = 64;
const ENCRYPTED_BYTES_MAX: usize = 256 * 1024;

impl sequencer::Engine for Engine {
    type Command = Command;
    type Answer = Answer;
    type Publication = Publication;

    fn step(&mut self, command: Command, batch: &mut Batch, publication: &mut Publication) -> Answer {
        let bytes = batch.bytes();
        self.engine.set_room(Room {
            writes: self.space.admits(bytes),
            growth: !self.space.is_low(),
            renewals: self.space.admits_renewal(bytes),
        });
        let answer = match command {
            Command::Write(write) => match self.engine.write(*write) {
                Ok(written) => Answer::Written(written),
                Err(postponed) => Answer::Postponed(postponed),
            },
            Command::Stage(write) => match self.engine.stage(*write) {
                Ok(written) => Answer::Written(written),
                Err(postponed) => Answer::Postponed(postponed),
            },
            Command::CountOn { ticket, found, now_ms } => Answer::Counted(self.engine.count_on(ticket, found, now_ms)),
            Command::Hold(hold) => match self.engine.hold(*hold) {
                Ok(held) => Answer::Held(held),
                Err(postponed) => Answer::Postponed(postponed),
            },
            Command::DropHold { subject, now_ms } => {
                Answer::Dropped { was_held: self.engine.drop_hold(subject, now_ms) }
            }
            Command::WriteAll(all) => self.write_all(*all, None, batch),
            Command::WriteAllForeseen(all, foreseen) => self.write_all(*all, Some(foreseen), batch),
            Command::PublishStatus { now_ms } => {
                let remaining = self.engine.publish_status(now_ms);
                Answer::Published { remaining, served: self.engine.served_untold() }
            }
            Command::Snapshot => Answer::Snapshot(Box::new(self.engine.snapshot())),
            Command::Encrypt => self.encrypt_again(batch),
        };
        self.put_writes(batch, publication);
        self.append_records(batch);
        answer
    }

    /// Ends a group: the ledger's rows, the counters, and what readers are told besides.
    fn seal(&mut self, batch: &mut Batch, publication: &mut Publication) {
        let effects = self.engine.seal(&mut |row| match row.value {
            Some(value) => batch.put(Table::LEDGER, row.key, value),
            None => batch.delete(Table::LEDGER, row.key),
        });
        for (resource, revision) in std::mem::take(&mut self.last_changes) {
            batch.put(Table::META, last_change_row(&resource).as_bytes(), &revision.to_le_bytes());
        }
        if publication.revision > 0 {
            batch.put(Table::META, REVISION_ROW, &self.engine.revision().to_le_bytes());
        }
        let Effects { balances, closed, status_written, decided, due_ms, stale_status, facts } = effects;
        facts.into_iter().for_each(|fact| put_fact(fact, batch));
        publication.balances.extend(balances);
        publication.closed.extend(closed);
        publication.status_written.extend(status_written);
        publication.stale_status |= stale_status;
        (publication.decided, publication.due_ms) = (decided, due_ms);
    }
}

impl Engine {
    pub fn revision(&self) -> u64 {
        self.engine.revision()
    }

    /// The number of the ledger's last step.
    pub fn sequence(&self) -> u64 {
        self.engine.ledger().sequence()
    }

    /// How many objects may be counted again in the step of a write: few, for whoever wants to see what happens then.
    pub fn count_at_once(&mut self, max: usize) {
        self.engine.count_at_once(max);
    }

    /// How many objects are stored otherwise than the configuration of encryption says.
    pub fn outdated(&self) -> usize {
        self.outdated.len()
    }

    /// Several writes, with the entries of journals that go with them.
    fn write_all(&mut self, all: WriteAll, foreseen: Option<Foreseen>, batch: &mut Batch) -> Answer {
        let WriteAll { writes, entries } = all;
        // A batch with an entry that is too long would fail for everybody.
        if let Some((_, entry)) = entries.iter().find(|(_, entry)| entry.len() > ENTRY_BYTES_MAX) {
            let why = format!("an entry of {} bytes is longer than {ENTRY_BYTES_MAX}", entry.len());
            return Answer::WrittenAll(Err((0, Refused::Bug(why))));
        }
        let (dry_run, now_ms) = (writes.dry_run, writes.now_ms);
        let written = match foreseen {
            None => self.engine.write_all(writes),
            Some(foreseen) => match self.engine.write_all_foreseen(writes, foreseen) {
                Ok(written) => written,
                Err(put_off) => {
                    let PostponedAll { writes, wanted } = *put_off;
                    return Answer::PostponedAll(Box::new(WriteAll { writes, entries }), wanted);
                }
            },
        };
        for (journal, entry) in entries.iter().filter(|_| !dry_run && written.is_ok()) {
            batch.append(*journal, now_ms, entry);
        }
        Answer::WrittenAll(written)
    }

    /// Rows and events of what the step wrote.
    fn put_writes(&mut self, batch: &mut Batch, publication: &mut Publication) {
        for effect in self.engine.take_writes() {
            let key = &effect.object.key;
            match effect.kind {
                EventKind::Deleted => batch.delete(Table::OBJECTS, &key.row()),
                EventKind::Added | EventKind::Modified => put_object(&self.encryption, &effect.object, batch),
            }
            self.last_changes.insert(key.resource.clone(), effect.object.revision);
            publication.revision = effect.object.revision;
            publication.events.push(Event::from(effect));
        }
    }

    /// What families wrote down in the step.
    fn append_records(&mut self, batch: &mut Batch) {
        for (at_ms, Record { book, entry }) in self.engine.take_records() {
            let entry = entry.to_string();
            // A batch with an entry that is too long would fail for everybody.
            match entry.len() <= ENTRY_BYTES_MAX {
                true => batch.append(journal_of(book), at_ms, entry.as_bytes()),
                false => tracing::error!(bytes = entry.len(), ?book, "what a family wrote down is too long: a bug"),
            }
        }
    }

    /// Writes some of the objects again that are stored otherwise. Nothing changes but the rows: no revision, no event.
    fn encrypt_again(&mut self, batch: &mut Batch) -> Answer {
        if self.space.is_low() {
            return Answer::Encrypted { remaining: self.outdated.len() };
        }
        let begun = batch.bytes();
        for _ in 0..ENCRYPTED_MAX {
            let Some(key) = self.outdated.pop() else { break };
            if let Some(object) = self.engine.shelves().get(&key) {
                put_object(&self.encryption, object, batch);
            }
            if batch.bytes() - begun >= ENCRYPTED_BYTES_MAX {
                break;
            }
        }
        // A row in any case: the store acts at its next commit.
        batch.put(Table::META, REVISION_ROW, &self.engine.revision().to_le_bytes());
        Answer::Encrypted { remaining: self.outdated.len() }
    }
}

pub(crate) fn journal_of(book: Book) -> Journal {
    match book {
        Book::Denials => Journal::DENIALS,
        Book::Outbox => Journal::METERING,
    }
}

/// The object's row, encrypted where that is configured.
fn put_object(encryption: &Encryption, object: &Object, batch: &mut Batch) {
    let row = object.key.row();
    batch.put(Table::OBJECTS, &row, &encryption.seal(&object.key, &row, encode(object)));
}

fn put_fact(fact: Fact, batch: &mut Batch) {
    match fact {
        Fact::Clock(ms) => batch.put(Table::META, CLOCK_ROW, &ms.to_le_bytes()),
        Fact::Measuring(by) => batch.put(Table::META, MEASURING_ROW, &by.to_le_bytes()),
        Fact::Due(key, Some(at)) => batch.put(Table::META, &due_row(&key), &at.to_le_bytes()),
        Fact::Due(key, None) => batch.delete(Table::META, &due_row(&key)),
    }
}

fn due_row(key: &ObjectKey) -> Vec<u8> {
    [DUE_ROW, &key.row()].concat()
}

pub(super) const REVISION_ROW: &[u8] = b"revision";
/// By what time objects and policies were judged that change with it.
pub(super) const CLOCK_ROW: &[u8] = b"clock";
/// What measured the charges that are stored.
pub(super) const MEASURING_ROW: &[u8] = b"measuring";

fn last_change_row(resource: &GroupResource) -> String {
    format!("last/{}/{}", resource.group, resource.resource)
}
