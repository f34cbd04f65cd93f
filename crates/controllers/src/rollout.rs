//! How large each ReplicaSet of a Deployment is to be next, by the rules of Kubernetes' deployment controller: never more pods
//! than the surge allows, never fewer available ones than `maxUnavailable` leaves. A quota has to allow for both.
//!
//! Pure: sizes in, sizes out. Each call takes one step; what it waits for (pods that become available, that go) brings the next.

use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What a Deployment asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub replicas: i32,
    /// None where all old pods go before the first new one comes.
    pub rolling: Option<Rolling>,
    pub paused: bool,
}

/// How far a rolling update may go beyond the wish, and below it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rolling {
    pub surge: i32,
    pub unavailable: i32,
}

impl Wish {
    pub fn of(spec: &DeploymentSpec) -> Wish {
        let replicas = spec.replicas.unwrap_or(1).max(0);
        let strategy = spec.strategy.as_ref();
        let recreates = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate");
        let bounds = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let quarter = || Some(IntOrString::String("25%".into()));
        let (surge, unavailable) = match bounds {
            Some(bounds) => (bounds.max_surge.clone(), bounds.max_unavailable.clone()),
            None => (quarter(), quarter()),
        };
        let surge = scaled(surge.as_ref(), replicas, Rounding::Up);
        let mut unavailable = scaled(unavailable.as_ref(), replicas, Rounding::Down);
        // Neither up nor down would be no way at all.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let rolling = Rolling { surge, unavailable: unavailable.min(replicas) };
        Wish { replicas, rolling: (!recreates).then_some(rolling), paused: spec.paused == Some(true) }
    }

    /// The most pods there may be at once.
    pub fn pods_max(&self) -> i32 {
        self.replicas.saturating_add(self.rolling.map_or(0, |rolling| rolling.surge))
    }
}

#[derive(Copy, Clone)]
enum Rounding {
    Up,
    Down,
}

fn scaled(value: Option<&IntOrString>, of: i32, rounding: Rounding) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => (*number).max(0),
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0).clamp(0, 1_000_000);
            let hundredfold = percent.saturating_mul(i64::from(of));
            let whole = match rounding {
                Rounding::Up => hundredfold.saturating_add(99) / 100,
                Rounding::Down => hundredfold / 100,
            };
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

/// A ReplicaSet as far as its size goes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// What it is asked to have.
    pub size: i32,
    /// What it has.
    pub pods: i32,
    pub available: i32,
    /// The Deployment's wish and most pods when it was last sized, as its annotations say.
    pub desired: Option<i32>,
    pub pods_max: Option<i32>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The size of the set of the current template; none where there is none and none is to be made yet.
    pub current: Option<i32>,
    /// The sizes of the others, in their order.
    pub others: Vec<i32>,
}

/// The next step. `others` are all sets of other templates, the oldest first.
pub fn next(wish: &Wish, current: Option<&Set>, others: &[Set]) -> Next {
    let as_is = Next { current: current.map(|set| set.size), others: others.iter().map(|set| set.size).collect() };
    let active = || current.into_iter().chain(others).filter(|set| set.size > 0);
    let resized = active().any(|set| set.desired.is_some_and(|desired| desired != wish.replicas));
    if wish.paused || resized {
        return scale(wish, current, others, as_is);
    }
    match wish.rolling {
        None => recreate(wish, current, others, as_is),
        Some(rolling) => roll(wish, rolling, current, others, as_is),
    }
}

fn recreate(wish: &Wish, current: Option<&Set>, others: &[Set], mut next: Next) -> Next {
    next.others.fill(0);
    // The last of the old ones has gone before the first new one comes.
    if others.iter().all(|set| set.size == 0 && set.pods == 0) {
        next.current = Some(wish.replicas);
    } else {
        next.current = current.map(|set| set.size);
    }
    next
}

