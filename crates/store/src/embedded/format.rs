//! The bytes of the embedded store's files. Little endian throughout; `tests/golden` keeps one folder of every version.
//!
//! ```text
//!   log-<number>        segment head (64 B) │ zeros to 512 │ frame │ frame │ … │ zeros to the end
//!   snapshot-<sequence> snapshot head (64 B) │ block │ block │ … │ closing block without rows
//!
//!   journal-<number>-<sequence>  chapter head (64 B) │ block of entries │ … │ index, once it is full
//!
//!   synced              how far the log was synced (24 B)
//!   journals            up to where entries were retired (32 B for each journal)
//!   reserve             zeros, room for a snapshot on a full disk
//!
//!   frame   head (32 B): mark, length, sequence, checksum of the rows, link, checksum of the head │ rows │ end mark │ zeros to 32
//!   block   head (16 B): length, checksum of the rows, row count, checksum of the head      │ rows
//! ```
//!
//! Why frames look like that: segments are filled with zeros before they are used, a frame's head never crosses a sector, and a
//! frame ends in a byte that is not zero. So a write that was cut off by a crash leaves zeros where bytes should be, and a byte
//! that changed afterwards does not; recovery can tell a torn tail from damage.
//!
//! Why files know more than themselves: a segment's head says how long the file was made, so that a file that was cut is known
//! by its length; every frame names the one before it by the checksum of its head (the link), and heads of segments and
//! snapshots carry the link on, so that files of different histories do not fit together. Chapters do the same among themselves;
//! [`super::journals`] has the rest of them.

/// Raised when a reader of the version before could misread what is written now.
pub const FORMAT_VERSION: u32 = 3;

/// The first version with entries of journals between the rows of a frame.
pub const ENTRIES_VERSION: u32 = 3;

/// Both file heads. Their first 16 bytes and the place of the checksum are the same in every version, so that an old release
/// can say which version it does not understand.
pub const HEAD_BYTES: usize = 64;

/// Where the first frame of a segment starts: frames share no sector with the head.
pub const FRAMES_START: u64 = 512;

/// The unit a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

pub const FRAME_HEAD_BYTES: usize = 32;
pub const FRAME_ALIGN: usize = 32;
pub const FRAME_END: u8 = 0xB5;
const FRAME_MARK: u32 = u32::from_le_bytes(*b"BFR1");

/// The largest batch. Groups are bounded far below; this bounds what recovery is willing to allocate.
pub const FRAME_ROWS_BYTES_MAX: usize = 512 * 1024 * 1024;

pub const BLOCK_HEAD_BYTES: usize = 16;

const SEGMENT_MAGIC: &[u8; 8] = b"BURSARLG";
const SNAPSHOT_MAGIC: &[u8; 8] = b"BURSARSN";
const CHAPTER_MAGIC: &[u8; 8] = b"BURSARJN";

/// Which file a head belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Segment,
    Snapshot,
    Chapter,
}

/// The head of a file: for a segment its number and the sequence of its first frame; for a snapshot zero and the sequence of
/// the last frame it holds; for a chapter its journal's number and the sequence of its first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub number: u64,
    pub sequence: u64,
    /// The length of a segment's file. Version 1 did not say, and says 0. For a chapter, where the one before it ends.
    pub bytes: u64,
    /// The checksum of the frame head before a segment's first frame, or of a snapshot's last, or of the block head before a
    /// chapter's first block. 0 where nobody knows.
    pub link: u32,
    /// What frames in the segment look like: in version 1 they have no links.
    pub version: u32,
}

/// Why a head could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    Damaged,
    Version(u32),
}

impl Head {
    pub fn encode(self, kind: Kind) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(kind.magic());
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.link.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8], kind: Kind) -> Result<Head, HeadError> {
        let Some(bytes) = bytes.get(..HEAD_BYTES) else { return Err(HeadError::Damaged) };
        if &bytes[..8] != kind.magic() || u32_at(bytes, 60) != crc32fast::hash(&bytes[..60]) {
            return Err(HeadError::Damaged);
        }
        match u32_at(bytes, 8) {
            version @ 1..=FORMAT_VERSION => Ok(Head {
                number: u64_at(bytes, 16),
                sequence: u64_at(bytes, 24),
                bytes: u64_at(bytes, 32),
                link: u32_at(bytes, 40),
                version,
            }),
            other => Err(HeadError::Version(other)),
        }
    }
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Kind::Segment => SEGMENT_MAGIC,
            Kind::Snapshot => SNAPSHOT_MAGIC,
            Kind::Chapter => CHAPTER_MAGIC,
        }
    }
}

/// The head of a frame whose own checksum was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    pub rows_bytes: u32,
    pub sequence: u64,
    pub rows_checksum: u32,
    /// The checksum of the head of the frame before.
    pub link: u32,
    /// The head's own: the link of the next frame.
    pub checksum: u32,
}

