//! Mistakes with several writes at once, and with what is counted before a write.

use std::sync::atomic::Ordering;

use families::{Denial, DenialReason, Operation};
use rules::policy_name;
use server::core::{Answer, Command, Publication, Recount, Refused, Write, WriteAll, WriteKind, Writes, Written};

use super::answers::is_consumer;
use super::misstep::{Misstep, Staged};
use super::mutation::Mutation;

/// Names that shadows may have.
const SHADOWS: std::ops::Range<u64> = 1..20;

impl Misstep<'_> {
    /// Takes note of what is counted for a write.
    pub(super) fn stage(&mut self, write: Box<Write>) -> Answer {
        let key = write.key.clone();
        let lies = self.staged.lies.clone();
        lies.compiles_for.store(self.turn, Ordering::Relaxed);
        let answer = self.ask(Command::Stage(write));
        lies.compiles_for.store(0, Ordering::Relaxed);
        match &answer {
            Answer::Postponed(postponed) => {
                if let Some(Recount::Begun(ticket)) = postponed.recount
                    && self.staged.under_way.as_ref().is_none_or(|(known, _)| *known != ticket)
                {
                    self.staged.under_way = Some((ticket, key));
                    lies.staging.store(self.turn, Ordering::Relaxed);
                }
            }
            Answer::Written(Ok(_)) => {
                (self.staged.under_way, self.staged.took_over) = (None, true);
                lies.staging.store(0, Ordering::Relaxed);
            }
            _ => {}
        }
        answer
    }

    pub(super) fn write_all(&mut self, mutation: Mutation, mut all: WriteAll) -> Answer {
        let (count, now_ms) = (all.writes.writes.len(), all.writes.now_ms);
        match mutation {
            Mutation::SplitsABatch if count > 1 && !all.writes.dry_run => self.write_halves(all),
            Mutation::ForgetsAWrite if count > 1 => {
                all.writes.writes.pop();
                match self.ask(Command::WriteAll(Box::new(all))) {
                    Answer::WrittenAll(Ok(mut written)) => {
                        written.extend(written.last().cloned());
                        Answer::WrittenAll(Ok(written))
                    }
                    answer => answer,
                }
            }
            Mutation::KeepsEntriesOfRefused => {
                let entries = all.entries.clone();
                let answer = self.ask(Command::WriteAll(Box::new(all)));
                if matches!(answer, Answer::WrittenAll(Err(_))) {
                    entries.iter().for_each(|(journal, entry)| self.batch.append(*journal, now_ms, entry));
                }
                answer
            }
            Mutation::ForgetsEntries => {
                all.entries.clear();
                self.ask(Command::WriteAll(Box::new(all)))
            }
            _ => self.ask(Command::WriteAll(Box::new(all))),
        }
    }

    fn write_halves(&mut self, all: WriteAll) -> Answer {
        let WriteAll { writes: Writes { mut writes, dry_run, now_ms, origin }, entries } = all;
        let second = writes.split_off(writes.len() / 2);
        let count = writes.len();
        let first = Writes { writes, dry_run, now_ms, origin: origin.clone() };
        let second = Writes { writes: second, dry_run, now_ms, origin };
        let written = self.ask(Command::WriteAll(Box::new(WriteAll { writes: first, entries: Vec::new() })));
        let Answer::WrittenAll(Ok(written)) = written else { return written };
        match self.ask(Command::WriteAll(Box::new(WriteAll { writes: second, entries }))) {
            Answer::WrittenAll(Ok(others)) => {
                Answer::WrittenAll(Ok(written.into_iter().chain(others).collect::<Vec<Written>>()))
            }
            Answer::WrittenAll(Err((place, refused))) => Answer::WrittenAll(Err((place + count, refused))),
            answer => answer,
        }
    }

    pub(super) fn publish(&mut self, mutation: Mutation, now_ms: i64) -> Answer {
        if mutation == Mutation::NeverSweeps && self.staged.took_over {
            self.tell_time(now_ms);
            return Answer::Published { remaining: 0, served: 0 };
        }
        if mutation == Mutation::KeepsTheForsaken
            && let Some((ticket, _)) = self.staged.under_way
        {
            self.ask(Command::CountOn { ticket, found: Vec::new(), now_ms });
        }
        self.ask(Command::PublishStatus { now_ms })
    }

    /// The answer of a policy that is only counted for.
    pub(super) fn refuse_by_shadow(&mut self, write: &Write) -> Option<Answer> {
        let (_, policy) = self.staged.under_way.clone()?;
        let is_new = matches!(write.kind, WriteKind::Create(_)) && is_consumer(&write.key);
        if !is_new || write.dry_run || write.key == policy {
            return None;
        }
        self.tell_time(write.now_ms);
        let denial = Denial {
            policy: policy_name(&policy.resource, &policy.namespace, &policy.name),
            resource: policy.resource,
            namespace: policy.namespace,
            name: policy.name,
            operation: Operation::Create,
            lines: Vec::new(),
            message: None,
            reason: DenialReason::Full,
        };
        Some(Answer::Written(Err(Refused::Denied(vec![denial]))))
    }
}

impl Staged {
    /// Tells readers of shadows what they are told of others.
    pub fn show(&self, publication: &mut Publication) {
        let Some((_, line)) = publication.balances.first().filter(|_| self.under_way.is_some()).cloned() else {
            return;
        };
        let shown = SHADOWS.map(|number| (format!("~s{number}").into(), line.clone()));
        publication.balances.extend(shown);
    }
}
