//! What the rules say of one object.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ledger::{SubjectId, Wait};
use quantity::{Amount, Format};
use serde_json::Value;
use smallvec::SmallVec;

use crate::{GroupResource, PolicyId};

/// What was computed from the object so far, by type.
type Memo = SmallVec<[(TypeId, Rc<dyn Any>); 1]>;

/// The object a decision is about, as the rules see it.
pub struct Subject<'a> {
    pub id: SubjectId,
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a Value,
    /// A number that is higher for what was created later, whatever clocks say; 0 for what is older than such numbers.
    pub born: u64,
    /// The moment of the decision; a rule that asks for it says until when its answer holds ([`Verdict::holds_until`]).
    pub now_ms: i64,
    memo: RefCell<Memo>,
}

impl<'a> Subject<'a> {
    pub fn new(
        id: SubjectId,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
        object: &'a Value,
    ) -> Self {
        Self { id, resource, namespace, name, object, born: 0, now_ms: 0, memo: RefCell::default() }
    }

    /// The same object at another moment than the beginning of time.
    pub fn at(mut self, now_ms: i64) -> Self {
        self.now_ms = now_ms;
        self
    }

    /// The same object, created at this place in the order of all creations.
    pub fn born(mut self, born: u64) -> Self {
        self.born = born;
        self
    }

    /// Computes `T` from the object once, however many rules ask: a pod under sixteen quotas is added up once.
    pub fn memo<T: 'static>(&self, compute: impl FnOnce(&Self) -> T) -> Rc<T> {
        let known = self.memo.borrow().iter().find(|(id, _)| *id == TypeId::of::<T>()).map(|(_, found)| found.clone());
        if let Some(found) = known.and_then(|found| found.downcast::<T>().ok()) {
            return found;
        }
        let made = Rc::new(compute(self));
        self.memo.borrow_mut().push((TypeId::of::<T>(), made.clone()));
        made
    }
}

/// How one rule measures one object. Implemented by the families.
pub trait Measure: Send + Sync {
    /// Adds what the object is charged, and what the rule refuses outright, to the verdict. An error refuses the
    /// request: a rule that cannot be evaluated never means "no quota applies".
    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError>;

    /// Whether the answer about an object with this text may be another at another moment ([`Verdict::holds_until`]). It
    /// is asked of every object at a start, so that only some have to be read and measured; a rule that never looks at
    /// the time says no.
    fn may_change_with_time(&self, _text: &str) -> bool {
        true
    }

    /// Whether it evaluates expressions of users. A policy with such a rule counts what is stored before it comes into force,
    /// however little that is, so that nobody waits for the expressions.
    fn evaluates(&self) -> bool {
        false
    }

    /// All that it was made of, its reach included; empty where that is not told. A policy that is compiled anew may take over
    /// a rule of the one in force that was made of the same.
    fn essence(&self) -> &[u8] {
        &[]
    }
}

/// One line of the whole charge vector: so much on the n-th account of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub policy: PolicyId,
    /// Index into [`crate::Compiled::accounts`].
    pub account: usize,
    /// A part of the account kept apart by name (usage per namespace, say); opened when first charged, unlimited.
    pub bucket: Option<Arc<str>>,
    pub amount: Amount,
    pub format: Format,
    /// Whether the object waits for it where there is too little, instead of being refused.
    pub in_line: bool,
    /// Whether it needs no room: it is counted once the object has what it waits for.
    pub along: bool,
}

/// A refusal that is not about an amount: a quota on cpu asks every container to state its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub policy: PolicyId,
    /// The policy's own words, without the wrapper that names the object.
    pub message: String,
    /// Whether it also holds against a change that takes no more of the policy than before.
    pub always: bool,
}

/// Everything the rules say of one object.
#[derive(Default, Debug)]
pub struct Verdict {
    pub lines: SmallVec<[Line; 8]>,
    pub refusals: Vec<Refusal>,
    /// How and where the object waits for what it is charged in line.
    pub wait: Option<Wait>,
    /// When the object has to be measured again although it did not change.
    pub until_ms: Option<i64>,
    /// The policy that says so, where what was granted stays granted, whatever rules say later.
    pub for_good: Option<PolicyId>,
    /// Policies that cannot tell what the object takes, and refuse nobody for that.
    pub missed: SmallVec<[PolicyId; 1]>,
    pub(crate) policy: PolicyId,
    in_line: bool,
}

impl Verdict {
    /// What is said from now on is said by this policy.
    pub(crate) fn by(&mut self, policy: PolicyId) {
        self.policy = policy;
        self.in_line = false;
    }

    /// What the rule charges from now on is waited for where there is too little of it.
    pub fn may_wait(&mut self, wait: Wait) {
        self.wait = Some(wait);
        self.in_line = true;
    }

    /// Charges the n-th account of the policy being measured.
    pub fn charge(&mut self, account: usize, amount: Amount, format: Format) {
        self.push(account, None, amount, format);
    }

    /// Charges the n-th account, which neither refuses it nor makes it wait: it comes with what the object waits for.
    pub fn charge_along(&mut self, account: usize, amount: Amount, format: Format) {
        self.push(account, None, amount, format);
        if let Some(last) = self.lines.last_mut() {
            last.along = true;
        }
    }

    /// Once the object has what it waits for it keeps it: when rules change it is counted by them, and waits for nothing; a
    /// change of its own is enforced.
    pub fn stays_granted(&mut self) {
        self.for_good = Some(self.policy);
    }

    /// Charges a named part of the n-th account as well, for policies that report usage by part.
    pub fn charge_bucket(&mut self, account: usize, bucket: Arc<str>, amount: Amount, format: Format) {
        self.push(account, Some(bucket), amount, format);
    }

    fn push(&mut self, account: usize, bucket: Option<Arc<str>>, amount: Amount, format: Format) {
        let Verdict { policy, in_line, .. } = *self;
        self.lines.push(Line { policy, account, bucket, amount, format, in_line, along: false });
    }

    /// From this moment on the rule says something else of the same object than before it; said before it and after.
    pub fn holds_until(&mut self, ms: i64) {
        self.until_ms = Some(self.until_ms.map_or(ms, |known| known.min(ms)));
    }

    /// The policy being measured cannot tell what the object takes, and leaves it at what it has.
    pub fn miss(&mut self) {
        if !self.missed.contains(&self.policy) {
            self.missed.push(self.policy);
        }
    }

    pub fn refuse(&mut self, message: impl Into<String>) {
        self.refusals.push(Refusal { policy: self.policy, message: message.into(), always: false });
    }

    /// Refuses every write, because nobody can tell what it takes.
    pub fn deny(&mut self, message: impl Into<String>) {
        self.refusals.push(Refusal { policy: self.policy, message: message.into(), always: true });
    }
}

/// A rule that could not be evaluated on an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{policy}: {message}")]
pub struct MeasureError {
    pub policy: Arc<str>,
    pub message: String,
}
