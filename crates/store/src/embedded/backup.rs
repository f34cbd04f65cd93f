//! A backup: the files of a store as they were behind one commit, one after the other in a stream.
//!
//! ```text
//!   head (16 B): magic, version │ file │ file │ … │ end
//!   file   1, name length (u16), length (u64), name │ bytes │ checksum of all of it
//!   end    0, count of files (u32), checksum of their checksums
//! ```
//!
//! The bytes of snapshot and sealed segments never change, those of the current segment only behind the last commit, and those of
//! a journal's chapter only behind its last entry. So a
//! backup is a list of open files and how far each is read, taken in a moment; what is written or removed meanwhile does not
//! show, and nothing is held in memory. [`Archive`] reads such a stream as the folder it was.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::examine::examine;
use super::format::{HEAD_BYTES, Head, Kind, number_in, segment_name};
use super::journals::{FLOORS_NAME, Files};
use super::log::write_zeros;
use super::mark::{self, MARK_NAME};
use super::recover::{inspect, note_rewound};
use super::snapshot::Snapshot;
use super::upkeep::{Position, Sealed, Upkeep};
use crate::disk::{Disk, DiskFile, FolderDisk};
use crate::error::StoreError;
use crate::{Batch, Store, Visit};

const MAGIC: &[u8; 8] = b"BURSARBK";
/// Since 2 there may be journals.
const VERSION: u32 = 2;
const HEAD: usize = 16;
const FILE_HEAD: usize = 1 + 2 + 8;
const END: usize = 1 + 4 + 4;

/// What is read and sent at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// No segment that was ever made is longer; a head that says so is not believed.
const SEGMENT_BYTES_MAX: u64 = 2 * super::FRAME_ROWS_BYTES_MAX as u64;

/// What can be asked of a store that is in use, beside its commits.
#[derive(Clone)]
pub struct Maintenance(pub(super) Arc<Upkeep>);

impl Maintenance {
    /// A backup of the state behind the last commit.
    pub fn backup(&self) -> Result<Backup, StoreError> {
        self.0.frozen(Backup::of)
    }

    /// What was overwritten or deleted until now goes from the folder: a commit begins a new segment, and a snapshot replaces
    /// those before it.
    pub fn compact(&self) {
        self.0.compact();
    }

    /// Whether it waits for a commit.
    pub fn waits_for_commit(&self) -> bool {
        self.0.wants_roll()
    }

    /// Whether anything is left of it to do.
    pub fn is_compacting(&self) -> bool {
        self.0.is_compacting()
    }
}

/// One backup, as pieces to be sent in order.
pub struct Backup {
    sequence: u64,
    files: std::vec::IntoIter<Part>,
    current: Option<Part>,
    count: u32,
    checksums: crc32fast::Hasher,
    state: Next,
}

struct Part {
    name: String,
    content: Content,
    length: u64,
    offset: u64,
    checksum: crc32fast::Hasher,
}

enum Content {
    File(Box<dyn DiskFile>),
    Bytes(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Head,
    Files,
    Done,
}

impl Backup {
    fn of(
        disk: &dyn Disk,
        snapshot: Option<&Snapshot>,
        sealed: &[Sealed],
        current: Position,
        journals: Files,
    ) -> Result<Backup, StoreError> {
        let mut files = Vec::new();
        let mut add = |name: String, length| {
            let file = disk.open(&name).map_err(|error| StoreError::io(&name, error))?;
            files.push(Part::new(name, Content::File(file), length));
            Ok::<(), StoreError>(())
        };
        if let Some(snapshot) = snapshot {
            add(snapshot.name(), snapshot.bytes)?;
        }
        for sealed in sealed {
            add(segment_name(sealed.number), sealed.bytes)?;
        }
        add(segment_name(current.number), current.offset)?;
        for (name, length) in journals.chapters {
            add(name, length)?;
        }
        let mark = mark::encode(current.next - 1).to_vec();
        let small = journals.floors.map(|floors| (FLOORS_NAME, floors)).into_iter().chain([(MARK_NAME, mark)]);
        files.extend(small.map(|(name, bytes)| {
            let length = bytes.len() as u64;
            Part::new(name.to_owned(), Content::Bytes(bytes), length)
        }));
        let (files, checksums) = (files.into_iter(), crc32fast::Hasher::new());
        Ok(Backup { sequence: current.next - 1, files, current: None, count: 0, checksums, state: Next::Head })
    }

