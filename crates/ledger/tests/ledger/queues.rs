//! Lines of waiters: who is served, who is passed, who is told.

use crate::table::check;

#[test]
fn greedy_waiters_pass_those_that_do_not_fit() {
    check(
        "
        limit q cpu 10
        charge full q cpu 10
        wait  a greedy 0 1 q cpu 8
        wait  b greedy 0 2 q cpu 3
        wait  c greedy 0 3 q cpu 2
        wait  d greedy 0 4 q cpu 1     -> queued line=a,b,c,d
        charge full q cpu 7            -> granted woken=b
        charge full q cpu 4            -> granted woken=c,d
        delete full                    -> released woken=
        explain a                      -> blocking=cpu cpu.missing=4
        delete b                       -> woken=
        delete c                       -> woken=a
        show  q cpu                    -> used=9 waiting=0
        ",
    );
}

#[test]
fn a_newcomer_that_fits_is_granted_past_greedy_waiters() {
    check(
        "
        limit q cpu 4
        charge big q cpu 3
        wait  large greedy 9 1 q cpu 2   -> queued
        charge small q cpu 1             -> granted used=4
        delete small                     -> woken=
        wait  later greedy 0 5 q cpu 1   -> granted used=4
        ",
    );
}

#[test]
fn an_ordered_newcomer_goes_behind_whoever_exhausts() {
    check(
        "
        limit q cpu 4
        limit q memory 4
        charge big q cpu 3
        wait  first  ordered 0 1 q cpu 2               -> queued
        wait  second ordered 0 2 q cpu 1, q memory 1   -> queued
        wait  third  ordered 0 3 q memory 1            -> granted
        explain second                                 -> blocking=cpu cpu.behind=first memory.ahead=0
        explain first                                  -> blocking=cpu cpu.missing=1
        charge big q cpu 2                             -> granted woken=first
        charge big q cpu 1                             -> granted woken=second
        ",
    );
}

#[test]
fn priorities_jump_the_ordered_line() {
    check(
        "
        limit q cpu 4
        charge big q cpu 4
        wait  old  ordered 0 1 q cpu 3
        wait  high ordered 5 9 q cpu 2   -> queued line=high,old
        wait  low  ordered -5 0 q cpu 1  -> queued line=high,old,low
        charge big q cpu 2               -> granted woken=high
        delete high                      -> woken=
        wait  high ordered 5 9 q cpu 2   -> granted
        limit q cpu 7                    -> woken=old
        limit q cpu 8                    -> woken=low
        ",
    );
}

#[test]
fn a_waiter_that_leaves_lets_the_next_through() {
    check(
        "
        limit q cpu 4
        charge big q cpu 3
        wait  a ordered 0 1 q cpu 2
        wait  b ordered 0 2 q cpu 1
        wait  a ordered 0 1 q cpu 1    -> granted woken=
        show  q cpu                    -> used=4 line=b
        delete a                       -> woken=b
        wait  a ordered 0 1 q cpu 4    -> queued
        wait  c ordered 0 3 q cpu 1    -> queued line=a,c
        wait  a ordered 0 4 q cpu 4    -> queued line=c,a woken=
        delete b                       -> woken=c
        ",
    );
}

#[test]
fn changing_discipline_or_position_moves_the_waiter() {
    check(
        "
        limit q cpu 1
        charge big q cpu 1
        wait  a ordered 0 1 q cpu 1
        wait  b ordered 0 2 q cpu 1    -> line=a,b
        wait  b ordered 1 2 q cpu 1    -> queued line=b,a
        wait  a greedy 2 1 q cpu 1     -> queued line=a,b
        subject a                      -> waiting-greedy
        delete big                     -> woken=a
        ",
    );
}

#[test]
fn a_waiter_needs_room_on_every_account_at_once() {
    check(
        "
        limit q cpu 2
        limit q memory 2
        charge c q cpu 2
        charge m q memory 2
        wait  both greedy 0 1 q cpu 1, q memory 1  -> queued
        explain both                               -> blocking=cpu,memory
        delete c                                   -> woken=
        explain both                               -> blocking=memory
        delete m                                   -> woken=both
        ",
    );
}

#[test]
fn one_release_serves_several_lines_in_one_order() {
    check(
        "
        limit q cpu 2
        limit q memory 2
        charge all q cpu 2, q memory 2
        wait  d greedy 0 4 q cpu 1
        wait  c greedy 0 3 q memory 1
        wait  b greedy 0 2 q cpu 1
        wait  a greedy 0 1 q memory 1
        delete all                     -> woken=a,b,c,d
        ",
    );
}

#[test]
fn an_over_full_account_serves_nobody_until_it_fits() {
    check(
        "
        limit q cpu 4
        charge a q cpu 2
        charge b q cpu 2
        limit q cpu 1                  -> set
        wait  w greedy 0 1 q cpu 1     -> queued
        delete a                       -> woken=
        explain w                      -> cpu.missing=2
        delete b                       -> woken=w
        ",
    );
}

#[test]
fn limits_that_stop_being_enforced_serve_everybody() {
    check(
        "
        limit q cpu 0
        wait  a ordered 0 1 q cpu 5
        wait  b greedy 0 2 q cpu 5
        limit q cpu ~1                 -> set woken=a,b
        show  q cpu                    -> used=10 limit=~1 available=0
        limit q cpu 3                  -> set woken=
        wait  c greedy 0 3 q cpu 1     -> queued
        limit q cpu none               -> set woken=c
        ",
    );
}

