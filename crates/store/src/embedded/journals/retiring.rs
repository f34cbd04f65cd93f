//! Letting go of the oldest chapters. What is to go is written down first, durably, and then removed: a crash in between leaves
//! files that the next start removes.

use std::sync::PoisonError;

use super::chapter::Chapter;
use super::moving::{RETENTION_PARTS, Writer};
use super::{Chapters, Kept, floors};
use crate::Retention;
use crate::error::StoreError;

impl Chapters {
    /// Whether it was asked for since the last time.
    pub fn take_retire(&self) -> bool {
        std::mem::take(&mut self.progress().retire)
    }

    /// Lets go of what need not stay.
    pub fn retire(&self) -> Result<(), StoreError> {
        let now_ms = self.progress().now_ms;
        let retention = self.retention.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (journal, retention) in retention {
            let mut writer = self.writer();
            self.close_old(&mut writer, journal, retention, now_ms)?;
            self.retire_journal(&mut writer, journal, retention, now_ms)?;
        }
        Ok(())
    }

    /// A chapter that fills slowly would keep what is old for as long as that takes.
    fn close_old(
        &self,
        writer: &mut Writer,
        journal: u8,
        retention: Retention,
        now_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let (Some(age_ms), Some(now_ms)) = (retention.age_ms, now_ms) else { return Ok(()) };
        let open = self.kept().get(&journal).and_then(|kept| kept.chapters.last().cloned());
        let Some(open) = open.filter(Chapter::is_open) else { return Ok(()) };
        let part_ms = age_ms / RETENTION_PARTS.cast_signed();
        if open.first_ms >= now_ms.saturating_sub(part_ms) {
            return Ok(());
        }
        match self.close(writer, open) {
            // It is not worth the room that others need.
            Err(StoreError::Full { .. }) => Ok(()),
            closed => closed,
        }
    }

    fn retire_journal(
        &self,
        writer: &mut Writer,
        journal: u8,
        retention: Retention,
        now_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let too_old = now_ms.and_then(|now_ms| retention.too_old(now_ms));
        let going: Vec<Chapter> = {
            let kept = self.kept();
            let chapters = kept.get(&journal).map_or(&[][..], |kept| &kept.chapters);
            let mut bytes = kept.get(&journal).map_or(0, Kept::bytes);
            let goes = |chapter: &&Chapter| {
                let goes = too_old.is_some_and(|before| chapter.latest_ms < before)
                    || retention.bytes.is_some_and(|max| bytes > max);
                bytes -= chapter.bytes;
                goes && !chapter.is_open() && chapter.end <= retention.border()
            };
            chapters.iter().take_while(goes).cloned().collect()
        };
        let Some(floor) = going.last().map(|last| last.end) else { return Ok(()) };
        floors::raise(&*self.disk, journal, floor)?;
        if let Some(kept) = self.kept().get_mut(&journal) {
            kept.floor = floor;
            kept.chapters.drain(..going.len());
        }
        for chapter in going {
            let name = chapter.name();
            writer.forget(&name);
            self.disk.remove(&name).map_err(|error| StoreError::io(&name, error))?;
        }
        Ok(())
    }
}
