//! The slices in which a staging counts what is stored: so few objects, so few bytes and so little work with expressions in each
//! that nobody waits for long. Others are let in between.
//!
//! Expressions that take longer are put off with their object, and handed to whoever goes on with the staging: it evaluates them on
//! a thread of its own and brings what they gave with the next slice. That is used only if the object is still the same; one that
//! was written meanwhile was counted with its write.

use std::ops::Bound;
use std::sync::Arc;

use ledger::SubjectId;
use rules::PolicyId;
use rules::cel::{Budget, Known, Question, STEP_COST_MAX};
use rules::jsonpath::steps_taken;
use serde_json::Value;

use crate::engine::Engine;
use crate::object::Object;
use crate::shelves::Shelves;
use crate::staging::{FORSAKEN_MS, Staging};

/// Objects counted in one slice; and about how many bytes of them.
const SLICE_MAX: usize = 128;
const SLICE_BYTES_MAX: usize = 256 * 1024;

/// How many steps paths take in one slice before the rest of it is left for the next, about ten milliseconds.
const SLICE_STEPS_MAX: u64 = 700_000;

/// The most work of expressions that is asked for in one go, about two seconds.
const ASKED_COST_MAX: u64 = 20_000_000;

/// What came of a slice.
#[derive(Debug, Default)]
pub struct Counted {
    /// Whether that was the last. None if there is nothing to go on with: the write is to be sent again in any case.
    pub is_last: Option<bool>,
    /// What is to be found out for the next.
    pub wanted: Vec<Wanted>,
}

/// Expressions that are wanted of an object, as rules see it.
#[derive(Debug)]
pub struct Wanted {
    pub(crate) subject: SubjectId,
    pub(crate) object: Value,
    pub(crate) questions: Vec<Question>,
}

/// What they gave.
#[derive(Clone, Debug)]
pub struct Found {
    pub(crate) subject: SubjectId,
    pub(crate) known: Box<Known>,
}

impl Wanted {
    /// Evaluates what is wanted; not on a thread that others wait for.
    pub fn evaluate(self) -> Found {
        Found { subject: self.subject, known: Box::new(Known::evaluate(self.questions, &self.object)) }
    }
}

impl Engine {
    /// Counts the next slice of what a write was put off for, with what was found out since the last.
    pub fn count_on(&mut self, ticket: u64, found: Vec<Found>, now_ms: i64) -> Counted {
        self.advance(now_ms);
        if !self.room.growth {
            self.unstage();
        }
        let Some(mut staging) = self.staging.take_if(|staging| staging.ticket == ticket) else {
            return Counted::default();
        };
        staging.until_ms = self.clock_ms.saturating_add(FORSAKEN_MS);
        staging.learn(found);
        let wanted = self.count_slice(&mut staging);
        let is_last = Some(staging.is_counted());
        self.staging = Some(staging);
        Counted { is_last, wanted }
    }

    fn count_slice(&mut self, staging: &mut Staging) -> Vec<Wanted> {
        let mut shadows: Vec<PolicyId> =
            staging.shadows.iter().filter_map(|shadow| self.rulebook.id(&shadow.name)).collect();
        shadows.sort_unstable();
        let slice = staging.next(&self.shelves, self.at_once_max.clamp(1, SLICE_MAX));
        let mut all_known = std::mem::take(&mut staging.known);
        let mut budget = Budget { here: STEP_COST_MAX, elsewhere: ASKED_COST_MAX };
        let (mut wanted, begun) = (Vec::new(), steps_taken());
        let last = staging.revision;
        for object in slice {
            // What was written later was counted with its write; but a status may be written without, and how one stands that may
            // wait was not looked at.
            if object.revision > last && !self.is_projected(&object.key.resource) {
                continue;
            }
            let mut known = all_known.remove(&object.uid);
            // Once enough is asked for, or done, the others come with the next slice.
            let is_enough = budget.elsewhere == 0 || steps_taken().wrapping_sub(begun) > SLICE_STEPS_MAX;
            let counted = match is_enough {
                true => Err(None),
                false => self.recount_within(&object, &shadows, &mut known, &mut budget).map_err(Some),
            };
            match counted {
                Ok(is_measured) => {
                    let missed = self.take_missed(object.uid);
                    let by_all = || self.shadows_at(&staging.shadows, &object.key);
                    let missed = if is_measured { missed } else { by_all() };
                    staging.note_missed(object.uid, missed);
                }
                Err(put_off) => {
                    staging.pending.push(object.key.clone());
                    staging.known.extend(known.map(|known| (object.uid, known)));
                    let asked = put_off.filter(|(_, questions)| !questions.is_empty());
                    wanted.extend(asked.map(|(seen, questions)| Wanted {
                        subject: object.uid,
                        object: seen,
                        questions,
                    }));
                }
            }
        }
        wanted
    }
}

impl Staging {
    /// Takes note of what expressions gave.
    fn learn(&mut self, found: Vec<Found>) {
        for Found { subject, known } in found {
            match self.known.get_mut(&subject) {
                Some(before) => before.join(*known),
                None => drop(self.known.insert(subject, known)),
            }
        }
    }

    /// The next objects to be counted: those that were put off, or those that were written, and others.
    fn next(&mut self, shelves: &Shelves, max: usize) -> Vec<Arc<Object>> {
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            return pending.iter().filter_map(|key| shelves.get(key).cloned()).collect();
        }
        let (mut slice, mut bytes) = (Vec::new(), 0);
        while slice.len() < max
            && let Some(written) = self.written.pop_first()
        {
            slice.extend(shelves.get(&written).cloned());
        }
        while let Some((resource, namespace)) = self.places.last() {
            let from = (Bound::Excluded((namespace.clone(), self.after.clone())), Bound::Unbounded);
            let rest = shelves.of(resource).into_iter().flat_map(|shelf| shelf.range(from.clone()));
            for (_, object) in rest.take_while(|((within, _), _)| within == namespace) {
                if slice.len() == max || bytes >= SLICE_BYTES_MAX {
                    return slice;
                }
                bytes += object.json.len();
                self.after = object.key.name.clone();
                slice.push(object.clone());
            }
            self.places.pop();
            self.after = "".into();
        }
        slice
    }
}
