//! The world of one run: clients, a network, a clock, one or two replicas and where they keep their state.
//!
//! Everything happens in ticks on one thread, and every choice comes from the seed. What is true is kept apart from
//! what the replicas believe: `truth` is the model after all steps that are known to be durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sequencer::Limits;
use sequencer::core::{Core, Group, commit};
use store::{SharedMemory, Store, StoreError};

use crate::checker;
use crate::client::Client;
use crate::disk::SimDisk;
use crate::engine::{Answer, Command, From, Logged, Setup, SimEngine};
use crate::history::Call;
use crate::home::{ANSWER_LOST, Home};
use crate::journal;
use crate::mutation::Mutation;
use crate::naive::engine::compare;
use crate::naive::generate::World as Requests;
use crate::naive::model::Model;
use crate::naive::ops::{Key, Limit, Op, Outcome, Said, Standing, Terms};
use crate::network::{Network, Packet, Weather};
use crate::rare::{self, Rare};
use crate::rng::Rng;

/// Groups are small, so that there are many borders between them.
const LIMITS: Limits = Limits { queue: 1024, group_commands: 4, group_bytes: 4096, group_rows: usize::MAX };

/// A group on its way to the store, and one more that is decided meanwhile.
const IN_FLIGHT_MAX: usize = 2;

/// Ticks after the last fault within which everything must have come to rest.
const REST_TICKS: u64 = 2000;

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub seed: u64,
    pub ticks: u64,
    pub mutation: Option<Mutation>,
    pub watch: Watch,
}

/// How closely a run is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Every step is compared with the model at once, beside all of the next.
    Steps,
    /// What is durable is compared with the model, and the history is checked at the end.
    History,
    /// Nothing is looked at but what the clients hear, which somebody else will judge. Only clients ask for anything,
    /// and there are few of them.
    Clients,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub calls: u64,
    pub steps: u64,
    pub restarts: u64,
    pub rare: Rare,
}

/// Runs one seed to its end.
pub fn run(config: Config) -> Result<Report, String> {
    let mut world = World::new(config);
    let outcome = world.live();
    outcome.map(|()| world.report()).map_err(|trouble| format!("tick {}: {trouble}", world.now))
}

/// Runs one seed for its history alone, with whatever the clients heard, right or wrong.
pub fn history(config: Config) -> Vec<Call> {
    let mut world = World::new(Config { watch: Watch::Clients, ..config });
    // Trouble of a broken service ends its run early; what was heard until then is what counts.
    let _ended = world.live();
    world.calls
}

type Tag = Option<From>;

pub(crate) struct Running {
    pub core: Core<SimEngine>,
    pub store: Box<dyn Store>,
    pub inbox: VecDeque<Command>,
    pub in_flight: VecDeque<Flight>,
}

/// A decided group and the steps in it.
pub(crate) struct Flight {
    group: Group<SimEngine, Tag>,
    steps: Vec<Logged>,
}

pub(crate) struct World {
    pub config: Config,
    pub rng: Rng,
    pub now: u64,
    pub clock: i64,
    pub home: Home,
    pub faults: bool,
    pub replicas: Vec<Option<Running>>,
    clients: Vec<Client>,
    requests: Requests,
    network: Network,
    calls: Vec<Call>,
    timeline: Vec<Logged>,
    pub truth: Model,
    /// The steps of a commit that failed: the next start finds out whether they are there.
    pub unknown: Vec<Logged>,
    published: u64,
    /// The oldest entry of the journal that is left.
    pub first_entry: u64,
    restarts: u64,
    pub rare: Rare,
}

