//! The table language of the cases: one step a line, what it should say after the arrow.
//!
//! ```text
//! limit  POLICY RESOURCE AMOUNT        opens or changes; `none` is unlimited, `~4` is observed only
//! rename POLICY RESOURCE POLICY RESOURCE     sweep POLICY RESOURCE,RESOURCE… MAX
//! close  POLICY RESOURCE               discounts POLICY RESOURCE: amounts below zero are charged as well
//! charge NAME POLICY RESOURCE AMOUNT, POLICY RESOURCE AMOUNT …     also: adopt; `nothing` is the empty vector
//! hold   NAME UNTIL charges            wait NAME greedy|ordered PRIORITY ARRIVED charges
//!        a charge that begins with `now`, `adopted` or `in-line` is on these terms, whatever the others are on
//! settle NAME     delete NAME     expire NOW     drop NAME: its hold     under NAME charges: what is stored of it under a hold
//! step PART | PART …   as one step, where a part is limit, discounts, charge, adopt, hold, wait or delete; then also
//!        `POLICY:RESOURCE=USED/HELD/WAITING` and `NAME=STATE` as the plan showed them, for every account and subject named
//! what-if NAME charges     show POLICY RESOURCE     subject NAME     explain NAME
//! ```
//!
//! After the arrow: a word for the outcome, and `name=value` pairs which are compared with what `facts` says. After
//! every step the ledger is audited and loaded from its rows, and must come back the same.

use std::collections::{BTreeMap, BTreeSet};

use ledger::{
    AccountId, AccountKey, Balance, Charge, Denied, Discipline, Ledger, LedgerError, Limit, Outcome, Position, Reason,
    Receipt, Standing, State, SubjectId, Terms, Wait,
};
use quantity::{Amount, Format, Quantity};

/// Runs a table and fails with the line that said something else.
#[track_caller]
pub fn check(table: &str) {
    let mut bench = Bench::default();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (step, expected) = line.split_once("->").unwrap_or((line, ""));
        let facts = bench.step(step.trim());
        for word in expected.split_whitespace() {
            assert!(facts.iter().any(|fact| fact == word), "{line}\n  said {facts:?}\n  in {table}");
        }
        bench.verify(line);
    }
}

#[derive(Default)]
struct Bench {
    ledger: Ledger,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    names: BTreeMap<SubjectId, String>,
}

type Facts = Vec<String>;

impl Bench {
    fn step(&mut self, step: &str) -> Facts {
        let words: Vec<&str> = step.split_whitespace().collect();
        let before = self.ledger.sequence();
        let mut facts = self.carry_out(&words, step);
        facts.push(format!("step=+{}", self.ledger.sequence() - before));
        facts
    }

