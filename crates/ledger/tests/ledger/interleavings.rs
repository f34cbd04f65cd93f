//! Every interleaving of three clients with four steps each over two accounts.

use crate::harness::Pair;
use crate::naive::ops::{Key, Limit, Op, Standing, Terms};

const UNIT: i128 = 1_000_000_000;

fn charge(subject: u128, cpu: i128, memory: i128, terms: Terms, standing: Standing) -> Op {
    let wish = |resource, units: i128, format| (Key::new("q", resource), units * UNIT, format, terms);
    Op::Charge { subject, asked: vec![wish("cpu", cpu, 0), wish("memory", memory, 1)], standing }
}

fn now(subject: u128, cpu: i128, memory: i128) -> Op {
    charge(subject, cpu, memory, Terms::Enforced, Standing::Stored)
}

fn wait(subject: u128, ordered: bool, cpu: i128, memory: i128) -> Op {
    let arrived = i64::try_from(subject).unwrap_or(0);
    let standing = Standing::MayWait { ordered, priority: 0, arrived, tie: String::new() };
    charge(subject, cpu, memory, Terms::InLine, standing)
}

fn hold(subject: u128, until: i64, cpu: i128, memory: i128) -> Op {
    charge(subject, cpu, memory, Terms::Enforced, Standing::Held { until })
}

fn limit(resource: &str, units: i128) -> Op {
    Op::SetLimit { key: Key::new("q", resource), limit: Limit::Enforced(units * UNIT) }
}

fn release(subject: u128) -> Op {
    Op::Release { subject }
}

/// Walks the tree of all orders, sharing the common beginnings, and returns how many there were.
fn every_order(pair: &Pair, clients: &[Vec<Op>; 3], at: [usize; 3], order: &mut Vec<usize>) -> u64 {
    let mut complete = true;
    let mut orders = 0;
    for client in 0..3 {
        let Some(op) = clients[client].get(at[client]) else { continue };
        complete = false;
        let mut next = pair.clone();
        order.push(client);
        next.step(op).unwrap_or_else(|error| panic!("order {order:?}: {error}"));
        let mut after = at;
        after[client] += 1;
        orders += every_order(&next, clients, after, order);
        order.pop();
    }
    if complete {
        pair.clone().restart().unwrap_or_else(|error| panic!("order {order:?}: {error}"));
    }
    orders + u64::from(complete)
}

fn check(clients: [Vec<Op>; 3]) {
    let mut pair = Pair::default();
    for resource in ["cpu", "memory"] {
        let limit = Limit::Enforced(4 * UNIT);
        pair.step(&Op::Open { key: Key::new("q", resource), limit }).unwrap();
    }
    assert_eq!(every_order(&pair, &clients, [0; 3], &mut Vec::new()), 34_650);
}

#[test]
fn charges_resizes_and_releases_in_every_order() {
    check([
        vec![now(1, 2, 1), now(1, 3, 1), now(1, 1, 4), release(1)],
        vec![now(2, 2, 2), release(2), now(2, 1, 1), now(2, 4, 0)],
        vec![now(3, 1, 3), limit("cpu", 2), now(3, 3, 3), limit("cpu", 5)],
    ]);
}

#[test]
fn greedy_waiters_in_every_order() {
    check([
        vec![wait(1, false, 3, 1), wait(4, false, 2, 2), release(1), release(4)],
        vec![wait(2, false, 2, 2), wait(2, false, 4, 1), wait(2, false, 1, 1), release(2)],
        vec![wait(3, false, 1, 3), limit("memory", 3), release(3), limit("memory", 6)],
    ]);
}

#[test]
fn ordered_waiters_and_those_who_pass_in_every_order() {
    check([
        vec![wait(1, true, 3, 0), wait(4, true, 2, 1), release(1), release(4)],
        vec![wait(2, true, 2, 2), wait(2, true, 1, 0), wait(5, false, 1, 1), release(2)],
        vec![now(3, 2, 0), wait(6, true, 0, 4), release(3), limit("cpu", 3)],
    ]);
}

#[test]
fn holds_settling_and_expiring_in_every_order() {
    check([
        vec![hold(1, 10, 3, 1), Op::Settle { subject: 1 }, hold(1, 20, 1, 4), release(1)],
        vec![hold(2, 15, 2, 2), Op::Expire { now: 12 }, now(2, 2, 2), Op::Expire { now: 30 }],
        vec![wait(3, false, 2, 1), hold(3, 10, 1, 1), Op::Settle { subject: 3 }, wait(3, true, 4, 4)],
    ]);
}

#[test]
fn accounts_closing_under_everyone_in_every_order() {
    let close = |resource: &str| Op::Close { key: Key::new("q", resource) };
    let open = |resource: &str| Op::Open { key: Key::new("q", resource), limit: Limit::Enforced(2 * UNIT) };
    check([
        vec![wait(1, true, 3, 1), wait(1, true, 5, 1), release(1), wait(1, true, 1, 1)],
        vec![now(2, 2, 2), hold(2, 5, 3, 3), Op::Settle { subject: 2 }, wait(2, false, 4, 4)],
        vec![close("cpu"), open("cpu"), close("memory"), open("memory")],
    ]);
}
