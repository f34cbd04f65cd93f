//! The checker itself, on histories made by hand: it accepts the good one and names what is wrong with each bad one.

use simulator::checker::check;
use simulator::history::{Call, Returned};
use simulator::naive::model::Model;
use simulator::naive::ops::{Key, Limit, Op, Said, Standing, Terms};
use simulator::{Answer, Logged};

fn open() -> Op {
    Op::Open { key: Key::new("q", "cpu"), limit: Limit::Enforced(4) }
}

fn charge(subject: u128, amount: i128) -> Op {
    let asked = vec![(Key::new("q", "cpu"), amount, 0, Terms::Enforced)];
    Op::Charge { subject, asked, standing: Standing::Stored }
}

/// Runs steps on a model: the calls of one client after the other, each answered at once, and the timeline.
fn story(ops: &[Op]) -> (Vec<Call>, Vec<Logged>) {
    let (mut model, mut calls, mut timeline) = (Model::default(), Vec::new(), Vec::new());
    for (op, number) in ops.iter().zip(1u64..) {
        let said = model.step(op);
        if matches!(said, Said::Done { changed: true, .. }) {
            timeline.push(Logged { from: Some((1, number)), op: op.clone(), said: said.clone() });
        }
        let answer = Answer::Said { at: model.sequence, said };
        let returned = Some(Returned { at: number * 10 + 5, answer });
        calls.push(Call { client: 1, number, op: op.clone(), called: number * 10, returned });
    }
    (calls, timeline)
}

fn good() -> (Vec<Call>, Vec<Logged>) {
    story(&[open(), charge(1, 3), charge(2, 2), charge(2, 1), Op::Release { subject: 1 }, charge(3, 9), charge(2, 1)])
}

#[track_caller]
fn rejected(letter: &str, spoil: impl FnOnce(&mut Vec<Call>, &mut Vec<Logged>)) {
    let (mut calls, mut timeline) = good();
    spoil(&mut calls, &mut timeline);
    let said = check(&calls, &timeline).expect_err("the checker accepted it");
    assert!(said.starts_with(letter), "{said}");
}

fn answer(call: &mut Call) -> &mut Answer {
    &mut call.returned.as_mut().unwrap().answer
}

#[test]
fn a_good_history_is_accepted() {
    let (calls, timeline) = good();
    assert_eq!(check(&calls, &timeline).unwrap().sequence, 4);
    assert_eq!(check(&[], &[]).unwrap().sequence, 0);
}

#[test]
fn an_unanswered_call_may_have_happened_or_not() {
    let (mut calls, mut timeline) = good();
    calls[4].returned = None;
    check(&calls, &timeline).unwrap();
    // Not at all: then the later answers must stand at the earlier step.
    timeline.pop();
    calls.truncate(5);
    check(&calls, &timeline).unwrap();
}

#[test]
fn an_answer_from_the_past_is_refused() {
    rejected("A1", |calls, _| {
        if let Answer::Said { at, .. } = answer(&mut calls[5]) {
            *at -= 1;
        }
    });
}

#[test]
fn two_answers_in_the_wrong_order_are_refused() {
    rejected("A1", |calls, _| {
        let (early, late) = (calls[1].returned.clone(), calls[3].returned.clone());
        (calls[1].returned.as_mut().unwrap().answer, calls[3].returned.as_mut().unwrap().answer) =
            (late.unwrap().answer, early.unwrap().answer);
    });
}

#[test]
fn a_gap_in_the_steps_is_refused() {
    rejected("A2", |_, timeline| {
        timeline.remove(1);
    });
}

#[test]
fn a_grant_beyond_the_limit_is_refused() {
    rejected("A3", |_, timeline| timeline[2].op = charge(2, 2));
}

#[test]
fn a_denial_of_what_fits_is_refused() {
    rejected("A4", |calls, _| calls[2].op = charge(2, 1));
}

#[test]
fn a_denial_with_wrong_numbers_is_refused() {
    rejected("A4", |calls, _| {
        if let Answer::Said { said: Said::Denied(lines), .. } = answer(&mut calls[2]) {
            lines[0].used -= 1;
        }
    });
}

#[test]
fn an_answer_for_another_request_is_refused() {
    rejected("A5", |_, timeline| timeline[1].from = Some((2, 2)));
}

#[test]
fn a_request_that_happened_twice_is_refused() {
    rejected("A6", |_, timeline| timeline[3].from = Some((1, 2)));
}

#[test]
fn a_lost_step_is_refused() {
    rejected("A7", |calls, timeline| {
        timeline.pop();
        calls.truncate(5);
    });
}
