//! Another size and another number of pods at once. What a workload asks for is written here, and where it is by the scheduler: a template
//! that goes from one pod of ten CPUs to ten of one would be charged for one of them in between, and somebody else take the other nine. So
//! such a change is one write, with the places in it; and what does not fit leaves all as it was.

use serde_json::{Map, Value, json};

use super::super::binding::{BindingSpec, Target, Usage, in_new_size, usage};
use super::super::interpret::Wants;
use super::super::schedule::{self, Cluster, Misfit, largest_remainder};
use super::promises::resized;
use super::scheduler::is_ours;

/// What is written of the places beside what the template asks for.
#[derive(Debug, Default, PartialEq)]
pub struct Places {
    /// Nothing, where they stay.
    pub first: Option<Vec<Target>>,
    /// What may be written where a quota has no room for moving: the same in the clusters where it is.
    pub otherwise: Option<Vec<Target>>,
}

/// A binding as it is, and as it is going to be but for its places.
pub struct Change {
    pub before: BindingSpec,
    pub next: BindingSpec,
}

impl Change {
    /// `news` is what will be merged into the stored spec.
    pub fn of(stored: &Value, news: &Map<String, Value>) -> Option<Change> {
        let before = BindingSpec::read(&json!({ "spec": stored })).ok()?;
        let spec = kinds::patch::merge_patch(stored.clone(), &Value::Object(news.clone())).ok()?;
        let mut next = BindingSpec::read(&json!({ "spec": spec })).ok()?;
        // As they will be counted.
        let mut tasks = std::mem::take(&mut next.graceful_eviction_tasks);
        for task in tasks.iter_mut().filter(|task| !next.is_on(&task.from_cluster)) {
            task.replicas = task.replicas.map(|replicas| in_new_size(replicas, &before, &next));
        }
        next.graceful_eviction_tasks = tasks;
        Some(Change { before, next })
    }

    /// The places that come with it; or why it has to wait as a whole.
    pub fn places(
        &self,
        wants: &Wants,
        uid: &str,
        count_evicting: bool,
        clusters: impl FnOnce() -> Vec<Cluster>,
    ) -> Result<Places, String> {
        let Change { before, next } = self;
        if before.replica_requirements == wants.requirements || !wants.components.is_empty() {
            return Ok(Places::default());
        }
        // Of what is not to run any more nobody asks for the new size.
        let fewer = schedule::fewer(next, uid);
        let first = (fewer != next.clusters).then(|| fewer.clone());
        let kept = BindingSpec { clusters: fewer, ..next.clone() };
        let counted = |spec: &BindingSpec| usage(spec, count_evicting).unwrap_or_default();
        let (had, has, takes) = (counted(before), counted(&kept), counted(&whole(&kept)));
        if !is_ours(next) || !dips(&had, &has, &takes) {
            return Ok(Places { first, otherwise: None });
        }
        let clusters = resized(clusters(), before, next);
        let targets = match schedule::place(&kept, uid, &clusters) {
            Ok(targets) => targets,
            Err(Misfit::NoClusterFit(why) | Misfit::Unschedulable(why)) => return Err(why),
        };
        let stays = is_covered(&takes, &had).then(|| cut_anew(before, next.replicas, uid)).flatten();
        Ok(Places { otherwise: stays.filter(|stays| *stays != targets), first: Some(targets) })
    }
}

/// All of it, wherever that will be.
fn whole(spec: &BindingSpec) -> BindingSpec {
    let mut whole = spec.clone();
    if spec.is_divided() {
        whole.graceful_eviction_tasks.clear();
        whole.clusters = vec![Target { replicas: spec.replicas, ..Target::default() }];
    }
    whole.clusters.iter_mut().for_each(|target| target.replicas = spec.replicas);
    whole.graceful_eviction_tasks.iter_mut().for_each(|task| task.replicas = Some(spec.replicas));
    whole
}

/// Whether less of something is charged in between than both before and in the end.
fn dips(before: &Usage, between: &Usage, end: &Usage) -> bool {
    before.requests.iter().any(|(name, had)| {
        let of = |usage: &Usage| usage.requests.get(name).map(|one| one.amount);
        of(end).is_some_and(|end| of(between).is_none_or(|between| between < had.amount.min(end)))
    })
}

/// Whether nothing of it is more than there is.
fn is_covered(takes: &Usage, had: &Usage) -> bool {
    let fits = |(name, wanted): (&String, &kinds::resources::Measured)| {
        had.requests.get(name).is_some_and(|had| wanted.amount <= had.amount)
    };
    takes.requests.iter().all(fits)
}

