//! What the ledger does, a behaviour a case.

use crate::table::check;

#[test]
fn a_charge_is_granted_until_the_limit() {
    check(
        "
        limit  team-a cpu 4           -> opened account=0 step=+1
        charge pod-1 team-a cpu 3     -> granted used=3 limit=4 available=1 subjects=1 step=+1
        charge pod-2 team-a cpu 2     -> denied requested=2 used=3 limit=4 over-limit step=+0
        charge pod-2 team-a cpu 1     -> granted used=4 available=0
        charge pod-3 team-a cpu 1n    -> denied requested=1n used=4
        delete pod-1                  -> released touched=0
        show   team-a cpu             -> used=1 subjects=1 who=pod-2
        charge pod-3 team-a cpu 3     -> granted used=4
        ",
    );
}

#[test]
fn a_denial_speaks_in_sentences() {
    check(
        "
        limit  team-a cpu 4
        limit  team-a memory 1Gi
        charge pod-1 team-a cpu 3, team-a memory 1Gi
        charge pod-2 team-a cpu 2  -> said=denied:_quota_\"team-a\"_cpu:_requested_2,_used_3,_limit_4
        hold   pod-3 100 team-a cpu 1
        charge pod-2 team-a cpu 1500m, team-a memory 512Mi -> by=team-a:cpu,team-a:memory said=denied:_quota_\"team-a\"_cpu:_requested_1500m,_used_3,_held_1,_limit_4;_quota_\"team-a\"_memory:_requested_512Mi,_used_1Gi,_limit_1Gi
        ",
    );
}

#[test]
fn all_accounts_or_none_and_every_no_is_named_in_key_order() {
    check(
        "
        limit  z cpu 1
        limit  a memory 1
        limit  m pods 10
        charge one z cpu 2, a memory 2, m pods 1 -> denied by=a:memory,z:cpu
        show   m pods                            -> used=0 subjects=0
        charge one z cpu 1, a memory 2, m pods 1 -> denied by=a:memory
        charge one z cpu 1, a memory 1, m pods 1 -> granted touched=0,1,2
        ",
    );
}

#[test]
fn charges_are_replaced_as_a_whole() {
    check(
        "
        limit  q cpu 10
        limit  q memory 10
        charge pod q cpu 4, q memory 2   -> granted used=4 used=2
        charge pod q memory 5            -> granted used=5
        show   q cpu                     -> used=0 subjects=0
        subject pod                      -> charged charges=q:memory:5
        charge pod q memory 5            -> granted unchanged step=+0
        charge pod nothing               -> granted touched=1 step=+1
        subject pod                      -> unknown
        charge pod nothing               -> granted unchanged step=+0
        delete pod                       -> released unchanged step=+0
        ",
    );
}

#[test]
fn only_growth_is_refused() {
    check(
        "
        limit  q cpu 10
        limit  q memory 10
        charge pod q cpu 8, q memory 8
        limit  q cpu 2                   -> set touched=0 woken=
        show   q cpu                     -> used=8 limit=2 available=0
        charge pod q cpu 8, q memory 9   -> granted used=8 used=9
        charge pod q cpu 7, q memory 9   -> granted used=7
        charge pod q cpu 8, q memory 9   -> denied requested=1 used=7 limit=2 by=q:cpu
        charge two q cpu 1               -> denied requested=1
        charge two q cpu 0               -> granted unchanged
        charge two q cpu 0, q memory 1   -> granted used=10
        delete pod
        charge two q cpu 2, q memory 1   -> granted used=2
        ",
    );
}

#[test]
fn a_move_between_pools_is_one_step() {
    check(
        "
        limit  left cpu 4
        limit  right cpu 4
        charge app left cpu 3
        charge app right cpu 3           -> granted used=3 touched=0,1 step=+1
        show   left cpu                  -> used=0
        charge app right cpu 5           -> denied requested=2 used=3
        charge app left cpu 5            -> denied requested=5 used=0
        show   right cpu                 -> used=3
        ",
    );
}

