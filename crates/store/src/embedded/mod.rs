//! The default store: one folder, one process. A commit is one write and one sync at the end of an append-only log.
//!
//! ```text
//!   commit ──▶ log segment ──full──▶ sealed segments ──enough of them──▶ snapshot, and the segments go
//!                  └──entries──▶ journals
//!   load   ◀── snapshot + what the log says after it
//! ```
//!
//! Measured against keeping the rows in a B-tree or an LSM engine: see docs/dependencies.md. Start reading at [`EmbeddedStore`];
//! [`format`] describes the files, [`recover`] what a start does with them, [`examine`] what is wrong with any of them, [`journals`] has what is only appended.

mod backup;
mod delta;
mod examine;
mod format;
mod journals;
mod log;
mod mark;
mod recover;
mod scan;
mod snapshot;
mod space;
mod upkeep;
mod window;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

pub use backup::{Archive, Backup, Maintenance, ReadStore};
pub use format::FORMAT_VERSION;
use format::{FRAME_ROWS_BYTES_MAX, REWOUND_NAME, segment_name, unfinished_name};
use journals::{Chapters, Counting};
use log::{Segment, Spare, segment_bytes_for};
use mark::Mark;
use recover::{Recovered, recover};
pub use space::Space;
use upkeep::{Duty, Sealed, Upkeep};

use crate::disk::{Disk, FolderDisk};
use crate::journal::Journals;
use crate::{Batch, Store, StoreError, Table, Visit};

/// How often, and how many times, a commit tries again to open a file when too many are open.
const PASSING_RETRY: Duration = Duration::from_millis(250);
const PASSING_TRIES: u32 = 120;

/// How the files are cut. The defaults are for production; tests and the simulator make everything small.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The length of a log segment. It is written in full before it is used, twice over (the one in use and the spare): that is
    /// the room for deletions on a full disk. A reserve of the size of a snapshot is kept beside it.
    pub segment_bytes: u64,
    /// The least amount of full segments that is worth a new snapshot.
    pub checkpoint_bytes: u64,
    /// Whether threads of the store's own do the upkeep, or each commit what is due.
    pub background: bool,
    /// Go on although acknowledged writes at the end of the log are missing: an operator said so.
    pub accept_loss: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 16 * 1024 * 1024,
            checkpoint_bytes: 64 * 1024 * 1024,
            background: true,
            accept_loss: false,
        }
    }
}

/// What a start left out at the end of the log. It is always told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub file: String,
    /// From here on.
    pub offset: u64,
    /// Bytes of a write that was cut off in the middle.
    pub bytes: u64,
    /// Acknowledged writes that are known to be missing. Without leave to go on all the same, a start with any is refused.
    pub lost: u64,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dropped { file, offset, bytes, lost } = self;
        match lost {
            0 if *bytes == 0 => {
                write!(f, "what lay behind byte {offset} of {file} cannot be known any more, as was accepted")
            }
            0 => write!(
                f,
                "{file} ended in a write that was never finished, and nobody was told that it was done: {bytes} bytes from \
                 byte {offset} on were left out"
            ),
            lost => write!(f, "{lost} acknowledged writes behind byte {offset} of {file} are lost, as was accepted"),
        }
    }
}

/// What a store has done since it was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Committed batches, each of which cost one sync.
    pub commits: AtomicU64,
    /// Bytes of rows committed.
    pub bytes: AtomicU64,
    /// Segments begun; each costs a few syncs of its own.
    pub segments: AtomicU64,
    pub checkpoints: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

/// Rows in a folder of this machine.
pub struct EmbeddedStore {
    disk: Arc<dyn Disk>,
    options: Options,
    space: Space,
    counters: Arc<Counters>,
    dropped: Option<Dropped>,
    rewound: bool,
    state: State,
}

enum State {
    Opened,
    Ready(Ready),
    Failed,
}

struct Ready {
    current: Segment,
    mark: Mark,
    upkeep: Arc<Upkeep>,
    threads: Vec<JoinHandle<()>>,
    /// The folder still says that it is an older state.
    rewound: bool,
    /// The numbers that entries of journals get.
    counting: Counting,
}