impl World {
    fn new(config: Config) -> World {
        let mut rng = Rng::new(config.seed);
        let shared = rng.one_in(2);
        let lies = config.mutation == Some(Mutation::SyncDoesNothing);
        let home = match shared {
            false => Home::Disk(SimDisk::new(rng.fork(), lies)),
            true => Home::Shared(SharedMemory::new()),
        };
        let weather = Weather {
            lost: [0, 30, 8][rng.index(3)],
            doubled: [0, 20, 4][rng.index(3)],
            delay_max: [2, 6, 40][rng.index(3)],
        };
        // Clients that hear nothing of an answer cannot tell whom a sweep took.
        let sweeps_in_parts = config.seed.is_multiple_of(4) && config.watch != Watch::Clients;
        let requests = Requests { policies: 1 + rng.below(3), subjects: 4 + rng.below(12), sweeps_in_parts };
        let few = config.watch == Watch::Clients;
        let count = u32::try_from(3 + rng.below(if few { 2 } else { 10 })).unwrap_or(3);
        let clients = (0..count).map(|id| Client::new(id, rng.fork(), requests)).collect();
        World {
            config,
            now: 0,
            clock: 1000,
            home,
            faults: true,
            replicas: (0..if shared { 2 } else { 1 }).map(|_| None).collect(),
            clients,
            requests,
            network: Network::new(rng.fork(), weather),
            calls: Vec::new(),
            timeline: Vec::new(),
            truth: Model::default(),
            unknown: Vec::new(),
            published: 0,
            first_entry: 1,
            restarts: 0,
            rare: Rare::default(),
            rng,
        }
    }

    fn live(&mut self) -> Result<(), String> {
        self.start(0)?;
        self.faults = false;
        for op in self.requests.opening(&mut self.rng) {
            self.ask(op)?;
        }
        self.faults = true;
        while self.now < self.config.ticks {
            self.tick(true)?;
        }
        self.come_to_rest()?;
        self.serves_again()?;
        self.final_check()
    }

    /// One moment: faults, packets, clients, replicas, in an order that the seed chooses.
    fn tick(&mut self, starts_new: bool) -> Result<(), String> {
        self.now += 1;
        self.clock = self.clock.saturating_add(i64::try_from(self.rng.below(2)).unwrap_or(0));
        if self.faults {
            self.misfortune()?;
        }
        self.deliver();
        for index in 0..self.clients.len() {
            if self.rng.one_in(3) {
                self.let_client_act(index, starts_new);
            }
        }
        for replica in 0..self.replicas.len() {
            match self.replicas[replica].is_some() {
                true => self.let_replica_act(replica)?,
                false if self.rng.one_in(10) && self.should_start(replica) => self.start(replica)?,
                false => {}
            }
        }
        Ok(())
    }

    fn let_client_act(&mut self, index: usize, starts_new: bool) {
        let (now, clock) = (self.now, self.clock);
        if let Some(command) = self.clients[index].act(now, clock, starts_new, &mut self.calls) {
            let to = self.rng.index(self.replicas.len());
            let sent = self.network.send(now, Packet::Request { to, command });
            self.rare.met_if(!sent, rare::REQUEST_LOST);
        }
    }

    fn deliver(&mut self) {
        let (packets, overtaken) = self.network.arriving(self.now);
        self.rare.met_if(overtaken, rare::OUT_OF_ORDER);
        for packet in packets {
            match packet {
                Packet::Request { to, command } => {
                    // A replica that is down hears nothing, one with a full queue refuses.
                    if let Some(running) = self.replicas[to].as_mut()
                        && running.inbox.len() < LIMITS.queue
                    {
                        running.inbox.push_back(command);
                    }
                }
                Packet::Reply { from: (client, number), answer } => {
                    let client = self.clients.iter_mut().find(|known| known.id == client);
                    if let Some(client) = client {
                        client.hear(self.now, number, answer, &mut self.calls);
                    }
                }
            }
        }
    }

    fn let_replica_act(&mut self, replica: usize) -> Result<(), String> {
        let Some(running) = self.replicas[replica].as_mut() else { return Ok(()) };
        if self.rng.one_in(12) && self.config.watch != Watch::Clients {
            running.inbox.push_back(Command { from: None, op: Op::Expire { now: self.clock } });
        }
        let may_decide = !running.inbox.is_empty() && running.in_flight.len() < IN_FLIGHT_MAX;
        let may_commit = !running.in_flight.is_empty();
        if may_decide && self.rng.one_in(2) {
            self.decide(replica)?;
        }
        if may_commit && self.rng.one_in(2) {
            self.commit(replica)?;
        }
        Ok(())
    }