impl FrameHead {
    pub fn decode(bytes: &[u8]) -> Option<FrameHead> {
        let bytes = bytes.get(..FRAME_HEAD_BYTES)?;
        (u32_at(bytes, 0) == FRAME_MARK && u32_at(bytes, 28) == crc32fast::hash(&bytes[..28])).then(|| FrameHead {
            rows_bytes: u32_at(bytes, 4),
            sequence: u64_at(bytes, 8),
            rows_checksum: u32_at(bytes, 16),
            link: u32_at(bytes, 20),
            checksum: u32_at(bytes, 28),
        })
    }
}

/// What a frame with that many bytes of rows takes in a segment.
pub fn frame_bytes(rows_bytes: usize) -> usize {
    (FRAME_HEAD_BYTES + rows_bytes + 1).next_multiple_of(FRAME_ALIGN)
}

/// Appends a whole frame to `buffer` and returns the checksum of its head. The caller bounded the rows, and those added to
/// them, by [`FRAME_ROWS_BYTES_MAX`].
pub fn encode_frame(buffer: &mut Vec<u8>, sequence: u64, link: u32, rows: &[u8], added: &[u8]) -> u32 {
    let start = buffer.len();
    let mut rows_checksum = crc32fast::Hasher::new();
    rows_checksum.update(rows);
    rows_checksum.update(added);
    let mut head = [0; FRAME_HEAD_BYTES];
    head[..4].copy_from_slice(&FRAME_MARK.to_le_bytes());
    head[4..8].copy_from_slice(&((rows.len() + added.len()) as u32).to_le_bytes());
    head[8..16].copy_from_slice(&sequence.to_le_bytes());
    head[16..20].copy_from_slice(&rows_checksum.finalize().to_le_bytes());
    head[20..24].copy_from_slice(&link.to_le_bytes());
    let checksum = crc32fast::hash(&head[..28]);
    head[28..].copy_from_slice(&checksum.to_le_bytes());
    buffer.extend_from_slice(&head);
    buffer.extend_from_slice(rows);
    buffer.extend_from_slice(added);
    buffer.push(FRAME_END);
    buffer.resize(start + frame_bytes(rows.len() + added.len()), 0);
    checksum
}

/// The head of a snapshot's block whose own checksum was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    pub rows_bytes: u32,
    pub rows_checksum: u32,
    /// Rows in this block; in the closing block, which has none, the low half of the count of all rows.
    pub rows: u32,
}

impl BlockHead {
    pub fn encode(self) -> [u8; BLOCK_HEAD_BYTES] {
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.rows_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.rows_checksum.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rows.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..12]);
        bytes[12..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Option<BlockHead> {
        (u32_at(bytes, 12) == crc32fast::hash(&bytes[..12])).then(|| BlockHead {
            rows_bytes: u32_at(bytes, 0),
            rows_checksum: u32_at(bytes, 4),
            rows: u32_at(bytes, 8),
        })
    }
}

pub fn segment_name(number: u64) -> String {
    format!("log-{number:016}")
}

pub fn snapshot_name(sequence: u64) -> String {
    format!("snapshot-{sequence:020}")
}

pub fn chapter_name(journal: u8, first: u64) -> String {
    format!("journal-{journal:03}-{first:020}")
}

/// The journal and the first sequence in the name of a chapter, if it is one.
pub fn chapter_in(name: &str) -> Option<(u8, u64)> {
    let (journal, first) = name.strip_prefix("journal-")?.split_once('-')?;
    let (journal, first) = (journal.parse().ok()?, first.parse().ok()?);
    (chapter_name(journal, first) == name).then_some((journal, first))
}

/// The number in a name of ours, if it is one.
pub fn number_in(name: &str, kind: Kind) -> Option<u64> {
    let (digits, again): (_, fn(u64) -> String) = match kind {
        Kind::Segment => (name.strip_prefix("log-")?, segment_name),
        Kind::Snapshot => (name.strip_prefix("snapshot-")?, snapshot_name),
        Kind::Chapter => return chapter_in(name).map(|(_, first)| first),
    };
    let number = digits.parse().ok()?;
    (again(number) == name).then_some(number)
}

/// Zeros ready to become the next segment. Every one has a name of its own, so that none is ever mistaken for another.
pub fn spare_name(number: u64) -> String {
    format!("{SPARE}{number}")
}

/// Zeros as long as the next snapshot is expected to be: what a full disk is compacted into.
pub const RESERVE_NAME: &str = "reserve";

/// There while this state is an older one than somebody was told of: revisions must not come again with another meaning.
pub const REWOUND_NAME: &str = "rewound";

/// A file that is being written.
pub fn unfinished_name(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

/// Whether a start removes the file unread.
pub fn is_disposable(name: &str) -> bool {
    name.ends_with(UNFINISHED) || name.starts_with(SPARE)
}

const SPARE: &str = "spare-";
const UNFINISHED: &str = ".new";

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}
