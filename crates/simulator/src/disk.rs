//! A disk that keeps only what it promised.
//!
//! Written bytes and changed names are volatile until they are synced. A crash keeps any subset of what was not: whole
//! writes, single sectors of 512 bytes, renames without the creation before them. Beside that it fails on demand: the
//! n-th call of a kind, every call from the n-th on (the power is gone), growth beyond a capacity, a flipped bit.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::disk::{Disk, DiskFile};

use crate::rng::Rng;

const SECTOR: usize = 512;

/// The kinds of calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Create,
    Open,
    Read,
    Write,
    SetLength,
    Sync,
    SyncNames,
    Rename,
    Remove,
}

pub const CALLS: [Call; 9] = [
    Call::Create,
    Call::Open,
    Call::Read,
    Call::Write,
    Call::SetLength,
    Call::Sync,
    Call::SyncNames,
    Call::Rename,
    Call::Remove,
];

/// Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Clone)]
struct State {
    rng: Rng,
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<Vec<(String, Option<usize>)>>,
    /// Handles from before the last crash are dead.
    boot: u64,
    locked: bool,
    calls: u64,
    dies_at: Option<u64>,
    fails: Option<(Call, u64)>,
    capacity: Option<usize>,
    /// A broken disk for the tests of the checker: it says that it synced.
    lies: bool,
    failed: Vec<Call>,
    refused_full: u64,
}

#[derive(Clone, Default)]
struct File {
    durable: Vec<u8>,
    content: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    SetLength(usize),
}

impl SimDisk {
    pub fn new(rng: Rng, lies: bool) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            rng,
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            boot: 0,
            locked: false,
            calls: 0,
            dies_at: None,
            fails: None,
            capacity: None,
            lies,
            failed: Vec::new(),
            refused_full: 0,
        })))
    }

    /// The power goes: what was not synced may be gone, in any part.
    pub fn crash(&self) {
        let mut state = self.state();
        let State { rng, files, .. } = &mut *state;
        for file in files.iter_mut() {
            let pending = std::mem::take(&mut file.pending);
            keep_some(rng, &mut file.durable, &pending);
            file.content = file.durable.clone();
        }
        let pending = std::mem::take(&mut state.pending_names);
        let keep = state.rng.below(3);
        for change in pending {
            let kept = match keep {
                0 => false,
                1 => true,
                _ => state.rng.one_in(2),
            };
            if kept {
                rename(&mut state.durable_names, change);
            }
        }
        state.names = state.durable_names.clone();
        state.boot += 1;
        state.locked = false;
        state.dies_at = None;
        state.fails = None;
    }

    /// From the n-th call on nothing works, as after a power failure in the middle of something.
    pub fn die_after(&self, calls: u64) {
        let mut state = self.state();
        state.dies_at = Some(state.calls + calls);
    }

    /// The n-th call of a kind fails.
    pub fn fail(&self, call: Call, nth: u64) {
        self.state().fails = Some((call, nth));
    }

    /// Bounds the bytes of all files to what is there and a little more, or lifts the bound.
    pub fn fill(&self, spare: Option<usize>) {
        let mut state = self.state();
        let used = state.used();
        state.capacity = spare.map(|spare| used + spare);
    }

    /// Takes back every fault that has not happened yet.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.dies_at, state.fails, state.capacity) = (None, None, None);
    }

    /// Another disk with the same content, as a backup would have it, and nobody using it.
    pub fn copy(&self) -> SimDisk {
        let mut state = self.state().clone();
        state.locked = false;
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// Flips one bit of a file, and says where. `None` on an empty disk.
    pub fn flip(&self) -> Option<String> {
        let mut state = self.state();
        let State { rng, files, names, .. } = &mut *state;
        let filled: Vec<(&String, usize)> = names
            .iter()
            .map(|(name, file)| (name, *file))
            .filter(|(_, file)| !files[*file].content.is_empty())
            .collect();
        let (name, file) = *filled.get(rng.index(filled.len()))?;
        let content = &files[file].content;
        // Most of a file is the room behind the last record; the interesting bytes are in front, above all the last.
        let used = content.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        let offset = match rng.below(8) {
            0 => rng.index(content.len()),
            1..=3 => used - 1 - rng.index(used.min(256)),
            _ => rng.index(used),
        };
        let mask = 1 << rng.below(8);
        let File { durable, content, .. } = &mut files[file];
        for bytes in [durable, content] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= mask;
            }
        }
        Some(format!("{name} at {offset}"))
    }

    /// Cuts a file off somewhere in what was written to it, or fills the rest of it with zeros, and says where. `None` on an
    /// empty disk.
    pub fn cut(&self, keeps_length: bool) -> Option<String> {
        let mut state = self.state();
        let State { rng, files, names, .. } = &mut *state;
        let used = |file: &File| file.content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let filled: Vec<(&String, usize, usize)> = names
            .iter()
            .map(|(name, file)| (name, *file, used(&files[*file])))
            .filter(|(_, _, used)| *used > 0)
            .collect();
        let (name, file, used) = *filled.get(rng.index(filled.len()))?;
        // Ends of records are the places that could pass for the end of all: they are found more often near the last.
        let offset = if rng.one_in(2) { used - 1 - rng.index(used.min(600)) } else { rng.index(used) };
        let File { durable, content, pending } = &mut files[file];
        pending.clear();
        for bytes in [durable, content] {
            let length = bytes.len();
            bytes.truncate(offset);
            if keeps_length {
                bytes.resize(length, 0);
            }
        }
        Some(format!("{name} at {offset}"))
    }

    /// The process ends, the machine does not: what was written stays, synced or not.
    pub fn restart_process(&self) {
        let mut state = self.state();
        state.boot += 1;
        state.locked = false;
    }

    pub fn has_died(&self) -> bool {
        let state = self.state();
        state.dies_at.is_some_and(|at| state.calls >= at)
    }

    /// Calls that were made to fail since the last question.
    pub fn take_failed(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().failed)
    }

    pub fn take_refused_full(&self) -> u64 {
        std::mem::take(&mut self.state().refused_full)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, file: usize, boot: u64) -> Box<dyn DiskFile> {
        Box::new(SimFile { disk: self.clone(), file, boot })
    }
}

