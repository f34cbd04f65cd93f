//! Steps of several parts: all of them or none, whatever their order.

use ledger::{AccountKey, Charge, Ledger, LedgerError, Limit, Standing, SubjectId, Terms};
use quantity::{Amount, Format};

use crate::table::check;

#[test]
fn what_a_step_gives_back_is_its_own() {
    check(
        "
        limit q cpu 3
        charge a q cpu 3
        step charge b q cpu 3 | delete a   -> done q:cpu=3/0/0 a=gone b=charged step=+1
        subject a                          -> unknown
        show q cpu                         -> used=3 who=b
        step delete b | charge c q cpu 4   -> denied by=q:cpu requested=1 used=3 limit=3 over-limit step=+0
        subject b                          -> charged
        ",
    );
}

#[test]
fn an_account_over_its_limit_lets_equals_pass() {
    check(
        "
        limit q cpu 4
        charge a q cpu 4
        limit q cpu 2
        step charge b q cpu 4 | delete a                 -> done step=+1
        step charge b q cpu 1 | charge c q cpu 3         -> done
        step charge b q cpu 2 | charge c q cpu 3         -> denied requested=1 used=4 limit=2
        # What is adopted is no growth that could be refused, and what only shrinks never is.
        step adopt d q cpu 5 | charge b q cpu 0          -> done q:cpu=8/0/0
        step adopt d q cpu 6 | charge b q cpu 1          -> denied requested=1 used=9
        ",
    );
}

#[test]
fn every_account_that_refuses_is_named() {
    check(
        "
        limit r cpu 1
        limit q cpu 1
        limit q memory 1
        limit p pods 5
        step charge a q cpu 2, p pods 1 | charge b r cpu 1, q memory 2 | charge c r cpu 1 \
            -> denied by=q:cpu,q:memory,r:cpu step=+0
        show p pods                                        -> used=0 subjects=0
        # What is no charge at all is said before anything is held against a limit.
        step charge a q cpu -1 | charge b x y 1 | charge c r cpu 9   -> denied negative unknown-account
        ",
    );
}

#[test]
fn a_step_opens_accounts_and_moves_limits() {
    check(
        "
        limit q cpu 1
        limit gone cpu 1                                   -> account=1
        limit q memory 1                                   -> account=2
        close gone cpu
        # The lowest free id first, then new ones; the limit counts although it is set last.
        step limit n pods 2 | limit n disks 1 | charge a n pods 2, n disks 1, q cpu 3 | limit q cpu 3 \
            -> done n:pods=2/0/0 n:disks=1/0/0 q:cpu=3/0/0 step=+1 touched=0,1,3
        step limit m pods 1 | charge b m pods 2            -> denied by=m:pods used=0 limit=1 step=+0
        limit m pods 1                                     -> opened account=4
        step limit q cpu 1                                 -> done step=+1
        step limit q cpu 1                                 -> done unchanged step=+0
        step limit q cpu -1                                -> negative-limit step=+0
        step charge a n pods 2 | limit q cpu 9 | charge b q cpu 7 | charge b q cpu 6   -> done q:cpu=6/0/0
        ",
    );
}

#[test]
fn discounts_are_allowed_and_charged_in_one_step() {
    check(
        "
        limit q cpu 4
        step discounts q cpu | charge a q cpu -2 | charge b q cpu 6   -> done q:cpu=4/0/0 step=+1
        step delete a | charge b q cpu 5                              -> denied requested=1 used=4
        step discounts q cpu | charge b q cpu 6                       -> granted unchanged step=+0
        ",
    );
}

#[test]
fn the_steps_own_come_before_those_who_wait() {
    check(
        "
        limit q cpu 4
        charge a q cpu 4
        wait  w greedy 0 1 q cpu 2                                      -> queued
        step delete a | charge b q cpu 3                                -> done woken= q:cpu=3/0/1
        wait  v ordered 0 2 q cpu 2                                     -> queued
        # In line too, the step's own are first; what they leave is for the others.
        step delete b | wait c greedy 0 9 q cpu 1                       -> done woken=w queued= c=charged
        show q cpu                                                      -> used=3 line=v
        step delete c | delete w                                        -> done woken=v
        ",
    );
}

