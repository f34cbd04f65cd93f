//! A cluster that stores late, refuses afterwards, tells late, tells twice and goes on while the operator dies: what is stored never
//! exceeds the limit, and in the end everything is counted once and nothing is held.

use std::collections::BTreeMap;

use simulator::rng::Rng;

use super::*;

const LIMIT: u64 = 10;
const NAMES: u64 = 6;

/// An object as it is stored.
#[derive(Clone, Copy, Debug)]
struct Stored {
    uid: u128,
    version: u64,
    amount: u64,
}

/// A write that was granted and is not stored yet.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    name: u64,
    uid: u128,
    base: u64,
    amount: u64,
}

struct World {
    bench: Bench,
    rng: Rng,
    stored: BTreeMap<u64, Stored>,
    under_way: Vec<UnderWay>,
    /// What a watch tells, and how much of it was told.
    events: Vec<(u64, Option<Stored>, u128, u64)>,
    told: usize,
    version: u64,
    uids: u128,
    /// Whether holds are given up although their writes may still be stored.
    is_hasty: bool,
    granted: u64,
    refused: u64,
}

fn name(number: u64) -> ObjectKey {
    map(&format!("m{number}"))
}

fn there(number: u64, stored: &Stored) -> Seen {
    seen(&name(number), stored.uid, stored.version, amount(stored.amount))
}

impl World {
    fn new(seed: u64, is_hasty: bool) -> World {
        World {
            bench: Bench::with_limit(LIMIT),
            rng: Rng::new(seed),
            stored: BTreeMap::new(),
            under_way: Vec::new(),
            events: Vec::new(),
            told: 0,
            version: 100,
            uids: 1_000,
            is_hasty,
            granted: 0,
            refused: 0,
        }
    }

    fn total(&self) -> u64 {
        self.stored.values().map(|stored| stored.amount).sum()
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..25 => self.create(),
            25..45 => self.update(),
            45..65 => self.finish(),
            65..75 => self.delete(),
            75..88 => self.tell(),
            88..90 => self.relist(),
            90..96 => self.settle(),
            96..98 => self.crash(),
            _ => self.bench.publish(),
        }
    }

    fn create(&mut self) {
        let (number, amount) = (self.rng.below(NAMES), 1 + self.rng.below(5));
        self.uids += 1;
        self.ask(UnderWay { name: number, uid: self.uids, base: 0, amount });
    }

    fn update(&mut self) {
        let number = self.rng.below(NAMES);
        let Some(stored) = self.stored.get(&number).copied() else { return };
        let amount = self.rng.below(7);
        self.ask(UnderWay { name: number, uid: stored.uid, base: stored.version, amount });
    }

    fn ask(&mut self, write: UnderWay) {
        let mut answer = self.bench.review(&name(write.name), write.uid, write.base, amount(write.amount));
        while matches!(answer, Answer::Behind(_)) {
            self.tell();
            answer = self.bench.review(&name(write.name), write.uid, write.base, amount(write.amount));
        }
        match answer {
            // The answer may be lost on its way: then it is refused.
            Answer::Granted if self.rng.one_in(12) => {}
            Answer::Granted => {
                self.granted += 1;
                self.under_way.push(write);
            }
            Answer::Refused(Refused::Denied(_)) => self.refused += 1,
            other => panic!("{other:?}"),
        }
    }

    /// One of the writes under way is stored, or refused by somebody else.
    fn finish(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let at = self.rng.index(self.under_way.len());
        let write = self.under_way.swap_remove(at);
        let there = self.stored.get(&write.name).copied();
        let fits = match there {
            None => write.base == 0,
            Some(there) => there.uid == write.uid && there.version == write.base,
        };
        if !fits || self.rng.one_in(4) {
            return;
        }
        self.version += 1;
        let stored = Stored { uid: write.uid, version: self.version, amount: write.amount };
        self.stored.insert(write.name, stored);
        self.events.push((write.name, Some(stored), write.uid, self.version));
    }

    fn delete(&mut self) {
        let number = self.rng.below(NAMES);
        let Some(stored) = self.stored.remove(&number) else { return };
        self.version += 1;
        self.events.push((number, None, stored.uid, self.version));
    }

    /// Some of what was not told yet; sometimes the last of it once more.
    fn tell(&mut self) {
        let more = 1 + self.rng.index(4);
        let again = if self.rng.one_in(5) { 1 } else { 0 };
        let until = (self.told + more).min(self.events.len());
        let events = &self.events[self.told.saturating_sub(again)..until];
        let seen = events.iter().map(|(number, stored, uid, version)| match stored {
            Some(stored) => there(*number, stored),
            None => gone(&name(*number), *uid, *version),
        });
        // An event that is told again after a list may be older than that; only of objects that are there.
        let seen: Vec<Seen> = seen.collect();
        self.told = until;
        self.bench.see(seen);
    }

    fn relist(&mut self) {
        let listed = self.stored.iter().map(|(number, stored)| there(*number, stored)).collect();
        self.bench.relist(&GroupResource::core("configmaps"), listed);
        self.told = self.events.len();
    }

    fn settle(&mut self) {
        for one in self.bench.overdue() {
            // Its time is over only when its writes are.
            let is_under_way = self.under_way.iter().any(|write| SubjectId(write.uid) == one.uid);
            if is_under_way && !self.is_hasty {
                continue;
            }
            let number = (0..NAMES).find(|number| name(*number) == one.key).unwrap();
            let found = self.stored.get(&number).map(|stored| (stored.uid, stored.version));
            self.bench.found(one, found);
        }
    }

    /// The operator dies, and another starts; what was granted goes on meanwhile.
    fn crash(&mut self) {
        self.finish();
        let listed = self.stored.iter().map(|(number, stored)| there(*number, stored)).collect();
        self.bench.restart_in_place(listed, LIMIT);
        self.told = self.events.len();
    }

    fn end(&mut self) {
        while !self.under_way.is_empty() {
            self.finish();
        }
        while self.told < self.events.len() {
            self.tell();
        }
        while !self.bench.core.engine.holds().is_empty() {
            self.settle();
        }
        self.bench.audit();
        assert_eq!(self.bench.sums(), (i128::from(self.total()), 0));
    }
}

/// How far over the limit it ever was.
fn play(seed: u64, steps: u64, is_hasty: bool) -> u64 {
    let mut world = World::new(seed, is_hasty);
    let mut over = 0;
    for step in 0..steps {
        world.step();
        over = over.max(world.total().saturating_sub(LIMIT));
        assert!(is_hasty || over == 0, "seed {seed}, step {step}: {} of {LIMIT} are stored", world.total());
        if step % 50 == 0 {
            world.bench.audit();
        }
    }
    world.end();
    assert!(world.granted > steps / 50 && world.refused > steps / 50, "seed {seed}: too little happened");
    over
}

#[test]
fn nothing_is_ever_stored_beyond_the_limit() {
    for seed in 0..40 {
        play(seed, 400, false);
    }
}

#[test]
fn an_operator_that_gives_up_what_may_still_be_stored_is_caught() {
    assert!((0..40).any(|seed| play(seed, 400, true) > 0));
}