#[test]
fn holds_free_room_for_waiters_when_they_expire_or_settle_smaller() {
    check(
        "
        limit q cpu 4
        hold  h 100 q cpu 4            -> held
        wait  w greedy 0 1 q cpu 2     -> queued
        expire 50                      -> unchanged
        expire 100                     -> expired=h woken=w
        charge x q cpu 2
        hold  x 200 q cpu 1            -> held
        wait  v greedy 0 2 q cpu 1     -> queued
        settle x                       -> settled woken=v
        ",
    );
}

#[test]
fn adopting_does_not_ask_the_line() {
    check(
        "
        limit q cpu 2
        charge big q cpu 2
        wait  w ordered 0 1 q cpu 1    -> queued
        adopt old q cpu 3              -> granted used=5 waiting=1
        delete big                     -> woken=
        delete old                     -> woken=w
        ",
    );
}

#[test]
fn a_waiter_that_asks_for_nothing_is_gone() {
    check(
        "
        limit q cpu 0
        wait  w ordered 0 1 q cpu 1    -> queued
        wait  v ordered 0 2 q cpu 1    -> queued
        wait  w ordered 0 1 nothing    -> granted
        subject w                      -> unknown
        show  q cpu                    -> line=v
        delete v                       -> released
        show  q cpu                    -> waiting=0
        ",
    );
}

#[test]
fn who_waits_for_more_keeps_what_it_has() {
    check(
        "
        limit q cpu 4
        limit q memory 4
        wait  a greedy 0 1 q cpu 3, q memory 1         -> granted used=3
        wait  b greedy 0 2 q cpu 2                     -> queued used=3
        # It grows beyond the limit: what it has stays, and only what is missing is waited for.
        wait  a greedy 0 1 q cpu 5, q memory 2         -> queued used=3 used=1 line=a,b
        subject a                                      -> waiting-greedy charges=q:cpu:5,q:memory:2 settled=q:cpu:3,q:memory:1
        explain a                                      -> blocking=cpu cpu=5 cpu.missing=1 memory=2
        show  q memory                                 -> used=1 waiting=1
        # It may ask for less at any time.
        wait  a greedy 0 1 q cpu 2, q memory 2         -> granted woken=b
        wait  a greedy 0 1 q cpu 3, q memory 2         -> queued used=4
        delete b                                       -> woken=a
        show  q cpu                                    -> used=3 waiting=0
        ",
    );
}

#[test]
fn a_waiter_that_wants_less_of_one_and_more_of_another_gives_back_at_once() {
    check(
        "
        limit q cpu 4
        limit q memory 4
        wait  a greedy 0 1 q cpu 4, q memory 1    -> granted
        charge m q memory 3
        wait  b greedy 0 2 q cpu 2                -> queued
        wait  a greedy 0 1 q cpu 1, q memory 2    -> queued woken=b
        show  q cpu                               -> used=3 waiting=0
        show  q memory                            -> used=4 waiting=1 line=a
        delete m                                  -> woken=a
        ",
    );
}

#[test]
fn terms_are_of_each_charge() {
    check(
        "
        limit pool cpu 2
        limit count claims 2
        limit seen cpu 1
        charge big pool cpu 2
        # In line for one, enforced on another, adopted by a third.
        wait  a greedy 0 1 pool cpu 1, now count claims 1, adopted seen cpu 5   -> queued
        show  count claims                                                      -> used=1 waiting=0
        show  seen cpu                                                          -> used=5
        show  pool cpu                                                          -> used=2 waiting=1
        wait  b greedy 0 2 pool cpu 1, now count claims 1                       -> queued
        # Waiting for one thing is no way around another.
        wait  c greedy 0 3 pool cpu 1, now count claims 1                       -> denied by=count:claims step=+0
        delete big                                                              -> woken=a,b
        subject a                        -> charged charges=pool:cpu:1,count:claims:1,seen:cpu:5
        # Of two terms on one account the stricter holds.
        charge d pool cpu 1, adopted pool cpu 1                                 -> denied
        # Without a place in line nobody waits.
        charge e in-line pool cpu 1                                             -> denied by=pool:cpu
        hold  f 9 in-line pool cpu 1, now count claims 0                        -> granted unchanged
        ",
    );
}

#[test]
fn closing_an_account_leaves_a_waiter_what_it_has_elsewhere() {
    check(
        "
        limit q cpu 2
        limit q memory 2
        limit n claims 1
        wait  a ordered 0 1 q cpu 1, q memory 1, now n claims 1   -> granted
        charge big q cpu 1, q memory 1
        wait  a ordered 0 1 q cpu 2, q memory 2, now n claims 1   -> queued
        close n claims                                            -> closed woken=
        subject a     -> waiting-ordered charges=q:cpu:2,q:memory:2 settled=q:cpu:1,q:memory:1
        close q cpu                                               -> closed woken=
        subject a     -> waiting-ordered charges=q:memory:2 settled=q:memory:1
        close q memory                                            -> closed woken=a
        subject a     -> unknown
        ",
    );
}

#[test]
fn a_hold_over_a_waiter_falls_back_to_what_it_has() {
    check(
        "
        limit q cpu 4
        wait  a greedy 0 1 q cpu 3    -> granted
        charge b q cpu 1
        wait  a greedy 0 1 q cpu 4    -> queued used=4
        hold  a 5 q cpu 2             -> held used=4 held=0 waiting=0
        expire 5                      -> expired=a
        subject a                     -> charged charges=q:cpu:3
        ",
    );
}