    fn carry_out(&mut self, words: &[&str], step: &str) -> Facts {
        match words {
            ["limit", policy, resource, limit] => self.limit(policy, resource, limit),
            ["discounts", policy, resource] => {
                let account = self.account(policy, resource);
                self.ledger.allow_discounts(account).expect("it is open");
                vec!["allowed".into()]
            }
            ["close", policy, resource] => {
                let account = self.account(policy, resource);
                let receipt = self.ledger.close(account);
                self.of_result(receipt, &[])
            }
            ["sweep", policy, resources, max] => {
                let (first, with) = resources.split_once(',').unwrap_or((resources, ""));
                let (account, max) = (self.account(policy, first), max.parse().expect("a number"));
                let with =
                    |key: &AccountKey| &*key.policy == *policy && with.split(',').any(|one| one == &*key.resource);
                let receipt = self.ledger.sweep(account, with, max);
                self.of_result(receipt, &[])
            }
            ["rename", policy, resource, to_policy, to_resource] => {
                let account = self.account(policy, resource);
                match self.ledger.rename(account, AccountKey::new(to_policy, to_resource, "")) {
                    Ok(()) => vec!["renamed".into()],
                    Err(error) => vec![error_name(&error).into()],
                }
            }
            ["step", ..] => self.step_of_parts(step.trim_start_matches("step")),
            ["charge" | "adopt" | "hold" | "wait", ..] => {
                let (name, charges, terms, standing) = asked(words);
                self.charge(name, charges, terms, &standing)
            }
            ["settle", name] => {
                let subject = self.subject(name);
                let receipt = self.ledger.settle(subject);
                self.of_result(receipt, &[])
            }
            ["delete", name] => {
                let subject = self.subject(name);
                let receipt = self.ledger.release(subject);
                self.of_receipt(&receipt, &[])
            }
            ["drop", name] => {
                let subject = self.subject(name);
                let receipt = self.ledger.drop_hold(subject);
                self.of_receipt(&receipt, &[])
            }
            ["under", name, charges @ ..] => {
                let (subject, charges) = (self.subject(name), self.charges(charges, Terms::Adopted));
                match self.ledger.adopt_under(subject, &charges) {
                    Ok(receipt) => self.of_receipt(&receipt, &charges),
                    Err(denied) => self.of_denied(&denied),
                }
            }
            ["keep-back", until, name, charges @ ..] => {
                let (subject, charges) = (self.subject(name), self.charges(charges, Terms::Adopted));
                match self.ledger.keep_back(subject, &charges, number(until)) {
                    Ok(receipt) => self.of_receipt(&receipt, &charges),
                    Err(denied) => self.of_denied(&denied),
                }
            }
            ["expire", now] => {
                let receipt = self.ledger.expire(number(now));
                self.of_receipt(&receipt, &[])
            }
            ["what-if", name, charges @ ..] => {
                let (subject, charges) = (self.subject(name), self.charges(charges, Terms::Enforced));
                match self.ledger.what_if(Some(subject), &charges) {
                    Ok(after) => after.iter().flat_map(|balance| self.of_balance(balance)).collect(),
                    Err(denied) => self.of_denied(&denied),
                }
            }
            ["show", policy, resource] => {
                let account = self.account(policy, resource);
                match self.ledger.balance(account) {
                    Some(balance) => self.of_balance(&balance),
                    None => vec!["closed".into()],
                }
            }
            ["subject", name] => self.of_subject(name),
            ["explain", name] => self.of_explanation(name),
            _ => panic!("no such step: {step}"),
        }
    }

    /// A step that is refused leaves no trace; one that is not takes one number.
    fn step_of_parts(&mut self, parts: &str) -> Facts {
        let parts: Vec<Vec<&str>> = parts.split('|').map(|part| part.split_whitespace().collect()).collect();
        let ids: Vec<SubjectId> = parts.iter().map(|part| self.subject(part[1])).collect();
        let (before, digest) = (self.ledger.sequence(), self.ledger.digest());
        let mut plan = self.ledger.plan();
        let mut accounts = BTreeSet::new();
        for (part, subject) in parts.iter().zip(&ids) {
            let done = match &part[..] {
                ["limit", policy, resource, limit] => {
                    let (key, limit) = (AccountKey::new(policy, resource, ""), to_limit(limit));
                    plan.open(key, limit).and_then(|account| plan.set_limit(account, limit))
                }
                ["discounts", policy, resource] => {
                    let account = plan.account(&AccountKey::new(policy, resource, ""));
                    plan.allow_discounts(account.expect("it is open"))
                }
                ["delete", _] => plan.release(*subject),
                words => {
                    let (_, charges, terms, standing) = asked(words);
                    let charges = charges_of(charges, terms, |key| plan.account(key));
                    accounts.extend(charges.iter().map(|charge| charge.account));
                    plan.charge(*subject, &charges, &standing)
                }
            };
            if let Err(error) = done {
                return vec![error_name(&error).into()];
            }
        }
        let shown = accounts.iter().filter_map(|account| {
            let (key, balance) = (plan.key(*account)?, plan.balance(*account)?);
            let show = |amount: Amount| Quantity::new(amount, balance.format).to_string();
            let (used, held, waiting) = (show(balance.used), show(balance.held), balance.waiting);
            Some(format!("{}:{}={used}/{held}/{waiting}", key.policy, key.resource))
        });
        let mut facts: Facts = shown.collect();
        for subject in ids {
            let state = plan.subject(subject).map(|view| view.state);
            facts.push(format!("{}={}", self.named(&[subject]), state.as_ref().map_or("gone", state_word)));
        }
        match plan.decide() {
            Ok(plan) => {
                let receipt = self.ledger.apply_all(plan);
                assert_eq!(self.ledger.sequence(), before + u64::from(receipt.changed), "a step has one number");
                facts.extend(self.of_receipt(&receipt, &[]));
            }
            Err(denied) => {
                assert_eq!(digest, self.ledger.digest(), "a denial changed something");
                assert!(!self.ledger.has_changes(), "a denial has rows to write");
                facts.extend(self.of_denied(&denied));
            }
        }
        facts
    }