    fn decide(&mut self, replica: usize) -> Result<(), String> {
        let Some(running) = self.replicas[replica].as_mut() else { return Ok(()) };
        let mut flight = Flight { group: Group::default(), steps: Vec::new() };
        while running.core.has_room(&flight.group)
            && let Some(command) = running.inbox.pop_front()
        {
            running.core.step(&mut flight.group, command.from, command);
        }
        self.rare.met_if(!running.inbox.is_empty(), rare::FULL_GROUP);
        running.core.seal(&mut flight.group);
        flight.steps = std::mem::take(&mut running.core.engine.log);
        note_group(&mut self.rare, &flight, running.in_flight.front());
        self.rare.met_if(!running.in_flight.is_empty(), rare::TWO_GROUPS_IN_FLIGHT);
        if let Some(trouble) = running.core.engine.trouble.take()
            && self.config.watch != Watch::Clients
        {
            return Err(trouble);
        }
        if self.config.mutation == Some(Mutation::AnswersBeforeDurable) {
            let answers = flight.group.answers.clone();
            running.in_flight.push_back(flight);
            self.answer(answers);
        } else {
            running.in_flight.push_back(flight);
        }
        Ok(())
    }

    fn commit(&mut self, replica: usize) -> Result<(), String> {
        let Some(running) = self.replicas[replica].as_mut() else { return Ok(()) };
        let Some(mut flight) = running.in_flight.pop_front() else { return Ok(()) };
        let mut published = Vec::new();
        let done = commit(&mut *running.store, &mut |steps| published = steps, &mut flight.group);
        match done {
            Ok(()) => {
                journal::retire(&running.store.journals(), self.truth.sequence);
                self.advance(&flight.steps)?;
                self.publish(&published, &flight.steps)?;
                if self.config.mutation != Some(Mutation::AnswersBeforeDurable) {
                    self.answer(std::mem::take(&mut flight.group.answers));
                }
                Ok(())
            }
            Err(error) => {
                self.commit_failed(replica, flight.steps, &error);
                Ok(())
            }
        }
    }

    /// A replica whose commit failed stops; nothing of the group is answered.
    fn commit_failed(&mut self, replica: usize, steps: Vec<Logged>, error: &StoreError) {
        if let StoreError::Fenced { .. } = error {
            self.rare.met(rare::OLD_LEADER_FENCED);
        } else {
            self.unknown = steps;
            self.rare.met_if(error.to_string().contains(ANSWER_LOST), rare::COMMIT_ANSWER_LOST);
            if let Home::Disk(disk) = &self.home {
                self.rare.met_if(disk.has_died(), rare::CRASH_IN_COMMIT);
            }
        }
        self.stop(replica, false);
    }

    /// Steps that are durable now. A2 and A3, at once: they follow on what was durable before.
    fn advance(&mut self, steps: &[Logged]) -> Result<(), String> {
        for logged in steps {
            let said = self.truth.follow(&logged.op, &logged.said);
            if said != logged.said && self.is_watched() {
                return Err(format!("A3: durable step {logged:?}, the model says {said:?}"));
            }
            self.timeline.push(logged.clone());
        }
        Ok(())
    }

    /// A8: watchers see every step once, in order, and a group whole.
    fn publish(&mut self, published: &[u64], steps: &[Logged]) -> Result<(), String> {
        let expected: Vec<u64> = steps.iter().map(Logged::sequence).collect();
        let follows = expected.first().is_none_or(|first| *first == self.published + 1);
        if (published != expected || !follows) && self.is_watched() {
            return Err(format!(
                "A8: after step {} watchers were told of {published:?}, not {expected:?}",
                self.published
            ));
        }
        self.published = expected.last().copied().unwrap_or(self.published);
        Ok(())
    }

    fn answer(&mut self, answers: Vec<(Tag, Answer)>) {
        for (tag, answer) in answers {
            if let Some(from) = tag {
                let sent = self.network.send(self.now, Packet::Reply { from, answer });
                self.rare.met_if(!sent, rare::ANSWER_LOST);
            }
        }
    }

    /// A replica ends: its memory is gone, and on a failed machine what the disk had not synced, too.
    pub fn stop(&mut self, replica: usize, power_fails: bool) {
        let Some(running) = self.replicas[replica].take() else { return };
        self.rare.met_if(power_fails && !running.in_flight.is_empty(), rare::CRASH_WITH_GROUP);
        self.rare.add(&running.core.engine.rare);
        drop(running.store);
        if let Home::Disk(disk) = &self.home {
            if power_fails || disk.has_died() || self.rng.one_in(2) {
                disk.crash();
            } else {
                self.rare.met(rare::RESTART_OF_PROCESS);
                disk.restart_process();
            }
        }
    }

