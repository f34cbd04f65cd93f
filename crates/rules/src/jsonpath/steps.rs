//! How many steps paths may take together. A path alone has a bound of its own; a policy may have many of them, and an object many
//! policies, and all of them are followed on the thread that decides.
//!
//! The allowance belongs to the thread, so that rules need not be told of it: they follow paths as ever, and one for which nothing
//! is left selects too much.

use std::cell::Cell;

/// What every path takes besides its steps.
pub(super) const STEPS_A_PATH: u64 = 8;

/// Bytes of selected text that are put together, and read as amounts, in about the time of a step.
const BYTES_A_STEP: usize = 2;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Does some work in which paths take no more than so many steps together, nor more than is left of an allowance around it.
pub fn within_steps<R>(max: u64, work: impl FnOnce() -> R) -> R {
    let around = LEFT.get();
    let allowed = around.min(max);
    LEFT.set(allowed);
    let made = work();
    let taken = allowed - LEFT.get();
    LEFT.set(around - taken);
    made
}

/// How many steps paths have taken on this thread.
pub fn steps_taken() -> u64 {
    TAKEN.get()
}

pub(super) fn left() -> u64 {
    LEFT.get()
}

pub(super) fn take(steps: u64) {
    TAKEN.set(TAKEN.get().wrapping_add(steps));
    LEFT.set(LEFT.get().saturating_sub(steps));
}

/// The same for selected text that is put together.
pub(super) fn take_text(bytes: usize) {
    take((bytes / BYTES_A_STEP) as u64);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jsonpath::{FindError, JsonPath, MissingKeys};

    #[test]
    fn paths_share_an_allowance_and_an_inner_one_takes_of_the_outer() {
        let object = json!({"data": vec![1; 500]});
        let path = JsonPath::compile(".data[*]").unwrap();
        let find = || path.find(&object, MissingKeys::Allow).map(|found| found.len());
        let before = steps_taken();
        assert_eq!(find(), Ok(500));
        let one = steps_taken() - before;
        assert!(one > 500, "{one}");

        let found = within_steps(2 * one + one / 2, || [find(), find(), find(), find()]);
        assert_eq!(found, [Ok(500), Ok(500), Err(FindError::TooManySteps), Err(FindError::TooManySteps)]);
        let inner = within_steps(3 * one, || [within_steps(one, find), within_steps(one / 2, find), find(), find()]);
        assert_eq!(inner[..2], [Ok(500), Err(FindError::TooManySteps)]);
        assert_eq!(inner[3], Err(FindError::TooManySteps), "what the inner ones took is gone");
        assert_eq!(find(), Ok(500), "outside of it there is no end");
    }
}
