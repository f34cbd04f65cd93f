//! What a start makes of the chapters it finds: all that the snapshot covers must be there, and what lies behind it goes, because
//! the log has it.

use std::collections::{BTreeMap, BTreeSet};

use super::chapter::{Chapter, damaged};
use super::counting::Counting;
use super::{FLOORS_NAME, Kept, floors, raised};
use crate::disk::Disk;
use crate::embedded::format::{chapter_in, chapter_name};
use crate::embedded::upkeep::Position;
use crate::error::StoreError;

/// The chapters of a folder, before anything is changed.
#[derive(Debug, Default)]
pub struct Found {
    pub kept: BTreeMap<u8, Kept>,
    /// Files that are to go.
    obsolete: Vec<String>,
    /// Files that are to end earlier.
    cut: Vec<(String, u64)>,
    /// The first frame whose entries are not in what is kept.
    pub log_from: Option<Position>,
}

impl Found {
    /// Leaves only what is kept.
    pub fn tidy(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let floors = raised(&self.kept);
        if !floors.is_empty() {
            // What was read may be in the kernel's memory only, after a failed sync; and what it retires is about to go.
            floors::rewrite(disk, &floors)?;
        }
        for (name, bytes) in &self.cut {
            let cut = disk.open(name).and_then(|file| file.set_len(*bytes));
            cut.map_err(|error| StoreError::io(name, error))?;
        }
        for name in &self.obsolete {
            disk.remove(name).map_err(|error| StoreError::io(name, error))?;
        }
        if self.obsolete.is_empty() {
            return Ok(());
        }
        // One that came back after a later snapshot would be taken for what it covers.
        disk.sync_dir().map_err(|error| StoreError::io(disk.place(), error))
    }
}

/// Reads heads and indexes, and what may be open; changes nothing. `covered` is what the snapshot has counted.
pub fn inspect(disk: &dyn Disk, names: &[String], covered: &Counting) -> Result<Found, StoreError> {
    let mut found = Found::default();
    let (floors, chapters) = list(disk, names, covered)?;
    for (journal, firsts) in chapters {
        let floor = floors.get(&journal).copied().unwrap_or(1);
        let plan = Plan::new(disk, journal, &firsts, floor, covered.end(journal))?;
        let mut kept = Kept { floor, end: covered.end(journal).max(floor), chapters: Vec::new() };
        let mut before: Option<Chapter> = None;
        for (index, first) in plan.kept.iter().enumerate() {
            let chapter = plan.read(disk, index)?;
            plan.check_order(disk, before.as_ref(), &chapter)?;
            let file_bytes = file(disk, journal, *first)?.len();
            let file_bytes = file_bytes.map_err(|error| StoreError::io(chapter.name(), error))?;
            if chapter.is_open() && file_bytes != chapter.bytes {
                found.cut.push((chapter.name(), chapter.bytes));
            }
            before = Some(chapter.clone());
            kept.chapters.push(chapter);
        }
        found.obsolete.extend(plan.obsolete.iter().map(|first| chapter_name(journal, *first)));
        found.kept.insert(journal, kept);
    }
    Ok(found)
}

/// All that is wrong with the chapters, every block of them included.
pub fn examine(disk: &dyn Disk, names: &[String], covered: &Counting) -> Vec<StoreError> {
    let (floors, chapters) = match list(disk, names, covered) {
        Ok(listed) => listed,
        Err(error) => return vec![error],
    };
    let mut damages = Vec::new();
    for (journal, firsts) in chapters {
        let floor = floors.get(&journal).copied().unwrap_or(1);
        let plan = match Plan::new(disk, journal, &firsts, floor, covered.end(journal)) {
            Ok(plan) => plan,
            Err(error) => {
                damages.push(error);
                continue;
            }
        };
        let mut before: Option<Chapter> = None;
        for (index, first) in plan.kept.iter().enumerate() {
            let read = plan.read(disk, index).and_then(|chapter| {
                chapter.check(&*file(disk, journal, *first)?)?;
                plan.check_order(disk, before.as_ref().filter(|before| before.first < *first), &chapter)?;
                Ok(chapter)
            });
            match read {
                Ok(chapter) => before = Some(chapter),
                Err(error) => {
                    damages.push(error);
                    before = None;
                }
            }
        }
    }
    damages
}