    fn limit(&mut self, policy: &str, resource: &str, limit: &str) -> Facts {
        let limit = to_limit(limit);
        let key = AccountKey::new(policy, resource, "");
        match self.ledger.account(&key) {
            Some(account) => {
                let receipt = self.ledger.set_limit(account, limit);
                self.of_result(receipt, &[])
            }
            None => match self.ledger.open(key, limit) {
                Ok(account) => vec!["opened".into(), format!("account={}", account.index())],
                Err(error) => vec![error_name(&error).into()],
            },
        }
    }

    fn charge(&mut self, name: &str, charges: &[&str], terms: Terms, standing: &Standing) -> Facts {
        let (subject, charges) = (self.subject(name), self.charges(charges, terms));
        let digest = self.ledger.digest();
        match self.ledger.charge(subject, &charges, standing) {
            Ok(receipt) => self.of_receipt(&receipt, &charges),
            Err(denied) => {
                assert_eq!(digest, self.ledger.digest(), "a denial changed something");
                assert!(!self.ledger.has_changes(), "a denial has rows to write");
                self.of_denied(&denied)
            }
        }
    }

    /// After every step: the books add up, and the rows make the same ledger.
    fn verify(&mut self, line: &str) {
        self.ledger.audit().unwrap_or_else(|error| panic!("{line}: {error}"));
        let rows = &mut self.rows;
        self.ledger.drain_changes(&mut |row| {
            match row.value {
                Some(value) => rows.insert(row.key.to_vec(), value.to_vec()),
                None => rows.remove(row.key),
            };
        });
        let pairs = self.rows.iter().map(|(key, value)| (&key[..], &value[..]));
        let loaded = Ledger::load(pairs).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(loaded.digest(), self.ledger.digest(), "{line}: the rows make another ledger");
        // Half of the steps run on a ledger that was just restarted.
        if self.ledger.sequence().is_multiple_of(2) {
            self.ledger = loaded;
        }
    }

    fn subject(&mut self, name: &str) -> SubjectId {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let subject = SubjectId(u128::from_be_bytes(bytes));
        self.names.insert(subject, name.into());
        subject
    }

    fn account(&self, policy: &str, resource: &str) -> AccountId {
        let account = self.ledger.account(&AccountKey::new(policy, resource, ""));
        account.unwrap_or(AccountId::from_index(u32::MAX))
    }

    fn charges(&self, words: &[&str], terms: Terms) -> Vec<Charge> {
        charges_of(words, terms, |key| self.ledger.account(key))
    }

    fn of_result(&self, result: Result<Receipt, LedgerError>, charges: &[Charge]) -> Facts {
        match result {
            Ok(receipt) => self.of_receipt(&receipt, charges),
            Err(error) => vec![error_name(&error).into()],
        }
    }

    fn of_receipt(&self, receipt: &Receipt, charges: &[Charge]) -> Facts {
        let mut facts = Facts::new();
        let outcome = match &receipt.outcome {
            Outcome::Granted => "granted",
            Outcome::Held { .. } => "held",
            Outcome::Queued => "queued",
            Outcome::Released => "released",
            Outcome::Settled => "settled",
            Outcome::Expired { subjects } => {
                facts.push(format!("expired={}", self.named(subjects)));
                "expired"
            }
            Outcome::LimitSet => "set",
            Outcome::Closed => "closed",
            Outcome::Swept { left } => {
                facts.push(format!("left={left}"));
                "swept"
            }
            Outcome::Step { queued } => {
                facts.push(format!("queued={}", self.named(queued)));
                "done"
            }
        };
        facts.push(outcome.into());
        if !receipt.changed {
            facts.push("unchanged".into());
        }
        facts.push(format!("woken={}", self.named(&receipt.woken)));
        let touched: Vec<String> = receipt.touched.iter().map(|account| account.index().to_string()).collect();
        facts.push(format!("touched={}", touched.join(",")));
        for charge in charges {
            facts.extend(self.ledger.balance(charge.account).iter().flat_map(|balance| self.of_balance(balance)));
        }
        facts
    }

