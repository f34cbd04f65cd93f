//! The pass against a plain walk over everybody, and how much of a long line it looks at.

use std::collections::BTreeMap;

use quantity::Format;

use super::*;
use crate::{AccountKey, Charge, Limit, Position, Standing, SubjectId, Terms, Wait};

fn open(ledger: &mut Ledger, resource: &str, units: i64) -> AccountId {
    let limit = Limit::Enforced(Amount::from_units(units));
    ledger.open(AccountKey::new("pool", resource, ""), limit).unwrap()
}

fn ask(ledger: &mut Ledger, subject: u128, discipline: Discipline, arrived: i64, wanted: &[(AccountId, i64)]) {
    let charge = |(account, units): &(AccountId, i64)| {
        Charge::new(*account, Amount::from_units(*units), Format::DecimalSi).on(Terms::InLine)
    };
    let charges: Vec<Charge> = wanted.iter().map(charge).collect();
    let wait = Wait { discipline, position: Position { priority: 0, arrived, tie: "".into() } };
    let _ = ledger.charge(SubjectId(subject), &charges, &Standing::MayWait(wait)).unwrap();
}

/// A limit that nobody is woken for.
fn raise(ledger: &mut Ledger, account: AccountId, units: i64) {
    ledger.get_mut(account).unwrap().limit = Limit::Enforced(Amount::from_units(units));
}

/// Everybody who waits for one of the accounts, one after the other.
fn by_a_walk(ledger: &Ledger, freed: &[AccountId]) -> Vec<u32> {
    let lines = freed.iter().filter_map(|account| ledger.queue(*account));
    let everybody: BTreeMap<Place, Waiter> =
        lines.flat_map(|queue| queue.iter()).map(|(place, waiter)| (place.clone(), *waiter)).collect();
    let mut rooms: BTreeMap<AccountId, Amount> = BTreeMap::new();
    let mut granted: Vec<u32> = Vec::new();
    for (place, waiter) in everybody {
        let subject = ledger.subjects.get(waiter.slot);
        let Some(Pending::Wait { wanted, .. }) = subject.pending.as_deref() else { panic!("it stands in a line") };
        let mut fits = true;
        for (account, need) in needs(&subject.lines, wanted) {
            let room = *rooms.entry(account).or_insert_with(|| ledger.known(account).room());
            let exhausts = |(ahead, one): (&Place, &Waiter)| {
                *ahead < place
                    && one.discipline == Discipline::Ordered
                    && !granted.contains(&one.slot)
                    && one.need > room
            };
            let is_behind = ledger.queue(account).is_some_and(|queue| queue.iter().any(exhausts));
            fits &= need <= room && !(is_behind && waiter.discipline == Discipline::Ordered);
        }
        if fits {
            granted.push(waiter.slot);
            for (account, need) in needs(&subject.lines, wanted) {
                let room = rooms.get_mut(&account).expect("it was looked at");
                *room = difference(*room, need);
            }
        }
    }
    granted
}

#[test]
fn it_grants_whom_a_walk_grants() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = |bound: i64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        i64::try_from(state >> 33).unwrap() % bound
    };
    let mut granted = 0;
    for _ in 0..2000 {
        let mut ledger = Ledger::new();
        let accounts = ["cpu", "memory", "pods"].map(|resource| open(&mut ledger, resource, 0));
        // Lines of the greedy, of those in order, and of both.
        let kinds = next(3);
        for subject in 1..2 + next(24) {
            let is_ordered = if kinds == 2 { next(2) == 1 } else { kinds == 1 };
            let discipline = if is_ordered { Discipline::Ordered } else { Discipline::Greedy };
            let mut wanted: Vec<(AccountId, i64)> = accounts.map(|account| (account, next(6))).to_vec();
            wanted.retain(|(_, units)| *units > 0);
            let arrived = next(9);
            ask(&mut ledger, u128::try_from(subject).unwrap(), discipline, arrived, &wanted);
        }
        let mut freed = Vec::new();
        for account in accounts {
            raise(&mut ledger, account, next(30));
            if next(3) > 0 {
                freed.push(account);
            }
        }
        let slots = ledger.grantable(&freed);
        assert_eq!(slots, by_a_walk(&ledger, &freed));
        granted += slots.len();
    }
    assert!(granted > 2000, "{granted}");
}

const WAITERS: i64 = 100_000;

/// A full account with a long line of the greedy for it and for another.
fn long_line(need: impl Fn(i64) -> i64, other: i64) -> (Ledger, AccountId) {
    let mut ledger = Ledger::new();
    let (hot, side) = (open(&mut ledger, "cpu", 0), open(&mut ledger, "memory", other));
    for one in 1..=WAITERS {
        let wanted = [(hot, need(one)), (side, 1)];
        ask(&mut ledger, u128::try_from(one).unwrap(), Discipline::Greedy, one, &wanted);
    }
    (ledger, hot)
}

#[test]
fn nobody_fits_and_nobody_is_looked_at() {
    let (mut ledger, hot) = long_line(|_| 5, WAITERS);
    raise(&mut ledger, hot, 4);
    let (granted, looked_at) = ledger.pass(&[hot]);
    assert_eq!((granted.len(), looked_at), (0, 0));
}

#[test]
fn those_who_fit_are_found_among_those_who_do_not() {
    // One in a thousand asks for little.
    let (mut ledger, hot) = long_line(|one| if one % 1000 == 0 { 2 } else { 50 }, WAITERS);
    raise(&mut ledger, hot, 21);
    let (granted, looked_at) = ledger.pass(&[hot]);
    assert_eq!(granted.len(), 10);
    assert!(looked_at < 11 * 60, "{looked_at}");
    let ids: Vec<u128> = granted.iter().map(|slot| ledger.subjects.get(*slot).id().0).collect();
    assert_eq!(ids, (1..=10).map(|one| one * 1000).collect::<Vec<u128>>());
}

/// The bound that remains: whoever fits the freed account is looked at, although another account keeps it waiting.
#[test]
fn who_lacks_another_account_is_looked_at_if_it_fits_here() {
    let (mut ledger, hot) = long_line(|one| if one <= 100 { 1 } else { 50 }, 0);
    raise(&mut ledger, hot, 10);
    let (granted, looked_at) = ledger.pass(&[hot]);
    assert!(granted.is_empty());
    assert!((100..100 * 60).contains(&looked_at), "{looked_at}");
}
