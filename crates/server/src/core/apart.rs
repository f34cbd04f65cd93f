//! Objects that wait. A claim stands in the line of its pool; what other policies charge it (a count of claims, say) is
//! charged at once or refused, because waiting for one thing is no way around another. In the ledger a subject has all
//! it asks for or nothing, so that such an object is two subjects: itself for the line, and one apart for the rest.

use ledger::{Charge, Plan, SubjectId, Terms};
use rules::{GroupResource, Line};

use super::engine::Engine;
use super::event::Publication;
use super::object::Object;

/// Turns the version of a uid into one that no uid has, so that no object is ever taken for this.
const APART: u128 = 0x8 << 76;

/// The subject beside an object that may wait.
pub(super) fn apart(uid: SubjectId) -> SubjectId {
    SubjectId(uid.0 ^ APART)
}

/// What rules and ledger said to a write.
#[derive(Default)]
pub(super) struct Ruling {
    pub plan: Option<Plan>,
    pub apart: Option<(SubjectId, Vec<Charge>, Terms)>,
    /// Until when it holds.
    pub until_ms: Option<i64>,
}

impl Engine {
    /// Whether objects of this resource may stand in a line.
    pub(super) fn may_wait(&self, resource: &GroupResource) -> bool {
        !self.queueing.is_empty()
            && self.projected_resources.contains(resource)
            && !self.policy_resources.contains(resource)
    }

    /// The lines of policies that have a line of waiters, and the others.
    pub(super) fn split(&self, lines: &[Line]) -> (Vec<Line>, Vec<Line>) {
        let queues = |line: &&Line| {
            let policy = self.policies.object(line.policy);
            policy.is_some_and(|policy| self.queueing.contains(&policy.resource))
        };
        let (queueing, others): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(queues);
        (queueing.into_iter().cloned().collect(), others.into_iter().cloned().collect())
    }

    pub(super) fn apply(&mut self, ruling: Ruling, out: &mut Publication) {
        if let Some(plan) = ruling.plan {
            let receipt = self.ledger.apply(plan);
            self.note_receipt(&receipt, out);
        }
        if let Some((subject, charges, terms)) = ruling.apart {
            // Decided a moment ago; the line of waiters has other accounts.
            match self.ledger.charge(subject, &charges, &terms) {
                Ok(receipt) => self.note_receipt(&receipt, out),
                Err(denied) => tracing::error!(?denied, "what was granted is refused"),
            }
        }
    }

    /// Lets go of everything an object has or waits for.
    pub(super) fn release(&mut self, object: &Object, out: &mut Publication) {
        let beside = self.may_wait(&object.key.resource).then(|| apart(object.uid));
        for subject in [Some(object.uid), beside].into_iter().flatten() {
            if self.ledger.is_live(subject) {
                let receipt = self.ledger.release(subject);
                self.note_receipt(&receipt, out);
            }
        }
    }
}