impl EmbeddedStore {
    /// Opens a folder, creating it when it is missing, and takes it for this process.
    pub fn open_folder(path: impl AsRef<Path>) -> Result<EmbeddedStore, StoreError> {
        EmbeddedStore::open_folder_with(path, Options::default())
    }

    pub fn open_folder_with(path: impl AsRef<Path>, options: Options) -> Result<EmbeddedStore, StoreError> {
        let path = path.as_ref();
        let disk = FolderDisk::open(path).map_err(|error| StoreError::io(path.display().to_string(), error))?;
        EmbeddedStore::open(Arc::new(disk), options)
    }

    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<EmbeddedStore, StoreError> {
        match disk.lock() {
            Ok(true) => {}
            Ok(false) => return Err(StoreError::Locked { place: disk.place() }),
            Err(error) => return Err(StoreError::io(disk.place(), error)),
        }
        let (space, counters) = Default::default();
        Ok(EmbeddedStore { disk, options, space, counters, dropped: None, rewound: false, state: State::Opened })
    }

    /// Shared with the store: stays up to date.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    fn ready(&self, mut recovered: Recovered) -> Result<Ready, StoreError> {
        let position = recovered.current.position();
        let found = std::mem::take(&mut recovered.journals);
        let chapters = Chapters::new(self.disk.clone(), self.options.segment_bytes, found, position);
        let upkeep = Arc::new(Upkeep::new(
            self.disk.clone(),
            self.options,
            self.space.clone(),
            self.counters.clone(),
            (std::mem::take(&mut recovered.sealed), position),
            recovered.snapshot.take(),
            chapters,
        ));
        // So that who reads finds everything from the start on. On a disk without any room it is done later, like all of this.
        match upkeep.lay_out_journals() {
            Err(StoreError::Full { .. }) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        self.space.set_room(recovered.current.room(), self.options.segment_bytes);
        if self.space.room() < self.options.segment_bytes / 2 {
            // The very first commit may need the next segment, and with what a start counts again it is a large one: whether
            // there is one must be known before it is accepted.
            upkeep.run_due();
        }
        let Recovered { current, mark, rewound, mut counting, .. } = recovered;
        if rewound {
            counting.leap(SystemTime::now());
        }
        let mut ready = Ready { current, mark, upkeep, threads: Vec::new(), rewound, counting };
        if self.options.background {
            let duties = [
                ("store-spares", Duty::Spares),
                ("store-snapshots", Duty::Snapshots),
                ("store-journals", Duty::Journals),
            ];
            for (name, duty) in duties {
                let upkeep = ready.upkeep.clone();
                match thread::Builder::new().name(name.to_owned()).spawn(move || upkeep.run(duty)) {
                    Ok(thread) => ready.threads.push(thread),
                    Err(error) => {
                        ready.stop()?;
                        return Err(StoreError::io("starting a thread of the store", error));
                    }
                }
            }
        }
        Ok(ready)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let State::Ready(ready) = &mut self.state else {
            return Err(StoreError::Unusable { why: "it was not loaded, or failed before".to_owned() });
        };
        if let Some((table, length)) = batch.oversize() {
            return Err(StoreError::Oversize { table, length });
        }
        let numbers = ready.counting.number(batch);
        let bytes = batch.bytes() + numbers.bytes();
        if bytes > FRAME_ROWS_BYTES_MAX {
            return Err(StoreError::BatchTooLarge { bytes, bytes_max: FRAME_ROWS_BYTES_MAX });
        }
        if let Some(failure) = ready.upkeep.take_failure() {
            return Err(failure);
        }
        let fits = ready.current.has_room_for(bytes) && (numbers.is_empty() || ready.current.takes_entries());
        if !fits || ready.upkeep.take_roll() {
            ready.roll(&*self.disk, self.options.segment_bytes, bytes)?;
            Counters::add(&self.counters.segments, 1);
        }
        ready.current.append(batch.encoded(), numbers.encoded())?;
        ready.mark.set(ready.current.next - 1);
        ready.upkeep.committed(ready.current.position(), batch.has_entries());
        if ready.rewound && batch.rows().any(|row| row.table == Table::META) {
            // Who goes on from an older state writes its own numbers, far above those that were, with its first change. Should
            // the file stay, the next start does so once more.
            let _once_more = self.disk.remove(REWOUND_NAME);
            ready.rewound = false;
        }
        self.space.set_room(ready.current.room(), self.options.segment_bytes);
        Counters::add(&self.counters.commits, 1);
        Counters::add(&self.counters.bytes, batch.bytes() as u64);
        if !self.options.background {
            ready.upkeep.run_due();
        }
        Ok(())
    }
}

