//! What must hold, by what was acknowledged. Independent of the store: it knows batches, and reads etcd's keys itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use store::{Batch, Journal, StoreError, Term};
use tokio::time::Instant;

use crate::fake_etcd::cluster::{Cluster, Snapshot};
use crate::fake_etcd::{FakeEtcd, JOURNALS, MARKER, STAGED};
use crate::{Rows, apply};

/// Three seconds, less the tenth that is not counted on, and some for clocks that run wrong.
const DOUBT: Duration = Duration::from_millis(2900);

/// Two leases, an attempt to renew, and some.
const GIVEN_UP: Duration = Duration::from_millis(8000);

/// After how many writes an etcd is saved.
const WRITTEN_MIN: i64 = 60;

/// What stands in a store: rows, and the entries of each journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub rows: Rows,
    pub entries: BTreeMap<u8, Vec<(i64, Vec<u8>)>>,
}

impl State {
    fn apply(&mut self, batch: &Batch) {
        apply(&mut self.rows, batch);
        for entry in batch.entries() {
            self.entries.entry(entry.journal.0).or_default().push((entry.at_ms, entry.value.to_vec()));
        }
    }

    /// Whether this is what was found. The oldest entries of one journal may have been retired.
    fn is(&self, found: &State) -> bool {
        let entries = |state: &State, journal: Journal| state.entries.get(&journal.0).cloned().unwrap_or_default();
        let all = |journal| is_all(&entries(self, journal), &entries(found, journal), journal);
        self.rows == found.rows && APPENDED.into_iter().all(all)
    }

    /// For people: what was found beside what was expected.
    fn difference(&self, found: &State) -> String {
        let differ = self.rows.iter().filter(|(key, value)| found.rows.get(*key) != Some(value)).count();
        let more: Vec<_> = found.rows.keys().filter(|key| !self.rows.contains_key(*key)).take(3).collect();
        let mut text = format!("{differ} rows differ, too many: {more:?}");
        for journal in APPENDED {
            let of = |state: &State| state.entries.get(&journal.0).cloned().unwrap_or_default();
            let (expected, found) = (of(self), of(found));
            let missing = expected.iter().position(|entry| !found.contains(entry));
            text += &format!("; {journal:?}: {} of {} entries, {missing:?} is missing", found.len(), expected.len());
        }
        text
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unknown,
    There,
    NotThere,
}

#[derive(Debug)]
struct Attempt {
    life: usize,
    batch: Batch,
    fate: Fate,
}

/// Whether the next load must find that etcd was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rewound {
    No,
    Yes,
    /// The batch that would have ended it may be there or not.
    Either,
}

/// Somebody that takes itself for the leader.
#[derive(Debug)]
struct Speaker {
    life: usize,
    replica: usize,
    term: Term,
    cut_off_since: Option<Instant>,
    lease_lost: Option<Instant>,
}

#[derive(Debug)]
pub struct Judge {
    etcd: FakeEtcd,
    acknowledged: State,
    attempts: Vec<Attempt>,
    speakers: Vec<Speaker>,
    /// Every number of a journal that was ever seen, and what stood there.
    given: BTreeMap<(u8, u64), Vec<u8>>,
    saved: Option<(Snapshot, State)>,
    /// The revision at which etcd was restored.
    begun: i64,
    rewound: Rewound,
    /// Those that lead, or led, what was restored last.
    fresh: BTreeSet<usize>,
    violations: Vec<String>,
    pub acknowledgements: u64,
    pub rare: Rare,
    last_life: usize,
}

impl Judge {
    pub fn new(etcd: &FakeEtcd) -> Judge {
        Judge {
            etcd: etcd.clone(),
            acknowledged: State::default(),
            attempts: Vec::new(),
            speakers: Vec::new(),
            given: BTreeMap::new(),
            saved: None,
            begun: 0,
            rewound: Rewound::No,
            fresh: BTreeSet::new(),
            violations: Vec::new(),
            acknowledgements: 0,
            rare: Rare::default(),
            last_life: 0,
        }
    }

