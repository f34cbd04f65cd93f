//! Entries out of the chapters, for any thread, while others are laid out and retired.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::PoisonError;

use super::chapter::{Chapter, Walk};
use super::{Chapters, SETTLE_MAX};
use crate::disk::DiskFile;
use crate::error::StoreError;
use crate::journal::Pile;

impl Chapters {
    /// Waits until what was committed before this is laid out.
    pub fn settle(&self) {
        let progress = self.progress();
        let wanted = progress.committed.next;
        let waits = |progress: &mut super::Progress| progress.at.next < wanted && !progress.stalled;
        // Whoever waited in vain sees what there is.
        drop(self.moved.wait_timeout_while(progress, SETTLE_MAX, waits).unwrap_or_else(PoisonError::into_inner));
    }

    pub fn span(&self, journal: u8) -> Range<u64> {
        self.kept().get(&journal).map_or(1..1, |kept| kept.first()..kept.end)
    }

    pub fn forward(&self, journal: u8, mut from: u64, pile: &mut Pile) -> Result<(), StoreError> {
        while let Some(chapter) = self.find(journal, |chapters| chapters.iter().find(|chapter| chapter.end > from)) {
            let Some(file) = self.open(&chapter)? else { continue };
            let index = chapter.index(&*file)?;
            let before = index.partition_point(|stretch| stretch.first <= from).saturating_sub(1);
            let Some(start) = index.get(before) else { return Ok(()) };
            let name = chapter.name();
            let mut walk = Walk::new(&*file, &name, start.offset, chapter.blocks_end);
            while let Some(block) = walk.head()? {
                if block.end() > from {
                    let mut entries = walk.entries(&block)?.skip_while(|(sequence, ..)| *sequence < from);
                    if !entries.all(|(sequence, at_ms, value)| pile.push(sequence, at_ms, value)) {
                        return Ok(());
                    }
                }
                walk.pass(&block);
            }
            from = chapter.end;
        }
        Ok(())
    }

    pub fn backward(&self, journal: u8, mut before: u64, pile: &mut Pile) -> Result<(), StoreError> {
        let begins = |before: u64| move |chapter: &&Chapter| chapter.first < before;
        while let Some(chapter) = self.find(journal, |chapters| chapters.iter().rev().find(begins(before))) {
            let Some(file) = self.open(&chapter)? else { continue };
            let index = chapter.index(&*file)?;
            let name = chapter.name();
            let ends = index.iter().skip(1).map(|stretch| stretch.offset).chain([chapter.blocks_end]);
            let stretches: Vec<_> = index.iter().map(|stretch| (stretch.first, stretch.offset)).zip(ends).collect();
            for ((_, start), end) in stretches.into_iter().rev().filter(|((first, _), _)| *first < before) {
                // One stretch is all that is read ahead.
                let mut entries: Vec<(u64, i64, Vec<u8>)> = Vec::new();
                let mut walk = Walk::new(&*file, &name, start, end);
                while let Some(block) = walk.head()? {
                    let wanted = walk.entries(&block)?.take_while(|(sequence, ..)| *sequence < before);
                    entries.extend(wanted.map(|(sequence, at_ms, value)| (sequence, at_ms, value.to_vec())));
                    walk.pass(&block);
                }
                if !entries.iter().rev().all(|(sequence, at_ms, value)| pile.push(*sequence, *at_ms, value)) {
                    return Ok(());
                }
            }
            before = chapter.first;
        }
        Ok(())
    }

    /// The first entry of this moment or later: the first chapter that has one, its first stretch, its first block.
    pub fn since(&self, journal: u8, at_ms: i64) -> Result<u64, StoreError> {
        let reaches = |chapter: &&Chapter| chapter.latest_ms >= at_ms;
        while let Some(chapter) = self.find(journal, |chapters| chapters.iter().find(reaches)) {
            let Some(file) = self.open(&chapter)? else { continue };
            let index = chapter.index(&*file)?;
            let Some(stretch) = index.iter().find(|stretch| stretch.latest_ms >= at_ms) else { break };
            let name = chapter.name();
            let mut walk = Walk::new(&*file, &name, stretch.offset, chapter.blocks_end);
            while let Some(block) = walk.head()? {
                if block.latest_ms >= at_ms
                    && let Some((sequence, ..)) = walk.entries(&block)?.find(|(_, at, _)| *at >= at_ms)
                {
                    return Ok(sequence);
                }
                walk.pass(&block);
            }
            break;
        }
        Ok(self.span(journal).end)
    }

    fn find(&self, journal: u8, look: impl FnOnce(&[Chapter]) -> Option<&Chapter>) -> Option<Chapter> {
        self.kept().get(&journal).and_then(|kept| look(&kept.chapters)).cloned()
    }

    /// `None`: it was retired meanwhile, and is not among the chapters any more.
    fn open(&self, chapter: &Chapter) -> Result<Option<Box<dyn DiskFile>>, StoreError> {
        match self.disk.open(&chapter.name()) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound && self.span(chapter.journal).start > chapter.first => {
                Ok(None)
            }
            Err(error) => Err(StoreError::io(chapter.name(), error)),
        }
    }
}