    /// Of a folder that no process has. Everything is checked first.
    pub fn of_folder(disk: &dyn Disk) -> Result<Backup, StoreError> {
        let found = inspect(disk, false, &mut |_, _, _| {})?;
        let Some((number, end)) = found.current() else {
            return Err(StoreError::Unusable { why: format!("{} holds no store", disk.place()) });
        };
        let current = Position { number, offset: end.offset, next: end.next };
        let files = Files::of(&found.journals.kept);
        Backup::of(disk, found.snapshot.as_ref(), &found.sealed(), current, files)
    }

    /// The last write in it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The next piece; `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.state {
            Next::Head => {
                self.state = Next::Files;
                let mut head = Vec::with_capacity(HEAD);
                head.extend_from_slice(MAGIC);
                head.extend_from_slice(&VERSION.to_le_bytes());
                head.resize(HEAD, 0);
                Ok(Some(head))
            }
            Next::Files => self.next_of_files().map(Some),
            Next::Done => Ok(None),
        }
    }

    fn next_of_files(&mut self) -> Result<Vec<u8>, StoreError> {
        if let Some(part) = &mut self.current {
            let mut piece = part.read()?;
            if part.offset == part.length {
                let checksum = part.checksum.clone().finalize().to_le_bytes();
                piece.extend_from_slice(&checksum);
                self.checksums.update(&checksum);
                self.count += 1;
                self.current = None;
            }
            return Ok(piece);
        }
        match self.files.next() {
            Some(mut part) => {
                let head = part.head();
                part.checksum.update(&head);
                self.current = Some(part);
                Ok(head)
            }
            None => {
                self.state = Next::Done;
                let mut end = vec![0];
                end.extend_from_slice(&self.count.to_le_bytes());
                end.extend_from_slice(&self.checksums.clone().finalize().to_le_bytes());
                Ok(end)
            }
        }
    }
}

impl Part {
    fn new(name: String, content: Content, length: u64) -> Part {
        Part { name, content, length, offset: 0, checksum: crc32fast::Hasher::new() }
    }

    fn head(&self) -> Vec<u8> {
        let mut head = vec![1];
        // Our own names are short.
        head.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        head.extend_from_slice(&self.length.to_le_bytes());
        head.extend_from_slice(self.name.as_bytes());
        head
    }

    fn read(&mut self) -> Result<Vec<u8>, StoreError> {
        let length = (self.length - self.offset).min(CHUNK_BYTES as u64) as usize;
        let piece = match &self.content {
            Content::Bytes(bytes) => bytes.clone(),
            Content::File(file) => {
                let mut piece = vec![0; length];
                let count = file.read_at(self.offset, &mut piece).map_err(|error| StoreError::io(&self.name, error))?;
                if count != length {
                    return Err(damaged(&self.name, self.offset + count as u64, "it is shorter than it was"));
                }
                piece
            }
        };
        self.checksum.update(&piece);
        self.offset += piece.len() as u64;
        Ok(piece)
    }
}

/// A backup file, read as the folder it was taken of. Every checksum of it has been compared.
pub struct Archive {
    name: String,
    file: Arc<File>,
    /// Where each file lies in it, and its length.
    parts: BTreeMap<String, (u64, u64)>,
}

impl Archive {
    pub fn open(path: &Path) -> Result<Archive, StoreError> {
        let mut archive = Archive::at(path)?;
        archive.index().into_iter().next().map_or(Ok(archive), Err)
    }

