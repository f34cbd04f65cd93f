//! Who of a step's own subjects that ask in line is granted, and who waits.
//!
//! They are looked at after everything else in the step, better-placed first, so that what the step gives back is theirs
//! before it is anybody else's. Whoever waited before is woken when the step is applied.

use std::collections::{BTreeMap, BTreeSet};

use quantity::Amount;
use smallvec::SmallVec;

use crate::account::{AccountId, Limit, difference, sum};
use crate::answer::Reason;
use crate::books::Books;
use crate::charge::{Charge, Lines, along, amount_on, needs};
use crate::planner::{Ask, Part, Planner};
use crate::queue::WAITERS_MAX;
use crate::terms::{Discipline, Place, Wait};

/// What becomes of a step's charges in line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// Indexes of the parts that have to wait.
    queued: BTreeSet<usize>,
    lanes: BTreeMap<AccountId, Lane>,
    /// Who may neither be granted nor wait.
    pub refusals: Vec<(Charge, Reason)>,
}

/// What the step's charges in line do to one account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    /// What is left after the grants so far.
    room: Amount,
    pub taken: Amount,
    pub subjects: i64,
    pub waiting: i64,
    /// The largest need of the step's own ordered subjects that have to wait.
    exhausting: Amount,
}

impl Served {
    pub fn on(&self, account: AccountId) -> Lane {
        self.lanes.get(&account).copied().unwrap_or_default()
    }

    pub fn taken(&self) -> impl Iterator<Item = (AccountId, Amount)> {
        self.lanes.iter().map(|(account, lane)| (*account, lane.taken))
    }

    pub fn queues(&self, index: usize) -> bool {
        self.queued.contains(&index)
    }
}

/// One of them.
struct Asking<'p> {
    index: usize,
    place: Place,
    wait: &'p Wait,
    in_line: &'p Lines,
    needs: SmallVec<[(AccountId, Amount); 4]>,
}

impl Planner<'_> {
    pub(crate) fn serve(&self) -> Served {
        let mut asking: Vec<Asking<'_>> =
            self.parts.iter().enumerate().filter_map(|(index, part)| self.asking(index, part)).collect();
        asking.sort_by(|left, right| left.place.cmp(&right.place));
        let mut served = Served::default();
        for one in asking {
            let no = self.ask_lanes(&one, &mut served);
            match no {
                Ok(()) => self.grant(&one, &mut served),
                Err(No::Wait) => self.enqueue(&one, &mut served),
                Err(No::Never(refusals)) => served.refusals.extend(refusals),
            }
        }
        served
    }

    fn asking<'p>(&'p self, index: usize, part: &'p Part) -> Option<Asking<'p>> {
        let Ask::Charge { wanted, standing } = &part.ask else { return None };
        let wait = standing.wait().filter(|_| !wanted.in_line.is_empty())?;
        let needs = needs(self.occupied(part), &wanted.in_line).collect();
        let place = Place::new(&wait.position, part.subject);
        Some(Asking { index, place, wait, in_line: &wanted.in_line, needs })
    }

    fn ask_lanes(&self, one: &Asking<'_>, served: &mut Served) -> Result<(), No> {
        let is_ordered = one.wait.discipline == Discipline::Ordered;
        let (mut is_behind, mut refusals) = (false, Vec::new());
        for (account, need) in &one.needs {
            let lane = self.lane(*account, served);
            if *need > lane.room {
                let format = one.in_line.iter().find(|line| line.account == *account).map(|line| line.format());
                let reason = match self.known_entry(*account).limit {
                    Limit::Enforced(_) => Reason::OverLimit,
                    Limit::Unlimited | Limit::Observed(_) => Reason::Overflow,
                };
                refusals.push((Charge::new(*account, *need, format.unwrap_or_default()), reason));
            }
            if is_ordered {
                let waits_on = |subject| !self.leaves(subject);
                let queue = self.ledger.queue(*account);
                let ahead = queue.map(|queue| queue.ordered_need_ahead_of(&one.place, waits_on)).unwrap_or_default();
                is_behind |= ahead.max(lane.exhausting) > lane.room;
            }
        }
        // No release makes these fit, so waiting would be forever.
        if refusals.iter().any(|(_, reason)| *reason == Reason::Overflow) {
            return Err(No::Never(refusals));
        }
        match refusals.is_empty() && !is_behind {
            true => Ok(()),
            false => Err(No::Wait),
        }
    }

    fn grant(&self, one: &Asking<'_>, served: &mut Served) {
        let occupied = self.occupied(&self.parts[one.index]);
        for (account, need) in one.needs.iter().copied().chain(along(occupied, one.in_line)) {
            let is_new = amount_on(occupied, account).is_zero();
            let lane = self.lane(account, served);
            lane.room = difference(lane.room, need);
            lane.taken = sum(lane.taken, need);
            lane.subjects += i64::from(is_new);
        }
    }

    fn enqueue(&self, one: &Asking<'_>, served: &mut Served) {
        let mut is_full = |account: AccountId| {
            let waiting = self.ledger.queue(account).map_or(0, |queue| queue.len());
            let more = usize::try_from(self.lane(account, served).waiting).unwrap_or_default();
            waiting + more >= WAITERS_MAX
        };
        if one.needs.iter().any(|(account, _)| is_full(*account)) {
            let full = one.in_line.iter().filter(|line| is_full(line.account));
            let full: Vec<(Charge, Reason)> = full.map(|line| (line.charge(), Reason::Full)).collect();
            served.refusals.extend(full);
            return;
        }
        served.queued.insert(one.index);
        for (account, need) in &one.needs {
            let lane = self.lane(*account, served);
            lane.waiting += 1;
            if one.wait.discipline == Discipline::Ordered {
                lane.exhausting = lane.exhausting.max(*need);
            }
        }
    }

    fn lane<'s>(&self, account: AccountId, served: &'s mut Served) -> &'s mut Lane {
        served.lanes.entry(account).or_insert_with(|| Lane { room: self.room(account), ..Lane::default() })
    }
}

/// Why one is not granted.
enum No {
    Wait,
    Never(Vec<(Charge, Reason)>),
}