type Listed = (floors::Floors, BTreeMap<u8, Vec<u64>>);

/// Every journal that there is a trace of, with the first entries of its chapters.
fn list(disk: &dyn Disk, names: &[String], covered: &Counting) -> Result<Listed, StoreError> {
    let floors = floors::read(disk, names)?;
    let mut chapters: BTreeMap<u8, BTreeSet<u64>> = BTreeMap::new();
    for journal in covered.journals().chain(floors.iter().flat_map(|floors| floors.keys().copied())) {
        chapters.entry(journal).or_default();
    }
    for (journal, first) in names.iter().filter_map(|name| chapter_in(name)) {
        chapters.entry(journal).or_default().insert(first);
    }
    if floors.is_none() && chapters.keys().any(|journal| covered.end(*journal) > 1) {
        return Err(damaged(FLOORS_NAME, 0, "it is missing"));
    }
    let sorted = chapters.into_iter().map(|(journal, firsts)| (journal, firsts.into_iter().collect()));
    Ok((floors.unwrap_or_default(), sorted.collect()))
}

/// Which chapters of one journal count.
struct Plan {
    journal: u8,
    floor: u64,
    /// Entries before this are in chapters, the others in the log.
    until: u64,
    kept: Vec<u64>,
    obsolete: Vec<u64>,
}

impl Plan {
    fn new(disk: &dyn Disk, journal: u8, firsts: &[u64], floor: u64, until: u64) -> Result<Plan, StoreError> {
        let mut plan = Plan { journal, floor, until, kept: Vec::new(), obsolete: Vec::new() };
        let (counted, behind) = firsts.split_at(firsts.partition_point(|first| *first < until));
        plan.obsolete.extend(behind);
        if floor >= until {
            // All of them were retired.
            plan.obsolete.extend(counted);
            return Ok(plan);
        }
        for (index, first) in counted.iter().enumerate() {
            // One was retired if the next begins behind nothing but what was.
            let next = counted.get(index + 1).copied();
            let retired = match next {
                Some(next) if *first < floor && plan.kept.is_empty() => {
                    next <= floor || Chapter::after_of(&*file(disk, journal, next)?, journal, next)? <= floor
                }
                _ => false,
            };
            if retired { plan.obsolete.push(*first) } else { plan.kept.push(*first) }
        }
        if plan.kept.is_empty() {
            let what = format!("entries from {floor} up to {until} are missing");
            return Err(damaged(&chapter_name(journal, floor), 0, &what));
        }
        Ok(plan)
    }

    /// All but the last are full; the last is read up to where the log goes on.
    fn read(&self, disk: &dyn Disk, index: usize) -> Result<Chapter, StoreError> {
        let first = self.kept.get(index).copied().unwrap_or_default();
        let file = file(disk, self.journal, first)?;
        match index + 1 == self.kept.len() {
            true => Chapter::part(&*file, self.journal, first, self.until),
            false => Chapter::full(&*file, self.journal, first),
        }
    }

    /// Nothing is missing between two chapters, nor before the first, and they are of one history.
    fn check_order(&self, disk: &dyn Disk, before: Option<&Chapter>, chapter: &Chapter) -> Result<(), StoreError> {
        let Chapter { journal, first, after, .. } = *chapter;
        let name = chapter.name();
        match before {
            Some(before) if before.end == after => {
                let link = Chapter::link_before(&*file(disk, journal, first)?, journal, first)?;
                match link == before.link {
                    true => Ok(()),
                    false => {
                        Err(damaged(&name, 0, "it does not follow the one before it: they are of different stores"))
                    }
                }
            }
            Some(before) => {
                let what = format!("entries from {} up to {after} before it are missing", before.end);
                Err(damaged(&name, 0, &what))
            }
            None if self.kept.first() == Some(&first) && after > self.floor => {
                let what = format!("entries from {} up to {after} before it are missing", self.floor);
                Err(damaged(&name, 0, &what))
            }
            None => Ok(()),
        }
    }
}

fn file(disk: &dyn Disk, journal: u8, first: u64) -> Result<Box<dyn crate::disk::DiskFile>, StoreError> {
    let name = chapter_name(journal, first);
    disk.open(&name).map_err(|error| StoreError::io(&name, error))
}
