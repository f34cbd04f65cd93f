//! What goes along with what is waited for: counted when that is served, never refused.

use ledger::{
    AccountId, AccountKey, Balance, Charge, Discipline, Ledger, Limit, Outcome, Position, Standing, SubjectId, Terms,
    Wait,
};
use quantity::{Amount, Format};

struct Shop {
    ledger: Ledger,
    special: AccountId,
    all: AccountId,
}

fn open(special: i64, all: i64) -> Shop {
    let mut ledger = Ledger::new();
    let mut account = |name: &str, limit| {
        ledger.open(AccountKey::new("grant", name, ""), Limit::Enforced(Amount::from_units(limit))).unwrap()
    };
    let (special, all) = (account("special", special), account("all", all));
    Shop { ledger, special, all }
}

fn at(arrived: i64) -> Standing {
    let position = Position { priority: 0, arrived, tie: "".into() };
    Standing::MayWait(Wait { discipline: Discipline::Greedy, position })
}

impl Shop {
    /// Asks for so much of the special account, which all counts as well.
    fn special(&mut self, subject: u128, amount: i64, standing: &Standing) -> bool {
        let charge = |account| Charge::new(account, Amount::from_units(amount), Format::DecimalSi);
        let charges = [charge(self.special).on(Terms::InLine), charge(self.all).on(Terms::Along)];
        let receipt = self.ledger.charge(SubjectId(subject), &charges, standing).unwrap();
        self.ledger.audit().unwrap();
        receipt.outcome == Outcome::Granted
    }

    /// Asks for so much of the other account alone.
    fn plain(&mut self, subject: u128, amount: i64) -> bool {
        let charge = Charge::new(self.all, Amount::from_units(amount), Format::DecimalSi).on(Terms::InLine);
        let arrived = i64::try_from(subject).unwrap();
        let receipt = self.ledger.charge(SubjectId(subject), &[charge], &at(arrived)).unwrap();
        self.ledger.audit().unwrap();
        receipt.outcome == Outcome::Granted
    }

    fn used(&self) -> (Option<i64>, Option<i64>) {
        let used = |account| self.ledger.balance(account).map(|one: Balance| one.used.to_units().unwrap());
        (used(self.special), used(self.all))
    }
}

#[test]
fn it_is_counted_without_room_and_leaves_less_to_others() {
    let mut shop = open(4, 10);
    assert!(shop.plain(1, 9));
    assert!(shop.special(2, 3, &at(2)), "only the special account is asked");
    assert_eq!(shop.used(), (Some(3), Some(12)));
    assert!(!shop.plain(3, 1), "what went along counts");
    // Asked again, nothing changes.
    let before = shop.ledger.sequence();
    assert!(shop.special(2, 3, &at(2)));
    assert_eq!(shop.ledger.sequence(), before);
}

#[test]
fn whoever_waits_has_none_of_it_and_whoever_is_served_all() {
    let mut shop = open(4, 10);
    assert!(shop.special(1, 4, &at(1)));
    assert!(!shop.special(2, 2, &at(2)));
    assert_eq!(shop.used(), (Some(4), Some(4)), "a waiter goes along with nothing");
    assert!(!shop.plain(3, 7), "four are used");
    // In one pass: the special one comes first, and what went along with it is missing for the other.
    let _ = shop.ledger.release(SubjectId(1));
    shop.ledger.audit().unwrap();
    assert_eq!(shop.used(), (Some(2), Some(9)));
    assert!(!shop.ledger.is_waiting(SubjectId(2)) && !shop.ledger.is_waiting(SubjectId(3)));
    assert!(!shop.special(4, 3, &at(4)));
    assert!(!shop.plain(5, 2));
    let _ = shop.ledger.release(SubjectId(2));
    shop.ledger.audit().unwrap();
    assert_eq!(shop.used(), (Some(3), Some(10)), "three went along, so that two more do not fit");
    assert!(shop.ledger.is_waiting(SubjectId(5)));
}

#[test]
fn a_waiter_with_company_is_the_same_after_a_start() {
    let mut shop = open(4, 10);
    assert!(shop.special(1, 4, &at(1)));
    assert!(!shop.special(2, 2, &at(2)));
    let mut rows: std::collections::BTreeMap<Vec<u8>, Vec<u8>> = std::collections::BTreeMap::new();
    shop.ledger.drain_changes(&mut |row| drop(rows.insert(row.key.to_vec(), row.value.unwrap().to_vec())));
    let again = Ledger::load(rows.iter().map(|(key, value)| (&**key, &**value))).unwrap();
    assert_eq!(again.digest(), shop.ledger.digest());
    shop.ledger = again;
    let before = shop.ledger.sequence();
    assert!(!shop.special(2, 2, &at(2)));
    assert_eq!(shop.ledger.sequence(), before, "it stands there already");
    let _ = shop.ledger.release(SubjectId(1));
    assert_eq!(shop.used(), (Some(2), Some(2)));
}

#[test]
fn without_a_place_in_line_it_is_adopted() {
    let mut shop = open(4, 1);
    assert!(shop.special(1, 3, &Standing::Stored));
    assert_eq!(shop.used(), (Some(3), Some(3)));
    let charges = [Charge::new(shop.special, Amount::from_units(3), Format::DecimalSi).on(Terms::InLine)];
    assert!(shop.ledger.charge(SubjectId(2), &charges, &Standing::Stored).is_err());
}

#[test]
fn in_a_step_of_several_parts_it_leaves_less_to_the_next() {
    let mut shop = open(4, 10);
    let mut plan = shop.ledger.plan();
    let charge = |account, amount| Charge::new(account, Amount::from_units(amount), Format::DecimalSi);
    let special = [charge(shop.special, 3).on(Terms::InLine), charge(shop.all, 3).on(Terms::Along)];
    plan.charge(SubjectId(1), &special, &at(1)).unwrap();
    plan.charge(SubjectId(2), &[charge(shop.all, 8).on(Terms::InLine)], &at(2)).unwrap();
    assert_eq!(plan.balance(shop.all).map(|one| one.used), Some(Amount::from_units(3)));
    let plan = plan.decide().unwrap();
    assert!(!plan.queues(SubjectId(1)) && plan.queues(SubjectId(2)));
    let _ = shop.ledger.apply_all(plan);
    shop.ledger.audit().unwrap();
    assert_eq!(shop.used(), (Some(3), Some(3)));
    assert_eq!(shop.ledger.explain(SubjectId(2)).blocking().count(), 1);
}

#[test]
fn an_account_that_closes_is_forgotten_by_who_would_have_come_along() {
    for sweeps in [false, true] {
        let mut shop = open(4, 10);
        assert!(shop.special(1, 4, &at(1)));
        assert!(!shop.special(2, 2, &at(2)));
        let _ = match sweeps {
            true => shop.ledger.sweep(shop.all, |_| false, 10).unwrap(),
            false => shop.ledger.close(shop.all).unwrap(),
        };
        shop.ledger.audit().unwrap();
        assert!(shop.ledger.is_waiting(SubjectId(2)));
        // Its place may be another account's now.
        let other = shop.ledger.open(AccountKey::new("grant", "other", ""), Limit::Unlimited).unwrap();
        let _ = shop.ledger.release(SubjectId(1));
        shop.ledger.audit().unwrap();
        assert_eq!(shop.used().0, Some(2));
        assert!(shop.ledger.balance(other).unwrap().used.is_zero());
    }
}
