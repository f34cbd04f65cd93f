//! What a granted claim asks for anew when it changes. The ledger asks an account about no more than the growth on it, and that is not
//! all that a claim can grow by: amounts that went along on a wide bucket while a narrower one decided grow nowhere when the wide
//! one comes to decide about them, and what nobody counts any more grows on no account at all.

use std::collections::BTreeMap;

use kinds::fields::{given, items, text};
use ledger::{ExplainedLine, SubjectId};
use quantity::Amount;
use rules::policy_name;
use serde_json::Value;

use super::EFFECTIVE;
use super::catalog::{Catalog, as_text};
use super::claim::{Claim, Parts, dimensions_of, leaves};
use super::claim_status::{Held, exceeds, held, is_granted};
use super::limits::UNLIMITED;
use super::metered;
use super::selector::Dimensions;
use super::table::{BucketAccount, Cover, Limited, Table};
use crate::View;

/// Why a granted claim may not become another; nothing where it waits, or asks for nothing anew.
pub fn check(old: &Value, new: &Value, namespace: &str, view: &dyn View) -> Result<(), String> {
    if old.is_null() || leaves(new) || old.get("spec") == new.get("spec") {
        return Ok(());
    }
    let catalog = Catalog::of(view);
    let held = held(namespace, &catalog, view);
    let subject = kinds::uid::parse(text(old, &["metadata", "uid"])).unwrap_or(SubjectId(0));
    if !is_granted(subject, &held, view) {
        return Ok(());
    }
    let (before, after) = (Parts::read(old, &catalog), Parts::read(new, &catalog));
    check_uncounted(old, new, &catalog, &before, &after)?;
    for one in &held {
        check_uncovered(&one.table, &before.claim, &after.claim, namespace)?;
        check_decided(one, &before.claim, &after.claim, subject, namespace, view)?;
    }
    Ok(())
}

type Asked = BTreeMap<(String, Dimensions), Amount>;

/// How much is asked for, by resource and dimensions.
fn asked(claim: &Claim) -> Asked {
    let mut asked = Asked::new();
    for request in &claim.requests {
        let entry = asked.entry((request.name.clone(), request.dimensions.clone())).or_default();
        *entry = entry.checked_add(request.amount).unwrap_or(Amount::from_nanos(i128::MAX));
    }
    asked
}

/// What cannot be read beside the definitions stays as it is, becomes less, or goes.
fn check_uncounted(old: &Value, new: &Value, catalog: &Catalog, before: &Parts, after: &Parts) -> Result<(), String> {
    let (had, wants) = (asked(&before.claim), asked(&after.claim));
    let said = |object: &Value, entry: &Value| {
        let quantity = given(entry, &["quantity"]).map(as_text).unwrap_or_default();
        ((text(entry, &["name"]).to_owned(), dimensions_of(entry, object)), quantity)
    };
    let listed = |object| items(object, &["spec", "resources"]);
    let known: Vec<_> = listed(old).iter().map(|entry| said(old, entry)).collect();
    for wrong in &after.invalid {
        let stays = wrong.entry.and_then(|index| listed(new).get(index)).is_some_and(|entry| {
            let (what, quantity) = said(new, entry);
            let is_read = catalog.get(&what.0).is_some_and(|known| known.unit.read(&quantity).is_ok());
            let is_less =
                is_read && had.get(&what).is_some_and(|had| wants.get(&what).is_some_and(|wants| wants <= had));
            is_less || known.contains(&(what, quantity))
        });
        if !stays {
            return Err(format!("{} ({})", wrong.message, wrong.reason));
        }
    }
    Ok(())
}

/// So does what no grant covers.
fn check_uncovered(table: &Table, before: &Claim, after: &Claim, namespace: &str) -> Result<(), String> {
    let (had, wants) = (asked(before), asked(after));
    for request in &after.requests {
        let Cover::Nobody { message, .. } = table.cover(after, request, namespace) else { continue };
        let what = (request.name.clone(), request.dimensions.clone());
        if had.get(&what).is_none_or(|had| wants.get(&what).is_none_or(|wants| wants > had)) {
            return Err(message);
        }
    }
    Ok(())
}

/// What a bucket comes to decide about has to fit there, although it went along before.
fn check_decided(
    held: &Held,
    before: &Claim,
    after: &Claim,
    subject: SubjectId,
    namespace: &str,
    view: &dyn View,
) -> Result<(), String> {
    let table = &held.table;
    let (had, wants) = (decided(table, before, namespace), decided(table, after, namespace));
    let policy = policy_name(&EFFECTIVE.resource(), "", &table.entity.object_name());
    let lines = view.explain(subject).lines;
    for (at, (limited, bucket, wants)) in wants {
        if had.get(&at).is_some_and(|(_, _, had)| wants.decided <= had.decided) {
            continue;
        }
        let is_its = |line: &&ExplainedLine| *line.key.policy == *policy && line.key.resource == bucket.name;
        // Where it grows the ledger asks.
        let Some(line) = lines.iter().find(is_its).filter(|line| wants.counted <= line.has) else { continue };
        let Some(limit) = line.balance.limit.amount() else { continue };
        let taken = line.balance.used.checked_add(line.balance.held);
        let others = taken.and_then(|taken| taken.checked_sub(line.has)).unwrap_or(line.balance.used);
        if others.checked_add(wants.counted).is_none_or(|sum| sum > limit) {
            let unseen = metered::unseen(limited, bucket, &held.samples, view.now_ms());
            let (unit, used) = (limited.definition.unit, others.checked_add(unseen).unwrap_or(others));
            let limit = bucket.limit.map_or_else(|| UNLIMITED.to_owned(), |limit| unit.show(limit));
            let why = exceeds(&table.entity, limited, bucket, &unit.show(wants.counted), &unit.show(used), &limit);
            return Err(format!("quota of {} exceeded: {why}", table.entity));
        }
    }
    Ok(())
}

/// How much of a claim is counted on a bucket, and about how much of that the bucket decides.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    counted: Amount,
    decided: Amount,
}

fn decided<'a>(
    table: &'a Table,
    claim: &Claim,
    namespace: &str,
) -> BTreeMap<usize, (&'a Limited, &'a BucketAccount, Part)> {
    let add = |sum: &mut Amount, more| *sum = sum.checked_add(more).unwrap_or(Amount::from_nanos(i128::MAX));
    let mut parts = BTreeMap::new();
    for request in &claim.requests {
        for (limited, bucket, decides) in table.counted(claim, request, namespace).buckets {
            let (_, _, part) = parts.entry(bucket.index).or_insert((limited, bucket, Part::default()));
            add(&mut part.counted, request.amount);
            if decides {
                add(&mut part.decided, request.amount);
            }
        }
    }
    parts
}