#[test]
fn those_in_line_are_served_by_their_place() {
    check(
        "
        limit q cpu 3
        step wait b ordered 0 2 q cpu 1 | wait a ordered 0 1 q cpu 2 | wait c ordered 0 3 q cpu 1 \
            -> done queued=c a=charged b=charged c=waiting-ordered q:cpu=3/0/1
        delete b                                                        -> woken=c
        # The first of them does not fit: those behind it wait, whoever is greedy does not.
        step delete a | wait d ordered 0 4 q cpu 3 | wait e ordered 0 5 q cpu 1 | wait f greedy 0 6 q cpu 1 \
            -> done queued=d,e f=charged
        show q cpu                                                      -> used=2 line=d,e
        # Who waits already and is asked again as it is takes its turn with the others.
        step wait e ordered 0 5 q cpu 1 | delete d                      -> done woken=e queued=
        ",
    );
}

#[test]
fn who_has_to_wait_keeps_what_it_has() {
    check(
        "
        limit q cpu 4
        limit n claims 9
        step wait a greedy 0 1 q cpu 2, now n claims 1 | wait b greedy 0 2 q cpu 2, now n claims 1   -> done queued=
        step wait a greedy 0 1 q cpu 3, now n claims 2 | wait b greedy 0 2 q cpu 4 \
            -> done queued=a,b q:cpu=4/0/2 n:claims=2/0/0
        subject a           -> waiting-greedy settled=q:cpu:2,n:claims:2
        # One gives way, so that the other has what it waits for.
        step wait b greedy 0 2 q cpu 1 | charge d n claims 1   -> done woken=a
        show q cpu                                             -> used=4 waiting=0
        ",
    );
}

#[test]
fn holds_are_part_of_a_step() {
    check(
        "
        limit q cpu 4
        charge a q cpu 3
        step hold a 10 q cpu 1 | hold b 20 q cpu 1    -> done q:cpu=3/1/0 a=held b=held
        step charge a q cpu 1 | hold b 20 q cpu 3     -> done q:cpu=1/3/0
        step hold c 5 q cpu 1 | hold b 20 q cpu 3     -> denied requested=1 used=1 held=3
        expire 20                                     -> expired=b
        show q cpu                                    -> used=1 held=0
        ",
    );
}

#[test]
fn a_step_of_one_is_what_that_one_is() {
    check(
        "
        limit q cpu 1
        step charge a q cpu 1        -> granted step=+1
        step charge a q cpu 1        -> granted unchanged step=+0
        step wait b greedy 0 1 q cpu 1   -> queued
        step delete a                -> released woken=b
        step delete a                -> released unchanged
        step delete a | delete x     -> done unchanged
        ",
    );
}

/// What cannot be counted of one account does not make the step touch another, whose charge stays as it is.
#[test]
fn a_step_of_one_touches_what_it_changes() {
    let mut ledger = Ledger::new();
    let open = |ledger: &mut Ledger, name: &str| {
        ledger.open(AccountKey::new("q", name, ""), Limit::Unlimited).expect("an account")
    };
    let (cpu, memory) = (open(&mut ledger, "cpu"), open(&mut ledger, "memory"));
    let adopted =
        |account, nanos| Charge::new(account, Amount::from_nanos(nanos), Format::default()).on(Terms::Adopted);
    let other = [adopted(memory, 5)];
    let _ = ledger.charge(SubjectId(1), &other, &Standing::Stored).expect("room for the other");
    let _ = ledger.charge(SubjectId(2), &[adopted(cpu, 7)], &Standing::Stored).expect("room for what stays");

    let mut planner = ledger.plan();
    let asked = [adopted(cpu, 7), adopted(memory, i128::MAX)];
    planner.charge(SubjectId(2), &asked, &Standing::Stored).expect("a part");
    let plan = planner.decide().expect("what is there is never refused");
    assert_eq!(ledger.apply_all(plan).touched.to_vec(), [memory]);
}

