//! Holds: admitted, not yet seen.

use crate::table::check;

#[test]
fn held_room_is_nobody_elses() {
    check(
        "
        limit q cpu 3
        hold  a 10 q cpu 2             -> held used=0 held=2
        hold  b 20 q cpu 2             -> denied requested=2 used=0 held=2 limit=3
        hold  b 20 q cpu 1             -> held held=3
        charge c q cpu 1               -> denied held=3
        expire 10                      -> expired=a
        charge c q cpu 2               -> granted used=2 held=1
        expire 20                      -> expired=b
        show  q cpu                    -> used=2 held=0 who=c
        ",
    );
}

#[test]
fn a_repeated_admission_is_one_hold() {
    check(
        "
        limit q cpu 2
        hold  a 10 q cpu 2             -> held step=+1
        hold  a 10 q cpu 2             -> held unchanged step=+0
        hold  a 15 q cpu 2             -> held held=2 step=+1
        expire 10                      -> unchanged
        hold  a 15 q cpu 1             -> held held=1
        settle a                       -> settled
        settle a                       -> settled unchanged
        show  q cpu                    -> used=1 held=0
        ",
    );
}

#[test]
fn an_update_holds_only_what_it_adds() {
    check(
        "
        limit q cpu 4
        limit q memory 4
        charge a q cpu 3, q memory 1
        hold  a 10 q cpu 4, q memory 1 -> held held=1 held=0 used=3
        charge b q cpu 1               -> denied used=3 held=1
        hold  a 10 q memory 4          -> held used=1 held=3
        subject a                      -> charges=q:memory:4 settled=q:cpu:3,q:memory:1
        charge b q cpu 1               -> granted
        settle a                       -> settled
        show  q cpu                    -> used=1
        show  q memory                 -> used=4 held=0
        ",
    );
}

#[test]
fn an_update_that_never_happened_leaves_what_was() {
    check(
        "
        limit q cpu 4
        charge a q cpu 3
        hold  a 10 q cpu 1             -> used=3 held=0
        expire 10                      -> expired=a
        subject a                      -> charged charges=q:cpu:3
        hold  a 20 nothing             -> held
        expire 20                      -> expired=a
        subject a                      -> charged charges=q:cpu:3
        ",
    );
}

#[test]
fn a_hold_on_nothing_is_nothing() {
    check(
        "
        limit q cpu 4
        hold  a 10 nothing             -> granted unchanged
        subject a                      -> unknown
        settle a                       -> unknown-subject
        expire 10                      -> unchanged
        hold  a 10 q cpu 0             -> unchanged
        ",
    );
}

#[test]
fn the_object_may_be_seen_with_other_amounts() {
    check(
        "
        limit q cpu 4
        hold  a 10 q cpu 2             -> held
        adopt a q cpu 5                -> granted used=5 held=0
        expire 10                      -> unchanged
        hold  b 10 q cpu 1             -> denied
        charge a q cpu 1               -> granted used=1
        hold  b 10 q cpu 3             -> held
        delete b                       -> released
        show  q cpu                    -> used=1 held=0
        expire 10                      -> unchanged
        ",
    );
}

#[test]
fn many_expire_in_one_step_in_order_of_time() {
    check(
        "
        limit q cpu 9
        hold  c 30 q cpu 1
        hold  a 10 q cpu 1
        hold  b 20 q cpu 1
        hold  d 40 q cpu 1
        expire 30                      -> expired=a,b,c step=+1 touched=0
        expire -5                      -> unchanged
        expire 9000000000000000000     -> expired=d
        ",
    );
}

#[test]
fn closing_an_account_thins_out_holds() {
    check(
        "
        limit q cpu 4
        limit q memory 4
        charge a q cpu 1
        hold  a 10 q cpu 2, q memory 2 -> held
        hold  b 10 q cpu 1             -> held
        close q cpu                    -> closed
        subject a                      -> held-until=10 charges=q:memory:2 settled=
        subject b                      -> unknown
        expire 10                      -> expired=a
        subject a                      -> unknown
        show  q memory                 -> used=0 held=0
        ",
    );
}

#[test]
fn a_hold_that_is_dropped_leaves_what_was_settled_and_wakes_who_waits() {
    check(
        "
        limit q cpu 4
        charge a q cpu 1
        hold  a 10 q cpu 3             -> held used=1 held=2
        hold  b 10 q cpu 1             -> held
        wait  w greedy 0 1 q cpu 2     -> queued
        drop  b                        -> released woken=
        subject b                      -> unknown
        drop  a                        -> released woken=w
        subject a                      -> charged charges=q:cpu:1
        drop  a                        -> released unchanged
        drop  nobody                   -> released unchanged
        expire 99                      -> unchanged
        show  q cpu                    -> used=3 held=0
        ",
    );
}

#[test]
fn what_is_stored_is_counted_again_under_a_hold() {
    check(
        "
        limit q cpu 4
        limit q memory 9
        charge a q cpu 1
        hold  a 10 q cpu 3             -> held used=1 held=2
        # A rule that came counts more of it, and of something else: nobody refuses what is there.
        under a q cpu 2, q memory 5    -> held used=2 held=1
        under a q cpu 2, q memory 5    -> held unchanged
        under a q cpu 7                -> held used=7 held=0
        subject a                      -> held-until=10 charges=q:cpu:3 settled=q:cpu:7
        show  q memory                 -> used=0
        under a nothing                -> held
        show  q cpu                    -> used=0 held=3
        wait  w greedy 0 1 q cpu 2     -> queued
        expire 10                      -> expired=a woken=w
        subject a                      -> unknown
        # Whoever holds nothing is charged in other ways.
        under w q cpu 3                -> unchanged
        under nobody q cpu 3           -> unchanged
        show  q cpu                    -> used=2 held=0
        ",
    );
}

#[test]
fn what_is_kept_back_is_held_whatever_the_limit_until_there_is_less_of_it() {
    check(
        "
        limit q cpu 4
        limit q memory 4
        charge a q cpu 3
        keep-back 99 k q cpu 3         -> held used=3 held=3
        keep-back 99 k q cpu 3         -> held unchanged
        # Nobody gets in, also where the one that it is about is gone.
        charge b q cpu 1               -> denied
        delete a                       -> released
        wait  w greedy 0 1 q cpu 2     -> queued
        # One account for another, and less.
        keep-back 99 k q cpu 2, q memory 1 -> held woken=w
        show  q memory                 -> used=0 held=1
        show  q cpu                    -> used=2 held=2
        keep-back 99 k nothing         -> released
        subject k                      -> unknown
        keep-back 99 k nothing         -> released unchanged
        show  q cpu                    -> used=2 held=0
        # Whoever has something, or waits, is left alone.
        keep-back 99 w q cpu 4         -> unchanged
        hold  h 10 q cpu 1             -> held
        under h q cpu 1                -> held
        keep-back 99 h q cpu 4         -> held unchanged
        show  q cpu                    -> used=3 held=0
        expire 10                      -> expired=h
        keep-back 20 k q cpu 4         -> held
        keep-back 30 k q cpu 4         -> held
        expire 20                      -> unchanged
        expire 30                      -> expired=k
        subject k                      -> unknown
        ",
    );
}
