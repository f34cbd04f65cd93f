//! A journal beside the ledger: every step that is taken appends one entry, so that after any crash the entries say which
//! steps there were.

use store::{Batch, Journal, Journals, PageLimit, Retention, StoreError};

/// Of steps, by their number: the n-th entry is that of step n.
const STEPS: Journal = Journal(200);

/// Little enough that a run retires some.
const KEPT: Retention = Retention { age_ms: None, bytes: Some(40 * 1024), stays_from: None };

/// Steps after which a replica lets go of what need not stay.
const RETIRE_EVERY: u64 = 32;

pub fn append(batch: &mut Batch, step: u64) {
    // Of different lengths, and none without its number.
    let value = step.to_be_bytes().repeat(1 + usize::try_from(step % 7).unwrap_or(0));
    batch.append(STEPS, i64::try_from(step).unwrap_or(i64::MAX), &value);
}

/// As whoever opens a store says.
pub fn open(journals: &Journals) {
    journals.retain(STEPS, KEPT);
}

/// Lets go of the oldest now and then.
pub fn retire(journals: &Journals, step: u64) {
    if step.is_multiple_of(RETIRE_EVERY) {
        journals.retire(0);
    }
}

/// Every step that is durable has its entry, once and in its place, unless it was retired; none that was retired is back. `first`
/// is the oldest that was seen, and is brought up to date. On a full disk the last ones may not be laid out yet.
pub fn check(
    journals: &Journals,
    steps: u64,
    first: &mut u64,
    is_full: bool,
) -> Result<Result<(), String>, StoreError> {
    let span = journals.span(STEPS)?;
    let ends = span.end == steps + 1 || (is_full && span.end <= steps);
    if !ends || span.start < *first {
        return Ok(Err(format!("the journal has entries {span:?} of {steps} steps, and had some from {first} on")));
    }
    let (mut expected, mut from) = (span.start, 0);
    loop {
        let page = journals.forward(STEPS, from, PageLimit::default())?;
        let Some(last) = page.entries.last() else { break };
        from = last.sequence + 1;
        for entry in &page.entries {
            let step = entry.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            if entry.sequence != expected || step != Some(expected) {
                return Ok(Err(format!("entry {} is of step {step:?}, expected was {expected}", entry.sequence)));
            }
            expected += 1;
        }
    }
    if expected != span.end {
        return Ok(Err(format!("the journal ends before entry {expected} of {span:?}")));
    }
    *first = span.start;
    Ok(Ok(()))
}