impl State {
    /// Lets a call through, or not.
    fn gate(&mut self, call: Call) -> io::Result<()> {
        self.calls += 1;
        if self.dies_at.is_some_and(|at| self.calls >= at) {
            return Err(io::Error::other("the power is gone"));
        }
        if let Some((kind, nth)) = &mut self.fails
            && *kind == call
        {
            if *nth == 0 {
                self.fails = None;
                self.failed.push(call);
                return Err(io::Error::other(format!("{call:?} failed")));
            }
            *nth -= 1;
        }
        Ok(())
    }

    fn used(&self) -> usize {
        self.names.values().map(|file| self.files[*file].content.len()).sum()
    }

    fn check_room(&mut self, file: usize, length: usize) -> io::Result<()> {
        let growth = length.saturating_sub(self.files[file].content.len());
        match self.capacity {
            Some(capacity) if growth > 0 && self.used() + growth > capacity => {
                self.refused_full += 1;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            _ => Ok(()),
        }
    }

    fn change_names(&mut self, change: Vec<(String, Option<usize>)>) {
        rename(&mut self.names, change.clone());
        self.pending_names.push(change);
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

/// Makes a random part of the changes durable: none, all, or single sectors.
fn keep_some(rng: &mut Rng, durable: &mut Vec<u8>, pending: &[Change]) {
    let keep = rng.below(4);
    for change in pending {
        match (keep, change) {
            (0, _) => {}
            (1, change) => change.apply(durable),
            (_, Change::SetLength(length)) => {
                if rng.one_in(2) {
                    Change::SetLength(*length).apply(durable);
                }
            }
            (_, Change::Write { offset, data }) => {
                let mut from = 0;
                while from < data.len() {
                    let until = ((offset + from) / SECTOR + 1) * SECTOR - offset;
                    let part = &data[from..until.min(data.len())];
                    if rng.one_in(2) {
                        Change::Write { offset: offset + from, data: part.to_vec() }.apply(durable);
                    }
                    from += part.len();
                }
            }
        }
    }
}

fn rename(names: &mut BTreeMap<String, usize>, change: Vec<(String, Option<usize>)>) {
    for (name, file) in change {
        match file {
            Some(file) => names.insert(name, file),
            None => names.remove(&name),
        };
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::SetLength(length) => bytes.resize(*length, 0),
            Change::Write { offset, data } => {
                if bytes.len() < offset + data.len() {
                    bytes.resize(offset + data.len(), 0);
                }
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }
}

impl Disk for SimDisk {
    fn place(&self) -> String {
        "the simulated disk".into()
    }

    fn lock(&self) -> io::Result<bool> {
        let mut state = self.state();
        Ok(!std::mem::replace(&mut state.locked, true))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.gate(Call::Read)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.gate(Call::Create)?;
        if state.names.contains_key(name) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let file = state.files.len();
        state.files.push(File::default());
        state.change_names(vec![(name.to_owned(), Some(file))]);
        let boot = state.boot;
        drop(state);
        Ok(self.handle(file, boot))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.gate(Call::Open)?;
        let (file, boot) = (state.find(name)?, state.boot);
        drop(state);
        Ok(self.handle(file, boot))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.gate(Call::Rename)?;
        let file = state.find(from)?;
        state.change_names(vec![(from.to_owned(), None), (to.to_owned(), Some(file))]);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.gate(Call::Remove)?;
        state.find(name)?;
        state.change_names(vec![(name.to_owned(), None)]);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        state.gate(Call::SyncNames)?;
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
    boot: u64,
}

impl SimFile {
    /// The state, if this handle is not from before a crash and the call goes through.
    fn gated(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.disk.state();
        if state.boot != self.boot {
            return Err(io::Error::other("a handle from before the crash"));
        }
        state.gate(call)?;
        Ok(state)
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.gated(Call::Read)?.files[self.file].content.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.gated(Call::Read)?;
        let content = &state.files[self.file].content;
        let offset = usize::try_from(offset).map_err(io::Error::other)?.min(content.len());
        let count = buffer.len().min(content.len() - offset);
        buffer[..count].copy_from_slice(&content[offset..offset + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let change = Change::Write { offset, data: data.to_vec() };
        let mut state = match self.gated(Call::Write) {
            Ok(state) => state,
            Err(error) => {
                // The part that was on its way when the power went may still arrive.
                let mut state = self.disk.state();
                if state.boot == self.boot && state.dies_at == Some(state.calls) {
                    state.files[self.file].pending.push(change);
                }
                return Err(error);
            }
        };
        state.check_room(self.file, offset + data.len())?;
        let file = &mut state.files[self.file];
        change.apply(&mut file.content);
        file.pending.push(change);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut state = self.gated(Call::SetLength)?;
        state.check_room(self.file, length)?;
        let file = &mut state.files[self.file];
        Change::SetLength(length).apply(&mut file.content);
        file.pending.push(Change::SetLength(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.gated(Call::Sync) {
            Ok(mut state) => {
                if !state.lies {
                    let file = &mut state.files[self.file];
                    for change in std::mem::take(&mut file.pending) {
                        change.apply(&mut file.durable);
                    }
                }
                Ok(())
            }
            Err(error) => {
                // After a failed sync nobody knows what arrived, and a later one reports success without it.
                let mut state = self.disk.state();
                if state.boot == self.boot {
                    let State { rng, files, .. } = &mut *state;
                    let file = &mut files[self.file];
                    let pending = std::mem::take(&mut file.pending);
                    keep_some(rng, &mut file.durable, &pending);
                }
                Err(error)
            }
        }
    }
}
