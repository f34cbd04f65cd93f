//! Where live subjects are kept: slots in chunks, found by a small hash table.
//!
//! The table holds eight bytes a subject (part of the hash, and the slot), so growing it moves little and never
//! touches the subjects; chunks never move. A live subject with up to four lines costs about 160 bytes in all.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::answer::Outcome;
use crate::charge::{Lines, PLACES, SubjectId};
use crate::terms::Wait;

/// Most live subjects: a place in a roster has 30 bits.
pub const SUBJECTS_MAX: usize = PLACES;

/// So small that a step which touches hundreds of them right after a snapshot copies a few megabytes at the most, and so large that
/// a snapshot of a million subjects takes hold of some thousands.
const CHUNK_BITS: u32 = 7;
const CHUNK: usize = 1 << CHUNK_BITS;

/// The table is seeded with a constant: the same inputs must make the same ledger. Ids are uids that the platform
/// draws, so a caller cannot choose them to collide.
const HASH_SEED: u64 = 0x6275_7273_6172;

#[derive(Clone, Debug)]
pub(crate) struct Subject {
    id: [u8; 16],
    /// The step that made it what it is; zero marks a vacant slot.
    pub sequence: u64,
    /// What it occupies: its charges, or the larger of charge and hold, or what it has while it waits for more.
    pub lines: Lines,
    /// Boxed, because almost every subject is simply charged.
    pub pending: Option<Box<Pending>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// `wanted` becomes the charge when it settles, `settled` stays when it expires.
    Hold { expires_at_ms: i64, wanted: Lines, settled: Lines },
    /// `wanted` takes the place of what it has of the same accounts when its turn has come.
    Wait { wait: Wait, wanted: Lines },
}

impl Pending {
    pub fn outcome(&self) -> Outcome {
        match self {
            Pending::Hold { expires_at_ms, .. } => Outcome::Held { expires_at_ms: *expires_at_ms },
            Pending::Wait { .. } => Outcome::Queued,
        }
    }
}

impl Subject {
    #[inline(always)]
    pub fn new(id: SubjectId, sequence: u64) -> Subject {
        Subject { id: id.0.to_le_bytes(), sequence, lines: Lines::new(), pending: None }
    }

    pub fn outcome(&self) -> Outcome {
        self.pending.as_deref().map_or(Outcome::Granted, Pending::outcome)
    }

    pub fn id(&self) -> SubjectId {
        SubjectId(u128::from_le_bytes(self.id))
    }

    /// Leaves it with nothing.
    pub fn take(&mut self) -> (Lines, Option<Box<Pending>>) {
        (std::mem::take(&mut self.lines), self.pending.take())
    }

    /// The charges that count as used.
    pub fn settled(&self) -> &Lines {
        match self.pending.as_deref() {
            Some(Pending::Hold { settled, .. }) => settled,
            Some(Pending::Wait { .. }) | None => &self.lines,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    slot: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Subjects {
    /// Shared with snapshots; copied when it changes while one lives.
    chunks: Vec<Arc<Vec<Subject>>>,
    vacant: Vec<u32>,
    index: HashTable<Entry>,
    hasher: Hasher,
}

#[derive(Clone, Debug)]
struct Hasher(FixedState);

impl Default for Hasher {
    fn default() -> Hasher {
        Hasher(FixedState::with_seed(HASH_SEED))
    }
}

impl Subjects {
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn find(&self, id: SubjectId) -> Option<u32> {
        let hash = self.hash(id);
        let wanted = id.0.to_le_bytes();
        let same = |entry: &Entry| entry.hash == hash && self.get(entry.slot).id == wanted;
        self.index.find(spread(hash), same).map(|entry| entry.slot)
    }

    pub fn get(&self, slot: u32) -> &Subject {
        let (chunk, offset) = parts(slot);
        &self.chunks[chunk][offset]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Subject {
        let (chunk, offset) = parts(slot);
        &mut own(&mut self.chunks[chunk])[offset]
    }

    /// Makes an empty subject. The caller knows that the id is new.
    pub fn insert(&mut self, id: SubjectId, sequence: u64) -> u32 {
        let hash = self.hash(id);
        let subject = Subject::new(id, sequence);
        let slot = match self.vacant.pop() {
            Some(slot) => {
                *self.get_mut(slot) = subject;
                slot
            }
            None => self.push(subject),
        };
        self.index.insert_unique(spread(hash), Entry { hash, slot }, |entry| spread(entry.hash));
        slot
    }

    pub fn remove(&mut self, slot: u32) {
        let hash = self.hash(self.get(slot).id());
        if let Ok(entry) = self.index.find_entry(spread(hash), |entry| entry.slot == slot) {
            entry.remove();
            let subject = self.get_mut(slot);
            subject.sequence = 0;
            subject.lines = Lines::new();
            subject.pending = None;
            self.vacant.push(slot);
        }
    }

    /// Every live subject, in slot order: an order of history that no answer may depend on.
    pub fn iter(&self) -> impl Iterator<Item = &Subject> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).filter(|subject| subject.sequence != 0)
    }

    /// The slots of every live subject, in slot order.
    pub fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let end: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
        0..u32::try_from(end).unwrap_or(u32::MAX)
    }

    fn push(&mut self, subject: Subject) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        let chunk = self.chunks.len() - 1;
        let offset = self.chunks[chunk].len();
        own(&mut self.chunks[chunk]).push(subject);
        u32::try_from(chunk * CHUNK + offset).expect("decisions keep the number of subjects below its bound")
    }

    /// All chunks as they are, for a snapshot.
    pub fn chunks(&self) -> Vec<Arc<Vec<Subject>>> {
        self.chunks.clone()
    }

    fn hash(&self, id: SubjectId) -> u32 {
        let bytes = self.hasher.0.hash_one(id.0).to_le_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

/// The chunk for writing: a copy of its own when a snapshot has it too.
fn own(chunk: &mut Arc<Vec<Subject>>) -> &mut Vec<Subject> {
    let chunk = Arc::make_mut(chunk);
    if chunk.capacity() < CHUNK {
        // A copy keeps no more room than it needs; a chunk is pushed to until it is full.
        chunk.reserve_exact(CHUNK - chunk.len());
    }
    chunk
}

/// The table takes its tag from the top bits and the bucket from the low ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn parts(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    (slot >> CHUNK_BITS, slot & (CHUNK - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_copies_after_a_snapshot_is_little_for_each_subject_it_touches() {
        const COUNT: u32 = 50_000;
        const TOUCHED: usize = 256;
        let mut subjects = Subjects::default();
        for id in 0..COUNT {
            subjects.insert(SubjectId(id.into()), 1);
        }
        let before = subjects.chunks();
        // As far from each other as a slice of objects in the order of their names may be.
        let step = COUNT as usize / TOUCHED;
        (0..COUNT).step_by(step).for_each(|slot| subjects.get_mut(slot).sequence = 2);
        let after = subjects.chunks();
        let copied: usize =
            before.iter().zip(&after).filter(|(old, new)| !Arc::ptr_eq(old, new)).map(|(old, _)| old.len()).sum();
        let bytes = copied * size_of::<Subject>();
        assert!(bytes <= TOUCHED * 20 * 1024, "{bytes} bytes are copied for {TOUCHED} subjects");
        // Taking the snapshot holds on to chunks, one by one.
        assert!(before.len() <= COUNT as usize / 100, "{} chunks", before.len());
        assert_eq!(subjects.get(0).sequence, 2);
        assert_eq!(before[0][0].sequence, 1, "a snapshot is as it was");
    }
}
