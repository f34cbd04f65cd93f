//! How many instructions one decision costs, small ledger and large: a number that repeats exactly, so that a slower
//! engine shows on a noisy machine.
//!
//! A program runs itself under callgrind and counts only what happens inside [`decide_and_apply`]. It needs nothing
//! but the ledger: `cargo bench -p ledger` includes this file as it is.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::process::Command;

use ledger::{AccountId, AccountKey, Charge, Ledger, Limit, Receipt, Standing, SubjectId};
use quantity::{Amount, Format};

/// Decisions counted in one run. One alone would depend on where its subject happens to hash to.
pub const DECISIONS: u64 = 1000;

/// A ledger of some size.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub claims: u32,
    pub accounts: u32,
}

pub const SMALL: Size = Size { claims: 1_000, accounts: 10 };
pub const LARGE: Size = Size { claims: 1_000_000, accounts: 10_000 };

/// What is counted: one claim on three accounts, decided and applied. Kept out of line, because callgrind finds it by
/// name.
#[inline(never)]
pub fn decide_and_apply(ledger: &mut Ledger, subject: SubjectId, charges: &[Charge; 3]) -> Receipt {
    let plan =
        ledger.decide(black_box(subject), black_box(charges), &Standing::Stored).expect("the limits are far away");
    ledger.apply(plan)
}

/// The measured work: fills a ledger, then replaces claims one by one so that its size stays the same.
pub fn work(size: Size) {
    let mut ledger = Ledger::new();
    let limit = Limit::Enforced(Amount::from_units(i64::MAX));
    let key = |account: u32| AccountKey::new(&format!("team-{account}"), "cpu", "");
    let accounts: Vec<AccountId> =
        (0..size.accounts).map(|account| ledger.open(key(account), limit).expect("each key is new")).collect();
    for claim in 0..size.claims {
        let _ =
            ledger.charge(subject(claim), &charges(&accounts, claim), &Standing::Stored).expect("the limits are far");
        settle_down(&mut ledger, claim);
    }
    let decisions = u32::try_from(DECISIONS).unwrap_or(u32::MAX);
    for turn in 0..decisions {
        let old = u32::try_from(u64::from(turn) * u64::from(size.claims) / DECISIONS).unwrap_or(u32::MAX);
        let _ = ledger.release(subject(old));
        let new = size.claims + turn;
        let _ = black_box(decide_and_apply(&mut ledger, subject(new), &charges(&accounts, new)));
        settle_down(&mut ledger, new);
    }
    ledger.audit().expect("the books add up");
}

/// Hands over the changed rows now and then, as a sequencer does.
fn settle_down(ledger: &mut Ledger, claim: u32) {
    if claim.is_multiple_of(64) {
        ledger.drain_changes(&mut |row| {
            black_box(row);
        });
    }
}

/// Ids spread like uids.
fn subject(claim: u32) -> SubjectId {
    let spread = u128::from(claim + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    SubjectId(spread)
}

/// The hot account of all, and two of the claim's own.
fn charges(accounts: &[AccountId], claim: u32) -> [Charge; 3] {
    let at = |step: u32| {
        let others = accounts.len() - 1;
        accounts[1 + (claim.wrapping_mul(7919).wrapping_add(step) as usize) % others]
    };
    let charge = |account, units| Charge::new(account, Amount::from_units(units), Format::DecimalSi);
    [charge(accounts[0], 1), charge(at(0), 2), charge(at(1), 3)]
}

/// Runs `program` with `arguments` under callgrind, where it must call [`work`], and returns the instructions of one
/// decision.
pub fn instructions(program: &Path, arguments: &[String]) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*decide_and_apply*")
        .arg(program)
        .args(arguments)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected :")).map(|(_, number)| number.trim());
    match collected.and_then(|number| number.parse::<u64>().ok()) {
        Some(collected) if output.status.success() && collected > 0 => Ok(collected / DECISIONS),
        _ => Err(io::Error::other(format!("callgrind counted nothing: {said}"))),
    }
}

/// The two figures: instructions of a decision in the large ledger, and how many times that of the small one it is, in
/// thousandths.
pub fn figures(count: impl Fn(Size) -> io::Result<u64>) -> io::Result<(u64, u64)> {
    let (small, large) = (count(SMALL)?, count(LARGE)?);
    Ok((large, large * 1000 / small.max(1)))
}
