//! How processes begin and end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use families::capsule::Reading;
use families::{Families, Family, Settings};
use sequencer::core::Core;
use server::core::{Cache, Engine};

use super::durable::Added;
use super::errand::Errands;
use super::ground::{Ground, Spy};
use super::judge::judge_objects;
use super::liar::Lies;
use super::mutation::Mutation;
use super::rare;
use super::recorder::Recorder;
use super::replica::{LIMITS, Replica, Work};
use super::request::nothing;
use super::season::Season;
use super::world::World;

/// All families and the one made for the purpose, by these settings; with a mistake, if one is made.
pub fn families(strict: bool, mistake: Option<(Mutation, &Arc<Lies>)>) -> Families {
    let mut settings = Settings::default();
    if strict {
        settings.capsule.reading = Reading::Releases;
        (settings.karmada.count_evicting, settings.karmada.deny_templates) = (true, true);
    }
    let all = families::all(&settings).iter().cloned().chain([Arc::new(Season) as Arc<dyn Family>]).collect::<Vec<_>>();
    match mistake {
        Some((mutation, lies)) => Families::new(all.into_iter().map(|family| mutation.family(family, lies)).collect()),
        None => Families::new(all),
    }
}

/// A process that has read everything, and what it read.
struct Loaded {
    spy: Spy,
    engine: Engine,
    cache: Cache,
}

impl World {
    /// Starts a process, which leads from then on. What it finds is what was durable, or what a failed commit would have made
    /// of it.
    pub fn start(&mut self, place: usize) -> Result<(), String> {
        let loaded = match self.load() {
            Ok(loaded) => loaded,
            Err(trouble) => return self.failed_start(place, &trouble),
        };
        self.report.starts += 1;
        let Loaded { spy, engine, cache } = loaded;
        self.find(&spy.rows)?;
        match self.durable.has_entries(&spy.inner.journals()) {
            Ok(entries) => entries?,
            Err(error) => {
                drop((spy, engine, cache));
                return self.failed_start(place, &error.to_string());
            }
        }
        if place != self.leader {
            self.leader = place;
            if let Some(old) = &self.replicas[1 - place] {
                old.term.lose();
                self.report.rare.met(rare::LEADER_CHANGED);
                self.report.rare.met_if(!old.in_flight.is_empty(), rare::LEADER_HAD_GROUP);
            }
        }
        let changed = self.durable.strict != self.strict && self.report.starts > 1;
        self.report.rare.met_if(changed, rare::SETTINGS_CHANGED);
        self.report.rare.met_if(self.now_ms < self.durable.told_ms, rare::CLOCK_BACK_OVER_RESTART);
        self.told.push(format!("start {} strict {}", self.report.starts, self.strict));
        let recorder = Recorder::new(engine, self.config.mutation, &self.lies);
        self.replicas[place] = Some(Replica {
            term: spy.inner.term(),
            core: Core::new(recorder, LIMITS),
            store: spy.inner,
            cache,
            inbox: VecDeque::new(),
            in_flight: VecDeque::new(),
            errands: Errands::default(),
            clock_ms: None,
            strict: self.strict,
        });
        // Balances are compared after the first group: by then it knows what the time is, and has counted by its settings.
        if let Some(leader) = &self.replicas[place] {
            judge_objects(&self.durable, &leader.cache)?;
        }
        self.work(Work::Request(nothing(self.now_ms)));
        Ok(())
    }

    fn load(&mut self) -> Result<Loaded, String> {
        let inner = self.ground.open(self.config.mutation).map_err(|error| error.to_string())?;
        let hides_moments = self.config.mutation == Some(Mutation::ForgetsTheMoment);
        let mut spy = Spy { inner, rows: BTreeMap::new(), hides_moments };
        let families = families(self.strict, self.config.mutation.map(|mutation| (mutation, &self.lies)));
        let (mut engine, cache) = Engine::load(&mut spy, families).map_err(|error| error.to_string())?;
        if let Some(max) = self.at_once_max {
            engine.count_at_once(max);
        }
        Ok(Loaded { spy, engine, cache })
    }

    /// Which of the two states that are possible was found.
    fn find(&mut self, rows: &BTreeMap<(store::Table, Vec<u8>), Vec<u8>>) -> Result<(), String> {
        let Some((added, is_exact)) = self.perhaps.take() else { return self.durable.is(rows) };
        let before = self.durable.clone();
        let mut then = self.durable.clone();
        then.apply(&added)?;
        if then.is(rows).is_ok() && !is_nothing(&added) {
            self.told.push("it is there after all".into());
            self.report.rare.met(rare::FAILED_FOUND);
            return self.take_in(&added, is_exact, None, &before);
        }
        self.report.rare.met_if(!is_nothing(&added), rare::FAILED_LOST);
        self.durable.is(rows)
    }

    fn failed_start(&mut self, place: usize, trouble: &str) -> Result<(), String> {
        self.told.push(format!("start failed: {trouble}"));
        self.excuse(trouble)?;
        self.report.rare.met(rare::FAILED_START);
        self.stop(place, false);
        Ok(())
    }

    /// A failure is excused by a fault that was ordered.
    pub fn excuse(&mut self, trouble: &str) -> Result<(), String> {
        let Ground::Disk(disk) = &self.ground else { return Ok(()) };
        let (failed, full) = (disk.take_failed(), disk.take_refused_full());
        let synced = failed.iter().all(|call| !matches!(call, crate::disk::Call::Sync | crate::disk::Call::SyncNames));
        self.report.rare.met_if(!synced, rare::SYNC_FAILED);
        if failed.is_empty() && full == 0 && !disk.has_died() {
            return Err(format!("without a fault: {trouble}"));
        }
        if full > 0 {
            // Somebody makes room.
            disk.fill(None);
            self.is_full = false;
        }
        Ok(())
    }

    /// A process ends; the power goes with it, or the machine goes on.
    pub fn stop(&mut self, place: usize, power_fails: bool) {
        let had_group = self.replicas[place].as_ref().is_some_and(|replica| !replica.in_flight.is_empty());
        self.report.rare.met_if(had_group, rare::CRASH_WITH_GROUP);
        let was_counting = self.replicas[place].as_ref().is_some_and(|replica| replica.errands.is_counting());
        self.report.rare.met_if(was_counting, rare::CRASH_WHILE_COUNTED);
        self.replicas[place] = None;
        let Ground::Disk(disk) = &self.ground else { return };
        if power_fails || disk.has_died() {
            self.told.push("power fails".into());
            self.report.rare.met(rare::POWER_LOST);
            disk.crash();
        } else {
            self.told.push("process ends".into());
            self.report.rare.met(rare::RESTARTED);
            disk.restart_process();
        }
    }
}

fn is_nothing(added: &Added) -> bool {
    added.batch.is_empty()
}
