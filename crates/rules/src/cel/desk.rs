//! Expressions on the decider's thread.
//!
//! What an expression gives depends on the object and on nothing else, so it need not be worked out by the one thread that
//! everybody waits for. The decider opens a desk for the object it decides on: there expressions may take so much time
//! together and no more. One that would take longer is put down as wanted; whoever sent the write evaluates it on a thread
//! of its own ([`Known::evaluate`]) and sends the write again with what was found. It is used only if the object and the
//! expression are still the same.
//!
//! Where many objects are counted in one step they share one [`Budget`], and a desk is opened for each ([`within`]).
//!
//! The desk belongs to the thread, so that rules need not be told of it: they evaluate as ever.

use std::cell::{Cell, RefCell};

use serde_json::Value as Json;

use super::convert::{self, Size};
use super::{COST_MAX, CelError, DECIDER_COST_MAX, Outcome, Program};
use crate::jsonpath;

/// How many steps the paths of all policies together may take on an object that is written, about fifteen milliseconds.
pub const WRITE_STEPS_MAX: u64 = 1_000_000;

/// How much of an expression is looked through in one step, to estimate what it takes.
const SOURCE_BYTES_A_STEP: u64 = 16;

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

/// What expressions may take, in steps.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// On this thread.
    pub here: u64,
    /// Of what is wanted besides, on another thread. More is not asked for at a time, but for one expression.
    pub elsewhere: u64,
}

impl Budget {
    /// Whatever it takes.
    pub const ENDLESS: Budget = Budget { here: u64::MAX, elsewhere: 0 };
}

/// An expression that is wanted of an object.
#[derive(Clone, Debug)]
pub struct Question {
    program: Program,
    /// What the object is called in it.
    names: Vec<String>,
    /// What it is told besides, such as who writes the object: what it gave counts only for the same.
    beside: Vec<(String, Json)>,
}

impl Question {
    fn new(program: &Program, inputs: &[(&str, &Json)], object: *const Json) -> Question {
        let (of_object, beside): (Vec<_>, Vec<_>) = inputs.iter().partition(|(_, input)| std::ptr::eq(*input, object));
        Question {
            program: program.clone(),
            names: of_object.into_iter().map(|(name, _)| (*name).to_owned()).collect(),
            beside: beside.into_iter().map(|(name, input)| ((*name).to_owned(), (*input).clone())).collect(),
        }
    }

    /// Whether it is this expression, told the same besides the object.
    fn is(&self, program: &Program, inputs: &[(&str, &Json)], object: *const Json) -> bool {
        let beside = inputs.iter().filter(|(_, input)| !std::ptr::eq(*input, object));
        let told = self.beside.iter().map(|(name, input)| (name.as_str(), input));
        self.program.source() == program.source() && told.eq(beside.map(|(name, input)| (*name, *input)))
    }

    fn answer(&self, object: &Json) -> Result<Outcome, CelError> {
        let of_object = self.names.iter().map(|name| (name.as_str(), object));
        let beside = self.beside.iter().map(|(name, input)| (name.as_str(), input));
        self.program.eval(&of_object.chain(beside).collect::<Vec<_>>())
    }
}

/// Expressions that were put off, and of these the ones that are wanted. None where all were evaluated, or known.
pub type PutOff = Option<Vec<Question>>;

/// What expressions gave on an object; of none at first.
#[derive(Clone, Debug, Default)]
pub struct Known {
    object: Json,
    found: Vec<(Question, Result<Outcome, CelError>)>,
}

impl Known {
    /// Evaluates expressions over `object`; as long as it takes, so not on a thread that others wait for.
    pub fn evaluate(questions: Vec<Question>, object: &Json) -> Known {
        let found = questions.into_iter().map(|question| {
            let outcome = question.answer(object);
            (question, outcome)
        });
        Known { found: found.collect(), object: object.clone() }
    }

    /// What was found later counts, and of what was known before all that is still about the same object.
    pub fn join(&mut self, later: Known) {
        let before = std::mem::replace(self, later);
        if before.object == self.object {
            self.found.extend(before.found);
        }
    }
}

