//! Mistakes with quotas over many clusters: what was evicted is forgotten, a cluster is not counted, a lease is believed, a move is not
//! looked at.

use families::karmada::{POLICY_GROUP, WORK_GROUP};
use rules::{GroupResource, Line, Subject};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KarmadaMistake {
    /// What was evicted is charged no more before it is placed anew.
    ForgetsTheEvicted,
    /// Replicas count in one cluster, wherever else they are.
    CountsOneCluster,
    /// A lease says what whoever wrote it says.
    BelievesLeases,
    /// What leaves a member is taken to have left it.
    LetsAllMove,
}

const EVICTED: &str = "/evicted";

impl KarmadaMistake {
    /// What an object is charged, with the mistake in it.
    pub fn charge(self, subject: &Subject<'_>, said: &mut Vec<Line>) {
        if !subject.resource.is(WORK_GROUP, "resourcebindings") {
            return;
        }
        let is_evicted = |line: &Line| line.bucket.as_ref().is_some_and(|part| part.ends_with(EVICTED));
        let forgotten: Vec<Line> = match self {
            KarmadaMistake::ForgetsTheEvicted => said.iter().filter(|line| is_evicted(line)).cloned().collect(),
            KarmadaMistake::CountsOneCluster => {
                let parts = said.iter().filter(|line| line.bucket.is_some() && !is_evicted(line));
                let first = parts.clone().next().and_then(|line| line.bucket.clone());
                parts.filter(|line| line.bucket != first).cloned().collect()
            }
            _ => return,
        };
        said.retain(|line| !forgotten.iter().any(|other| other.account == line.account && other.bucket == line.bucket));
        for line in said.iter_mut().filter(|line| line.bucket.is_none()) {
            for other in forgotten.iter().filter(|other| other.account == line.account) {
                line.amount = line.amount.checked_sub(other.amount).unwrap_or(line.amount);
            }
        }
        said.retain(|line| !line.amount.is_zero());
    }

    /// Whether nobody says what this object must be.
    pub fn leaves_as_it_is(self, resource: &GroupResource) -> bool {
        self == KarmadaMistake::BelievesLeases && resource.is(POLICY_GROUP, "federatedquotaleases")
    }

    /// Whether this write is not looked at.
    pub fn lets_pass(self, resource: &GroupResource) -> bool {
        self == KarmadaMistake::LetsAllMove && resource.is(WORK_GROUP, "resourcebindings")
    }
}