    pub fn new_life(&mut self) -> usize {
        self.last_life += 1;
        self.last_life
    }

    pub fn violation(&mut self, text: impl Into<String>) {
        self.violations.push(text.into());
    }

    pub fn verdict(&mut self) -> Result<(), String> {
        self.violations.extend(self.etcd.with(|etcd| etcd.witness.take()));
        match self.violations.first() {
            None => Ok(()),
            Some(first) => Err(format!("{first} ({} in all)", self.violations.len())),
        }
    }

    /// It leads, as far as it knows, by this term.
    pub fn leads(&mut self, life: usize, replica: usize, term: Term) {
        self.rare.takeovers += 1;
        let found = self.etcd.see(|etcd| (etcd.history.get(MARKER), etcd.history.below(STAGED).count()));
        match found {
            (Some(_), _) => self.rare.marked += 1,
            (None, pieces) => self.rare.staged += u64::from(pieces > 0),
        }
        self.fresh.insert(life);
        self.speakers.push(Speaker { life, replica, term, cut_off_since: None, lease_lost: None });
    }

    /// It has ended, or says nothing any more.
    pub fn silent(&mut self, life: usize) {
        self.speakers.retain(|speaker| speaker.life != life);
    }

    /// The replica that leads, as far as it knows.
    pub fn speaker(&self) -> Option<usize> {
        self.speakers.last().map(|speaker| speaker.replica)
    }

    /// A lease ended before its time: nobody could have told its owner.
    pub fn lease_lost(&mut self, life: usize) {
        for speaker in self.speakers.iter_mut().filter(|speaker| speaker.life == life) {
            speaker.lease_lost = Some(Instant::now());
        }
    }

    /// What a load gave. Whoever was replaced meanwhile is not judged: nothing that it does from now on counts.
    pub fn loaded(&mut self, life: usize, rows: Rows, rewound: bool) {
        let (leading, entries) = self.etcd.see(|etcd| (etcd.leading(), read_entries(etcd)));
        if leading != Some(life) {
            return;
        }
        let entries = match entries {
            Ok(entries) => entries,
            Err(what) => return self.violation(what),
        };
        for (place, (_, value)) in &entries {
            let known = self.given.entry(*place).or_insert_with(|| value.clone());
            if known != value {
                self.violations.push(format!("number {place:?} was given twice"));
            }
        }
        let mut found = State { rows, entries: BTreeMap::new() };
        for ((journal, _), entry) in entries {
            found.entries.entry(journal).or_default().push(entry);
        }
        self.resolve(life, &found);
        let expected = match self.rewound {
            Rewound::No => Some(false),
            Rewound::Yes => Some(true),
            Rewound::Either => None,
        };
        if expected.is_some_and(|expected| expected != rewound) {
            let kept = self.etcd.see(|etcd| etcd.rewind_facts());
            self.violation(format!("life {life} says that a restored etcd is {rewound}, by {kept}"));
        }
        self.rare.rewound += u64::from(rewound);
    }

    /// What was asked for and not answered is there or not, as a whole.
    fn resolve(&mut self, life: usize, found: &State) {
        let open: Vec<usize> =
            (0..self.attempts.len()).filter(|&index| self.attempts[index].fate == Fate::Unknown).collect();
        for chosen in 0..1_u32 << open.len().min(8) {
            let is_in = |position: usize| chosen & (1 << position) != 0;
            let mut candidate = self.acknowledged.clone();
            for (position, index) in open.iter().enumerate() {
                if is_in(position) {
                    candidate.apply(&self.attempts[*index].batch);
                }
            }
            if candidate.is(found) {
                for (position, index) in open.iter().enumerate() {
                    let fate = if is_in(position) { Fate::There } else { Fate::NotThere };
                    self.rare.there += u64::from(fate == Fate::There);
                    self.rare.not_there += u64::from(fate == Fate::NotThere);
                    self.attempts[*index].fate = fate;
                    if fate == Fate::There && self.rewound == Rewound::Yes {
                        self.rewound = Rewound::Either;
                    }
                }
                self.acknowledged = candidate;
                return;
            }
        }
        let difference = self.acknowledged.difference(found);
        self.violation(format!("life {life} loaded something else than was acknowledged: {difference}"));
    }

