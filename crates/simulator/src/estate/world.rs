//! One run: who asks for what, when groups are decided and committed, and what is compared then.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use sequencer::core::commit;
use server::core::{ObjectKey, Refused};
use store::{SharedMemory, StoreError};

use super::answers::{Said, Step};
use super::apart::judge_shown;
use super::durable::{Added, Durable};
use super::ground::{Ground, Ordered};
use super::judge::{Found, judge, judge_balances, judge_growth, judge_objects, judge_statuses};
use super::liar::Lies;
use super::mutation::Mutation;
use super::replica::{Asker, Done, Flight, Replica, Work, audit};
use super::request::{Request, removal};
use super::weather::Script;
use super::{Config, FAULTS, Report, TICKS, TICKS_CALM, datum, judge_karmada, karmada, orgs, rare};
use crate::disk::SimDisk;
use crate::network::{Network, Weather};
use crate::rng::Rng;

const CLIENTS: usize = 4;
/// How long a client waits for an answer, the longer the smaller the slices are in which something may be counted for it; and how
/// often it asks.
const PATIENCE_TICKS: u64 = 12;
const PATIENCE_NARROW_TICKS: u64 = 40;
const TRIES_MAX: u64 = 3;
/// Audits and publications, as "one in so many" groups and ticks.
const AUDIT: u64 = 8;
const PUBLISH: u64 = 10;
/// Steps that a world may take to come to rest.
const REST_MAX: usize = 1500;
pub const FAIR: Weather = Weather { lost: 40, doubled: 30, delay_max: 3 };

#[derive(Clone)]
pub enum Packet {
    Asks { client: usize, number: u64, request: Request },
    Told { client: usize, number: u64, request: Request, said: Said },
}

#[derive(Default)]
pub struct Client {
    pub script: VecDeque<Request>,
    /// What it asked for and is not yet told.
    pub asked: Option<Asked>,
}

pub struct Asked {
    pub number: u64,
    request: Request,
    since: u64,
    tries: u64,
}

pub struct World {
    pub config: Config,
    pub rng: Rng,
    pub ground: Ground,
    pub network: Network<Packet>,
    pub clients: Vec<Client>,
    /// Two places for processes; one of them leads, or did last.
    pub replicas: [Option<Replica>; 2],
    pub leader: usize,
    pub durable: Durable,
    pub found: Found,
    /// What a commit that failed may have added, and whether that was one command.
    pub perhaps: Option<(Added, bool)>,
    pub tick: u64,
    pub now_ms: i64,
    pub strict: bool,
    /// Whether leases may not have followed other settings yet.
    leases_late: bool,
    /// How many objects are counted in the step of a write, if not as many as ever.
    pub at_once_max: Option<usize>,
    pub lies: Arc<Lies>,
    /// Until when nothing is synced, and until when the network is worse than usual.
    pub slow_until: u64,
    pub storm_until: u64,
    /// Whether the disk is full, whether it was and a store may still think so, and whether somebody was refused for that.
    pub is_full: bool,
    pub is_low: bool,
    pub was_low: bool,
    numbers: u64,
    carried_out: BTreeSet<u64>,
    pub uids: u128,
    pub report: Report,
    pub told: Vec<String>,
}

impl World {
    pub fn new(config: Config) -> World {
        let mut rng = Rng::new(config.seed);
        let lies = config.mutation.is_some_and(|mutation| mutation.disk_lies());
        let ground = match config.seed % 3 {
            0 => Ground::Shared(SharedMemory::new(), Ordered::default()),
            _ => Ground::Disk(SimDisk::new(rng.fork(), lies)),
        };
        let network = Network::new(rng.fork(), FAIR);
        World {
            strict: rng.one_in(2),
            leases_late: false,
            at_once_max: [Some(1), Some(3), None][(config.seed / 3 % 3) as usize],
            lies: Arc::default(),
            config,
            rng,
            ground,
            network,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            replicas: [None, None],
            leader: 0,
            durable: Durable::default(),
            found: Found::default(),
            perhaps: None,
            tick: 0,
            now_ms: 1_700_000_000_000,
            slow_until: 0,
            storm_until: 0,
            is_full: false,
            is_low: false,
            was_low: false,
            numbers: 0,
            carried_out: BTreeSet::new(),
            uids: 0,
            report: Report::default(),
            told: Vec::new(),
        }
    }

