//! The same steps put to the real ledger, and its answers in the same words.

use ledger::{
    AccountId, AccountKey, Charge, Denied, Discipline, Ledger, LedgerError, Planner, Position, Reason, Receipt,
    SubjectId, Wait,
};
use quantity::{Amount, Format};

use super::model::Model;
use super::ops::{Asked, Key, Limit, Lines, No, Op, Outcome, Said, Seen, Setting, Shown, Standing, Terms, Wish};

/// Asks the ledger, and checks by the way that a step without change left no trace.
pub fn step(ledger: &mut Ledger, op: &Op) -> Said {
    match op {
        Op::Open { key, limit } => match ledger.open(name(key), to_limit(*limit)) {
            Ok(_) => Said::Done { sequence: ledger.sequence(), changed: true, outcome: Outcome::Opened, woken: vec![] },
            Err(error) => Said::Error(error_word(&error)),
        },
        Op::SetLimit { key, limit } => match ledger.account(&name(key)) {
            // A negative limit is refused whether or not the account is there.
            None if matches!(limit, Limit::Enforced(a) | Limit::Observed(a) if *a < 0) => Said::Error("negative limit"),
            None => Said::Error("unknown account"),
            Some(account) => of_result(ledger.set_limit(account, to_limit(*limit))),
        },
        Op::Close { key } => match ledger.account(&name(key)) {
            None => Said::Error("unknown account"),
            Some(account) => of_result(ledger.close(account)),
        },
        Op::Rename { key, to } => match ledger.account(&name(key)) {
            None => Said::Error("unknown account"),
            Some(account) => rename(ledger, account, to),
        },
        Op::Sweep { key, with, max } => match ledger.account(&name(key)) {
            None => Said::Error("unknown account"),
            Some(account) => sweep(ledger, account, with, *max),
        },
        Op::Charge { subject, asked, standing } => {
            let charges = charges(ledger, asked);
            match ledger.charge(SubjectId(*subject), &charges, &to_standing(standing)) {
                Ok(receipt) => of_receipt(receipt),
                Err(denied) => of_denied(&denied, asked, &charges),
            }
        }
        Op::Release { subject } => of_receipt(ledger.release(SubjectId(*subject))),
        Op::Settle { subject } => of_result(ledger.settle(SubjectId(*subject))),
        Op::Expire { now } => of_receipt(ledger.expire(*now)),
        Op::WhatIf { subject, asked } => {
            let charges = charges(ledger, asked);
            match ledger.what_if(Some(SubjectId(*subject)), &charges) {
                Ok(after) => {
                    let mut shown: Vec<Shown> = after
                        .into_iter()
                        .filter_map(|balance| Some(to_shown(key_of(ledger, balance.account)?, &balance)))
                        .collect();
                    shown.sort_by(|left, right| left.key.cmp(&right.key));
                    Said::Would(shown)
                }
                Err(denied) => of_denied(&denied, asked, &charges),
            }
        }
        Op::Step { settings, subjects } => {
            let decided = match plan(ledger, settings, subjects) {
                Ok((plan, asked, charges)) => plan.decide().map_err(|denied| of_denied(&denied, &asked, &charges)),
                Err(error) => Err(Said::Error(error)),
            };
            match decided {
                Ok(plan) => of_receipt(ledger.apply_all(plan)),
                Err(said) => said,
            }
        }
    }
}

fn rename(ledger: &mut Ledger, account: AccountId, to: &Key) -> Said {
    let before = ledger.sequence();
    match ledger.rename(account, name(to)) {
        Ok(()) => {
            let sequence = ledger.sequence();
            Said::Done { sequence, changed: sequence != before, outcome: Outcome::Renamed, woken: vec![] }
        }
        Err(error) => Said::Error(error_word(&error)),
    }
}

/// The ledger says how many are left, and not who let go.
fn sweep(ledger: &mut Ledger, account: AccountId, with: &str, max: usize) -> Said {
    let before = ledger.subjects_of(account);
    let mut said = of_result(ledger.sweep(account, |key| key.policy.starts_with(with), max));
    if let Said::Done { outcome: Outcome::Swept { swept, .. }, .. } = &mut said {
        let after = ledger.subjects_of(account);
        swept.extend(before.iter().filter(|subject| !after.contains(subject)).map(|subject| subject.0));
        swept.sort_unstable();
    }
    said
}

