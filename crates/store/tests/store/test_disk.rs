//! A disk in memory that can fail, fill up, lose what was not synced, and be copied.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use store::disk::{Disk, DiskFile};

/// File contents by name.
pub type Image = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create,
    Open,
    List,
    Read,
    Write,
    Sync,
    SyncDir,
    Rename,
    Remove,
}

/// What a failing operation says.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Kind(io::ErrorKind),
    /// The number that the system gives it.
    System(i32),
}

#[derive(Default)]
struct Inode {
    content: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    fail: Option<(Op, u64, Fault)>,
    failed: u64,
    bytes_read: usize,
    capacity: Option<usize>,
}

impl State {
    fn used(&self) -> usize {
        self.names.values().map(|inode| self.inodes[*inode].content.len()).sum()
    }

    fn op(&mut self, op: Op) -> io::Result<()> {
        match &mut self.fail {
            Some((failing, left, fault)) if *failing == op => {
                *left = left.saturating_sub(1);
                if *left > 0 {
                    return Ok(());
                }
                self.failed += 1;
                Err(match fault {
                    Fault::Kind(kind) => io::Error::new(*kind, "injected"),
                    Fault::System(number) => io::Error::from_raw_os_error(*number),
                })
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Default)]
pub struct TestDisk(Arc<Mutex<State>>);

impl TestDisk {
    pub fn new(image: &Image) -> TestDisk {
        let mut state = State::default();
        for (name, content) in image {
            state.names.insert(name.clone(), state.inodes.len());
            state.inodes.push(Inode { content: content.clone(), synced: content.clone() });
        }
        state.synced_names = state.names.clone();
        TestDisk(Arc::new(Mutex::new(state)))
    }

    /// From the `n`-th call on, that operation fails.
    pub fn fail(&self, op: Op, n: u64, kind: io::ErrorKind) {
        self.fail_with(op, n, Fault::Kind(kind));
    }

    pub fn fail_with(&self, op: Op, n: u64, fault: Fault) {
        self.state().fail = Some((op, n, fault));
    }

    pub fn heal(&self) {
        self.state().fail = None;
    }

    /// How many operations have failed so far.
    pub fn failed(&self) -> u64 {
        self.state().failed
    }

    /// How much was read so far.
    pub fn bytes_read(&self) -> usize {
        self.state().bytes_read
    }

    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.state().capacity = bytes;
    }

    pub fn used(&self) -> usize {
        self.state().used()
    }

    /// What a killed process leaves.
    pub fn image(&self) -> Image {
        let state = self.state();
        state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[*inode].content.clone())).collect()
    }

    /// What a power failure leaves at the least.
    pub fn synced_image(&self) -> Image {
        let state = self.state();
        state.synced_names.iter().map(|(name, inode)| (name.clone(), state.inodes[*inode].synced.clone())).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Disk for TestDisk {
    fn place(&self) -> String {
        "test disk".to_owned()
    }

    fn lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.op(Op::List)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.op(Op::Create)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.names.insert(name.to_owned(), inode);
        Ok(Box::new(TestFile { disk: self.clone(), inode }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.op(Op::Open)?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(TestFile { disk: self.clone(), inode }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.op(Op::Rename)?;
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.op(Op::Remove)?;
        state.names.remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        state.op(Op::SyncDir)?;
        state.synced_names = state.names.clone();
        Ok(())
    }
}

struct TestFile {
    disk: TestDisk,
    inode: usize,
}

impl DiskFile for TestFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes[self.inode].content.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.op(Op::Read)?;
        let rest = state.inodes[self.inode].content.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        state.bytes_read += count;
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        state.op(Op::Write)?;
        let end = offset as usize + data.len();
        let growth = end.saturating_sub(state.inodes[self.inode].content.len());
        if growth > 0 && state.capacity.is_some_and(|capacity| state.used() + growth > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let content = &mut state.inodes[self.inode].content;
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.state().inodes[self.inode].content.resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.op(Op::Sync)?;
        let inode = &mut state.inodes[self.inode];
        inode.synced = inode.content.clone();
        Ok(())
    }
}