#[test]
fn duplicate_accounts_in_one_vector_are_summed() {
    check(
        "
        limit  q cpu 4
        charge pod q cpu 2, q cpu 3      -> denied requested=5 by=q:cpu
        charge pod q cpu 1, q cpu 3      -> granted used=4
        subject pod                      -> charges=q:cpu:4
        charge big q cpu max, q cpu max  -> denied overflow by=q:cpu
        ",
    );
}

#[test]
fn bad_charges_are_refused_with_a_reason() {
    check(
        "
        limit  q cpu 4
        charge pod q cpu -1              -> denied negative by=q:cpu said=denied:_quota_\"q\"_cpu:_requested_-1,_which_is_below_zero
        charge pod q other 1             -> denied unknown-account
        adopt  pod q cpu -1              -> denied negative
        hold   pod 5 q cpu -1            -> denied negative
        what-if pod q cpu -1             -> denied negative
        limit  q memory none
        charge pod q memory max          -> granted
        charge two q memory 1            -> denied overflow
        wait   two greedy 0 0 q memory 1 -> denied overflow
        limit  q cpu -1                  -> negative-limit
        limit  q gpu -1                  -> negative-limit
        close  q nothing                 -> unknown-account
        settle nobody                    -> unknown-subject
        explain nobody                   -> unknown
        ",
    );
}

#[test]
fn what_is_adopted_is_counted_up_to_the_end_of_numbers_and_everywhere_else() {
    check(
        "
        limit  q cpu 4
        limit  q memory none
        charge one q memory max          -> granted
        adopt  two q memory 5, q cpu 3   -> granted
        subject two                      -> charges=q:cpu:3
        charge more q memory 1           -> denied overflow
        charge more q cpu 2              -> denied requested=2 used=3
        adopt  big q cpu max, q cpu max  -> granted
        charge more q cpu 1              -> denied requested=1
        delete one
        adopt  two q memory 5, q cpu 3   -> granted
        show   q memory                  -> used=5
        ",
    );
}

#[test]
fn unlimited_and_observed_accounts_count_without_refusing() {
    check(
        "
        limit  q cpu none
        limit  q memory ~4
        charge pod q cpu 1000, q memory 9 -> granted used=1k used=9 limit=~4 available=0 available=none
        limit  q memory 4
        charge two q memory 1             -> denied used=9 limit=4
        ",
    );
}

#[test]
fn adopting_is_never_refused_by_a_limit() {
    check(
        "
        limit  q cpu 1
        adopt  pod q cpu 5               -> granted used=5
        charge two q cpu 1               -> denied used=5 limit=1
        adopt  pod q cpu 7               -> granted used=7
        delete pod
        charge two q cpu 1               -> granted
        ",
    );
}

#[test]
fn the_first_charge_gives_the_sum_its_format() {
    check(
        "
        limit  q memory 4Gi
        charge one q memory 1Gi          -> used=1Gi limit=4Gi
        charge two q memory 1000000000   -> used=2073741824
        delete one
        show   q memory                  -> used=1000000000
        delete two
        charge two q memory 1G           -> used=1G limit=4294967296
        ",
    );
}

#[test]
fn a_hold_counts_settles_or_expires() {
    check(
        "
        limit  q cpu 4
        hold   pod 100 q cpu 3           -> held used=0 held=3 available=1 step=+1
        hold   pod 100 q cpu 3           -> held unchanged step=+0
        charge two q cpu 2               -> denied requested=2 used=0 held=3 limit=4
        expire 99                        -> expired= unchanged step=+0
        settle pod                       -> settled step=+1
        show   q cpu                     -> used=3 held=0
        settle pod                       -> settled unchanged step=+0
        expire 1000                      -> unchanged
        hold   two 200 q cpu 1           -> held
        hold   three 200 q cpu 1         -> denied used=3 held=1
        expire 200                       -> expired=two touched=0
        subject two                      -> unknown
        hold   three 300 q cpu 1         -> held
        charge three q cpu 1             -> granted used=4 held=0
        expire 300                       -> unchanged
        ",
    );
}