struct Desk {
    /// The object's address: expressions on other values are none of the desk's business.
    object: *const Json,
    size: Option<Result<Size, CelError>>,
    known: Option<Box<Known>>,
    budget: Budget,
    put_off: PutOff,
}

thread_local! {
    static DESK: RefCell<Option<Desk>> = const { RefCell::new(None) };
    static EVALUATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Does some work with the desk open for an object. Where expressions are put off the work counts for nothing; none is wanted
/// by a writer that may not ask. What is known of the object comes back: it may be measured once more. `here` is what is left on
/// this thread for all objects of a step; none takes more of it than it may alone.
pub fn at_desk<R>(
    foresight: Foresight,
    here: &mut u64,
    object: &Json,
    work: impl FnOnce() -> R,
) -> (R, PutOff, Option<Box<Known>>) {
    let (mut known, elsewhere) = match foresight {
        Foresight::None => return (work(), None, None),
        Foresight::Asked => (None, u64::MAX),
        Foresight::Known(known) => (Some(known), u64::MAX),
        Foresight::Last(known) => (Some(known), 0),
    };
    let work = || jsonpath::within_steps(WRITE_STEPS_MAX, work);
    let allowed = DECIDER_COST_MAX.min(*here);
    let mut budget = Budget { here: allowed, elsewhere };
    let (made, put_off) = within(&mut budget, &mut known, object, work);
    *here -= allowed - budget.here;
    (made, put_off, known)
}

/// The same within what is left of a budget. What is known stays known, if it is about this object.
pub fn within<R>(
    budget: &mut Budget,
    known: &mut Option<Box<Known>>,
    object: &Json,
    work: impl FnOnce() -> R,
) -> (R, PutOff) {
    let about_it = known.take().filter(|known| known.object == *object);
    DESK.set(Some(Desk { object, size: None, known: about_it, budget: *budget, put_off: None }));
    let made = work();
    let Some(desk) = DESK.take() else { return (made, None) };
    (*budget, *known) = (desk.budget, desk.known);
    (made, desk.put_off)
}

/// Does some work on another object while a desk is open, within the time that is left there; none where that is too little.
pub fn aside<R>(object: &Json, work: impl FnOnce() -> R) -> Option<R> {
    let Some(mut outer) = DESK.take() else { return Some(work()) };
    let budget = Budget { here: outer.budget.here, elsewhere: 0 };
    DESK.set(Some(Desk { object, size: None, known: None, budget, put_off: None }));
    let made = work();
    let inner = DESK.take();
    outer.budget.here = inner.as_ref().map_or(0, |inner| inner.budget.here);
    DESK.set(Some(outer));
    inner.is_some_and(|inner| inner.put_off.is_none()).then_some(made)
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
        let object = desk.object;
        let of_object = inputs.iter().find(|(_, input)| std::ptr::eq(*input, object)).map(|(_, input)| *input)?;
        let found = desk.known.as_ref().map_or(&[][..], |known| &known.found);
        if let Some((_, found)) = found.iter().find(|(known, _)| known.is(program, inputs, object)) {
            return Some(found.clone());
        }
        // To estimate it takes its time, too.
        let reading = program.source().len() as u64 / SOURCE_BYTES_A_STEP;
        let estimated = match desk.budget.here.checked_sub(reading) {
            None => COST_MAX,
            Some(left) => {
                desk.budget.here = left;
                let size = desk.size.get_or_insert_with(|| convert::size_of(std::iter::once(of_object)));
                match size.clone().and_then(|size| with_the_rest(size, inputs, object)) {
                    // All that it may speak of is converted before.
                    Ok(size) => program.estimate(&size).saturating_add(size.values),
                    Err(why) => return Some(Err(why)),
                }
            }
        };
        if estimated <= desk.budget.here {
            desk.budget.here -= estimated;
            return None;
        }
        let wanted = desk.put_off.get_or_insert_default();
        if desk.budget.elsewhere > 0 && !wanted.iter().any(|wanted| wanted.is(program, inputs, object)) {
            desk.budget.elsewhere = desk.budget.elsewhere.saturating_sub(estimated.min(COST_MAX));
            wanted.push(Question::new(program, inputs, object));
        }
        Some(Err(CelError::TooExpensive { estimated }))
    })
}