    /// All that is wrong with a backup, where [`Archive::open`] stops at the first.
    pub fn examine(path: &Path) -> Vec<StoreError> {
        Archive::at(path).map_or_else(|error| vec![error], |mut archive| archive.index())
    }

    fn at(path: &Path) -> Result<Archive, StoreError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| StoreError::io(&name, error))?;
        Ok(Archive { name, file: Arc::new(file), parts: BTreeMap::new() })
    }

    /// Finds the files in it, and what is wrong with them.
    fn index(&mut self) -> Vec<StoreError> {
        let mut found = Vec::new();
        if let Err(error) = self.walk(&mut found) {
            found.push(error);
        }
        found
    }

    /// `found`: files whose bytes are not what they were. An error is where the walk cannot go on.
    fn walk(&mut self, found: &mut Vec<StoreError>) -> Result<(), StoreError> {
        let head = self.exactly(0, HEAD)?;
        if &head[..8] != MAGIC {
            return Err(damaged(&self.name, 0, "it is no backup of Bursar"));
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if !(1..=VERSION).contains(&version) {
            return Err(StoreError::Version { file: self.name.clone(), found: version, known: VERSION });
        }
        let (mut offset, mut checksums) = (HEAD as u64, crc32fast::Hasher::new());
        loop {
            let kind = self.exactly(offset, 1)?[0];
            if kind == 0 {
                let end = self.exactly(offset, END)?;
                let count = u32::from_le_bytes([end[1], end[2], end[3], end[4]]);
                let sum = u32::from_le_bytes([end[5], end[6], end[7], end[8]]);
                let length = self.file.metadata().map_err(|error| StoreError::io(&self.name, error))?.len();
                let whole = count as usize == self.parts.len() && sum == checksums.finalize();
                return match whole && length == offset + END as u64 {
                    true => Ok(()),
                    false => Err(damaged(&self.name, offset, "it does not end as it should")),
                };
            }
            let head = self.exactly(offset, FILE_HEAD)?;
            let name_length = usize::from(u16::from_le_bytes([head[1], head[2]]));
            let length = head[3..].try_into().map_or(0, u64::from_le_bytes);
            let named = self.exactly(offset, FILE_HEAD + name_length)?;
            let start = offset + named.len() as u64;
            let checksum = self.checksum_of(&named, start, length)?;
            let stored = self.exactly(start + length, 4)?;
            let known = std::str::from_utf8(&named[FILE_HEAD..]).ok().filter(|name| kind == 1 && is_ours(name));
            let Some(name) = known else {
                return Err(damaged(&self.name, offset, "a file in it does not match its checksum"));
            };
            if stored != checksum.to_le_bytes() {
                found.push(damaged(&self.name, offset, &format!("{name} in it does not match its checksum")));
            }
            checksums.update(&stored);
            self.parts.insert(name.to_owned(), (start, length));
            offset = start + length + 4;
        }
    }

    fn checksum_of(&self, head: &[u8], start: u64, length: u64) -> Result<u32, StoreError> {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(head);
        let mut done = 0;
        while done < length {
            let piece = self.exactly(start + done, (length - done).min(CHUNK_BYTES as u64) as usize)?;
            hasher.update(&piece);
            done += piece.len() as u64;
        }
        Ok(hasher.finalize())
    }

    fn exactly(&self, offset: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(damaged(&self.name, offset, "the backup was cut off"))
            }
            Err(error) => Err(StoreError::io(&self.name, error)),
        }
    }

    /// Lays the files out in a folder that must not be there yet: all of them or none.
    pub fn restore(&self, folder: &Path) -> Result<(), StoreError> {
        let place = folder.display().to_string();
        let failed = |error| StoreError::io(&place, error);
        match std::fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
            Ok(true) => {
                let why = format!("{place} is not empty: move it away, or restore into another folder");
                return Err(StoreError::Unusable { why });
            }
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let mut beside = folder.as_os_str().to_owned();
        beside.push(".restoring");
        if std::fs::exists(&beside).map_err(failed)? {
            std::fs::remove_dir_all(&beside).map_err(failed)?;
        }
        let disk = FolderDisk::open(&beside).map_err(failed)?;
        for (name, (_, length)) in &self.parts {
            self.lay_out(&disk, name, *length).map_err(|error| StoreError::io(name, error))?;
        }
        // What was acknowledged after the backup is not in it.
        note_rewound(&disk)?;
        std::fs::rename(&beside, folder).map_err(failed)?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
    }

    fn lay_out(&self, disk: &FolderDisk, name: &str, length: u64) -> io::Result<()> {
        let (from, to) = (Disk::open(self, name)?, disk.create(name)?);
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < length {
            let count = from.read_at(offset, &mut buffer[..(length - offset).min(CHUNK_BYTES as u64) as usize])?;
            to.write_at(offset, &buffer[..count])?;
            offset += count as u64;
        }
        // The room behind the frames, which a segment is made with and a backup leaves out.
        write_zeros(&*to, length, from.len()?)?;
        to.sync_data()
    }
}