fn roll(wish: &Wish, rolling: Rolling, current: Option<&Set>, others: &[Set], mut next: Next) -> Next {
    let size = current.map_or(0, |set| set.size);
    let all: i32 = others.iter().map(|set| set.size).fold(size, i32::saturating_add);
    if size != wish.replicas || current.is_none() {
        let room = wish.pods_max().saturating_sub(all).max(0);
        let wanted = if size > wish.replicas { wish.replicas } else { size + room.min(wish.replicas - size) };
        next.current = Some(wanted);
        if wanted != size || current.is_none() {
            return next;
        }
    }
    let least = wish.replicas - rolling.unavailable;
    let waiting = size - current.map_or(0, |set| set.available);
    let mut room = all - least - waiting;
    if room <= 0 {
        return next;
    }
    // First those that are no loss.
    for (set, size) in others.iter().zip(&mut next.others) {
        let fewer = (*size - set.available.min(*size)).min(room).max(0);
        *size -= fewer;
        room -= fewer;
    }
    let available: i32 = current.into_iter().chain(others).map(|set| set.available).fold(0, i32::saturating_add);
    let mut spare = available - least;
    for size in &mut next.others {
        let fewer = (*size).min(spare).max(0);
        *size -= fewer;
        spare -= fewer;
    }
    next
}

/// The Deployment itself was made larger or smaller: its sets are, in proportion.
fn scale(wish: &Wish, current: Option<&Set>, others: &[Set], mut next: Next) -> Next {
    let active_others: Vec<usize> = (0..others.len()).filter(|at| others[*at].size > 0).collect();
    let current_is_active = current.is_some_and(|set| set.size > 0);
    match (current_is_active, active_others.as_slice()) {
        (true, []) => next.current = Some(wish.replicas),
        (false, [only]) => next.others[*only] = wish.replicas,
        (false, []) => match (current, next.others.last_mut()) {
            (Some(_), _) => next.current = Some(wish.replicas),
            (None, Some(newest)) => *newest = wish.replicas,
            (None, None) => {}
        },
        _ if current.is_some_and(|set| is_saturated(wish, set)) => next.others.fill(0),
        _ if wish.rolling.is_some() => proportionally(wish, current, others, &mut next),
        _ => {}
    }
    next
}

fn is_saturated(wish: &Wish, set: &Set) -> bool {
    [set.size, set.available, set.desired.unwrap_or(-1)].iter().all(|number| *number == wish.replicas)
}

fn proportionally(wish: &Wish, current: Option<&Set>, others: &[Set], next: &mut Next) {
    // The current set stands last: it is the newest.
    let mut sets: Vec<(usize, Set)> = others.iter().chain(current).copied().enumerate().collect();
    sets.retain(|(_, set)| set.size > 0);
    let all: i32 = sets.iter().map(|(_, set)| set.size).fold(0, i32::saturating_add);
    let allowed = if wish.replicas > 0 { wish.pods_max() } else { 0 };
    let change = allowed - all;
    if change == 0 {
        return;
    }
    // The largest first; of equals the newer one grows and the older one shrinks first.
    sets.sort_by_key(|(at, set)| {
        let at = i64::try_from(*at).unwrap_or(i64::MAX);
        (std::cmp::Reverse(set.size), if change > 0 { -at } else { at })
    });
    let mut done = 0;
    let mut sizes: Vec<(usize, i32)> = Vec::with_capacity(sets.len());
    for (at, set) in &sets {
        let share = share(wish, set);
        let part = if change > 0 { share.min(change - done).max(0) } else { share.max(change - done).min(0) };
        done += part;
        sizes.push((*at, set.size + part));
    }
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + change - done).max(0);
    }
    for (at, size) in sizes {
        match next.others.get_mut(at) {
            Some(other) => *other = size,
            None => next.current = Some(size),
        }
    }
}