    pub fn live(&mut self) -> Result<(), String> {
        self.start(0)?;
        let begun = self.script(|script| script.begin());
        self.submit(begun);
        self.rest()?;
        for tick in 0..TICKS {
            let (left, faults) = (TICKS - tick, FAULTS - self.report.faults);
            if self.rng.below(left) < faults {
                self.report.faults += 1;
                self.misfortune()?;
            }
            self.pass()?;
        }
        self.calm();
        // A start lets go of all that a process had begun with: this one begins with something, and ends it.
        for _ in 0..TICKS_CALM {
            self.pass()?;
        }
        for client in 0..CLIENTS {
            if let Some(asked) = self.clients[client].asked.take() {
                self.leave((client, asked.number));
            }
        }
        self.rest()?;
        self.publish_all()?;
        self.stop(self.leader, true);
        self.rest()?;
        self.audit()
    }

    /// One tick.
    fn pass(&mut self) -> Result<(), String> {
        self.tick += 1;
        if self.rng.one_in(2) {
            self.now_ms += 1 + i64::try_from(self.rng.below(9000)).unwrap_or(0);
        }
        if self.tick > self.storm_until {
            self.network.weather = FAIR;
        }
        if self.replicas[self.leader].is_none() && self.rng.one_in(3) {
            self.start(self.leader)?;
        }
        self.clients_ask();
        self.deliver()?;
        self.lead()?;
        self.linger()?;
        self.read()?;
        self.controllers();
        if self.rng.one_in(PUBLISH) {
            self.work(Work::Publish { now_ms: self.now_ms });
        }
        Ok(())
    }

