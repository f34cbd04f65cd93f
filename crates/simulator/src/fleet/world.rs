//! One run: bindings are written, pods come and go, members fail, and somebody lends.

use serde_json::{Value, json};

use super::centre::{Centre, DENIED, NAMESPACE, QUOTA, bindings, leases, quota, quotas};
use super::judge::{Most, charge, is_free, judge, total};
use super::lender::{self, Action, Others, Says, afford, lease_name, read, stays, write};
use super::member::{Member, Terms, Word};
use super::{CLUSTERS, Config, Mutation, Report};
use crate::rng::Rng;

/// For how long a member may use what it was lent, and by how much clocks may differ.
const TERM_MS: i64 = 20_000;
const GRACE_MS: i64 = 8_000;

pub struct World {
    mutation: Option<Mutation>,
    rng: Rng,
    centre: Option<Centre>,
    members: Vec<Member>,
    /// Clusters that an administrator gave up.
    given_up: [bool; CLUSTERS.len()],
    late: Vec<Word>,
    hungry: Option<usize>,
    overall: u64,
    chunk: u64,
    /// Whether the quota lends anything at all.
    lends: bool,
    /// What was charged, and could run, after the last tick.
    most: Most,
    now_ms: i64,
    pub report: Report,
}

impl World {
    pub fn new(config: Config) -> World {
        let mut rng = Rng::new(config.seed);
        let (overall, chunk) = (10 + rng.below(30), 1 + rng.below(4));
        let lies = rng.one_in(3).then(|| rng.index(CLUSTERS.len()));
        let members = (0..CLUSTERS.len()).map(|one| Member::new(&mut rng, GRACE_MS, lies == Some(one))).collect();
        World {
            mutation: config.mutation,
            centre: Centre::new(overall, chunk, config.mutation != Some(Mutation::IsNotEnforced)).ok(),
            members,
            given_up: [false; CLUSTERS.len()],
            late: Vec::new(),
            hungry: None,
            overall,
            chunk,
            lends: true,
            most: Most::default(),
            now_ms: 1_700_000_000_000,
            report: Report { lies: u64::from(lies.is_some()), ..Report::default() },
            rng,
        }
    }

    fn centre(&mut self) -> Result<&mut Centre, String> {
        self.centre.as_mut().ok_or_else(|| "there is no control plane".to_owned())
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// One tick.
    pub fn pass(&mut self) -> Result<(), String> {
        self.now_ms += i64::try_from(self.rng.below(1500)).unwrap_or(0);
        match self.rng.below(16) {
            0..=3 => self.bind()?,
            4..=6 => self.pods(),
            7 => self.misfortune(),
            8 => self.deliver_late(),
            10 if self.rng.one_in(3) => self.edit()?,
            9 if self.rng.one_in(4) => {
                self.centre = self.centre.take().map(Centre::restarted);
                self.report.starts += 1;
            }
            _ => {
                let cluster = self.rng.index(CLUSTERS.len());
                self.report.commands += 1;
                self.lend(cluster)?;
                self.reclaim(cluster)?;
            }
        }
        // Over a limit that was lowered nothing grows.
        let charged = self.most.charged.max(self.overall);
        let most = Most { charged, runs: self.most.runs.max(charged) };
        let centre = self.centre.as_ref().ok_or("there is no control plane")?;
        self.most = judge(centre, &mut self.members, most, self.now_ms)?;
        Ok(())
    }

    /// An administrator says that the quota is more, or less, whatever is used of it; and whether it lends.
    fn edit(&mut self) -> Result<(), String> {
        self.lends = !self.rng.one_in(3);
        self.overall = 5 + self.rng.below(40);
        self.report.raised += u64::from(self.overall > self.most.charged);
        self.report.lowered += u64::from(self.overall < self.most.charged);
        let quota = quota(self.overall, self.lends.then_some(self.chunk));
        self.centre()?.put(&quotas(), QUOTA, quota)
    }

    /// Pods come and go, wherever somebody is to let them in.
    fn pods(&mut self) {
        let member = &mut self.members[self.rng.index(CLUSTERS.len())];
        if self.rng.one_in(3) {
            member.waiting = member.waiting.saturating_sub(self.rng.below(6));
            member.pods = member.pods.saturating_sub(1 + self.rng.below(3));
            member.open(self.now_ms);
            return;
        }
        for _ in 0..1 + self.rng.below(5) {
            member.admit(self.now_ms);
        }
    }

    fn misfortune(&mut self) {
        let cluster = self.rng.index(CLUSTERS.len());
        let member = &mut self.members[cluster];
        match (member.answers(), self.rng.below(4)) {
            (true, 0) => {
                member.is_dead = true;
                self.report.deaths += 1;
            }
            (true, 1) => {
                member.is_cut_off = true;
                self.report.cuts += 1;
            }
            (false, 0) => {
                (member.is_dead, member.is_cut_off) = (false, false);
                self.given_up[cluster] = false;
            }
            (false, _) => self.given_up[cluster] = true,
            (true, _) => {}
        }
    }

    /// What was held up arrives after all, perhaps not for the last time.
    fn deliver_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let at = self.rng.index(self.late.len());
        let word = self.late[at];
        if !self.rng.one_in(4) {
            self.late.swap_remove(at);
        }
        let any_version = self.is(Mutation::TellsWithoutVersion);
        self.report.late += u64::from(self.members[word.to].take(&word, any_version, self.now_ms));
    }

