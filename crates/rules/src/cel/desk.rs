//! Expressions on the decider's thread.
//!
//! What an expression gives depends on the object and on nothing else, so it need not be worked out by the one thread that
//! everybody waits for. The decider opens a desk for the object it decides on: there expressions may take so much time
//! together and no more. One that would take longer is put down as wanted; whoever sent the write evaluates it on a thread
//! of its own ([`Known::evaluate`]) and sends the write again with what was found. It is used only if the object and the
//! expression are still the same.
//!
//! The desk belongs to the thread, so that rules need not be told of it: they evaluate as ever.

use std::cell::{Cell, RefCell};

use serde_json::Value as Json;

use super::convert::{self, Size};
use super::{CelError, DECIDER_COST_MAX, Outcome, Program};

/// What a writer promises about expressions.
#[derive(Debug, Default)]
pub enum Foresight {
    /// Nothing is known and nobody will ask again: everything is evaluated on the spot.
    #[default]
    None,
    /// What takes long may be asked for.
    Asked,
    /// This is known already; what is missing may be asked for.
    Known(Box<Known>),
    /// This is known already; what is missing has to do with the time there is.
    Last(Box<Known>),
}

/// What expressions gave on an object.
#[derive(Debug)]
pub struct Known {
    object: Json,
    found: Vec<(Program, Result<Outcome, CelError>)>,
}

impl Known {
    /// Evaluates expressions over `object`; as long as it takes, so not on a thread that others wait for.
    pub fn evaluate(programs: Vec<Program>, object: &Json) -> Known {
        let found = programs.into_iter().map(|program| {
            let outcome = program.eval(&[("object", object)]);
            (program, outcome)
        });
        Known { found: found.collect(), object: object.clone() }
    }
}

struct Desk {
    /// The object's address: expressions on other values are none of the desk's business.
    object: *const Json,
    size: Option<Result<Size, CelError>>,
    known: Option<Box<Known>>,
    may_ask: bool,
    budget: u64,
    wanted: Vec<Program>,
}

thread_local! {
    static DESK: RefCell<Option<Desk>> = const { RefCell::new(None) };
    static EVALUATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Does some work with the desk open for an object. Where expressions are wanted the work counts for nothing.
pub fn at_desk<R>(foresight: Foresight, object: &Json, work: impl FnOnce() -> R) -> (R, Vec<Program>) {
    let (known, may_ask) = match foresight {
        Foresight::None => return (work(), Vec::new()),
        Foresight::Asked => (None, true),
        Foresight::Known(known) => (Some(known), true),
        Foresight::Last(known) => (Some(known), false),
    };
    let known = known.filter(|known| known.object == *object);
    let desk = Desk { object, size: None, known, may_ask, budget: DECIDER_COST_MAX, wanted: Vec::new() };
    DESK.set(Some(desk));
    let made = work();
    let wanted = DESK.take().map(|desk| desk.wanted).unwrap_or_default();
    (made, wanted)
}

/// How many expressions this thread has evaluated.
pub fn evaluations() -> u64 {
    EVALUATIONS.get()
}

pub(super) fn note_evaluation() {
    EVALUATIONS.set(EVALUATIONS.get().wrapping_add(1));
}

/// What the desk says to an evaluation: the answer, or none where it may go on.
pub(super) fn answer(program: &Program, inputs: &[(&str, &Json)]) -> Option<Result<Outcome, CelError>> {
    DESK.with_borrow_mut(|desk| {
        let desk = desk.as_mut()?;
        let [(_, object)] = inputs else { return None };
        if !std::ptr::eq(*object, desk.object) {
            return None;
        }
        let found = desk.known.as_ref().map_or(&[][..], |known| &known.found);
        if let Some((_, found)) = found.iter().find(|(known, _)| known.source() == program.source()) {
            return Some(found.clone());
        }
        let size = desk.size.get_or_insert_with(|| convert::size_of(std::iter::once(*object)));
        let size = match size {
            Ok(size) => size,
            Err(why) => return Some(Err(why.clone())),
        };
        let estimated = program.estimate(size);
        if estimated <= desk.budget {
            desk.budget -= estimated;
            return None;
        }
        if desk.may_ask && !desk.wanted.iter().any(|wanted| wanted.source() == program.source()) {
            desk.wanted.push(program.clone());
        }
        Some(Err(CelError::TooExpensive { estimated }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_asked_for_and_then_known() {
        let object = serde_json::json!({"spec": vec![1; 300]});
        let long = Program::compile("object.spec.all(a, object.spec.all(b, a + b > 0)) ? 7 : 8", &["object"]).unwrap();
        let short = Program::compile("object.spec[0]", &["object"]).unwrap();
        let both = |foresight: Foresight| {
            let before = evaluations();
            let eval = || [&long, &short].map(|program| program.eval(&[("object", &object)]));
            let (found, wanted) = at_desk(foresight, &object, eval);
            (found, wanted, evaluations() - before)
        };
        let ([first, second], wanted, evaluated) = both(Foresight::Asked);
        assert!(matches!(first, Err(CelError::TooExpensive { .. })));
        assert_eq!((second, evaluated), (Ok(Outcome::Int(1)), 1));
        assert_eq!(wanted.len(), 1);
        let known = Known::evaluate(wanted, &object);
        let ([first, second], wanted, evaluated) = both(Foresight::Known(Box::new(known)));
        assert_eq!((first, second, wanted.len(), evaluated), (Ok(Outcome::Int(7)), Ok(Outcome::Int(1)), 0, 1));
        // Of another object nothing is known, and in the end there is only the time there is.
        let known = Known::evaluate(vec![long.clone()], &serde_json::json!({"spec": []}));
        let ([first, _], wanted, _) = both(Foresight::Last(Box::new(known)));
        assert!(matches!(first, Err(CelError::TooExpensive { .. })) && wanted.is_empty());
        let ([first, _], _, evaluated) = both(Foresight::None);
        assert_eq!((first, evaluated), (Ok(Outcome::Int(7)), 2));
    }
}