    fn of_denied(&self, denied: &Denied) -> Facts {
        let mut facts = vec!["denied".to_owned(), format!("said={}", denied.to_string().replace(' ', "_"))];
        let who: Vec<String> =
            denied.lines.iter().map(|line| format!("{}:{}", line.key.policy, line.key.resource)).collect();
        facts.push(format!("by={}", who.join(",")));
        for line in &denied.lines {
            let show = |amount: Amount| Quantity::new(amount, line.format).to_string();
            facts.push(format!("requested={}", show(line.requested)));
            facts.push(format!("used={}", show(line.used)));
            facts.push(format!("held={}", show(line.held)));
            facts.extend(line.limit.amount().map(|limit| format!("limit={}", show(limit))));
            let reason = match line.reason {
                Reason::TooManyCharges => "too-many-charges",
                Reason::UnknownAccount => "unknown-account",
                Reason::Negative => "negative",
                Reason::OverLimit => "over-limit",
                Reason::Overflow => "overflow",
                Reason::Full => "full",
            };
            facts.push(reason.into());
        }
        facts
    }

    fn of_balance(&self, balance: &Balance) -> Facts {
        let show = |amount: Amount| Quantity::new(amount, balance.format).to_string();
        let limit = match balance.limit {
            Limit::Unlimited => "none".into(),
            Limit::Enforced(limit) => show(limit),
            Limit::Observed(limit) => format!("~{}", show(limit)),
        };
        let available = balance.available().map_or("none".into(), show);
        vec![
            format!("used={}", show(balance.used)),
            format!("held={}", show(balance.held)),
            format!("limit={limit}"),
            format!("available={available}"),
            format!("waiting={}", balance.waiting),
            format!("subjects={}", balance.subjects),
            format!("who={}", self.named(&self.ledger.subjects_of(balance.account))),
            format!("line={}", self.named(&self.ledger.waiting_for(balance.account))),
        ]
    }

    fn of_subject(&mut self, name: &str) -> Facts {
        let subject = self.subject(name);
        let Some(view) = self.ledger.subject(subject) else { return vec!["unknown".into()] };
        let show = |charges: &[Charge]| -> String {
            let show = |charge: &Charge| {
                let key = self.ledger.key(charge.account).expect("a charge names an open account");
                format!("{}:{}:{}", key.policy, key.resource, Quantity::new(charge.amount, charge.format))
            };
            charges.iter().map(show).collect::<Vec<_>>().join(",")
        };
        let state = match view.state {
            State::Held { expires_at_ms } => format!("held-until={expires_at_ms}"),
            state => state_word(&state).to_owned(),
        };
        let (charges, settled) = (show(&view.charges), show(&view.settled));
        vec![state, format!("charges={charges}"), format!("settled={settled}"), format!("of-step={}", view.sequence)]
    }

    fn of_explanation(&mut self, name: &str) -> Facts {
        let subject = self.subject(name);
        let explanation = self.ledger.explain(subject);
        let mut facts = Facts::new();
        if explanation.state.is_none() {
            facts.push("unknown".into());
        }
        let blocking: Vec<String> = explanation.blocking().map(|line| line.key.resource.to_string()).collect();
        facts.push(format!("blocking={}", blocking.join(",")));
        for line in &explanation.lines {
            let show = |amount: Amount| Quantity::new(amount, line.format).to_string();
            let resource = &line.key.resource;
            facts.push(format!("{resource}={}", show(line.amount)));
            facts.extend(line.missing.map(|missing| format!("{resource}.missing={}", show(missing))));
            facts.extend(line.blocked_by.map(|by| format!("{resource}.behind={}", self.named(&[by]))));
            facts.push(format!("{resource}.ahead={}", line.ahead));
            facts.push(format!("{resource}.first={}", self.named(&line.ahead_first)));
        }
        facts
    }