/// Plans a step of several parts, limits last: the order of the calls is not to matter.
pub fn plan<'a>(
    ledger: &'a Ledger,
    settings: &[Setting],
    subjects: &[(u128, Wish)],
) -> Result<(Planner<'a>, Asked, Vec<Charge>), &'static str> {
    let mut plan = ledger.plan();
    for setting in settings {
        if let Setting::Open { key, limit } = setting {
            plan.open(name(key), to_limit(*limit)).map_err(|error| error_word(&error))?;
        }
    }
    // By subject, in the order in which they are first named.
    let mut asked_last: Vec<(u128, Asked)> = Vec::new();
    for (subject, wish) in subjects {
        let (asked, done) = match wish {
            Wish::Release => (Asked::new(), plan.release(SubjectId(*subject))),
            Wish::Charge { asked, standing } => {
                let charges = charges_on(|key| plan.account(key), asked);
                (asked.clone(), plan.charge(SubjectId(*subject), &charges, &to_standing(standing)))
            }
        };
        done.map_err(|error| error_word(&error))?;
        match asked_last.iter_mut().find(|(other, _)| other == subject) {
            Some((_, last)) => *last = asked,
            None => asked_last.push((*subject, asked)),
        }
    }
    let asked: Asked = asked_last.into_iter().flat_map(|(_, asked)| asked).collect();
    let charges = charges_on(|key| plan.account(key), &asked);
    for setting in settings {
        if let Setting::SetLimit { key, limit } = setting {
            let account = plan.account(&name(key));
            // A negative limit is refused whether or not the account is there.
            let account = account.unwrap_or(AccountId::from_index(u32::MAX));
            plan.set_limit(account, to_limit(*limit)).map_err(|error| error_word(&error))?;
        }
    }
    Ok((plan, asked, charges))
}

/// Compares everything the ledger shows with the model; says the first difference.
pub fn compare(ledger: &Ledger, model: &Model) -> Result<(), String> {
    let differ = |what: &str, left: String, right: String| Err(format!("{what}: ledger {left}, model {right}"));
    if ledger.sequence() != model.sequence {
        return differ("sequence", ledger.sequence().to_string(), model.sequence.to_string());
    }
    let known = model.keys().count();
    if ledger.accounts_open() != known {
        return differ("accounts", ledger.accounts_open().to_string(), known.to_string());
    }
    for key in model.keys() {
        let balance = ledger.account(&name(key)).and_then(|account| ledger.balance(account));
        let (left, right) = (balance.map(|balance| to_shown(key.clone(), &balance)), model.shown(key));
        if left != right {
            return differ("account", format!("{left:?}"), format!("{right:?}"));
        }
    }
    let known = model.subjects().count();
    if ledger.subjects_live() != known {
        return differ("subjects", ledger.subjects_live().to_string(), known.to_string());
    }
    for subject in model.subjects() {
        let (left, right) = (seen(ledger, subject), model.seen(subject));
        if left != right {
            return differ("subject", format!("{left:?}"), format!("{right:?}"));
        }
    }
    Ok(())
}

pub fn seen(ledger: &Ledger, subject: u128) -> Option<Seen> {
    let view = ledger.subject(SubjectId(subject))?;
    let lines = |charges: &[Charge]| -> Lines {
        let line = |charge: &Charge| {
            let key = key_of(ledger, charge.account)?;
            Some((key, (charge.amount.nanos(), charge.format.to_u8())))
        };
        charges.iter().filter_map(line).collect()
    };
    let (state, until) = match view.state {
        ledger::State::Charged => ("charged", None),
        ledger::State::Held { expires_at_ms } => ("held", Some(expires_at_ms)),
        ledger::State::Waiting(Wait { discipline: Discipline::Ordered, .. }) => ("ordered", None),
        ledger::State::Waiting(Wait { discipline: Discipline::Greedy, .. }) => ("greedy", None),
    };
    let (lines, settled) = (lines(&view.charges), lines(&view.settled));
    Some(Seen { subject, state, until, lines, settled, sequence: view.sequence })
}

pub fn name(key: &Key) -> AccountKey {
    AccountKey::new(&key.policy, &key.resource, "")
}

pub fn charges(ledger: &Ledger, asked: &Asked) -> Vec<Charge> {
    charges_on(|key| ledger.account(key), asked)
}

fn charges_on(account: impl Fn(&AccountKey) -> Option<AccountId>, asked: &Asked) -> Vec<Charge> {
    let charge = |(key, amount, format, terms): &(Key, i128, u8, Terms)| Charge {
        account: account(&name(key)).unwrap_or(AccountId::from_index(u32::MAX)),
        amount: Amount::from_nanos(*amount),
        format: Format::from_u8(*format).unwrap_or_default(),
        terms: match terms {
            Terms::Enforced => ledger::Terms::Enforced,
            Terms::InLine => ledger::Terms::InLine,
            Terms::Adopted => ledger::Terms::Adopted,
        },
    };
    asked.iter().map(charge).collect()
}

pub fn to_standing(standing: &Standing) -> ledger::Standing {
    match standing {
        Standing::Stored => ledger::Standing::Stored,
        Standing::Held { until } => ledger::Standing::Held { expires_at_ms: *until },
        Standing::MayWait { ordered, priority, arrived, tie } => ledger::Standing::MayWait(Wait {
            discipline: if *ordered { Discipline::Ordered } else { Discipline::Greedy },
            position: Position { priority: *priority, arrived: *arrived, tie: tie.as_str().into() },
        }),
    }
}

fn key_of(ledger: &Ledger, account: AccountId) -> Option<Key> {
    ledger.key(account).map(|key| Key::new(&*key.policy, &*key.resource))
}

fn to_limit(limit: Limit) -> ledger::Limit {
    match limit {
        Limit::Unlimited => ledger::Limit::Unlimited,
        Limit::Enforced(amount) => ledger::Limit::Enforced(Amount::from_nanos(amount)),
        Limit::Observed(amount) => ledger::Limit::Observed(Amount::from_nanos(amount)),
    }
}

fn to_shown(key: Key, balance: &ledger::Balance) -> Shown {
    Shown {
        key,
        limit: match balance.limit {
            ledger::Limit::Unlimited => Limit::Unlimited,
            ledger::Limit::Enforced(amount) => Limit::Enforced(amount.nanos()),
            ledger::Limit::Observed(amount) => Limit::Observed(amount.nanos()),
        },
        used: balance.used.nanos(),
        held: balance.held.nanos(),
        waiting: balance.waiting,
        subjects: balance.subjects,
        format: balance.format.to_u8(),
    }
}

fn of_result(result: Result<Receipt, LedgerError>) -> Said {
    match result {
        Ok(receipt) => of_receipt(receipt),
        Err(error) => Said::Error(error_word(&error)),
    }
}

fn of_receipt(receipt: Receipt) -> Said {
    let plain = |subjects: Vec<SubjectId>| subjects.into_iter().map(|subject| subject.0).collect();
    let outcome = match receipt.outcome {
        ledger::Outcome::Granted => Outcome::Granted,
        ledger::Outcome::Held { expires_at_ms } => Outcome::Held { until: expires_at_ms },
        ledger::Outcome::Queued => Outcome::Queued,
        ledger::Outcome::Released => Outcome::Released,
        ledger::Outcome::Settled => Outcome::Settled,
        ledger::Outcome::Expired { subjects } => Outcome::Expired(plain(subjects)),
        ledger::Outcome::LimitSet => Outcome::LimitSet,
        ledger::Outcome::Closed => Outcome::Closed,
        ledger::Outcome::Swept { left } => Outcome::Swept { swept: vec![], left },
        ledger::Outcome::Step { queued } => Outcome::Step { queued: plain(queued) },
    };
    Said::Done { sequence: receipt.sequence, changed: receipt.changed, outcome, woken: plain(receipt.woken) }
}

/// Accounts that are not open have no key in the ledger; the name that was asked for is put back.
fn of_denied(denied: &Denied, asked: &Asked, charges: &[Charge]) -> Said {
    let no = |line: &ledger::Refusal| {
        let reason = reason_word(line.reason);
        let (key, requested) = (Key::new(&*line.key.policy, &*line.key.resource), line.requested.nanos());
        No { key, reason, requested, used: line.used.nanos(), held: line.held.nanos() }
    };
    let mut lines: Vec<No> = denied.lines.iter().filter(|l| l.reason != Reason::UnknownAccount).map(no).collect();
    if lines.len() < denied.lines.len() {
        for ((key, amount, ..), charge) in asked.iter().zip(charges) {
            let is_unknown = charge.account == AccountId::from_index(u32::MAX);
            if is_unknown && !lines.iter().any(|line| line.key == *key) {
                let (reason, requested) = (reason_word(Reason::UnknownAccount), *amount);
                lines.push(No { key: key.clone(), reason, requested, used: 0, held: 0 });
            }
        }
        lines.sort();
    }
    Said::Denied(lines)
}

fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::TooManyCharges => "too many charges",
        Reason::UnknownAccount => "unknown account",
        Reason::Negative => "negative",
        Reason::OverLimit => "over limit",
        Reason::Overflow => "overflow",
        Reason::Full => "full",
    }
}

fn error_word(error: &LedgerError) -> &'static str {
    match error {
        LedgerError::AlreadyOpen { .. } => "already open",
        LedgerError::UnknownAccount { .. } => "unknown account",
        LedgerError::NegativeLimit => "negative limit",
        LedgerError::KeyTooLong { .. } => "key too long",
        LedgerError::TooManyAccounts => "too many accounts",
        LedgerError::StepTooLarge => "step too large",
        LedgerError::UnknownSubject { .. } => "unknown subject",
        LedgerError::NothingHeld { .. } => "nothing held",
    }
}