    pub fn asks(&mut self, life: usize, batch: &Batch) {
        self.attempts.retain(|attempt| attempt.life != life || attempt.fate == Fate::Unknown);
        self.attempts.push(Attempt { life, batch: batch.clone(), fate: Fate::Unknown });
    }

    pub fn acknowledged(&mut self, life: usize) {
        self.acknowledgements += 1;
        let Some(index) = self.attempts.iter().rposition(|attempt| attempt.life == life) else { return };
        let attempt = self.attempts.remove(index);
        match attempt.fate {
            Fate::Unknown => self.acknowledged.apply(&attempt.batch),
            Fate::There => {}
            Fate::NotThere => self.violation(format!("life {life} acknowledged what the next leader did not find")),
        }
        if self.fresh.contains(&life) {
            self.rewound = Rewound::No;
        } else if self.rewound == Rewound::Yes {
            // Nothing that it knew was lost, and it has said so by writing.
            self.rewound = Rewound::Either;
        }
    }

    /// How a commit or a load ended otherwise.
    pub fn failed(&mut self, life: usize, error: &StoreError) {
        if self.fresh.contains(&life) && self.rewound == Rewound::Yes && !self.attempts.is_empty() {
            self.rewound = Rewound::Either;
        }
        let excused = match error {
            StoreError::Fenced { .. } | StoreError::Io { .. } => true,
            // It had written what is no longer there.
            StoreError::Corrupt { .. } => !self.fresh.contains(&life),
            _ => false,
        };
        if !excused {
            self.violation(format!("life {life}: {error}"));
        }
    }

    /// A process ended in the midst of something.
    pub fn ended(&mut self, life: usize) {
        self.silent(life);
        let asked = self.attempts.iter().any(|attempt| attempt.life == life && attempt.fate == Fate::Unknown);
        if asked && self.fresh.contains(&life) && self.rewound == Rewound::Yes {
            self.rewound = Rewound::Either;
        }
    }

    /// Saves etcd as it is, if nothing is under way. One that has hardly begun, or begun anew, cannot be told from its restored
    /// self.
    pub fn save(&mut self) {
        let written = self.etcd.see(|etcd| etcd.history.revision()) - self.begun;
        if written > WRITTEN_MIN && self.attempts.iter().all(|attempt| attempt.fate != Fate::Unknown) {
            self.saved = Some((self.etcd.see(Cluster::save), self.acknowledged.clone()));
        }
    }

    /// Puts etcd back to what was saved. `false`: nothing was.
    pub fn restore(&mut self) -> bool {
        let Some((snapshot, state)) = self.saved.clone() else { return false };
        self.etcd.with(|etcd| etcd.restore(snapshot));
        self.begun = self.etcd.see(|etcd| etcd.history.revision());
        self.acknowledged = state;
        // What is still under way may find an etcd that is as it knew it.
        self.attempts.retain(|attempt| attempt.fate == Fate::Unknown);
        self.rewound = Rewound::Yes;
        self.fresh.clear();
        for speaker in &mut self.speakers {
            speaker.lease_lost = Some(Instant::now());
        }
        true
    }

    /// What the journals gave to whoever read them the usual way.
    pub fn read(&mut self, journals: &Entries) {
        for (journal, entries) in journals {
            let expected = self.acknowledged.entries.get(journal).map_or(&[][..], Vec::as_slice);
            if !is_all(expected, entries, Journal(*journal)) {
                self.violations.push(format!(
                    "journal {journal}: {} entries were read, {} appended",
                    entries.len(),
                    expected.len()
                ));
            }
        }
    }