#[test]
fn a_hold_over_a_charge_keeps_the_larger_of_both() {
    check(
        "
        limit  q cpu 10
        charge pod q cpu 4
        hold   pod 100 q cpu 6           -> held used=4 held=2
        subject pod                      -> held-until=100 charges=q:cpu:6 settled=q:cpu:4
        hold   pod 150 q cpu 9           -> used=4 held=5
        expire 150                       -> expired=pod
        show   q cpu                     -> used=4 held=0
        hold   pod 200 q cpu 1           -> used=4 held=0
        settle pod                       -> settled
        show   q cpu                     -> used=1 held=0
        hold   pod 250 nothing           -> held
        show   q cpu                     -> used=1
        settle pod                       -> settled
        subject pod                      -> unknown
        charge pod q cpu 2
        hold   pod 300 q cpu 2           -> granted unchanged
        hold   pod 300 q cpu 11          -> denied requested=9 used=2
        ",
    );
}

#[test]
fn waiters_are_woken_oldest_first_by_a_release() {
    check(
        "
        limit  q cpu 4
        charge big q cpu 4
        wait   late  greedy 0 30 q cpu 1 -> queued waiting=1 used=4 step=+1
        wait   early greedy 0 10 q cpu 2 -> queued waiting=2
        wait   large greedy 0 20 q cpu 3 -> queued waiting=3 line=early,large,late
        wait   large greedy 0 20 q cpu 3 -> queued unchanged step=+0
        delete big                       -> released woken=early,late step=+1
        show   q cpu                     -> used=3 waiting=1 line=large
        subject early                    -> charged charges=q:cpu:2
        subject large                    -> waiting-greedy
        explain large                    -> blocking=cpu cpu=3 cpu.missing=2 cpu.ahead=0
        limit  q cpu 6                   -> set woken=large
        show   q cpu                     -> used=6 waiting=0
        ",
    );
}

#[test]
fn priority_goes_before_age() {
    check(
        "
        limit  q cpu 0
        wait   old   greedy 0 1 q cpu 1  -> queued
        wait   high  greedy 5 9 q cpu 1  -> queued line=high,old
        wait   low   greedy -5 0 q cpu 1 -> queued line=high,old,low
        limit  q cpu 1                   -> woken=high
        limit  q cpu 3                   -> woken=old,low
        ",
    );
}

#[test]
fn the_tie_text_decides_between_equals() {
    check(
        "
        limit  q cpu 0
        wait   b greedy 0 1 q cpu 1
        wait   a greedy 0 1 q cpu 1
        wait   c greedy 0 1 q cpu 1      -> line=a,b,c
        limit  q cpu 2                   -> woken=a,b
        ",
    );
}

#[test]
fn ordered_waiters_do_not_pass() {
    check(
        "
        limit  q cpu 4
        charge big q cpu 3
        wait   first  ordered 0 1 q cpu 2 -> queued
        wait   second ordered 0 2 q cpu 1 -> queued line=first,second
        explain second                    -> blocking=cpu cpu.behind=first cpu.ahead=1 cpu.first=first
        wait   better ordered 1 9 q cpu 1 -> granted used=4
        delete better                     -> released woken=
        wait   passer greedy 0 3 q cpu 1  -> granted
        delete passer                     -> woken=
        delete first                      -> released woken=second
        ",
    );
}

#[test]
fn order_is_kept_only_where_somebody_exhausts() {
    check(
        "
        limit  q cpu 4
        limit  q memory 4
        charge big q cpu 4
        wait   both   ordered 0 1 q cpu 1, q memory 1 -> queued
        wait   memory ordered 0 2 q memory 3          -> granted
        wait   more   ordered 0 3 q memory 1          -> granted used=4
        wait   last   ordered 0 4 q cpu 1             -> queued
        delete big                                    -> woken=last
        explain both                                  -> blocking=memory memory.missing=1
        delete more                                   -> woken=both
        ",
    );
}

#[test]
fn a_resize_that_does_not_fit_waits_with_what_it_has() {
    check(
        "
        limit  q cpu 4
        wait   a greedy 0 1 q cpu 3      -> granted
        wait   b greedy 0 2 q cpu 2      -> queued
        wait   a greedy 0 1 q cpu 5      -> queued woken=
        show   q cpu                     -> used=3 line=a,b
        wait   a greedy 0 1 q cpu 2      -> granted used=4 woken=b
        wait   a greedy 0 1 q cpu 1      -> granted used=3
        ",
    );
}

