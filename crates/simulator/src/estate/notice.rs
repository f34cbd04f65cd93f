//! Which rare states a group brought about, by comparing what was before with what is.

use std::collections::BTreeSet;

use ledger::SubjectId;
use serde_json::Value;
use server::core::{EventKind, Refused};

use super::answers::Said;
use super::durable::{Added, Durable, Kept};
use super::judge::Found;
use super::naive::{Sums, overdue_ms};
use super::naive_karmada::until_ms;
use super::rare;
use super::replica::Done;
use super::request::{Request, Verb};
use super::season;
use super::world::World;

const POLICIES: [&str; 9] = [
    "resourcequotas",
    "clusterresourcequotas",
    "hierarchicalresourcequotas",
    "customquotas",
    "globalcustomquotas",
    "resourcepools",
    "federatedresourcequotas",
    "federatedquotaslices",
    "seasons",
];
/// More than is counted of one object.
const COUNTED_MAX: i128 = 1 << 96;

impl World {
    pub fn notice(&mut self, before: &Durable, was: &Found, added: &Added, alone: Option<&(Done, Said)>) {
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
        for (subject, granted) in &before.holds {
            let (is_over, in_time) = (!now.holds.contains_key(subject), granted.expires_at_ms > now.told_ms);
            rare.met_if(is_over && !in_time, rare::HOLD_EXPIRED);
            rare.met_if(is_over && in_time && now.objects.contains_key(&granted.key), rare::HOLD_SETTLED);
            rare.met_if(!is_over && added.is_first, rare::HELD_OVER_RESTART);
        }
        let passed = |at: Option<i64>| at.is_some_and(|at| before.told_ms < at && at <= now.told_ms);
        let ticket_ends = now.of(season::GROUP, "tickets").any(|one| passed(one.value["spec"]["untilMs"].as_i64()));
        let pod_ends = now.of("", "pods").any(|one| passed(overdue_ms(&one.value)));
        rare.met_if(ticket_ends || pod_ends, rare::DUE);
        rare.met_if((ticket_ends || pod_ends) && added.is_first, rare::DUE_OVER_RESTART);
        let ended = now.of("policy.karmada.io", "federatedquotaslices").any(|one| passed(until_ms(&one.value)));
        rare.met_if(ended, rare::SLICE_OVER);
        let opens = now.of(season::GROUP, "seasons").any(|one| passed(one.value["spec"]["opensMs"].as_i64()));
        rare.met_if(opens, rare::SEASON_OPENED);
        if self.has_karmada() {
            self.notice_karmada(before, alone);
        }
        self.notice_apart(was, added);
        if let Some((Done::Request(request) | Done::Counted(request), said)) = alone {
            self.notice_answer(request, said, before, was);
            self.notice_staged(request, said, before, was);
        }
    }

    /// What comes and goes of what nobody is told of.
    fn notice_apart(&mut self, was: &Found, added: &Added) {
        let (is, rare) = (&self.found.apart, &mut self.report.rare);
        let (shadows, retired) = (was.apart.shadows(), was.apart.retired());
        rare.met_if(!is.retired().is_subset(&retired), rare::RETIRED);
        rare.met_if(!retired.is_subset(&is.retired()), rare::SWEPT);
        rare.met_if(added.is_first && !shadows.is_empty(), rare::COUNTED_OVER_RESTART);
        rare.met_if(added.is_first && !retired.is_empty(), rare::RETIRED_OVER_RESTART);
        let is_gone = !shadows.is_empty() && is.shadows().is_empty() && !added.is_first;
        rare.met_if(is_gone && added.events.is_empty(), rare::FORSAKEN_GONE);
    }