    /// Looks at everybody who takes itself for the leader. Called again and again.
    pub fn look(&mut self) {
        let (now, leading) = (Instant::now(), self.etcd.see(Cluster::leading));
        let mut found = Vec::new();
        for speaker in &mut self.speakers {
            let Speaker { life, replica, term, cut_off_since, lease_lost } = speaker;
            *cut_off_since = if self.etcd.is_cut_off(*replica) { cut_off_since.or(Some(now)) } else { None };
            let silence = cut_off_since.map_or(Duration::ZERO, |since| now - since);
            if silence > DOUBT && !term.is_in_doubt() {
                found.push(format!("life {life} is cut off and not in doubt"));
            }
            if silence > GIVEN_UP && !term.is_lost() {
                found.push(format!("life {life} is cut off and has not given up"));
            }
            let unaware = lease_lost.is_some_and(|lost| now - lost <= DOUBT);
            if !term.is_in_doubt() && leading != Some(*life) && !unaware {
                found.push(format!("life {life} speaks while {leading:?} leads"));
            }
        }
        self.violations.extend(found);
    }
}

/// By journal, as they were read.
pub type Entries = Vec<(u8, Vec<(i64, Vec<u8>)>)>;

type Stored = BTreeMap<(u8, u64), (i64, Vec<u8>)>;

/// By the layout of the keys, written down once more.
fn read_entries(etcd: &Cluster) -> Result<Stored, String> {
    let mut entries = Stored::new();
    for (key, value) in etcd.history.below(JOURNALS) {
        let read = || {
            let name = std::str::from_utf8(key.strip_prefix(JOURNALS)?).ok()?;
            let (journal, sequence) = name.split_once('/')?;
            let place = (u8::from_str_radix(journal, 16).ok()?, u64::from_str_radix(sequence, 16).ok()?);
            let (head, stored) = value.split_at_checked(32)?;
            let at_ms = i64::from_be_bytes(head[..8].try_into().ok()?);
            // Entries of these tests are too short to be packed.
            let value = stored.strip_prefix(&[0])?;
            Some((place, (at_ms, value.to_vec())))
        };
        let Some((place, entry)) = read() else {
            return Err(format!("an entry cannot be read: {}", String::from_utf8_lossy(key)));
        };
        entries.insert(place, entry);
    }
    Ok(entries)
}

/// The journals that are appended to, the one of them that is kept short, and how short.
pub const APPENDED: [Journal; 2] = [Journal::AUDIT, Journal::EVENTS];
pub const RETIRED: Journal = Journal::EVENTS;
pub const RETIRED_BYTES: u64 = 1000;

/// Whether these are the entries that were appended, or, where some are retired, the last of them, and as many as have to stay.
fn is_all(appended: &[(i64, Vec<u8>)], found: &[(i64, Vec<u8>)], journal: Journal) -> bool {
    const HEAD_BYTES: usize = 32;
    let bytes =
        |entries: &[(i64, Vec<u8>)]| -> usize { entries.iter().map(|(_, value)| HEAD_BYTES + value.len()).sum() };
    let retired = appended.len().saturating_sub(found.len());
    let Some((gone, left)) = appended.split_at_checked(retired) else { return false };
    // The last one that went would have been too much.
    let rightly = gone.last().is_none_or(|last| {
        let last = bytes(std::slice::from_ref(last));
        journal == RETIRED && (bytes(found) + last) as u64 > RETIRED_BYTES
    });
    left == found && rightly
}

/// How often what must happen now and then has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rare {
    pub takeovers: u64,
    /// What was not acknowledged was there for the next leader, or was not.
    pub there: u64,
    pub not_there: u64,
    /// A leader found a batch half staged, or staged and half spread.
    pub staged: u64,
    pub marked: u64,
    /// A leader found etcd restored.
    pub rewound: u64,
    /// A leader compacted etcd.
    pub compacted: u64,
}