#[test]
fn a_waiter_may_be_changed_charged_adopted_or_deleted() {
    check(
        "
        limit  q cpu 2
        charge big q cpu 2
        wait   w greedy 0 1 q cpu 2      -> queued
        charge w q cpu 1                 -> denied used=2
        subject w                        -> waiting-greedy charges=q:cpu:2
        settle w                         -> nothing-held
        wait   w greedy 0 1 q cpu 1      -> queued
        delete w                         -> released
        show   q cpu                     -> waiting=0
        wait   w greedy 0 1 q cpu 1      -> queued
        adopt  w q cpu 1                 -> granted used=3 waiting=0
        wait   x ordered 0 1 q cpu 1     -> queued
        wait   y ordered 0 2 q cpu 1     -> queued
        hold   x 50 q cpu 1              -> denied
        limit  q cpu 4                   -> woken=x
        ",
    );
}

#[test]
fn closing_an_account_takes_its_lines_and_wakes() {
    check(
        "
        limit  q cpu 2
        limit  q memory 4
        charge pod q cpu 2, q memory 2
        charge cpu-only q cpu 0, q memory 1
        hold   held 90 q memory 1
        wait   both greedy 0 1 q cpu 1, q memory 0 -> queued
        wait   mem  greedy 0 2 q cpu 1, q memory 1 -> queued
        close  q cpu                     -> closed woken=both
        subject both                     -> unknown
        subject mem                      -> waiting-greedy charges=q:memory:1
        show   q cpu                     -> closed
        show   q memory                  -> used=3 held=1
        subject pod                      -> charged charges=q:memory:2
        close  q memory                  -> closed woken=mem
        subject pod                      -> unknown
        limit  q disk 1                  -> opened account=0
        limit  q cpu 1                   -> opened account=1
        ",
    );
}

#[test]
fn what_if_answers_without_changing() {
    check(
        "
        limit  q cpu 4
        charge pod q cpu 3
        what-if pod q cpu 4              -> used=4 step=+0
        what-if new q cpu 1              -> used=4 subjects=2
        what-if new q cpu 2              -> denied requested=2 used=3
        hold   pod 10 q cpu 4
        what-if pod q cpu 2              -> used=2 held=0
        show   q cpu                     -> used=3 held=1
        ",
    );
}

#[test]
fn a_discount_makes_room_while_it_is_there() {
    check(
        "
        limit     q disks 4
        discounts q disks
        charge    one   q disks 4    -> granted used=4
        charge    two   q disks 1    -> denied used=4 limit=4
        charge    less  q disks -3   -> granted used=1
        charge    two   q disks 3    -> granted used=4
        charge    less  q disks -2   -> denied requested=1 used=4 over-limit
        charge    less  q disks -5   -> granted used=2
        # Letting go is never refused, and growth is until there is room again.
        delete    less               -> released
        show      q disks            -> used=7
        charge    three q disks 1    -> denied used=7
        charge    one   q disks 3    -> granted used=6
        # Together it can be less than nothing, and that is room as well.
        charge    less  q disks -10  -> granted used=-4
        charge    three q disks 8    -> granted used=4
        charge    four  q disks 1    -> denied
        charge    less  q disks 2    -> denied requested=12
        ",
    );
}

#[test]
fn discounts_are_only_where_they_are_allowed_and_have_their_bounds() {
    check(
        "
        limit     q pods 4
        charge    one q pods -1                -> denied negative
        limit     q disks none
        discounts q disks
        charge    one q disks -79228162514264337594 -> denied overflow
        charge    one q disks 79228162514264337594  -> denied overflow
        charge    one q disks -79228162514264337593543950336n -> granted
        charge    two q disks -79228162514264337593543950336n -> granted
        charge    one q disks 5, q disks -5    -> granted
        subject   one                          -> unknown
        # What is only held, or waits, makes no room.
        limit     q disks 1
        delete    two
        hold      three 100 q disks -5         -> granted
        show      q disks                      -> used=0 held=0
        ",
    );
}
