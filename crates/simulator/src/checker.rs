//! The history checker: given what clients heard and the steps the service says it took, were all promises kept?
//!
//! It trusts nothing but the naive model. The letters are those of the reliability plan:
//! A1 real-time order, A2 gapless steps, A3 legal grants, A4 legal denials with the true numbers, A5 unknown answers
//! happened once or not at all, A6 never twice, A7 what was acknowledged stays. (A8, the order of what watchers see, is
//! checked where it is published.)

use std::collections::BTreeMap;

use crate::engine::{Answer, From, Logged, said_changed};
use crate::history::Call;
use crate::naive::model::Model;
use crate::naive::ops::Op;

/// Checks a finished run and returns the model at its end.
pub fn check(calls: &[Call], timeline: &[Logged]) -> Result<Model, String> {
    real_time_order(calls)?;
    at_most_once(timeline)?;
    replay(calls, timeline)
}

/// A1: what returned before another call began comes before it.
fn real_time_order(calls: &[Call]) -> Result<(), String> {
    // Everything that happens, by moment: answers first, so that a call in the same tick counts as later.
    let mut events: Vec<(u64, u8, usize)> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        events.push((call.called, 1, index));
        events.extend(call.returned.as_ref().map(|returned| (returned.at, 0, index)));
    }
    events.sort_unstable();
    let mut seen = 0;
    let mut floors = vec![0; calls.len()];
    for (_, kind, index) in events {
        match (kind, step_of(&calls[index])) {
            (0, Some((at, _))) => seen = at.max(seen),
            (0, None) => {}
            _ => floors[index] = seen,
        }
    }
    for (call, floor) in calls.iter().zip(floors) {
        if let Some((at, changed)) = step_of(call)
            && (at < floor || (changed && at == floor))
        {
            return Err(format!("A1: {call:?} was answered as of step {at}, but step {floor} had been seen before"));
        }
    }
    Ok(())
}

/// The step an answer stands at, and whether it took it.
fn step_of(call: &Call) -> Option<(u64, bool)> {
    match &call.returned.as_ref()?.answer {
        Answer::Said { at, said } => Some((*at, said_changed(said))),
        Answer::Repeated { at, changed } => Some((*at, *changed)),
        Answer::Stale => None,
    }
}

/// A2 and A6: steps are numbered without gap, and no request took two.
fn at_most_once(timeline: &[Logged]) -> Result<(), String> {
    let mut taken: BTreeMap<From, u64> = BTreeMap::new();
    for (logged, expected) in timeline.iter().zip(1u64..) {
        if logged.sequence() != expected {
            return Err(format!("A2: step {expected} is numbered {}: {logged:?}", logged.sequence()));
        }
        if let Some(from) = logged.from
            && let Some(first) = taken.insert(from, expected)
        {
            return Err(format!("A6: request {from:?} took steps {first} and {expected}: {logged:?}"));
        }
    }
    Ok(())
}

/// A3, A4, A5, A7: every step and every answer is what the model says at that place.
fn replay(calls: &[Call], timeline: &[Logged]) -> Result<Model, String> {
    let mut answers: BTreeMap<u64, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        if let Some((at, _)) = step_of(call) {
            answers.entry(at).or_default().push(call);
        }
    }
    let mut model = Model::default();
    for call in answers.get(&0).into_iter().flatten() {
        unchanged(&mut model, call)?;
    }
    for logged in timeline {
        let said = model.follow(&logged.op, &logged.said);
        if said != logged.said {
            return Err(format!("A3: step {} was {logged:?}, the model says {said:?}", logged.sequence()));
        }
        for call in answers.get(&model.sequence).into_iter().flatten() {
            match step_of(call) {
                Some((_, true)) => took(call, logged)?,
                _ => unchanged(&mut model, call)?,
            }
        }
    }
    if let Some((at, calls)) = answers.range(model.sequence + 1..).next() {
        return Err(format!("A7: step {at} was acknowledged and is gone: {calls:?}"));
    }
    Ok(model)
}

/// An answer that says "done, as step n": step n is this request, with this answer.
fn took(call: &Call, logged: &Logged) -> Result<(), String> {
    let is_it = logged.from == Some((call.client, call.number)) && logged.op == call.op;
    let said_so = match &call.returned.as_ref().map(|returned| &returned.answer) {
        Some(Answer::Said { said, .. }) => *said == logged.said,
        _ => true,
    };
    if is_it && said_so { Ok(()) } else { Err(format!("A5/A7: acknowledged {call:?}, but that step is {logged:?}")) }
}

/// An answer that changed nothing: a denial, a read, a repetition. The model says the same at that place.
fn unchanged(model: &mut Model, call: &Call) -> Result<(), String> {
    let Some(Answer::Said { at, said }) = call.returned.as_ref().map(|returned| &returned.answer) else {
        return Ok(());
    };
    // On a copy: should the model take a step where the service said it took none, that is the error to report.
    let expected = match &call.op {
        Op::WhatIf { .. } => model.step(&call.op),
        op => model.clone().step(op),
    };
    if *said == expected {
        return Ok(());
    }
    Err(format!("A4: at step {at} {:?} was told {said:?}, the model says {expected:?}", call.op))
}
