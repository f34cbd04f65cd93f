//! Waking: who of those in line is granted after room appeared.
//!
//! One pass over the lines of the freed accounts, merged in the order of service. Whoever fits takes its share of
//! the room at once, so the next one sees what is left. Room only shrinks during a pass, because a waiter that is served
//! gives nothing back, so one pass is enough. Everything is read-only until the list of the granted is known.
//!
//! What it costs: of the greedy it looks at those whose need is within what is left of a freed account, each found in
//! steps that grow with the logarithm of the line, and at their other accounts until one is too small. Those in order are
//! walked until the first that has to wait for room, and where one of them wants another account too, those in order
//! ahead of it there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::btree_map;
use std::iter::Peekable;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quantity::Amount;

use crate::account::{AccountId, difference};
use crate::charge::{along, needs, overlaid};
use crate::greedy::Greedy;
use crate::ledger::{Ledger, Step};
use crate::queue::{Queue, Waiter};
use crate::subjects::Pending;
use crate::terms::{Discipline, Place};

impl Ledger {
    /// Grants whoever fits after the accounts that this step freed.
    pub(crate) fn wake(&mut self, step: &mut Step) {
        let mut freed = std::mem::take(&mut step.freed);
        freed.retain(|account| self.queue(*account).is_some());
        if freed.is_empty() {
            return;
        }
        freed.sort_unstable();
        freed.dedup();
        for slot in self.grantable(&freed) {
            let subject = self.subjects.get(slot);
            let Some(Pending::Wait { wanted, .. }) = subject.pending.as_deref() else { continue };
            let lines = overlaid(&subject.lines, wanted);
            step.woken.push(subject.id());
            self.replace(slot, lines, None, step);
        }
        // Those who were granted left their lines, but nobody behind them was kept from an account that was not
        // already looked at: on such an account they fitted before, too.
        step.freed.clear();
    }

    /// The slots to grant, in the order of service.
    pub(crate) fn grantable(&self, freed: &[AccountId]) -> Vec<u32> {
        self.pass(freed).0
    }

    /// The same, and how many places in line were looked at for it.
    fn pass(&self, freed: &[AccountId]) -> (Vec<u32>, usize) {
        let mut pass = Pass { ledger: self, lanes: HashMap::default(), granted: HashSet::default(), looked_at: 0 };
        let mut sources: Vec<Source<'_>> = freed.iter().flat_map(|account| self.sources(*account)).collect();
        let mut heads: BinaryHeap<Reverse<Head<'_>>> = BinaryHeap::with_capacity(sources.len());
        for (index, source) in sources.iter_mut().enumerate() {
            heads.extend(
                pass.next_of(source, None).map(|(place, waiter)| Reverse(Head { place, source: index, waiter })),
            );
        }
        let mut granted = Vec::new();
        let mut last = None;
        while let Some(Reverse(head)) = heads.pop() {
            let source = &mut sources[head.source];
            let seen = last.replace(head.place.subject) == Some(head.place.subject);
            if !seen && pass.grants(source.account, &head) {
                granted.push(head.waiter.slot);
            }
            if pass.may_go_on(source.account, &head) {
                let next = pass.next_of(source, Some(head.place));
                heads.extend(next.map(|(place, waiter)| Reverse(Head { place, source: head.source, waiter })));
            }
        }
        (granted, pass.looked_at)
    }

    /// Those in order and those who are greedy, apart.
    fn sources(&self, account: AccountId) -> impl Iterator<Item = Source<'_>> {
        let queue = self.queue(account);
        let ordered = queue.filter(|queue| !queue.ordered.is_empty()).map(|queue| Line::Ordered(queue.ordered.iter()));
        let greedy = queue.filter(|queue| queue.greedy.len() > 0).map(|queue| Line::Greedy(&queue.greedy));
        ordered.into_iter().chain(greedy).map(move |line| Source { account, line })
    }

    pub(crate) fn queue(&self, account: AccountId) -> Option<&Queue> {
        self.get(account)?.queue.as_deref()
    }
}

struct Source<'a> {
    account: AccountId,
    line: Line<'a>,
}