/// So many in the clusters where it is.
fn cut_anew(before: &BindingSpec, replicas: u32, uid: &str) -> Option<Vec<Target>> {
    let weights: Vec<(&str, u64)> = before.clusters.iter().map(|one| (&*one.name, one.replicas.into())).collect();
    let shares = match before.is_divided() {
        true => largest_remainder(replicas.into(), &weights, uid),
        false => weights.iter().map(|(name, _)| (*name, replicas.into())).collect(),
    };
    let target = |(name, share): (&str, u64)| {
        Some(Target { name: name.into(), replicas: u32::try_from(share).ok()?, components: Vec::new() })
    };
    let targets: Option<Vec<Target>> = shares.into_iter().filter(|(_, share)| *share > 0).map(target).collect();
    targets.filter(|targets| !targets.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::super::binding::Requirements;
    use super::*;

    const DIVIDED: &str =
        r#"{"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}"#;

    fn wants(replicas: u32, request: Value) -> Wants {
        let resource_request = request.as_object().cloned().unwrap_or_default();
        let requirements = Requirements { resource_request, ..Requirements::default() };
        Wants { replicas, requirements: Some(requirements), ..Wants::default() }
    }

    fn placed(replicas: u32, request: Value, clusters: Value, more: Value) -> Value {
        let placement: Value = serde_json::from_str(DIVIDED).expect("a placement");
        let mut spec = json!({
            "replicas": replicas, "replicaRequirements": {"resourceRequest": request}, "placement": placement, "clusters": clusters,
        });
        more.as_object().into_iter().flatten().for_each(|(field, value)| spec[field] = value.clone());
        spec
    }

    fn cluster(name: &str, cpu: Option<i64>) -> Cluster {
        let left = |cpu| [("cpu".to_owned(), quantity::Amount::from_units(cpu))].into();
        Cluster { name: name.into(), left: cpu.map(left), ..Cluster::default() }
    }

    fn places(stored: &Value, wants: &Wants, clusters: &[Cluster]) -> Result<Places, String> {
        let news = json!({"replicas": wants.replicas, "replicaRequirements": wants.requirements});
        let change = Change::of(stored, news.as_object().expect("an object")).expect("a binding");
        change.places(wants, "u", false, || clusters.to_vec())
    }

    fn at(list: &[(&str, u32)]) -> Option<Vec<Target>> {
        let target =
            |(name, replicas): &(&str, u32)| Target { name: (*name).into(), replicas: *replicas, ..Target::default() };
        Some(list.iter().map(target).collect())
    }

    #[test]
    fn more_and_smaller_pods_come_in_one_write() {
        let stored = placed(1, json!({"cpu": "10"}), json!([{"name": "m1", "replicas": 1}]), json!({}));
        let both = [cluster("m1", None), cluster("m2", None)];
        let becomes = |wants: &Wants| places(&stored, wants, &both).expect("places").first;
        assert_eq!(becomes(&wants(10, json!({"cpu": "1"}))), at(&[("m1", 10)]));
        assert_eq!(becomes(&wants(20, json!({"cpu": "1"}))), at(&[("m1", 20)]));
        assert_eq!(becomes(&wants(1, json!({"cpu": "1"}))), None, "it becomes less, and that is all");
        assert_eq!(becomes(&wants(2, json!({"cpu": "20"}))), None, "nothing of it is less in between");
        assert_eq!(
            becomes(&wants(10, json!({"cpu": "1", "memory": "1Gi"}))),
            at(&[("m1", 10)]),
            "memory comes in it, too"
        );
        // Nothing was there that could be stolen.
        let waiting = placed(1, json!({"cpu": "10"}), json!([]), json!({}));
        assert_eq!(places(&waiting, &wants(10, json!({"cpu": "1"})), &both), Ok(Places::default()));
        // Somebody else places it.
        let others =
            placed(1, json!({"cpu": "10"}), json!([{"name": "m1", "replicas": 1}]), json!({"schedulerName": "mine"}));
        assert_eq!(places(&others, &wants(10, json!({"cpu": "1"})), &both), Ok(Places::default()));
    }

    #[test]
    fn what_it_has_there_is_room_for_its_smaller_pods() {
        let stored = placed(1, json!({"cpu": "10"}), json!([{"name": "m1", "replicas": 1}]), json!({}));
        let full = [cluster("m1", Some(2))];
        assert_eq!(places(&stored, &wants(12, json!({"cpu": "1"})), &full).expect("places").first, at(&[("m1", 12)]));
        let words = "Clusters available replicas 12 are not enough to schedule.";
        assert_eq!(places(&stored, &wants(13, json!({"cpu": "1"})), &full), Err(words.into()));
    }

    /// It stays charged for as many of the new size as had room in the old one: there is nothing to hurry for.
    #[test]
    fn what_was_evicted_is_left_to_the_scheduler() {
        let task = json!([{"fromCluster": "m1", "replicas": 1, "reason": "r", "producer": "p"}]);
        let stored = placed(1, json!({"cpu": "10"}), json!([]), json!({"gracefulEvictionTasks": task}));
        let both = [cluster("m1", None), cluster("m2", None)];
        for replicas in [10, 20, 1] {
            let wanted = wants(replicas, json!({"cpu": "1"}));
            assert_eq!(places(&stored, &wanted, &both), Ok(Places::default()), "{replicas}");
            assert_eq!(places(&stored, &wanted, &[]), Ok(Places::default()), "{replicas}");
        }
    }

    #[test]
    fn where_a_move_has_no_room_it_stays_where_it_is() {
        let spread = json!({"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}});
        let stored = placed(1, json!({"cpu": "10"}), json!([{"name": "m1", "replicas": 1}]), spread);
        let both = [cluster("m1", None), cluster("m2", None)];
        let ten = places(&stored, &wants(10, json!({"cpu": "1"})), &both).expect("places");
        assert_eq!((ten.first, ten.otherwise), (at(&[("m1", 5), ("m2", 5)]), at(&[("m1", 10)])));
        let twenty = places(&stored, &wants(20, json!({"cpu": "1"})), &both).expect("places");
        assert_eq!(twenty.otherwise, None, "growth waits");
    }
}