    /// Brings a replica up, and compares what it found with what is true.
    pub fn start(&mut self, replica: usize) -> Result<(), String> {
        let setup = Setup { mutation: self.config.mutation, shadow: self.config.watch == Watch::Steps };
        self.take_full();
        let opened = self.home.open(&mut self.rng, self.config.mutation, self.faults);
        let loaded = opened.and_then(|mut store| Ok((SimEngine::load(&mut *store, setup)?, store)));
        let (mut engine, store) = match loaded {
            Ok((Ok(engine), store)) => (engine, store),
            Ok((Err(trouble), _)) => return Err(format!("A7: the rows do not load: {trouble}")),
            Err(error) => return self.start_failed(&error),
        };
        self.resolve_unknown(engine.ledger.sequence())?;
        match engine.begin(&self.truth) {
            Err(difference) if self.is_watched() => return Err(format!("A7: after a restart: {difference}")),
            _ => {}
        }
        let journals = store.journals();
        journal::open(&journals);
        let is_full = self.take_full();
        match journal::check(&journals, self.truth.sequence, &mut self.first_entry, is_full) {
            Ok(Err(difference)) if self.is_watched() => return Err(format!("A7: after a restart: {difference}")),
            Ok(_) => {}
            Err(error) => {
                drop((store, journals));
                return self.start_failed(&error);
            }
        }
        self.rare.met_if(self.first_entry > 1, rare::ENTRIES_RETIRED);
        self.published = self.truth.sequence;
        self.restarts += 1;
        let core = Core::new(engine, LIMITS);
        let running = Running { core, store, inbox: VecDeque::new(), in_flight: VecDeque::new() };
        self.replicas[replica] = Some(running);
        Ok(())
    }

    /// A5: the steps of a failed commit are all there, or none is.
    fn resolve_unknown(&mut self, found: u64) -> Result<(), String> {
        let unknown = std::mem::take(&mut self.unknown);
        if found > self.truth.sequence {
            self.rare.met(rare::UNKNOWN_FOUND);
            self.advance(&unknown)?;
        } else {
            self.rare.met_if(!unknown.is_empty(), rare::UNKNOWN_LOST);
        }
        if found != self.truth.sequence && self.is_watched() {
            let durable = self.truth.sequence;
            return Err(format!("A7: the ledger came back at step {found}, durable was {durable}"));
        }
        Ok(())
    }

    /// A start may fail while faults are about; nothing else may stop it.
    fn start_failed(&mut self, error: &StoreError) -> Result<(), String> {
        let Home::Disk(disk) = &self.home else { return Err(format!("the shared store does not open: {error}")) };
        let failed = !disk.take_failed().is_empty();
        let full = disk.take_refused_full() > 0;
        let died = disk.has_died();
        self.rare.met_if(died, rare::CRASH_IN_RECOVERY);
        if !(failed || full || died) {
            return Err(format!("A7: the store does not open: {error}"));
        }
        match died {
            true => disk.crash(),
            false => disk.restart_process(),
        }
        Ok(())
    }

    /// Of two replicas one leads; the other takes over when there is none, or when misfortune says so.
    fn should_start(&self, _replica: usize) -> bool {
        self.replicas.iter().all(Option::is_none)
    }