/// The size of an object with all that is given beside it; where it is given under several names, it is converted for each.
fn with_the_rest(object: Size, inputs: &[(&str, &Json)], of: *const Json) -> Result<Size, CelError> {
    if inputs.len() == 1 {
        return Ok(object);
    }
    let beside = inputs.iter().map(|(_, input)| *input).filter(|input| !std::ptr::eq(*input, of));
    let (rest, count) =
        (convert::size_of(beside)?, inputs.iter().filter(|(_, input)| std::ptr::eq(*input, of)).count());
    Ok(Size {
        values: object.values.saturating_mul(count as u64).saturating_add(rest.values),
        length: object.length.max(rest.length),
        text: object.text.max(rest.text),
    })
}

#[cfg(test)]
mod tests {
    use super::super::STEP_COST_MAX;
    use super::*;

    #[test]
    fn what_takes_long_is_asked_for_and_then_known() {
        let object = serde_json::json!({"spec": vec![1; 300]});
        let long = Program::compile("object.spec.all(a, object.spec.all(b, a + b > 0)) ? 7 : 8", &["object"]).unwrap();
        let short = Program::compile("object.spec[0]", &["object"]).unwrap();
        let both = |foresight: Foresight| {
            let before = evaluations();
            let eval = || [&long, &short].map(|program| program.eval(&[("object", &object)]));
            let (found, wanted, _) = at_desk(foresight, &mut { STEP_COST_MAX }, &object, eval);
            (found, wanted, evaluations() - before)
        };
        let ([first, second], wanted, evaluated) = both(Foresight::Asked);
        assert!(matches!(first, Err(CelError::TooExpensive { .. })));
        assert_eq!((second, evaluated), (Ok(Outcome::Int(1)), 1));
        let wanted = wanted.expect("put off");
        assert_eq!(wanted.len(), 1);
        let known = Known::evaluate(wanted, &object);
        let ([first, second], wanted, evaluated) = both(Foresight::Known(Box::new(known)));
        assert_eq!((first, second, evaluated), (Ok(Outcome::Int(7)), Ok(Outcome::Int(1)), 1));
        assert!(wanted.is_none());
        // Of another object nothing is known, and in the end there is only the time there is.
        let other = serde_json::json!({"spec": []});
        let known = Known::evaluate(vec![Question::new(&long, &[("object", &other)], &other)], &other);
        let ([first, _], wanted, _) = both(Foresight::Last(Box::new(known)));
        assert!(matches!(first, Err(CelError::TooExpensive { .. })) && wanted.is_some_and(|wanted| wanted.is_empty()));
        let ([first, _], _, evaluated) = both(Foresight::None);
        assert_eq!((first, evaluated), (Ok(Outcome::Int(7)), 2));
    }

    #[test]
    fn the_objects_of_a_step_share_what_there_is_for_it() {
        let object = serde_json::json!({"spec": vec![1; 300]});
        let short = Program::compile("object.spec.all(a, a > 0)", &["object"]).unwrap();
        let mut here = DECIDER_COST_MAX;
        let mut evaluated = 0;
        while at_desk(Foresight::Asked, &mut here, &object, || short.eval(&[("object", &object)])).1.is_none() {
            evaluated += 1;
        }
        assert!((2..100).contains(&evaluated), "{evaluated}");
        let (_, put_off, _) = at_desk(Foresight::None, &mut here, &object, || short.eval(&[("object", &object)]));
        assert!(put_off.is_none(), "where nobody waits it takes what it takes");
    }

