//! Reads the frames of one segment and judges how they end. Pure: bytes in, frames and a verdict out.

use super::format::{
    FRAME_ALIGN, FRAME_END, FRAME_HEAD_BYTES, FRAMES_START, FrameHead, Head, SECTOR_BYTES, frame_bytes,
};
use crate::batch::Rows;

/// What comes after the last good frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Zeros, or nothing: no write was under way.
    Clean,
    /// A write that was cut off before it was synced, so nobody was told of it. Everything from `from` on may be dropped.
    Torn,
    /// Bytes that were once written whole are not what they were.
    Damaged(String),
}

/// Where the good frames of a segment end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The offset behind the last good frame.
    pub end: u64,
    /// The sequence the next frame must have.
    pub next: u64,
    /// The checksum of the last good frame's head, which the next frame names.
    pub link: u32,
    pub verdict: End,
}

/// A good frame.
pub struct Frame<'a> {
    pub sequence: u64,
    /// Where it begins in the segment.
    pub offset: u64,
    pub checksum: u32,
    pub rows: Rows<'a>,
}

/// Visits the good frames in order, beginning with the one that the head names. `segment` is the whole file, head included.
pub fn scan<'a>(segment: &'a [u8], head: &Head, visit: &mut dyn FnMut(Frame<'a>)) -> Scan {
    let mut offset = (FRAMES_START as usize).min(segment.len());
    let (mut next, mut link) = (head.sequence, head.link);
    loop {
        // The zeros that end a frame may be cut off: then there is nothing behind it.
        let rest = segment.get(offset..).unwrap_or_default();
        match read_frame(rest, next, (head.version > 1).then_some(link)) {
            Ok((mut frame, bytes)) => {
                frame.offset = offset as u64;
                link = frame.checksum;
                visit(frame);
                offset += bytes;
                next += 1;
            }
            Err(broken) => {
                let verdict = judge(rest, next, offset, broken);
                return Scan { end: offset as u64, next, link, verdict };
            }
        }
    }
}

enum Broken {
    /// No head that passes its checksum.
    Head,
    /// A good head, but the rows, of that many bytes, do not match it or are not all there.
    Rows(usize),
    /// A good frame that says something impossible.
    Impossible(String),
}

fn read_frame(rest: &[u8], expected: u64, link: Option<u32>) -> Result<(Frame<'_>, usize), Broken> {
    let head = FrameHead::decode(rest).ok_or(Broken::Head)?;
    if head.sequence != expected {
        return Err(Broken::Impossible(format!("found frame {}, expected {expected}", head.sequence)));
    }
    if link.is_some_and(|link| link != head.link) {
        return Err(Broken::Impossible(format!("frame {expected} does not follow the one before it")));
    }
    let rows_bytes = head.rows_bytes as usize;
    // The zeros behind the end mark may be missing where a file was cut; they say nothing.
    let frame = rest.get(..FRAME_HEAD_BYTES + rows_bytes + 1).ok_or(Broken::Rows(rows_bytes))?;
    let bytes = frame_bytes(rows_bytes);
    let (rows, end) = frame[FRAME_HEAD_BYTES..].split_at(rows_bytes);
    if end.first() != Some(&FRAME_END) || crc32fast::hash(rows) != head.rows_checksum {
        return Err(Broken::Rows(rows_bytes));
    }
    let rows = Rows::decode(rows);
    let mut walk = rows.clone();
    walk.by_ref().for_each(drop);
    if !walk.rest().is_empty() {
        return Err(Broken::Impossible(format!("the rows of frame {expected} cannot be read")));
    }
    Ok((Frame { sequence: expected, offset: 0, checksum: head.checksum, rows }, bytes))
}

/// Decides whether the end is a write that never finished. Frames are synced one by one, so a good frame further on proves that
/// this one was whole once.
fn judge(rest: &[u8], expected: u64, offset: usize, broken: Broken) -> End {
    if is_zero(rest) {
        return End::Clean;
    }
    if let Some(later) = find_later_frame(rest, expected) {
        return End::Damaged(format!("frame {expected} cannot be read although frame {later} follows it"));
    }
    let torn = match broken {
        Broken::Impossible(what) => return End::Damaged(what),
        // A head is whole or missing, unless the write stopped inside it; then nothing follows.
        Broken::Head => {
            let (head, after) = rest.split_at(rest.len().min(FRAME_HEAD_BYTES));
            is_zero(head) || is_zero(after)
        }
        Broken::Rows(rows_bytes) => match rest.get(..frame_bytes(rows_bytes)) {
            Some(frame) => has_hole(frame, rows_bytes, offset),
            // The file itself was cut.
            None => true,
        },
    };
    match torn {
        true => End::Torn,
        false => End::Damaged(format!("frame {expected} does not match its checksum")),
    }
}

/// Whether part of a frame was never written: its end mark, or its whole share of some sector, is still zero.
fn has_hole(frame: &[u8], rows_bytes: usize, offset: usize) -> bool {
    if frame.get(FRAME_HEAD_BYTES + rows_bytes) == Some(&0) {
        return true;
    }
    let mut rest = frame;
    let mut share = SECTOR_BYTES - offset % SECTOR_BYTES;
    while !rest.is_empty() {
        let (sector, after) = rest.split_at(share.min(rest.len()));
        if is_zero(sector) {
            return true;
        }
        rest = after;
        share = SECTOR_BYTES;
    }
    false
}

/// A good frame with a higher sequence behind the broken one. The sequence must be reachable in the room there is: rows carry
/// text that tenants choose, and no text may pass for a frame (its bytes would have to include zeros).
fn find_later_frame(rest: &[u8], expected: u64) -> Option<u64> {
    let farthest = expected.saturating_add((rest.len() / FRAME_ALIGN) as u64);
    rest.chunks_exact(FRAME_ALIGN)
        .skip(1)
        .filter(|chunk| chunk[0] != 0)
        .filter_map(FrameHead::decode)
        .map(|head| head.sequence)
        .find(|sequence| *sequence > expected && *sequence <= farthest)
}

pub fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    chunks.iter().all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0) && rest.iter().all(|byte| *byte == 0)
}