    /// Sends a word; whether it is known to have arrived.
    fn send(&mut self, to: usize, terms: Terms, version: u64) -> bool {
        let word = Word { to, terms, version };
        if !self.members[to].answers() || self.rng.one_in(6) {
            self.late.push(word);
            return false;
        }
        let any_version = self.is(Mutation::TellsWithoutVersion);
        // The answer may be lost.
        self.members[to].take(&word, any_version, self.now_ms) && !self.rng.one_in(8)
    }

    /// Whoever lends may stop here; and meanwhile others go on.
    fn stops(&mut self) -> bool {
        for _ in 0..self.rng.below(3) {
            self.pods();
        }
        self.rng.one_in(7)
    }

    /// What was lent is taken back out of a member that answers, and let go of when that is known.
    fn end(&mut self, cluster: usize) -> Result<(), String> {
        if read(self.centre()?, cluster).is_none() || self.rng.one_in(6) {
            return Ok(());
        }
        let member = &mut self.members[cluster];
        member.withdraw();
        // Nothing says any more what may run there: what does is the member's own.
        member.is_excused = true;
        // The answer may be lost.
        if self.rng.one_in(8) || self.stops() {
            return Ok(());
        }
        self.report.ended += 1;
        self.centre()?.delete(&leases(), &lease_name(cluster))
    }

    fn lend(&mut self, cluster: usize) -> Result<(), String> {
        if !self.members[cluster].answers() {
            return Ok(());
        }
        if !self.lends {
            return self.end(cluster);
        }
        let mut lease = match read(self.centre()?, cluster) {
            Some(lease) => lease,
            None => {
                write(self.centre()?, cluster, 0, 0)?;
                lender::Lease::default()
            }
        };
        if lease.until_ms < self.now_ms + TERM_MS / 2 {
            lease.until_ms = self.now_ms + TERM_MS;
            if !write(self.centre()?, cluster, lease.hard, lease.until_ms)? {
                return Err("a lease that grows by nothing is refused".into());
            }
        }
        if self.stops() {
            return Ok(());
        }
        let lease = read(self.centre()?, cluster).ok_or("a lease that was written is gone")?;
        let member = &self.members[cluster];
        let (told, version) = (member.told, member.version);
        let says = Says { used: member.says_used(&mut self.rng), waiting: member.says_waiting(&mut self.rng) };
        self.report.waited += u64::from(says.waiting > 0);
        let starve = self.hungry.is_some_and(|who| who != cluster);
        let others = Others { starve, waited: self.rng.one_in(2), were_given: self.rng.one_in(4) };
        let is_over = total(self.centre()?) > self.overall;
        let Some(action) = lender::decide(lease, told, says, self.chunk, others, is_over) else { return Ok(()) };
        if self.stops() {
            return Ok(());
        }
        let until_ms = lease.until_ms;
        match action {
            Action::Tell => {
                self.send(cluster, Terms { hard: lease.hard, until_ms }, version);
            }
            Action::Charge(wanted) => self.grow(cluster, lease, wanted, version)?,
            Action::Shrink(less) => {
                let terms = Terms { hard: less, until_ms };
                if self.is(Mutation::LetsGoBeforeItTells) {
                    write(self.centre()?, cluster, less, until_ms)?;
                }
                if !self.send(cluster, terms, version) || self.stops() {
                    return Ok(());
                }
                let used = self.members[cluster].says_used(&mut self.rng);
                // What a liar says it uses now may be more than it was lent: then the lease stays as it is.
                let rest = stays(less, used, self.mutation);
                write(self.centre()?, cluster, rest, until_ms)?;
                self.report.shrunk += 1;
            }
        }
        Ok(())
    }

    fn grow(&mut self, cluster: usize, lease: lender::Lease, wanted: u64, version: u64) -> Result<(), String> {
        let until_ms = lease.until_ms;
        let left = self.overall.saturating_sub(total(self.centre()?));
        if self.is(Mutation::TellsBeforeItCharges) {
            self.send(cluster, Terms { hard: wanted, until_ms }, version);
        }
        let granted = match write(self.centre()?, cluster, wanted, until_ms)? {
            true => Some(wanted),
            false => match afford(lease, wanted, left) {
                Some(granted) if write(self.centre()?, cluster, granted, until_ms)? => Some(granted),
                _ => None,
            },
        };
        match granted {
            None => {
                self.hungry = Some(cluster);
                self.report.refused += 1;
            }
            Some(granted) => {
                self.report.grown += 1;
                if !self.stops() {
                    self.send(cluster, Terms { hard: granted, until_ms }, version);
                }
            }
        }
        if self.hungry == Some(cluster) && self.rng.one_in(4) {
            self.hungry = None;
        }
        Ok(())
    }