impl Ready {
    /// Goes on in the spare, or in a segment made on the spot when there is no spare or it is too short.
    fn roll(&mut self, disk: &dyn Disk, segment_bytes: u64, rows_bytes: usize) -> Result<(), StoreError> {
        let number = self.current.number + 1;
        let needed = segment_bytes_for(rows_bytes);
        let spare = if needed <= segment_bytes { self.upkeep.take_spare() } else { None };
        let spare = match spare {
            Some(spare) => spare,
            None => make_now(disk, &unfinished_name(&segment_name(number)), needed.max(segment_bytes))?,
        };
        let next = Segment::begin(disk, spare, number, self.current.next, self.current.link)?;
        let full = std::mem::replace(&mut self.current, next);
        let sealed = Sealed { number: full.number, last: full.next - 1, bytes: full.offset };
        self.upkeep.seal(sealed, self.current.position());
        Ok(())
    }

    fn stop(&mut self) -> Result<(), StoreError> {
        self.upkeep.stop();
        self.mark.sync();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                return Err(StoreError::Unusable { why: "one of its threads panicked".to_owned() });
            }
        }
        self.upkeep.take_failure().map_or(Ok(()), Err)
    }
}

impl Store for EmbeddedStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        if !matches!(self.state, State::Opened) {
            return Err(StoreError::Unusable { why: "it is loaded once".to_owned() });
        }
        self.state = State::Failed;
        let recovered = recover(&*self.disk, &self.options, visit)?;
        self.dropped.clone_from(&recovered.dropped);
        self.rewound = recovered.rewound;
        self.state = State::Ready(self.ready(recovered)?);
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let written = self.write(batch);
        if let (Err(_), State::Ready(ready)) = (&written, &mut self.state) {
            // The error of the commit is the one to report.
            let _second = ready.stop();
            self.state = State::Failed;
        }
        written
    }

    fn close(mut self: Box<Self>) -> Result<(), StoreError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Ready(mut ready) => ready.stop(),
            State::Opened | State::Failed => Ok(()),
        }
    }

    fn space(&self) -> Space {
        self.space.clone()
    }

    fn dropped(&self) -> Option<Dropped> {
        self.dropped.clone()
    }

    fn rewound(&self) -> bool {
        self.rewound
    }

    fn journals(&self) -> Journals {
        match &self.state {
            State::Ready(ready) => Journals::new(ready.upkeep.clone()),
            State::Opened | State::Failed => Journals::default(),
        }
    }

    fn maintenance(&self) -> Option<Maintenance> {
        match &self.state {
            State::Ready(ready) => Some(Maintenance(ready.upkeep.clone())),
            State::Opened | State::Failed => None,
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let State::Ready(ready) = &mut self.state {
            // Nobody is left to be told; the next start finds whatever the files say.
            let _untold = ready.stop();
        }
    }
}

/// Makes a segment that a commit waits for. Too many open files are waited out for a while: the commit is late then, and
/// the server lives.
fn make_now(disk: &dyn Disk, name: &str, bytes: u64) -> Result<Spare, StoreError> {
    let mut left = PASSING_TRIES;
    loop {
        match Spare::make(disk, name.to_owned(), bytes) {
            Err(error) if error.is_passing() && left > 0 => {
                tracing::warn!(%error, "a write waits for its segment");
                left -= 1;
                thread::sleep(PASSING_RETRY);
            }
            made => return made,
        }
    }
}

fn unknown_version(name: &str, found: u32) -> StoreError {
    StoreError::Version { file: name.to_owned(), found, known: FORMAT_VERSION }
}