    fn notice_staged(&mut self, request: &Request, said: &Said, before: &Durable, was: &Found) {
        let is_counting = self.replicas[self.leader].as_ref().is_some_and(|leader| leader.errands.is_counting());
        let (is, rare) = (&self.found.apart, &mut self.report.rare);
        let goes_on = !was.apart.shadows().is_empty() && !is.shadows().is_empty();
        let is_policy = POLICIES.contains(&&*request.key.resource.resource);
        match said {
            Said::PutOff { .. } => rare.met(rare::PUT_OFF),
            Said::Counted { is_last } => rare.met(match is_last {
                Some(false) => rare::COUNTED,
                Some(true) => rare::COUNTED_LAST,
                None => rare::COUNTED_NOTHING,
            }),
            Said::Written(_) if request.together.is_some() => rare.met_if(goes_on, rare::BATCH_WHILE_COUNTED),
            Said::Written(_) if goes_on => {
                rare.met(rare::WRITTEN_WHILE_COUNTED);
                rare.met_if(is_policy && is_counting, rare::STAGED_RACED);
            }
            Said::Written(_) if !was.apart.shadows().is_empty() => {
                let is_edit = before.objects.contains_key(&request.key);
                rare.met_if(is_policy && !is_edit, rare::STAGED_INSTALL);
                rare.met_if(is_policy && is_edit, rare::STAGED_EDIT);
                let is_namespace = request.key.resource.is("", "namespaces");
                rare.met_if(is_namespace, rare::STAGED_RELABEL);
                let stands = |kind: &str| is_edit && &*request.key.resource.resource == kind && !was.waiting.is_empty();
                rare.met_if(stands("resourcepools") || stands("resourcequotagrants"), rare::STAGED_LINE);
                rare.met_if(!is_policy && !is_namespace, rare::STAGED_FORETOLD);
            }
            Said::Refused(_, Refused::Denied(_)) => rare.met_if(goes_on, rare::DENIED_WHILE_COUNTED),
            _ => {}
        }
    }

    fn notice_batch(&mut self, request: &Request, said: &Said) {
        let rare = &mut self.report.rare;
        match said {
            Said::Written(_) => {
                rare.met(rare::BATCH_WRITTEN);
                let namespaces: BTreeSet<&str> = request.parts().map(|(key, _)| &*key.namespace).collect();
                rare.met_if(namespaces.len() > 1, rare::BATCH_ACROSS);
                let verbs: BTreeSet<_> = request
                    .parts()
                    .map(|(_, verb)| match verb {
                        Verb::Create(_) => 0,
                        Verb::Update { .. } => 1,
                        Verb::Delete { .. } | Verb::Hold { .. } | Verb::Drop { .. } => 2,
                    })
                    .collect();
                rare.met_if(verbs.len() == 3, rare::BATCH_MIXED);
            }
            Said::Refused(_, Refused::Denied(_)) => rare.met(rare::BATCH_DENIED),
            Said::Refused(..) => rare.met(rare::BATCH_REFUSED),
            Said::Would => rare.met(rare::BATCH_TRIED),
            _ => {}
        }
    }

    fn notice_answer(&mut self, request: &Request, said: &Said, before: &Durable, was: &Found) {
        if request.together.is_some() {
            self.notice_batch(request, said);
        }
        let (is, rare) = (&self.found, &mut self.report.rare);
        match said {
            Said::Refused(_, Refused::Denied(denials)) => {
                rare.met(rare::DENIED);
                let told = denials.iter().filter_map(|denial| denial.message.as_deref());
                rare.met_if(told.into_iter().any(|told| told.contains("cannot be evaluated")), rare::BROKEN_REFUSES);
            }
            Said::Refused(..) => rare.met(rare::REFUSED),
            Said::Would => rare.met(rare::DRY_RUN),
            Said::Written(_) => {
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
            Said::Held { uid, .. } => {
                rare.met(rare::HELD);
                rare.met_if(is.charged.contains_key(&SubjectId(*uid)), rare::HELD_OVER_CHARGE);
                rare.met_if(was.held.contains_key(&SubjectId(*uid)), rare::HELD_AGAIN);
            }
            Said::Dropped { was_held } => rare.met_if(*was_held, rare::HOLD_DROPPED),
            Said::PutOff { .. } | Said::Counted { .. } | Said::Published => {}
        }
        self.was_low |= matches!(said, Said::Refused(_, Refused::NoSpace));
    }
}

fn spec(kept: &Kept) -> &Value {
    &kept.value["spec"]
}
