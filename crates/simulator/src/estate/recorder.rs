//! The production engine, with a journal beside it: every write that happened is appended in its commit.

use std::sync::Arc;

use server::core::{Answer, Command, Decision, Engine, Publication};
use store::Batch;

use super::durable::JOURNAL;
use super::liar::Lies;
use super::misstep::{Misstep, Staged};
use super::mutation::Mutation;

pub struct Recorder {
    pub engine: Engine,
    pub mutation: Option<Mutation>,
    /// Commands so far, for mistakes that are made now and then.
    turn: u64,
    staged: Staged,
    /// Whether something was only tried in this group.
    tries: bool,
}

impl Recorder {
    pub fn new(engine: Engine, mutation: Option<Mutation>, lies: &Arc<Lies>) -> Recorder {
        Recorder { engine, mutation, turn: 0, staged: Staged::new(lies), tries: false }
    }
}

impl sequencer::Engine for Recorder {
    type Command = Command;
    type Answer = Answer;
    type Publication = Publication;

    fn step(&mut self, command: Command, batch: &mut Batch, publication: &mut Publication) -> Answer {
        self.turn += 1;
        let (before, now_ms) = (publication.events.len(), now_ms(&command));
        self.tries |= is_trial(&command);
        let answer = match self.mutation {
            Some(mutation) => {
                let (engine, turn, staged) = (&mut self.engine, self.turn, &mut self.staged);
                Misstep { engine, batch, publication, turn, staged }.step(mutation, command)
            }
            None => self.engine.step(command, batch, publication),
        };
        for event in &publication.events[before..] {
            batch.append(JOURNAL, now_ms, format!("{} {}", event.revision(), event.object.key).as_bytes());
        }
        answer
    }

    fn seal(&mut self, batch: &mut Batch, publication: &mut Publication) {
        self.engine.seal(batch, publication);
        if self.mutation == Some(Mutation::ShadowIsShown) {
            self.staged.show(publication);
        }
        if std::mem::take(&mut self.tries) && self.mutation == Some(Mutation::CountsWhatIsTried) {
            publication.decided.note(0, Decision::Granted);
        }
    }
}

fn is_trial(command: &Command) -> bool {
    match command {
        Command::Write(write) | Command::Stage(write) => write.dry_run,
        Command::WriteAll(all) | Command::WriteAllForeseen(all, _) => all.writes.dry_run,
        Command::Hold(hold) => hold.dry_run,
        _ => false,
    }
}

/// When the command was asked for.
pub fn now_ms(command: &Command) -> i64 {
    match command {
        Command::Write(write) | Command::Stage(write) => write.now_ms,
        Command::WriteAll(all) | Command::WriteAllForeseen(all, _) => all.writes.now_ms,
        Command::Hold(hold) => hold.now_ms,
        Command::PublishStatus { now_ms } | Command::CountOn { now_ms, .. } | Command::DropHold { now_ms, .. } => {
            *now_ms
        }
        _ => 0,
    }
}
