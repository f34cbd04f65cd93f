//! Which rare states a group brought about, by comparing what was before with what is.

use std::collections::BTreeSet;

use ledger::SubjectId;
use serde_json::Value;
use server::core::{EventKind, Refused};

use super::answers::Said;
use super::durable::{Added, Durable, Kept};
use super::judge::Found;
use super::naive::{Sums, overdue_ms};
use super::rare;
use super::replica::Work;
use super::request::{Request, Verb};
use super::season;
use super::world::World;

const POLICIES: [&str; 7] = [
    "resourcequotas",
    "clusterresourcequotas",
    "hierarchicalresourcequotas",
    "customquotas",
    "globalcustomquotas",
    "resourcepools",
    "seasons",
];
/// More than is counted of one object.
const COUNTED_MAX: i128 = 1 << 96;

impl World {
    pub fn notice(&mut self, before: &Durable, was: &Found, added: &Added, alone: Option<&(Work, Said)>) {
        let (now, is, rare) = (&self.durable, &self.found, &mut self.report.rare);
        let served = |subject: &SubjectId| is.charged.contains_key(subject) && !is.waiting.contains(subject);
        rare.met_if(was.waiting.iter().any(served), rare::WOKEN);
        let keeps = |subject: &SubjectId| is.charged.get(subject).is_some_and(|has| has.values().any(|n| *n > 0));
        rare.met_if(is.waiting.iter().any(keeps), rare::WAITS_AND_KEEPS);
        let parts = |used: &Sums| -> BTreeSet<_> { used.keys().filter(|key| !key.2.is_empty()).cloned().collect() };
        let (opened, closed) = (parts(&is.used), parts(&was.used));
        rare.met_if(!opened.is_subset(&closed), rare::PART_OPENED);
        rare.met_if(!closed.is_subset(&opened), rare::PART_CLOSED);
        rare.met_if(is.broken > 0, rare::BROKEN);
        rare.met_if(is.used.values().any(|used| *used >= COUNTED_MAX), rare::TOO_MUCH);
        for told in &added.events {
            let (old, new) = (before.objects.get(&told.key), now.objects.get(&told.key));
            let is_kept = |kept: &Kept| kept.value["metadata"]["labels"]["projectcapsule.dev/pool"].is_string();
            rare.met_if(
                old.zip(new).is_some_and(|(old, new)| is_kept(new) && spec(old) != spec(new)),
                rare::KEPT_CHANGED,
            );
            if told.key.name.starts_with("jit-") {
                rare.met_if(told.kind == EventKind::Added, rare::COMPANION_MADE);
                rare.met_if(told.kind == EventKind::Deleted, rare::COMPANION_GONE);
            }
        }
        let passed = |at: Option<i64>| at.is_some_and(|at| before.told_ms < at && at <= now.told_ms);
        let ticket_ends = now.of(season::GROUP, "tickets").any(|one| passed(one.value["spec"]["untilMs"].as_i64()));
        let pod_ends = now.of("", "pods").any(|one| passed(overdue_ms(&one.value)));
        rare.met_if(ticket_ends || pod_ends, rare::DUE);
        rare.met_if((ticket_ends || pod_ends) && added.is_first, rare::DUE_OVER_RESTART);
        let opens = now.of(season::GROUP, "seasons").any(|one| passed(one.value["spec"]["opensMs"].as_i64()));
        rare.met_if(opens, rare::SEASON_OPENED);
        if let Some((Work::Request(request), said)) = alone {
            self.notice_answer(request, said, before, was);
        }
    }

    fn notice_answer(&mut self, request: &Request, said: &Said, before: &Durable, was: &Found) {
        let (is, rare) = (&self.found, &mut self.report.rare);
        match said {
            Said::Refused(Refused::Denied(denials)) => {
                rare.met(rare::DENIED);
                let told = denials.iter().filter_map(|denial| denial.message.as_deref());
                rare.met_if(told.into_iter().any(|told| told.contains("cannot be evaluated")), rare::BROKEN_REFUSES);
            }
            Said::Refused(_) => rare.met(rare::REFUSED),
            Said::Would => rare.met(rare::DRY_RUN),
            Said::Written { .. } => {
                if matches!(request.verb, Verb::Create(_)) && !self.is_full {
                    rare.met_if(self.was_low, rare::ROOM_AGAIN);
                    self.was_low = false;
                }
                let name = request.key.to_string();
                let live = was.used.iter().any(|(key, used)| *used != 0 && key.0 == name);
                if live && POLICIES.contains(&&*request.key.resource.resource) {
                    rare.met_if(matches!(request.verb, Verb::Update { .. }), rare::POLICY_EDITED);
                    rare.met_if(matches!(request.verb, Verb::Delete { .. }), rare::POLICY_DELETED);
                }
                let relabels = request.key.resource.is("", "namespaces") && before.objects.contains_key(&request.key);
                rare.met_if(relabels && was.charged != is.charged, rare::RELABELLED);
            }
            Said::Published => {}
        }
        self.was_low |= matches!(said, Said::Refused(Refused::NoSpace));
    }
}

fn spec(kept: &Kept) -> &Value {
    &kept.value["spec"]
}