    /// B8: once the faults are over, every question is answered within a bounded time.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.faults = false;
        if let Home::Disk(disk) = &self.home {
            disk.heal();
        }
        // What the store's wrapper was told at its opening does not change, so everybody starts anew.
        for replica in 0..self.replicas.len() {
            self.stop(replica, false);
        }
        self.network.weather = Weather { lost: 0, doubled: 0, delay_max: 2 };
        let until = self.now + REST_TICKS;
        let at_rest = |world: &World| world.clients.iter().all(Client::is_idle) && world.network.is_quiet();
        while !at_rest(self) || self.replicas.iter().all(Option::is_none) {
            if self.now > until {
                return Err("B8: after all faults were over, something was never answered".into());
            }
            self.tick(false)?;
        }
        Ok(())
    }

    /// B8: a claim that fits is granted.
    fn serves_again(&mut self) -> Result<(), String> {
        let key = Key::new("afterwards", "cpu");
        let asked = vec![(key.clone(), 5, 0, Terms::Enforced)];
        let open = Op::Open { key, limit: Limit::Enforced(5) };
        let charge = Op::Charge { subject: 999, asked, standing: Standing::Stored };
        for op in [open, charge] {
            let answer = self.ask(op.clone())?;
            let done = match &answer {
                Answer::Said { said: Said::Done { changed, outcome, .. }, .. } => {
                    *changed && matches!(outcome, Outcome::Opened | Outcome::Granted)
                }
                Answer::Repeated { changed, .. } => *changed,
                _ => false,
            };
            if !done {
                return Err(format!("B8: {op:?} was answered {answer:?}"));
            }
        }
        Ok(())
    }

    /// The first client asks one thing, and the world goes on until it has heard.
    fn ask(&mut self, op: Op) -> Result<Answer, String> {
        let index = self.calls.len();
        let command = self.clients[0].call(self.now, op.clone(), &mut self.calls);
        let to = self.replicas.iter().position(Option::is_some).unwrap_or(0);
        self.network.send(self.now, Packet::Request { to, command });
        let until = self.now + REST_TICKS;
        loop {
            if let Some(returned) = &self.calls[index].returned {
                return Ok(returned.answer.clone());
            }
            if self.now > until {
                return Err(format!("B8: {op:?} was never answered"));
            }
            self.tick(false)?;
        }
    }

    fn is_watched(&self) -> bool {
        self.config.watch != Watch::Clients
    }

    fn final_check(&mut self) -> Result<(), String> {
        if !self.is_watched() {
            return Ok(());
        }
        for replica in 0..self.replicas.len() {
            while self.replicas[replica].as_ref().is_some_and(|running| !running.in_flight.is_empty()) {
                self.commit(replica)?;
            }
        }
        let model = checker::check(&self.calls, &self.timeline)?;
        let unheard: BTreeSet<From> =
            self.calls.iter().filter(|call| call.returned.is_none()).map(|call| (call.client, call.number)).collect();
        let happened = self.timeline.iter().any(|logged| logged.from.is_some_and(|from| unheard.contains(&from)));
        self.rare.met_if(happened, rare::GAVE_UP_AND_HAPPENED);
        for running in self.replicas.iter().flatten() {
            let ledger = &running.core.engine.ledger;
            compare(ledger, &model)?;
            ledger.audit().map_err(|error| error.to_string())?;
            // B7: the steps from zero make the same ledger, but for whom a sweep took first.
            if self.requests.sweeps_in_parts {
                continue;
            }
            let mut again = ledger::Ledger::new();
            for logged in &self.timeline {
                crate::naive::engine::step(&mut again, &logged.op);
            }
            if again.digest() != ledger.digest() {
                return Err("B7: replaying the steps makes another ledger".into());
            }
        }
        Ok(())
    }

    fn report(&mut self) -> Report {
        for running in self.replicas.iter().flatten() {
            self.rare.add(&running.core.engine.rare);
        }
        Report {
            calls: self.calls.len() as u64,
            steps: self.timeline.len() as u64,
            restarts: self.restarts,
            rare: std::mem::take(&mut self.rare),
        }
    }
}

/// Notes what is rare about the make-up of a group.
fn note_group(rare: &mut Rare, flight: &Flight, before: Option<&Flight>) {
    let subject = |logged: &Logged| match &logged.op {
        Op::Charge { subject, .. } | Op::Release { subject } | Op::Settle { subject } => Some(*subject),
        _ => None,
    };
    let mut seen: BTreeMap<u128, usize> = BTreeMap::new();
    for (index, logged) in flight.steps.iter().enumerate() {
        if let Some(id) = subject(logged) {
            rare.met_if(seen.insert(id, index).is_some(), rare::TWICE_IN_ONE_GROUP);
            let claimed = before.is_some_and(|before| before.steps.iter().any(|step| subject(step) == Some(id)));
            rare.met_if(claimed && matches!(logged.op, Op::Release { .. }), rare::RELEASE_BEFORE_DURABLE);
        }
        let half_built = index > 0 && index + 1 < flight.steps.len();
        rare.met_if(half_built && matches!(logged.op, Op::SetLimit { .. }), rare::LIMIT_IN_HALF_BUILT_GROUP);
    }
}