/// By how much a set changes for its part.
fn share(wish: &Wish, set: &Set) -> i32 {
    if wish.replicas == 0 {
        return -set.size;
    }
    let Some(before) = set.pods_max.filter(|before| *before > 0) else { return 0 };
    let (size, now, before) = (i64::from(set.size), i64::from(wish.pods_max()), i64::from(before));
    // Rounded to the nearest.
    let wanted = (size * now * 2 + before) / (before * 2);
    i32::try_from(wanted - size).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(replicas: i32, surge: i32, unavailable: i32) -> Wish {
        Wish { replicas, rolling: Some(Rolling { surge, unavailable }), paused: false }
    }

    /// `size/available`, as sized for this wish.
    fn set(wish: &Wish, text: &str) -> Set {
        let (size, available) = text.split_once('/').expect("size/available");
        let (size, available) = (size.parse().unwrap(), available.parse().unwrap());
        Set { size, pods: size, available, desired: Some(wish.replicas), pods_max: Some(wish.pods_max()) }
    }

    #[test]
    fn a_rolling_update_stays_between_surge_and_availability() {
        // replicas, surge, unavailable; the current set; the others → the next sizes.
        let cases = [
            (10, 3, 2, "", vec![], "10", vec![]),
            (10, 3, 2, "", vec!["10/10"], "3", vec![10]),
            (10, 3, 2, "3/0", vec!["10/10"], "3", vec![8]),
            (10, 3, 2, "3/0", vec!["8/8"], "5", vec![8]),
            (10, 3, 2, "5/0", vec!["8/8"], "5", vec![8]),
            (10, 3, 2, "5/5", vec!["8/8"], "5", vec![3]),
            (10, 3, 2, "10/10", vec!["3/3"], "10", vec![0]),
            (10, 3, 2, "12/12", vec![], "10", vec![]),
            // What never became available goes first, and without nodes that is where it stops.
            (4, 1, 1, "1/0", vec!["4/0"], "1", vec![3]),
            (4, 1, 1, "2/0", vec!["3/0"], "2", vec![3]),
            // Two old ones: the oldest of the healthy gives way first.
            (4, 1, 1, "1/1", vec!["2/2", "2/2"], "1", vec![0, 2]),
            (0, 1, 0, "2/2", vec!["1/1"], "0", vec![1]),
        ];
        for (replicas, surge, unavailable, current, others, then, then_others) in cases {
            let wish = wish(replicas, surge, unavailable);
            let shown = format!("{wish:?} {current} {others:?}");
            let now = (!current.is_empty()).then(|| set(&wish, current));
            let others: Vec<Set> = others.iter().map(|text| set(&wish, text)).collect();
            let next = next(&wish, now.as_ref(), &others);
            assert_eq!((next.current, next.others), (Some(then.parse().unwrap()), then_others), "{shown}");
        }
    }

    #[test]
    fn recreate_waits_for_the_last_old_pod() {
        let wish = Wish { rolling: None, ..wish(3, 0, 0) };
        let old = set(&wish, "3/3");
        assert_eq!(next(&wish, None, &[old]), Next { current: None, others: vec![0] });
        let going = Set { size: 0, ..old };
        assert_eq!(next(&wish, None, &[going]), Next { current: None, others: vec![0] });
        assert_eq!(next(&wish, None, &[Set { pods: 0, ..going }]), Next { current: Some(3), others: vec![0] });
    }

    #[test]
    fn a_deployment_made_larger_during_an_update_keeps_its_proportions() {
        let before = wish(10, 3, 2);
        let after = wish(15, 3, 2);
        let (current, old) = (set(&before, "5/5"), set(&before, "8/8"));
        // From 13 pods at most to 18: 8 of 13 become 11, 5 become 7.
        assert_eq!(next(&after, Some(&current), &[old]), Next { current: Some(7), others: vec![11] });
        assert_eq!(next(&wish(0, 0, 0), Some(&current), &[old]), Next { current: Some(0), others: vec![0] });
        // Alone it simply follows.
        assert_eq!(next(&after, Some(&current), &[]), Next { current: Some(15), others: vec![] });
        let paused = Wish { paused: true, ..before };
        assert_eq!(next(&paused, None, &[old]), Next { current: None, others: vec![10] });
    }

    #[test]
    fn shares_of_a_wish_are_rounded_as_kubernetes_rounds_them() {
        let spec = |surge: &str, unavailable: &str| {
            let text = |text: &str| serde_json::from_str(text).unwrap_or(serde_json::json!(text));
            let rolling = serde_json::json!({"maxSurge": text(surge), "maxUnavailable": text(unavailable)});
            let spec = serde_json::json!({"replicas": 10, "selector": {}, "template": {},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
            Wish::of(&serde_json::from_value(spec).expect("a spec")).rolling.map(|one| (one.surge, one.unavailable))
        };
        for (surge, unavailable, expected) in [
            ("25%", "25%", (3, 2)),
            ("0", "0", (0, 1)),
            ("0", "5%", (0, 1)),
            ("2", "1", (2, 1)),
            ("0", "200%", (0, 10)),
        ] {
            assert_eq!(spec(surge, unavailable), Some(expected), "{surge} {unavailable}");
        }
    }
}
