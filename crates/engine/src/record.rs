//! What families have written down besides objects: kept until whoever stores takes it, for the same commit.

use families::{Change, Noted, Record, RefusedNote, holds};
use serde_json::Value;

use crate::command::Refused;
use crate::effects::EventKind;
use crate::engine::Engine;
use crate::object::{Object, ObjectKey};

impl Engine {
    /// The entries of journals since the last time, in order, each with its moment.
    pub fn take_records(&mut self) -> std::vec::Drain<'_, (i64, Record)> {
        self.records.drain(..)
    }

    /// Asks the families what is to be written down about an object that was stored or deleted.
    pub(crate) fn record(&mut self, kind: EventKind, object: &Object, previous: Option<&Object>) {
        let ObjectKey { resource, namespace, name } = &object.key;
        if !self.recorded.contains(resource) {
            return;
        }
        let old = previous.map_or(Value::Null, Object::value);
        let new = (kind != EventKind::Deleted).then(|| object.value());
        let change = Change { resource, namespace, name, old: &old, new: new.as_ref(), origin: &self.origin };
        let view = self.view(self.clock_ms);
        let recording = self.families.iter().filter(|family| holds(family.manifest().recorded, resource));
        let noted = Noted::Written { change: &change, revision: object.revision };
        let records: Vec<Record> = recording.flat_map(|family| family.records(&noted, &view)).collect();
        self.records.extend(records.into_iter().map(|record| (self.clock_ms, record)));
    }

    /// Asks those who refused a write what is to be written down about it.
    pub(crate) fn record_refused(&mut self, key: &ObjectKey, refused: &Refused, now_ms: i64) {
        let (mut records, view) = (Vec::new(), self.view(now_ms));
        let mut ask = |place: usize, reason: &str, message: &str| {
            let Some(family) = self.families.iter().nth(place).filter(|one| one.manifest().records_refusals) else {
                return;
            };
            let ObjectKey { resource, namespace, name } = key;
            let origin = &self.origin;
            let note = RefusedNote { resource, namespace, name, reason, message, origin, now_ms };
            records.extend(family.records(&Noted::Refused(note), &view));
        };
        match refused {
            Refused::Said { family, refusal } => ask(*family, "Forbidden", &refusal.message),
            Refused::Denied(denials) => {
                for denial in denials {
                    let Some(place) = self.families.place(&denial.resource) else { continue };
                    let Some(family) = self.families.iter().nth(place) else { continue };
                    if family.manifest().records_refusals {
                        ask(place, denial.reason.name(), &family.words(denial).text);
                    }
                }
            }
            _ => {}
        }
        self.records.extend(records.into_iter().map(|record| (now_ms, record)));
    }
}