    /// Nobody asks any more; whatever is on its way is done.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..REST_MAX {
            if self.replicas[self.leader].is_none() {
                self.start(self.leader)?;
                continue;
            }
            self.tick += 1;
            self.deliver()?;
            self.lead()?;
            self.linger()?;
            let leader = self.replicas[self.leader].as_ref();
            let idle = leader.is_some_and(|leader| leader.inbox.is_empty() && leader.in_flight.is_empty());
            if idle && self.network.is_quiet() {
                return if leader.is_some_and(|leader| leader.errands.has_waiting()) {
                    Err("somebody waits for a turn that nobody has".into())
                } else {
                    Ok(())
                };
            }
        }
        Err("it does not come to rest".into())
    }

    /// Every status says what the ledger knows in the end.
    fn publish_all(&mut self) -> Result<(), String> {
        // By a clock that was set back, nothing is over before it has caught up.
        self.now_ms = self.now_ms.max(self.durable.told_ms);
        for _ in 0..20 {
            self.now_ms += 10_000;
            self.work(Work::Publish { now_ms: self.now_ms });
            self.rest()?;
        }
        self.found.apart.judge_gone()?;
        judge_statuses(&self.durable)?;
        if self.has_karmada() {
            judge_karmada::judge(&self.durable, &self.found, false, None)?;
        }
        self.audit()
    }

    fn has_orgs(&self) -> bool {
        (orgs::SEEDS..datum::SEEDS).contains(&self.config.seed)
    }

    /// Whether some objects are stored by others.
    fn has_holds(&self) -> bool {
        self.config.seed % 4 == 3
    }

    fn has_datum(&self) -> bool {
        (datum::SEEDS..karmada::SEEDS).contains(&self.config.seed)
    }

    pub fn has_karmada(&self) -> bool {
        self.config.seed >= karmada::SEEDS
    }

    fn script(&mut self, write: impl Fn(&mut Script<'_>)) -> Vec<Request> {
        let (now_ms, orgs, datum, karmada) = (self.now_ms, self.has_orgs(), self.has_datum(), self.has_karmada());
        let (holds, requests) = (self.has_holds(), Vec::new());
        let (rng, seen) = (&mut self.rng, &self.durable);
        let mut script = Script { rng, seen, now_ms, orgs, datum, karmada, holds, requests };
        write(&mut script);
        let mut requests = script.requests;
        if let Some(Mutation::Orgs(mistake)) = self.config.mutation {
            requests.iter_mut().for_each(|request| mistake.request(request));
        }
        requests
    }

    fn submit(&mut self, requests: Vec<Request>) {
        requests.into_iter().for_each(|request| self.work(Work::Request(request)));
    }

    pub fn work(&mut self, work: Work) {
        if let Some(leader) = &mut self.replicas[self.leader] {
            leader.inbox.push_back((None, work));
        }
    }

    fn clients_ask(&mut self) {
        let patience = if self.at_once_max.is_some() { PATIENCE_NARROW_TICKS } else { PATIENCE_TICKS };
        for client in 0..CLIENTS {
            if let Some(asked) = &mut self.clients[client].asked {
                if self.tick < asked.since + patience {
                    continue;
                }
                if asked.tries < TRIES_MAX {
                    (asked.tries, asked.since) = (asked.tries + 1, self.tick);
                    let (number, request) = (asked.number, asked.request.clone());
                    self.report.rare.met(rare::SENT_AGAIN);
                    self.send(Packet::Asks { client, number, request }, rare::REQUEST_LOST);
                    continue;
                }
                let asker = (client, asked.number);
                self.clients[client].asked = None;
                self.leave(asker);
            }
            if self.clients[client].script.is_empty() {
                let script = self.script(|script| script.write());
                self.clients[client].script = script.into();
            }
            let Some(mut request) = self.clients[client].script.pop_front() else { continue };
            request.now_ms = self.now_ms;
            self.numbers += 1;
            let number = self.numbers;
            self.clients[client].asked = Some(Asked { number, request: request.clone(), since: self.tick, tries: 1 });
            self.send(Packet::Asks { client, number, request }, rare::REQUEST_LOST);
        }
    }

    /// A client waits no more, and whoever goes on with its write goes on no more.
    pub fn leave(&mut self, asker: (usize, u64)) {
        for replica in self.replicas.iter_mut().flatten() {
            let was_counted = replica.leave(asker);
            self.report.rare.met_if(was_counted, rare::FORSAKEN);
        }
    }

    fn send(&mut self, packet: Packet, lost: &'static str) {
        let arrives = self.network.send(self.tick, packet);
        self.report.rare.met_if(!arrives, lost);
    }

    fn deliver(&mut self) -> Result<(), String> {
        let (arriving, _) = self.network.arriving(self.tick);
        for packet in arriving {
            match packet {
                Packet::Asks { client, number, request } => {
                    // Some still talk to a leader that was replaced.
                    let old = 1 - self.leader;
                    let to = if self.replicas[old].is_some() && self.rng.one_in(3) { old } else { self.leader };
                    if let Some(replica) = &mut self.replicas[to] {
                        replica.inbox.push_back((Some((client, number)), Work::Request(request)));
                    }
                }
                Packet::Told { client, number, request, said } => {
                    self.believe(&request, &said)?;
                    let asked = &mut self.clients[client].asked;
                    if asked.as_ref().is_some_and(|asked| asked.number == number) {
                        *asked = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whatever anybody is told is durable.
    fn believe(&self, request: &Request, said: &Said) -> Result<(), String> {
        let Said::Written(written) = said else { return Ok(()) };
        for ((key, _), (_, revision)) in request.parts().zip(written) {
            let at = self.durable.history.binary_search_by_key(revision, |told| told.revision);
            match at.map(|at| &self.durable.history[at]) {
                Ok(told) if told.key == *key => {}
                found => {
                    let asked = request.told();
                    return Err(format!("A1: {asked}: {key} was told as written at {revision}, found {found:?}"));
                }
            }
        }
        Ok(())
    }

    /// The leader decides and commits, each in its own time.
    fn lead(&mut self) -> Result<(), String> {
        let Some(leader) = &mut self.replicas[self.leader] else { return Ok(()) };
        let waits = leader.inbox.len();
        if waits > 0 && leader.in_flight.len() < 2 && (waits > 2 || self.rng.one_in(2)) {
            let count = match self.rng.below(4) {
                _ if leader.clock_ms.is_none() => 1,
                0 => 2 + self.rng.index(4),
                _ => 1,
            };
            self.report.rare.met_if(!leader.in_flight.is_empty(), rare::TWO_IN_FLIGHT);
            leader.decide(count, &mut self.uids, self.durable.told_ms)?;
            if let Some(flight) = leader.in_flight.back() {
                self.report.commands += flight.commands as u64;
                if self.config.mutation.is_some_and(|mutation| mutation.answers_early()) {
                    self.answer(self.leader);
                }
            }
        }
        let ready = self.replicas[self.leader].as_ref().map_or(0, |leader| leader.in_flight.len());
        if ready > 0 && self.tick >= self.slow_until && (ready == 2 || self.rng.one_in(2)) {
            self.commit(self.leader)?;
        }
        Ok(())
    }

    /// A replaced leader goes on until the store refuses it.
    fn linger(&mut self) -> Result<(), String> {
        let old = 1 - self.leader;
        let Some(replica) = &mut self.replicas[old] else { return Ok(()) };
        if !replica.inbox.is_empty() && replica.in_flight.len() < 2 {
            replica.decide(1, &mut self.uids, self.durable.told_ms)?;
        }
        if !replica.in_flight.is_empty() && self.rng.one_in(2) { self.commit(old) } else { Ok(()) }
    }

    fn commit(&mut self, place: usize) -> Result<(), String> {
        let Some(replica) = &mut self.replicas[place] else { return Ok(()) };
        let Some(mut flight) = replica.in_flight.pop_front() else { return Ok(()) };
        let cache = &replica.cache;
        let done = commit(&mut *replica.store, &mut |publication| cache.publish(publication), &mut flight.group);
        match done {
            Ok(()) if place != self.leader => Err("A2: the store took a group from a leader that was replaced".into()),
            Ok(()) => self.committed(flight),
            Err(StoreError::Fenced { .. }) if place != self.leader => {
                // It ends, and whoever waits for it is told nothing.
                self.replicas[place] = None;
                self.report.rare.met(rare::OLD_LEADER_FENCED);
                Ok(())
            }
            Err(StoreError::Full { place }) => {
                let (rows, bytes) = (flight.added.batch.len(), flight.added.batch.bytes());
                Err(format!("a full disk ends the process: {place}, a group of {rows} rows, {bytes} bytes"))
            }
            Err(error) => {
                self.told.push(format!("commit failed: {error}"));
                self.excuse(&error.to_string())?;
                self.perhaps = Some((flight.added, flight.commands == 1));
                self.stop(place, false);
                Ok(())
            }
        }
    }

    fn committed(&mut self, flight: Flight) -> Result<(), String> {
        self.report.groups += 1;
        self.report.rare.met_if(flight.commands > 1, rare::SEVERAL_IN_A_GROUP);
        for (asker, _) in flight.answers.iter().filter(|(_, said)| said.is_answer()) {
            let again = asker.is_some_and(|(_, number)| !self.carried_out.insert(number));
            self.report.rare.met_if(again, rare::DOUBLED);
        }
        let before = self.durable.clone();
        self.take_in(&flight.added, flight.commands == 1, flight.alone.as_ref(), &before)?;
        if let Some(leader) = &mut self.replicas[self.leader] {
            judge_objects(&self.durable, &leader.cache)?;
            judge_balances(&self.durable, &leader.cache)?;
            judge_shown(&self.durable, &flight.added, &self.found.apart, &leader.cache)?;
            leader.go_on(flight.further, self.now_ms);
            self.report.rare.met_if(leader.errands.has_waiting(), rare::WAITS_FOR_TURN);
        }
        if !self.config.mutation.is_some_and(|mutation| mutation.answers_early()) {
            self.reply(&flight.answers);
        }
        // An engine that was told no time yet judges by none.
        if self.rng.one_in(AUDIT) || flight.added.is_first { self.audit() } else { Ok(()) }
    }

    /// Makes a group part of what is durable, and compares all of it.
    pub fn take_in(
        &mut self,
        added: &Added,
        is_exact: bool,
        alone: Option<&(Done, Said)>,
        before: &Durable,
    ) -> Result<(), String> {
        if let Some((done, said)) = alone {
            self.told.push(match done {
                Done::Request(request) => format!("{} -> {said:?}", request.told()).chars().take(1200).collect(),
                Done::Counted(request) => format!("count for {} -> {said:?}", request.key),
                Done::Published { now_ms } => format!("{now_ms} publish"),
            });
        }
        self.durable.apply(added)?;
        if let Ground::Shared(place, _) = &self.ground {
            self.durable.is(&place.rows())?;
        }
        // Where a moment came with the command, somebody may have been served before it was decided.
        let is_exact = is_exact && !before.has_moments_until(self.durable.told_ms);
        let found = judge(&mut self.durable, added, is_exact)?;
        self.durable.had = found.charged.clone();
        let found_before = std::mem::replace(&mut self.found, found);
        if !added.is_first {
            self.found.apart.judge_since(&found_before.apart)?;
        }
        if self.has_datum() {
            datum::judge(&self.durable, &self.found)?;
        }
        let leases_were_late = self.leases_late;
        if self.has_karmada() {
            let decided = match alone {
                Some((Done::Request(request), said)) if said.is_answer() => Some(request),
                _ => None,
            };
            self.leases_late |= before.strict != added.strict;
            let is_late = self.leases_late;
            self.leases_late = judge_karmada::judge(&self.durable, &self.found, is_late, decided)?;
            if !added.is_first && !is_late {
                judge_karmada::judge_growth(before, &self.durable, &found_before, &self.found)?;
            }
        }
        if self.has_orgs() {
            orgs::judge_views(&self.durable)?;
            self.durable.stored().judge_bindings()?;
            if is_exact {
                judge_growth(&found_before, &self.found)?;
            }
        }
        if let Some((Done::Request(request) | Done::Counted(request), said)) = alone {
            let found = &self.found;
            let (found_before, is_late) = (&found_before, leases_were_late);
            let step = Step { request, said, before, found_before, found, added, is_late };
            step.judge()?;
            if self.has_datum() {
                datum::judge_step(&step, &self.durable)?;
            }
            if self.has_karmada() && !leases_were_late {
                judge_karmada::judge_step(&step, &self.durable)?;
            }
            self.check_space(said)?;
        }
        self.notice(before, &found_before, added, alone);
        Ok(())
    }

    /// Room is denied only where there is little of it.
    fn check_space(&mut self, said: &Said) -> Result<(), String> {
        match said {
            Said::Refused(_, Refused::NoSpace) if !self.is_low => Err("a write is refused for want of room".into()),
            Said::Refused(_, Refused::NoSpace) => {
                self.report.rare.met(rare::LOW_SPACE);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reply(&mut self, answers: &[(Asker, Said)]) {
        for (asker, said) in answers {
            let Some((client, number)) = asker.filter(|_| said.is_answer()) else { continue };
            let asked = self.clients[client].asked.as_ref().filter(|asked| asked.number == number);
            let Some(request) = asked.map(|asked| asked.request.clone()) else { continue };
            self.send(Packet::Told { client, number, request, said: said.clone() }, rare::ANSWER_LOST);
        }
    }

    /// The mistake of answering what is not durable yet.
    fn answer(&mut self, place: usize) {
        let flight = self.replicas[place].as_ref().and_then(|replica| replica.in_flight.back());
        let answers = flight.map(|flight| flight.answers.clone()).unwrap_or_default();
        self.reply(&answers);
    }

    /// Somebody asks some replica how far it is: further than anybody was told, or nothing.
    fn read(&mut self) -> Result<(), String> {
        let Some(replica) = &self.replicas[self.rng.index(2)] else { return Ok(()) };
        let ignores = self.config.mutation.is_some_and(|mutation| mutation.ignores_its_term());
        if replica.term.is_in_doubt() && !ignores {
            self.report.rare.met(rare::OLD_LEADER_SILENT);
            return Ok(());
        }
        let (shown, known) = (replica.cache.revision(), self.durable.revision());
        if shown < known { Err(format!("A1: a reader saw revision {shown} after {known} was durable")) } else { Ok(()) }
    }

    /// What the audit finds, which counts in a third way.
    pub fn audit(&mut self) -> Result<(), String> {
        let Some(leader) = &mut self.replicas[self.leader] else { return Ok(()) };
        match audit(&mut leader.core.engine.engine)? {
            differences if differences.is_empty() => Ok(()),
            differences => Err(format!("the audit finds {differences:?}")),
        }
    }

    /// What is in a namespace that goes is removed, and then the namespace is. It needs a moment without anything under way.
    fn controllers(&mut self) {
        let Some(leader) = &self.replicas[self.leader] else { return };
        if !leader.inbox.is_empty() || !leader.in_flight.is_empty() {
            return;
        }
        let goes =
            self.durable.of("", "namespaces").find(|kept| kept.value["metadata"]["deletionTimestamp"].is_string());
        let Some(goes) = goes.map(|kept| kept.key.clone()) else { return };
        let inside = self.durable.objects.keys().filter(|key| key.namespace == goes.name).take(6);
        let mut keys: Vec<ObjectKey> = inside.cloned().collect();
        if keys.is_empty() {
            keys.push(goes);
        }
        for key in keys {
            self.work(Work::Request(removal(key, self.now_ms)));
        }
    }
}