fn is_ours(name: &str) -> bool {
    [MARK_NAME, FLOORS_NAME].contains(&name)
        || [Kind::Segment, Kind::Snapshot, Kind::Chapter].iter().any(|kind| number_in(name, *kind).is_some())
}

impl Disk for Archive {
    fn place(&self) -> String {
        self.name.clone()
    }

    fn lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.parts.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let (start, length) = *self.parts.get(name).ok_or(io::ErrorKind::NotFound)?;
        let mut part = ArchivePart { file: self.file.clone(), start, length, shown: length };
        if number_in(name, Kind::Segment).is_some() {
            let mut head = [0; HEAD_BYTES];
            part.read_at(0, &mut head)?;
            if let Ok(head) = Head::decode(&head, Kind::Segment) {
                part.shown = head.bytes.clamp(length, SEGMENT_BYTES_MAX.max(length));
            }
        }
        Ok(Box::new(part))
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// A file in an archive; a segment is shown with the zeros that it was made with.
struct ArchivePart {
    file: Arc<File>,
    start: u64,
    length: u64,
    shown: u64,
}

impl DiskFile for ArchivePart {
    fn len(&self) -> io::Result<u64> {
        Ok(self.shown)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let within = |end: u64| end.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (stored, shown) = (within(self.length), within(self.shown));
        self.file.read_exact_at(&mut buffer[..stored], self.start + offset)?;
        buffer[stored..shown].fill(0);
        Ok(shown)
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_len(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// A folder or an archive as a store that can only be loaded, as often as one likes, and is left as it is.
pub struct ReadStore {
    disk: Arc<dyn Disk>,
    dropped: Option<super::Dropped>,
}

impl ReadStore {
    /// Refuses a folder that a process has: its end would change while it is read.
    pub fn open(disk: Arc<dyn Disk>) -> Result<ReadStore, StoreError> {
        match disk.lock() {
            Ok(true) => Ok(ReadStore { disk, dropped: None }),
            Ok(false) => Err(StoreError::Locked { place: disk.place() }),
            Err(error) => Err(StoreError::io(disk.place(), error)),
        }
    }

    /// Every damaged file, where [`Store::load`] stops at the first.
    pub fn examine(&self) -> Vec<StoreError> {
        examine(&*self.disk)
    }
}

impl Store for ReadStore {
    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.dropped = inspect(&*self.disk, false, visit)?.dropped;
        Ok(())
    }

    fn commit(&mut self, _batch: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Unusable { why: "it was opened for reading".to_owned() })
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }

    fn dropped(&self) -> Option<super::Dropped> {
        self.dropped.clone()
    }
}

fn damaged(name: &str, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt { file: name.to_owned(), offset, what: what.to_owned() }
}