enum Line<'a> {
    Ordered(btree_map::Iter<'a, Place, Waiter>),
    Greedy(&'a Greedy),
}

struct Head<'a> {
    place: &'a Place,
    source: usize,
    waiter: &'a Waiter,
}

impl Head<'_> {
    fn order(&self) -> (&Place, usize) {
        (self.place, self.source)
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Head<'_> {}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// What the pass knows of one account.
struct Lane<'a> {
    /// What is left after the grants so far.
    room: Amount,
    /// The largest need among the ordered waiters passed by the cursor and not granted.
    exhausting: Amount,
    cursor: Option<Peekable<btree_map::Iter<'a, Place, Waiter>>>,
}

struct Pass<'a> {
    ledger: &'a Ledger,
    lanes: HashMap<AccountId, Lane<'a>, FixedState>,
    granted: HashSet<u32, FixedState>,
    looked_at: usize,
}

impl<'a> Pass<'a> {
    /// Who is next in a line: of those in order everyone, of the greedy only who fits what is left of the account.
    fn next_of(&mut self, source: &mut Source<'a>, behind: Option<&Place>) -> Option<(&'a Place, &'a Waiter)> {
        match &mut source.line {
            Line::Ordered(waiters) => {
                self.looked_at += 1;
                waiters.next()
            }
            Line::Greedy(greedy) => {
                let room = self.lane(source.account).room;
                greedy.first_within(behind, room, &mut self.looked_at)
            }
        }
    }

    fn grants(&mut self, source: AccountId, head: &Head<'_>) -> bool {
        if head.waiter.need > self.lane(source).room {
            return false;
        }
        let ledger = self.ledger;
        let subject = ledger.subjects.get(head.waiter.slot);
        let Some(Pending::Wait { wanted, .. }) = subject.pending.as_deref() else { return false };
        if !needs(&subject.lines, wanted).all(|(account, need)| self.fits(account, need, head)) {
            return false;
        }
        for (account, need) in needs(&subject.lines, wanted).chain(along(&subject.lines, wanted)) {
            let lane = self.lane(account);
            lane.room = difference(lane.room, need);
        }
        self.granted.insert(head.waiter.slot);
        true
    }

    fn fits(&mut self, account: AccountId, need: Amount, head: &Head<'_>) -> bool {
        let ordered = head.waiter.discipline == Discipline::Ordered;
        if ordered {
            self.advance(account, head.place);
        }
        let lane = self.lane(account);
        need <= lane.room && !(ordered && lane.exhausting > lane.room)
    }

    /// Looks at everyone in order ahead of a place. Calls come in the order of service, so the cursor never goes back.
    fn advance(&mut self, account: AccountId, place: &Place) {
        let Pass { lanes, granted, ledger, .. } = self;
        let lane = lanes.entry(account).or_insert_with(|| Lane::new(ledger, account));
        let Some(cursor) = &mut lane.cursor else { return };
        while let Some((_, waiter)) = cursor.next_if(|(ahead, _)| *ahead < place) {
            self.looked_at += 1;
            if !granted.contains(&waiter.slot) {
                lane.exhausting = lane.exhausting.max(waiter.need);
            }
        }
    }

    /// Whether anyone further down a line could still be granted.
    fn may_go_on(&mut self, source: AccountId, head: &Head<'_>) -> bool {
        let waits = !self.granted.contains(&head.waiter.slot);
        let room = self.lane(source).room;
        let exhausts = waits && head.waiter.discipline == Discipline::Ordered && head.waiter.need > room;
        room > Amount::ZERO && !exhausts
    }

    fn lane(&mut self, account: AccountId) -> &mut Lane<'a> {
        let ledger = self.ledger;
        self.lanes.entry(account).or_insert_with(|| Lane::new(ledger, account))
    }
}

impl<'a> Lane<'a> {
    fn new(ledger: &'a Ledger, account: AccountId) -> Lane<'a> {
        let room = ledger.known(account).room();
        let cursor = ledger.queue(account).map(|queue| queue.ordered.iter().peekable());
        Lane { room, exhausting: Amount::ZERO, cursor }
    }
}

#[cfg(test)]
#[path = "wake_tests.rs"]
mod tests;
