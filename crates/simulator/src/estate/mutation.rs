//! Deliberate mistakes in and around the production engine, made from outside: in its store, its families, the steps it is
//! given, the disk and the term. Each must be caught: a judge that cannot fail proves nothing.

use std::sync::Arc;

use families::Family;
use store::Store;

use super::ground::Ground;
use super::liar::{self, Lies};
pub use super::miskarmada::KarmadaMistake;
pub use super::misorgs::OrgsMistake;
use super::tampered;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// One of a group's rows of the ledger is not written: an account, a part of one, or a subject.
    ForgetsARow,
    ForgetsAnObject,
    ForgetsAnEntry,
    /// A group is committed in two halves.
    SplitsAGroup,
    /// The disk says that it synced and did not.
    SyncDoesNothing,
    /// A log whose acknowledged end is missing is accepted.
    AcceptsLoss,
    /// The engine is never told that the disk is almost full.
    IgnoresLowSpace,
    AnswersBeforeDurable,
    /// The shared store accepts writes of a replaced leader.
    OldLeaderWrites,
    /// A leader whose term is over answers reads.
    OldLeaderReads,
    /// What a quota denied is written all the same.
    WritesWhatItDenied,
    /// Of a step that was refused, something made with it stays.
    UndoneStepLeavesATrace,
    DryRunLeavesATrace,
    /// Who asks for more lets go of what it has first.
    WaiterLosesWhatItHad,
    /// A policy that was edited counts by parts no more.
    ForgetsParts,
    /// A policy that was edited counts what it counted before.
    KeepsOldRules,
    /// What a policy keeps is not written.
    ForgetsKept,
    /// A policy that does not compile counts nothing and refuses nobody.
    FailsOpen,
    /// The accounts of a policy change places, and its rules do not know.
    ShiftsAccounts,
    /// An object that takes more than can be counted is charged nothing.
    DropsWhatIsTooMuch,
    /// Moments that come after a start are forgotten by it.
    ForgetsTheMoment,
    /// Limits are not enforced.
    NeverRefuses,
    /// The audit finds nothing, whatever there is.
    BlindAudit,
    /// Several writes are made in two halves: of the first something stays when the second is refused.
    SplitsABatch,
    /// Of several writes the last is forgotten.
    ForgetsAWrite,
    /// What goes with several writes is appended although they are refused.
    KeepsEntriesOfRefused,
    /// What goes with several writes is not appended.
    ForgetsEntries,
    /// A shadow does not count what is written while it counts what is stored, and takes over all the same.
    ShadowIsBlind,
    /// A policy refuses while it is only counted for.
    ShadowRefuses,
    /// Readers are told what a shadow has counted.
    ShadowIsShown,
    /// What was counted for a write stays, although nobody goes on with it.
    KeepsTheForsaken,
    /// What is left of policies that are gone is never let go of.
    NeverSweeps,
    /// What several grants give is counted twice.
    CountsAGrantTwice,
    /// Claims are charged whether there is room or not.
    ChargesTheDenied,
    /// Some claim that is granted is not counted.
    ForgetsAClaim,
    /// An object is written without the claim that it comes with.
    ForgetsCompany,
    /// What a meter said is not looked at.
    ForgetsSamples,
    /// What claims have is not written to the outbox.
    TellsNobody,
    /// Refusals are not written down.
    ForgetsDenials,
    /// The moment of a hold never comes.
    ForgetsTheExpiry,
    /// What is held is held twice.
    DoublesAHold,
    /// What was only tried is counted as decided.
    CountsWhatIsTried,
    /// A mistake with organizations.
    Orgs(OrgsMistake),
    /// A mistake with quotas over many clusters.
    Karmada(KarmadaMistake),
}