    #[test]
    fn what_is_told_besides_the_object_is_part_of_the_question() {
        let object = serde_json::json!({"spec": vec![1; 300]});
        let variables = ["object", "trigger", "user"];
        let long = "object.spec.all(a, trigger.spec.all(b, a + b > 0)) ? user.name : ''";
        let long = Program::compile(long, &variables).unwrap();
        let by = |name: &str, foresight: Foresight| {
            let user = serde_json::json!({"name": name});
            let inputs = [("object", &object), ("trigger", &object), ("user", &user)];
            let before = evaluations();
            let (found, wanted, _) = at_desk(foresight, &mut { STEP_COST_MAX }, &object, || long.eval(&inputs));
            (found, wanted, evaluations() - before)
        };
        let (_, wanted, evaluated) = by("ann", Foresight::Asked);
        assert_eq!(evaluated, 0);
        let known = Known::evaluate(wanted.expect("put off"), &object);
        let (found, wanted, evaluated) = by("ann", Foresight::Known(Box::new(known.clone())));
        assert_eq!((found, wanted.is_none(), evaluated), (Ok(Outcome::Text("ann".into())), true, 0));
        let (_, wanted, evaluated) = by("bob", Foresight::Known(Box::new(known)));
        assert_eq!((wanted.map(|wanted| wanted.len()), evaluated), (Some(1), 0), "what Ann may is not what Bob may");
    }

    #[test]
    fn work_on_another_object_takes_of_the_same_time() {
        let (object, other) = (serde_json::json!({}), serde_json::json!({"spec": vec![1; 300]}));
        let long = Program::compile("object.spec.all(a, object.spec.all(b, a + b > 0))", &["object"]).unwrap();
        let short = Program::compile("object.spec.size()", &["object"]).unwrap();
        let before = evaluations();
        let work = || {
            let asked = |program: &Program| aside(&other, || program.eval(&[("object", &other)]).is_ok());
            (asked(&long), asked(&short))
        };
        let (made, put_off, _) = at_desk(Foresight::Asked, &mut { STEP_COST_MAX }, &object, work);
        assert_eq!((made, put_off.is_none(), evaluations() - before), ((None, Some(true)), true, 1));
        assert_eq!(work().0, Some(true), "where nobody waits it takes what it takes");
    }

    #[test]
    fn several_objects_share_a_budget_and_what_is_known_adds_up() {
        let objects: Vec<Json> = (0..9).map(|n| serde_json::json!({"spec": vec![n; 300]})).collect();
        let program =
            |n: usize| Program::compile(&format!("object.spec.all(a, a != {n}) ? 7 : 8"), &["object"]).unwrap();
        let programs = [program(100), program(200)];
        let count = |budget: &mut Budget, known: &mut Option<Box<Known>>, object: &Json| {
            within(budget, known, object, || programs.each_ref().map(|one| one.eval(&[("object", object)]))).1
        };
        let mut budget = Budget { here: 1_000_000, elsewhere: 1 };
        assert!(count(&mut budget, &mut None, &objects[0]).is_none());
        let one = (1_000_000 - budget.here) / 2;
        // So much that five are evaluated and no more; of the others one is asked for.
        let mut budget = Budget { here: 5 * one + one / 2, elsewhere: 1 };
        let before = evaluations();
        let put_off: Vec<PutOff> = objects.iter().map(|object| count(&mut budget, &mut None, object)).collect();
        assert_eq!(evaluations() - before, 5);
        let wanted: Vec<_> = put_off.iter().map(|one| one.as_ref().map(Vec::len)).collect();
        assert_eq!(wanted, [None, None, Some(1), Some(0), Some(0), Some(0), Some(0), Some(0), Some(0)]);
        // One after the other, until nothing is missing.
        let (mut known, mut rounds) = (None, 0);
        while let Some(wanted) = count(&mut Budget { here: 0, elsewhere: 1 }, &mut known, &objects[3]) {
            let found = Known::evaluate(wanted, &objects[3]);
            match &mut known {
                Some(known) => known.join(found),
                None => known = Some(Box::new(found)),
            }
            rounds += 1;
            assert!(rounds < 9, "there is no end to it");
        }
        assert_eq!(rounds, 2);
        assert!(count(&mut Budget { here: 0, elsewhere: 1 }, &mut known, &objects[4]).is_some(), "another object");
    }
}