#[test]
fn sums_are_compared_with_the_number_type_only_at_the_end() {
    check(
        "
        limit q cpu none
        limit q memory none
        charge a q cpu max
        charge b q memory max
        # In whatever order they are carried out, one sum on the way is beyond counting.
        step charge a q memory max | charge b q cpu max     -> done step=+1
        step charge a q memory max | charge c q memory 1    -> denied overflow
        step charge c q disk 1 | charge d q cpu max | charge e q cpu max   -> denied unknown-account
        step charge d q cpu max | charge e q cpu max        -> denied overflow by=q:cpu
        # What is adopted is counted as far as it goes, in the order in which it was named.
        step adopt e q cpu 5 | adopt d q cpu max | delete b -> done
        subject e                                           -> charges=q:cpu:5
        step adopt f q memory 1 | adopt g q cpu 7           -> done
        subject f                                           -> unknown
        subject g                                           -> unknown
        ",
    );
}

#[test]
fn a_sum_is_printed_as_what_lifted_it_from_zero() {
    check(
        "
        limit q memory 4Gi
        step charge b q memory 1Gi | charge a q memory 1000000000   -> done q:memory=2073741824/0/0
        show q memory                                               -> used=2073741824
        step delete a | delete b
        step charge d q memory 1000000000 | charge c q memory 1Gi   -> done
        # It is never zero in between, whatever goes first.
        step delete c | delete d | charge e q memory 2Gi            -> done q:memory=2147483648/0/0
        ",
    );
}

#[test]
fn a_plan_that_is_dropped_leaves_no_trace() {
    let mut ledger = Ledger::new();
    let key = |policy: &str| AccountKey::new(policy, "cpu", "");
    let limit = Limit::Enforced(Amount::from_units(2));
    let known = ledger.open(key("q"), limit).unwrap();
    ledger.drain_changes(&mut |_| {});
    let (digest, sequence) = (ledger.digest(), ledger.sequence());

    let mut plan = ledger.plan();
    assert_eq!(plan.open(key("q"), Limit::Unlimited), Ok(known));
    let opened = plan.open(key("n"), limit).unwrap();
    assert_eq!(plan.open(key("n"), Limit::Unlimited), Ok(opened));
    assert_eq!(plan.account(&key("n")), Some(opened));
    plan.set_limit(known, Limit::Unlimited).unwrap();
    plan.allow_discounts(opened).unwrap();
    let charge = Charge::new(opened, Amount::from_units(2), Format::DecimalSi);
    plan.charge(SubjectId(1), &[charge], &Standing::Stored).unwrap();
    let unknown = ledger::AccountId::from_index(9);
    assert_eq!(plan.set_limit(unknown, limit), Err(LedgerError::UnknownAccount { account: unknown }));
    assert_eq!(plan.allow_discounts(unknown), Err(LedgerError::UnknownAccount { account: unknown }));
    assert_eq!(plan.balance(unknown), None);
    let decided = plan.decide().unwrap();
    assert!(!decided.is_unchanged());
    drop(decided);

    assert_eq!((ledger.digest(), ledger.sequence()), (digest, sequence));
    assert!(!ledger.has_changes());
    assert_eq!(ledger.account(&key("n")), None);
    assert!(!ledger.is_live(SubjectId(1)));
}

#[test]
#[should_panic(expected = "a plan is applied to the ledger it was decided on")]
fn a_plan_of_an_earlier_step_is_not_applied() {
    let mut ledger = Ledger::new();
    let mut step = ledger.plan();
    step.open(AccountKey::new("q", "cpu", ""), Limit::Unlimited).unwrap();
    let plan = step.decide().unwrap();
    let _ = ledger.open(AccountKey::new("r", "cpu", ""), Limit::Unlimited).unwrap();
    let _ = ledger.apply_all(plan);
}

#[test]
fn a_refused_plan_can_be_mended() {
    let mut ledger = Ledger::new();
    let account = ledger.open(AccountKey::new("q", "cpu", ""), Limit::Enforced(Amount::from_units(1))).unwrap();
    let charge = |units| [Charge::new(account, Amount::from_units(units), Format::DecimalSi)];
    let mut step = ledger.plan();
    step.charge(SubjectId(1), &charge(1), &Standing::Stored).unwrap();
    step.charge(SubjectId(2), &charge(1), &Standing::Stored).unwrap();
    assert_eq!(step.decide().unwrap_err().lines[0].requested, Amount::from_units(2));
    step.set_limit(account, Limit::Enforced(Amount::from_units(2))).unwrap();
    let plan = step.decide().unwrap();
    assert!(ledger.apply_all(plan).changed);
    ledger.audit().unwrap();
}
