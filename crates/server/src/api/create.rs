//! POST to a collection.

use std::sync::Arc;

use axum::body::Body;
use families::Operation;
use http::{Response, StatusCode};
use rules::GroupResource;
use serde_json::{Map, Value};

use super::admit::Reviewed;
use super::definitions::Turn;
use super::managed::Author;
use super::options::WriteOptions;
use super::prepare::{Admitting, Expected, check_size, draft, grants, schema_errors};
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::admission::{self, Reservation};
use crate::core::{Draft, Object, ObjectKey, Refused, WriteKind};
use crate::registry::Served;

/// Names made up for one object with generateName before giving up. Of 14 million suffixes one is taken rarely, eight in
/// a row only when the collection is all but full.
const GENERATED_NAMES_MAX: usize = 8;

impl Api {
    pub(super) async fn create(&self, call: Call) -> ApiResult<Response<Body>> {
        let view = self.view(&call)?;
        let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let mut taken = String::new();
        for _ in 0..GENERATED_NAMES_MAX {
            let mut warnings = Vec::new();
            // A refused draft is gone with its refusal; the rare second try reads the body again, so that the usual
            // one copies nothing.
            let object = self.decode(&call, &Expected::main(&call.served), options.field_validation, &mut warnings)?;
            let generates = meta::text(&object, "name").is_empty();
            let author = Author::of(&call, &options);
            let prepared = self.prepare_create(&call, object, Some(&author), &options, &mut warnings).await?;
            let Prepared { key, draft, reservation, turn } = prepared;
            let (kind, dry_run) = (WriteKind::Create(draft), options.dry_run);
            match self.submit_holding(call.asks(&key, kind, dry_run), held(reservation, turn)).await? {
                Ok(written) => {
                    let shown = view.object(&self.parts().cache, &written.object);
                    return Ok(response::object(StatusCode::CREATED, shown, &warnings));
                }
                Err(Refused::AlreadyExists) if generates => taken = key.name.to_string(),
                Err(refused) => return Err(self.refused(&call, &key, refused)),
            }
        }
        Err(ApiError::no_unique_name(&call.served.resource, &taken))
    }

    /// Everything between a decoded object and the sequencer. Without an author the object's managedFields stand as they
    /// are: server-side apply has made them.
    pub(super) async fn prepare_create(
        &self,
        call: &Call,
        mut object: Value,
        author: Option<&Author>,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Prepared> {
        let served = &call.served;
        let unnamed = meta::text(&object, "name").is_empty();
        let name = meta::prepare_create(&mut object, served, call.namespace(), call.now_ms)?;
        let key = ObjectKey::new(served.storage().clone(), call.namespace(), &name);
        self.check_namespace(&key)?;
        clear_status(served, &mut object);
        self.default(served, &mut object)?;
        // What the creator owns is what was sent, with its defaults; the rest is the server's doing.
        let managed = match author {
            None => None,
            Some(author) => {
                meta::metadata(&mut object)?.remove("managedFields");
                kinds::apply::created_text(&object, &author.writer(call, ""))
            }
        };
        served.strategy.prepare_create(&mut object);
        let admitting =
            Admitting { operation: Operation::Create, subresource: "", key: &key, old: None, origin: &call.origin };
        self.admit(&admitting, &mut object)?;
        let reviewed = Reviewed {
            call,
            operation: admission::Operation::Create,
            key: &key,
            subresource: "",
            old: None,
            delete: None,
            dry_run: options.dry_run,
        };
        if self.has_webhooks() {
            let given = FIXED.map(|field| object["metadata"].get(field).cloned());
            // Kubernetes settles these behind the mutating hooks, so they do not see them.
            let metadata = meta::metadata(&mut object)?;
            metadata.retain(|field, _| field != "uid" && field != "creationTimestamp" && !(unnamed && field == "name"));
            let nameless = ObjectKey::new(key.resource.clone(), &key.namespace, "");
            let early = Reviewed { key: if unnamed { &nameless } else { &key }, ..reviewed };
            let changed = self.mutate(&early, &mut object, warnings).await?;
            keep_fixed(&mut object, given, unnamed)?;
            if changed {
                clear_status(served, &mut object);
                served.strategy.prepare_create(&mut object);
                self.admit(&admitting, &mut object)?;
            }
        }
        served.strategy.default(&mut object);
        served.strategy.settle_create(&mut object);
        self.check_moves(call, &key, None, Some(&object))?;
        let reservation = self.allocate(call, &key, "", &mut object)?;
        let mut errors = meta::validate(&object, served);
        errors.extend(schema_errors(served, &object, None));
        errors.extend(served.strategy.validate(&object));
        errors.extend(served.strategy.validate_create(&object));
        errors.extend(self.family_errors(&admitting, &mut object, warnings));
        if !errors.is_empty() {
            return Err(call.invalid(&name, &errors));
        }
        warnings.extend(served.strategy.warnings(&object, None));
        if let Some(kind) = grants(&key) {
            Box::pin(self.check_grant(kind, call, &key, None, &object)).await?;
        }
        self.ask_webhooks(&reviewed, &object, warnings).await?;
        let turn = self.settle_definition(call, &key, &mut object, None).await?;
        let draft = draft(served, object, managed.as_deref())?;
        check_size(&draft, None)?;
        Ok(Prepared { key, draft, reservation, turn })
    }

    /// The namespace is looked for before the object is judged: its absence explains more than any other mistake.
    fn check_namespace(&self, key: &ObjectKey) -> ApiResult<()> {
        if key.namespace.is_empty() {
            return Ok(());
        }
        let namespaces = GroupResource::core("namespaces");
        let found: Option<Arc<Object>> =
            self.parts().cache.get(&ObjectKey::new(namespaces.clone(), "", &key.namespace));
        found.map(|_| ()).ok_or_else(|| ApiError::not_found(&namespaces, &key.namespace))
    }
}

/// What a write holds until it is answered, if anything.
pub(super) fn held(reservation: Option<Reservation>, turn: Turn) -> Option<(Option<Reservation>, Turn)> {
    (reservation.is_some() || turn.is_some()).then_some((reservation, turn))
}

/// A new object on its way to the sequencer.
pub(super) struct Prepared {
    pub key: ObjectKey,
    pub draft: Draft,
    /// To be kept until the write is answered.
    pub reservation: Option<Reservation>,
    /// The same, for a CustomResourceDefinition.
    pub turn: Turn,
}

/// What is settled about a new object before webhooks see it, or is never theirs to say.
const FIXED: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
];

/// Puts back what no webhook decides. A name is refused instead: whoever changed it counts on it.
fn keep_fixed(object: &mut Value, given: [Option<Value>; FIXED.len()], unnamed: bool) -> ApiResult<()> {
    let now = object.pointer("/metadata/name").filter(|name| !name.is_null());
    if now != given[0].as_ref() && !(unnamed && now.is_none()) {
        return Err(ApiError::bad_request("a webhook may not change the name of an object"));
    }
    for (field, value) in FIXED.into_iter().zip(given) {
        meta::put_back(object, field, value)?;
    }
    Ok(())
}

/// The status of a new object is not for its creator to say. A built-in kind always has one, if only an empty one.
fn clear_status(served: &Served, object: &mut Value) {
    let Value::Object(top) = object else { return };
    if served.strategy.keeps_first_status() {
        return;
    }
    match (served.has_status(), &served.custom) {
        (false, _) => {}
        (true, None) => {
            top.insert("status".into(), Value::Object(Map::new()));
        }
        (true, Some(_)) => {
            top.remove("status");
        }
    }
}