    fn named(&self, subjects: &[SubjectId]) -> String {
        let names = subjects.iter().map(|subject| self.names.get(subject).map_or("?", String::as_str));
        names.collect::<Vec<_>>().join(",")
    }
}

/// Who asks for what, on which terms, and how it stands.
fn asked<'a>(words: &'a [&'a str]) -> (&'a str, &'a [&'a str], Terms, Standing) {
    match words {
        ["charge", name, charges @ ..] => (name, charges, Terms::Enforced, Standing::Stored),
        ["adopt", name, charges @ ..] => (name, charges, Terms::Adopted, Standing::Stored),
        ["hold", name, until, charges @ ..] => {
            (name, charges, Terms::Enforced, Standing::Held { expires_at_ms: number(until) })
        }
        ["wait", name, discipline, priority, arrived, charges @ ..] => {
            let discipline = match *discipline {
                "greedy" => Discipline::Greedy,
                "ordered" => Discipline::Ordered,
                other => panic!("no discipline {other} in {words:?}"),
            };
            let (priority, arrived) = (number(priority), number(arrived));
            let position = Position { priority, arrived, tie: (*name).into() };
            (name, charges, Terms::InLine, Standing::MayWait(Wait { discipline, position }))
        }
        _ => panic!("nobody asks for anything in {words:?}"),
    }
}

fn charges_of(words: &[&str], terms: Terms, account: impl Fn(&AccountKey) -> Option<AccountId>) -> Vec<Charge> {
    let text = words.join(" ");
    let charges = text.split(',').map(str::trim).filter(|charge| *charge != "nothing");
    let charge = |charge: &str| {
        let (terms, rest) = match charge.split_once(' ') {
            Some(("now", rest)) => (Terms::Enforced, rest),
            Some(("adopted", rest)) => (Terms::Adopted, rest),
            Some(("in-line", rest)) => (Terms::InLine, rest),
            _ => (terms, charge),
        };
        let [policy, resource, amount] = rest.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("not a charge: {charge}")
        };
        let (amount, format) = match amount {
            "max" => (Amount::from_nanos(i128::MAX), Format::DecimalSi),
            amount => (quantity(amount).amount(), quantity(amount).format()),
        };
        let account = account(&AccountKey::new(policy, resource, "")).unwrap_or(AccountId::from_index(u32::MAX));
        Charge { account, amount, format, terms }
    };
    charges.map(charge).collect()
}

fn to_limit(limit: &str) -> Limit {
    let amount = |text: &str| match text {
        "max" => Amount::from_nanos(i128::MAX),
        text => quantity(text).amount(),
    };
    match (limit, limit.strip_prefix('~')) {
        ("none", _) => Limit::Unlimited,
        (_, Some(observed)) => Limit::Observed(amount(observed)),
        (enforced, None) => Limit::Enforced(amount(enforced)),
    }
}

fn state_word(state: &State) -> &'static str {
    match state {
        State::Charged => "charged",
        State::Held { .. } => "held",
        State::Waiting(Wait { discipline: Discipline::Greedy, .. }) => "waiting-greedy",
        State::Waiting(Wait { discipline: Discipline::Ordered, .. }) => "waiting-ordered",
    }
}

fn error_name(error: &LedgerError) -> &'static str {
    match error {
        LedgerError::AlreadyOpen { .. } => "already-open",
        LedgerError::UnknownAccount { .. } => "unknown-account",
        LedgerError::NegativeLimit => "negative-limit",
        LedgerError::KeyTooLong { .. } => "key-too-long",
        LedgerError::TooManyAccounts => "too-many-accounts",
        LedgerError::StepTooLarge => "step-too-large",
        LedgerError::UnknownSubject { .. } => "unknown-subject",
        LedgerError::NothingHeld { .. } => "nothing-held",
    }
}

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}