    /// What a cluster was lent that was given up goes back, once its time is over by anybody's clock.
    fn reclaim(&mut self, cluster: usize) -> Result<(), String> {
        let Some(lease) = read(self.centre()?, cluster) else { return Ok(()) };
        if self.members[cluster].answers() || !self.given_up[cluster] {
            return Ok(());
        }
        let grace_ms = if self.is(Mutation::TrustsClocks) { 0 } else { GRACE_MS };
        let is_over = self.now_ms > lease.until_ms + grace_ms;
        if is_over || self.is(Mutation::ReclaimsEarly) {
            self.report.expired += u64::from(self.members[cluster].told.is_some());
            self.report.reclaimed += 1;
            self.members[cluster].is_excused = true;
            self.centre()?.delete(&leases(), &lease_name(cluster))?;
        }
        Ok(())
    }

    /// A binding is made, resized, evicted, placed anew, or goes. Each is granted exactly where there is room for its growth.
    fn bind(&mut self) -> Result<(), String> {
        let name = format!("b{}", self.rng.below(5));
        let cluster = CLUSTERS[self.rng.index(CLUSTERS.len())];
        let (replicas, cpu) = (1 + self.rng.below(6), 1 + self.rng.below(3));
        let choice = self.rng.below(5);
        let centre = self.centre()?;
        let before = centre.get(&bindings(), &name);
        let placed_on = |replicas: u64| json!([{"name": cluster, "replicas": replicas}]);
        let next = match (&before, choice) {
            (None, _) => json!({"spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": NAMESPACE, "name": name},
                "replicas": replicas,
                "replicaRequirements": {"resourceRequest": {"cpu": cpu.to_string()}},
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
                "clusters": placed_on(replicas),
            }}),
            (Some(_), 0) => {
                return centre.delete(&bindings(), &name);
            }
            (Some(binding), 1) => {
                let mut next = json!({"spec": binding["spec"]});
                next["spec"]["replicas"] = json!(replicas);
                next["spec"]["clusters"] = placed_on(replicas);
                next
            }
            (Some(binding), 2) => evicted(binding),
            (Some(binding), 3) => {
                let mut next = json!({"spec": binding["spec"]});
                next["spec"]["clusters"] = placed_on(binding["spec"]["replicas"].as_u64().unwrap_or(0));
                next
            }
            (Some(binding), _) => {
                let mut next = json!({"spec": binding["spec"]});
                let is_placed = next["spec"]["clusters"].as_array().is_some_and(|list| !list.is_empty());
                if let Some(spec) = next["spec"].as_object_mut().filter(|_| is_placed) {
                    spec.remove("gracefulEvictionTasks");
                }
                next
            }
        };
        let had = before.as_ref().map_or(0, charge);
        let would_have = charge(&next);
        let all = total(centre);
        let is_free = before.as_ref().is_none_or(|before| is_free(centre, before));
        let done = centre.put(&bindings(), &name, next);
        let has = centre.get(&bindings(), &name).as_ref().map_or(0, charge);
        match done {
            Err(why) if why != DENIED => Err(format!("a binding is refused: {why}")),
            Err(_) if has != had => Err(format!("a refusal changed what {name} is charged from {had} to {has}")),
            // Evictions, and the end of them, need no room.
            Err(_) if before.is_some() && matches!(choice, 2 | 4) => {
                let of = if choice == 2 { "be evicted" } else { "do without its evictions" };
                Err(format!("{name} may not {of}: {had} of {all} are its, {would_have} would be, of {}", self.overall))
            }
            Err(_) if would_have <= had && is_free => Err(format!("{name} may not go where nothing is in its way")),
            Err(_) => {
                self.report.refused += 1;
                self.report.kept_waiting += u64::from(would_have <= had);
                Ok(())
            }
            Ok(()) if has > had && all - had + has > self.overall => {
                Err(format!("{name} grew from {had} to {has} where {all} of {} were used", self.overall))
            }
            Ok(()) => {
                self.report.moved += u64::from(before.is_some() && choice == 3);
                Ok(())
            }
        }
    }
}

/// Everything a binding has, out of its clusters.
pub fn evicted(binding: &Value) -> Value {
    let mut next = json!({"spec": binding["spec"]});
    let from = next["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let mut tasks = next["spec"]["gracefulEvictionTasks"].as_array().cloned().unwrap_or_default();
    for target in from {
        if tasks.iter().all(|task| task["fromCluster"] != target["name"]) {
            tasks
                .push(json!({"fromCluster": target["name"], "reason": "TaintUntolerated", "producer": "TaintManager"}));
        }
    }
    next["spec"]["clusters"] = json!([]);
    next["spec"]["gracefulEvictionTasks"] = json!(tasks);
    next
}
