//! How claims are charged: an EffectiveQuotaGrant compiled into accounts, and one rule for each of its namespaces.

use std::sync::Arc;

use kinds::fields::text;
use ledger::{Discipline, Limit, Position, Wait};
use quantity::{Amount, Format};
use rules::{Account, Compiled, Measure, MeasureError, Reach, Rule, Subject, Verdict};

use super::CLAIMS as CLAIM_RESOURCE;
use super::catalog::Catalog;
use super::claim::{Parts, is_released};
use super::entity::Level;
use super::metered::{self, Samples};
use super::table::{CLAIMS, Table, UNCOVERED};
use crate::{PolicyObject, World};

pub fn compile(policy: &PolicyObject<'_>, world: &dyn World) -> Compiled {
    let table = Arc::new(Table::read(policy.name, policy.object, Catalog::of(world)));
    let samples = Samples::read(policy.object);
    let account = |resource: Arc<str>, limit: Option<Amount>, text: String| Account {
        resource,
        limit: limit.map_or(Limit::Unlimited, Limit::Enforced),
        limit_text: text.into(),
        discounts: false,
    };
    let mut accounts = vec![account(UNCOVERED.into(), Some(Amount::ZERO), "0".into())];
    if table.entity.level == Level::Project {
        accounts.push(account(CLAIMS.into(), None, String::new()));
    }
    let mut until_ms: Option<i64> = None;
    for (limited, bucket) in table.accounts() {
        let text = bucket.limit.map_or_else(String::new, |limit| limited.definition.unit.show(limit));
        let allowed = metered::allowed(limited, bucket, &samples, world.now_ms());
        until_ms = until_ms.into_iter().chain(allowed.until_ms).min();
        accounts.push(account(bucket.name.clone(), allowed.limit, text));
    }
    let shared = table.fingerprint_of_all();
    let rule = |namespace: &String| Rule {
        resources: vec![CLAIM_RESOURCE.resource()],
        reach: Reach::Namespace(namespace.as_str().into()),
        measure: Arc::new(ClaimRule {
            table: table.clone(),
            essence: [&*shared, &table.fingerprint_of(namespace)].concat(),
        }),
    };
    Compiled {
        accounts,
        rules: table.namespaces.keys().map(rule).collect(),
        fingerprint: table.fingerprint(),
        until_ms,
    }
}

/// What a claim is charged by one grant.
struct ClaimRule {
    table: Arc<Table>,
    /// All that decides what is charged in its namespace: others that come and go are nothing to it.
    essence: Vec<u8>,
}

const UNCOVERED_AT: usize = 0;
const CLAIMS_AT: usize = 1;

impl Measure for ClaimRule {
    fn may_change_with_time(&self, _text: &str) -> bool {
        false
    }

    fn essence(&self) -> &[u8] {
        &self.essence
    }

    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        if is_released(subject.object) {
            return Ok(());
        }
        // Whoever was created first is served first, whatever the clock said at the time.
        let position = Position {
            priority: 0,
            arrived: i64::try_from(subject.born).unwrap_or(i64::MAX),
            tie: format!("{}\0{}", text(subject.object, &["metadata", "creationTimestamp"]), subject.name).into(),
        };
        out.may_wait(Wait { discipline: Discipline::Greedy, position });
        out.stays_granted();
        let one = Amount::from_units(1);
        if self.table.entity.level == Level::Project {
            out.charge(CLAIMS_AT, one, Format::DecimalSi);
        }
        let read = |subject: &Subject<'_>| Parts::read(subject.object, &self.table.catalog);
        let known = subject.memo(|subject| (self.table.catalog.clone(), read(subject)));
        // While definitions change some tables know the old ones still.
        let own = (!Arc::ptr_eq(&known.0, &self.table.catalog)).then(|| read(subject));
        let Parts { claim, invalid } = own.as_ref().unwrap_or(&known.1);
        // What is granted and cannot be counted any more takes the rest of the claim out of no count.
        let mut is_covered = !invalid.iter().any(|one| self.table.minds(one.resource.as_deref()));
        for request in &claim.requests {
            let counted = self.table.counted(claim, request, subject.namespace);
            is_covered &= counted.is_covered;
            for (_, bucket, decides) in counted.buckets {
                match decides {
                    true => out.charge(bucket.index, request.amount, request.unit.format()),
                    false => out.charge_along(bucket.index, request.amount, request.unit.format()),
                }
            }
        }
        if !is_covered {
            out.charge(UNCOVERED_AT, one, Format::DecimalSi);
        }
        Ok(())
    }
}