/// Every mistake, with words of which some tell it.
pub const ALL: [(Mutation, &[&str]); 54] = [
    (Mutation::ForgetsARow, &["A7: row"]),
    (Mutation::ForgetsAnObject, &["A7: row"]),
    (Mutation::ForgetsAnEntry, &["entries were appended"]),
    (Mutation::SplitsAGroup, &["A7: ", "the stored ledger cannot be read"]),
    (Mutation::SyncDoesNothing, &["A7: ", "without a fault"]),
    (Mutation::AcceptsLoss, &["was believed"]),
    (Mutation::IgnoresLowSpace, &["a full disk ends the process"]),
    (Mutation::AnswersBeforeDurable, &["A1: "]),
    (Mutation::OldLeaderWrites, &["A2: "]),
    (Mutation::OldLeaderReads, &["A1: a reader"]),
    (Mutation::WritesWhatItDenied, &["B6: ", "A3: "]),
    (Mutation::UndoneStepLeavesATrace, &["B6: "]),
    (Mutation::DryRunLeavesATrace, &["B6: "]),
    (Mutation::WaiterLosesWhatItHad, &["keeps of"]),
    (Mutation::ForgetsParts, &["has or waits for"]),
    (Mutation::KeepsOldRules, &["subjects, of which", "has or waits for", "is charged", "the limit of"]),
    (Mutation::ForgetsKept, &["keeps in", "keeps no quota"]),
    (Mutation::FailsOpen, &["cannot be evaluated", "is broken and does not say so"]),
    (Mutation::ShiftsAccounts, &["the limit of", "has or waits for"]),
    (Mutation::DropsWhatIsTooMuch, &["is charged nothing", "has or waits for"]),
    (Mutation::ForgetsTheMoment, &["subjects, of which", "has or waits for", "the audit finds"]),
    (Mutation::NeverRefuses, &["the limit of", "A3: "]),
    (Mutation::BlindAudit, &["the audit is blind"]),
    (Mutation::SplitsABatch, &["B6: ", "A4: "]),
    (Mutation::ForgetsAWrite, &["was answered with", "B5: "]),
    (Mutation::KeepsEntriesOfRefused, &["B6: ", "B5: "]),
    (Mutation::ForgetsEntries, &["B5: "]),
    (Mutation::ShadowIsBlind, &["is charged nothing", "has or waits for", "the audit finds"]),
    (Mutation::ShadowRefuses, &["A4: "]),
    (Mutation::ShadowIsShown, &["nobody is to be told of"]),
    (Mutation::KeepsTheForsaken, &["is left of what is gone"]),
    // Whoever sweeps nothing publishes nothing either.
    (Mutation::NeverSweeps, &["is left of what is gone", "status of "]),
    (Mutation::CountsAGrantTwice, &["the limit of"]),
    (Mutation::ChargesTheDenied, &["D6: "]),
    (Mutation::ForgetsAClaim, &["is charged nothing", "has or waits for"]),
    (Mutation::ForgetsCompany, &["D9: "]),
    (Mutation::ForgetsSamples, &["the limit of"]),
    (Mutation::TellsNobody, &["D4: "]),
    (Mutation::ForgetsDenials, &["D7: "]),
    (Mutation::ForgetsTheExpiry, &["H2: "]),
    (Mutation::DoublesAHold, &["H1: "]),
    (Mutation::CountsWhatIsTried, &["B6: "]),
    (Mutation::Orgs(OrgsMistake::ChargesNoSlot), &["is charged", "has or waits for"]),
    (Mutation::Orgs(OrgsMistake::FreesWhatDrains), &["is charged", "has or waits for"]),
    (Mutation::Orgs(OrgsMistake::KeepsTheLease), &["is charged", "has or waits for"]),
    (Mutation::Orgs(OrgsMistake::ForgetsTheHour), &["is charged", "has or waits for"]),
    (Mutation::Orgs(OrgsMistake::KeepsTheOverride), &["the limit of"]),
    (Mutation::Orgs(OrgsMistake::ForgetsBindings), &["needs the bindings"]),
    (Mutation::Orgs(OrgsMistake::TellsNothing), &["C1: "]),
    (Mutation::Orgs(OrgsMistake::TellsTheOldState), &["C1: "]),
    (Mutation::Karmada(KarmadaMistake::ForgetsTheEvicted), &["is charged", "has or waits for"]),
    (Mutation::Karmada(KarmadaMistake::CountsOneCluster), &["is charged", "has or waits for"]),
    (Mutation::Karmada(KarmadaMistake::BelievesLeases), &["K1: "]),
    (Mutation::Karmada(KarmadaMistake::LetsAllMove), &["K3: ", "K4: "]),
];

impl Mutation {
    /// The first seed of a world in which it can be made.
    pub fn first_seed(self) -> u64 {
        match self {
            Mutation::CountsAGrantTwice
            | Mutation::ChargesTheDenied
            | Mutation::ForgetsAClaim
            | Mutation::ForgetsCompany
            | Mutation::ForgetsSamples
            | Mutation::TellsNobody
            | Mutation::ForgetsDenials => super::datum::SEEDS + 1,
            Mutation::Orgs(_) => super::orgs::SEEDS + 1,
            Mutation::Karmada(_) => super::karmada::SEEDS + 1,
            _ => 1,
        }
    }

    pub fn disk_lies(self) -> bool {
        self == Mutation::SyncDoesNothing
    }

    pub fn accepts_loss(self) -> bool {
        self == Mutation::AcceptsLoss
    }

    pub fn answers_early(self) -> bool {
        self == Mutation::AnswersBeforeDurable
    }

    pub fn ignores_its_term(self) -> bool {
        self == Mutation::OldLeaderReads
    }

    pub fn is_blind(self) -> bool {
        self == Mutation::BlindAudit
    }

    pub fn family(self, family: Arc<dyn Family>, lies: &Arc<Lies>) -> Arc<dyn Family> {
        liar::of(self, family, lies)
    }

    pub fn store(self, inner: Box<dyn Store>, ground: &Ground) -> Box<dyn Store> {
        tampered::of(self, inner, ground)
    }
}

/// Mistakes that cannot be made here: the file under `crates` in which they are made, and with what.
pub const ELSEWHERE: [(&str, &str, &str); 7] = [
    (
        "a shared store is never tidied and fills up",
        "store/tests/store/etcd_storm/mod.rs",
        "(Mutation::NeverCompacts, By::Updates)",
    ),
    (
        "a standby whose connection fell silent never takes over",
        "store/tests/store/etcd_storm/mod.rs",
        "(Mutation::WaitsForEver, By::SilentMember)",
    ),
    (
        "a standby ends when the shared store is away for a moment",
        "store/tests/store/etcd_storm/mod.rs",
        "(Mutation::StandbyGivesUp, By::Storms(20))",
    ),
    (
        "a leader that is cut off goes on as if it led",
        "store/tests/store/etcd_storm/mod.rs",
        "(Mutation::TermIgnored, By::Storms(20))",
    ),
    (
        "the address of a client that hung up goes to two Services",
        "server/tests/mutants/lets-go-with-the-client.patch",
        "a_client_that_leaves_takes_no_address_of_the_next_with_it",
    ),
    (
        "objects outlive the definition of their kind",
        "server/tests/mutants/definitions-leave-their-objects.patch",
        "a_definition_that_goes_takes_nothing_new_and_leaves_nothing_behind",
    ),
    (
        "objects are made of a kind that goes",
        "server/tests/mutants/creates-while-a-definition-goes.patch",
        "a_definition_that_goes_takes_nothing_new_and_leaves_nothing_behind",
    ),
];
