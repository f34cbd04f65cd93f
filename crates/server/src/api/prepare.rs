//! From the bytes of a request to an object that may be stored: decode, default, admit, validate.
//!
//! The order is Kubernetes': what the client sent is read and its unknown fields reported; kind by kind defaults follow;
//! families may fill in and refuse; then everything is checked and all complaints are answered together.

use std::collections::HashSet;
use std::sync::Arc;

use families::{Admission, Operation, Origin, World};
use kinds::bounds::OBJECT_BYTES_MAX;
use kinds::decode::{self, DecodeError, Fitted, Format, Parsed};
use kinds::field_error::{FieldError, quote};
use rules::GroupResource;
use rules::cel::{Foresight, Known};
use serde_json::Value;

use super::negotiate::body_format;
use super::options::FieldValidation;
use super::{Api, ApiError, ApiResult, Call, meta, system_clock};
use crate::admission::steps;
use crate::authz::{Kind as RbacKind, RoleChange, check_binding, check_role};
use crate::core::{
    Answer, Cache, Command, Counted, Draft, DraftError, Object, ObjectKey, Recount, Refused, Wanted, Write, Written,
};
use crate::registry::{CustomKind, Schema, Served, api_version};

/// How often expressions are evaluated, or objects counted, for one write because the policies changed meanwhile.
const ASKED_MAX: usize = 3;

/// What kind a body has to be of.
pub(super) struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub schema: &'a Schema,
    /// Set when the body is a custom resource.
    pub custom: Option<&'a CustomKind>,
}

impl<'a> Expected<'a> {
    pub fn main(served: &'a Served) -> Expected<'a> {
        Expected {
            group: &served.resource.group,
            version: &served.version,
            kind: &served.kind,
            schema: &served.schema,
            custom: served.custom.as_deref(),
        }
    }

    /// The body of the request's subresource.
    pub fn subresource(call: &'a Call) -> ApiResult<Expected<'a>> {
        let sub = call.subresource()?;
        let custom = call.served.custom.as_deref().filter(|_| *sub.kind == *call.served.kind);
        Ok(Expected { group: &sub.group, version: &sub.version, kind: &sub.kind, schema: &sub.schema, custom })
    }

    fn not_as(&self, kind: &str, version: &str, why: &str) -> ApiError {
        let kind = if kind.is_empty() { self.kind } else { kind };
        ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {why}",
            quote(version),
            self.kind
        ))
    }

    /// Fills in apiVersion and kind, or refuses those of something else.
    pub fn check_kind(&self, value: &mut Value) -> ApiResult<()> {
        // Go reads null into any struct and changes nothing.
        if value.is_null() {
            *value = Value::Object(serde_json::Map::new());
        }
        let Value::Object(top) = value else {
            return Err(self.not_as("", self.version, "json: cannot unmarshal into Go value: an object is wanted"));
        };
        let text = |field: &str| top.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, given) = (text("kind"), text("apiVersion"));
        let wanted = api_version(self.group, self.version);
        if self.custom.is_some() && kind.is_empty() {
            let why = format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing",
                self.kind
            );
            return Err(ApiError::bad_request(why));
        }
        if !given.is_empty() && given != wanted {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({wanted})"
            )));
        }
        if !kind.is_empty() && kind != self.kind {
            let group = if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() };
            let why = format!("converting ({}.{kind}) to ({group}.{}): unknown conversion", self.version, self.kind);
            return Err(self.not_as(&kind, self.version, &why));
        }
        top.insert("apiVersion".into(), wanted.into());
        top.insert("kind".into(), self.kind.into());
        Ok(())
    }
}

/// Every protobuf body begins with as many bytes that say what it is.
const PROTOBUF_MAGIC_BYTES: usize = 4;

/// Reads text or protobuf into a tree, whatever it is a tree of.
pub(super) fn parse(format: Format, bytes: &[u8], expected: &Expected<'_>) -> ApiResult<Parsed> {
    let Schema { catalogue, ty } = expected.schema;
    let parsed = match format {
        Format::Json => decode::json(bytes, Some((catalogue, *ty))),
        Format::Yaml => decode::yaml(bytes, Some((catalogue, *ty))),
        Format::Protobuf if expected.custom.is_some() => {
            return Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json, \
                 application/yaml"
                    .into(),
            ));
        }
        Format::Protobuf if decode::is_protobuf(bytes) && bytes.len() == PROTOBUF_MAGIC_BYTES => {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): empty body (6b387300)",
                expected.kind
            )));
        }
        Format::Protobuf => decode::protobuf(bytes, catalogue, *ty).map(|value| Parsed { value, problems: Vec::new() }),
    };
    parsed.map_err(|error| unreadable(expected, bytes, &error))
}

fn unreadable(expected: &Expected<'_>, bytes: &[u8], error: &DecodeError) -> ApiError {
    if matches!(error, DecodeError::TooManyValues | DecodeError::TooLarge(_)) {
        return ApiError::object_too_large();
    }
    ApiError::bad_request(decode::refusal(error, bytes, expected.version, expected.kind))
}

/// Fits a tree to its kind. To the problems of its text come the fields that the kind does not have, in words.
pub(super) fn fit(
    value: Value,
    mut problems: Vec<String>,
    expected: &Expected<'_>,
) -> Result<(Value, Vec<String>), DecodeError> {
    let Fitted { value, unknown } = match expected.custom {
        None => decode::fit(&expected.schema.catalogue, expected.schema.ty, value)?,
        Some(custom) => fit_custom(value, custom)?,
    };
    // The reader of a text has named them already, in the order of the text.
    let known: HashSet<String> = problems.iter().cloned().collect();
    let others = unknown.iter().map(|path| format!("unknown field {}", quote(path)));
    problems.extend(others.filter(|problem| !known.contains(problem)));
    Ok((value, problems))
}

/// A custom resource loses what its schema does not know; wrong types are found by its validation. Its metadata is that
/// of any object.
fn fit_custom(mut value: Value, custom: &CustomKind) -> Result<Fitted, DecodeError> {
    let facts = &kinds::facts::facts().catalogue;
    let mut unknown = Vec::new();
    if let (Some(metadata), Some(ty)) = (value.get_mut("metadata"), facts.named(OBJECT_META)) {
        let fitted = decode::fit(facts, ty, metadata.take())?;
        *metadata = fitted.value;
        unknown.extend(fitted.unknown.iter().map(|path| format!("metadata.{path}")));
    }
    unknown.extend(custom.structural.prune(&mut value));
    Ok(Fitted { value, unknown })
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Api {
    /// The object in the request's body.
    pub(super) fn decode(
        &self,
        call: &Call,
        expected: &Expected<'_>,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Value> {
        let parsed = parse(body_format(&call.headers)?, &call.body, expected)?;
        let mut value = parsed.value;
        expected.check_kind(&mut value)?;
        let (value, problems) = fit(value, parsed.problems, expected).map_err(|error| match error {
            DecodeError::TooLarge(_) => ApiError::object_too_large(),
            error => expected.not_as("", expected.version, &error.to_string()),
        })?;
        match validation {
            FieldValidation::Strict if !problems.is_empty() => {
                let why = format!("strict decoding error: {}", problems.join(", "));
                Err(expected.not_as("", expected.version, &why))
            }
            FieldValidation::Warn => {
                warnings.extend(problems);
                Ok(value)
            }
            _ => Ok(value),
        }
    }

    /// Defaults that schema and kind give.
    pub(super) fn default(&self, served: &Served, value: &mut Value) -> ApiResult<()> {
        let filled = match &served.custom {
            None => decode::apply_defaults(&served.schema.catalogue, served.schema.ty, value),
            Some(custom) => custom.structural.default(value),
        };
        filled.map_err(|_| ApiError::object_too_large())?;
        served.strategy.default(value);
        Ok(())
    }

    /// Lets other objects and the families fill in and refuse. May run again on its own result.
    pub(super) fn admit(&self, write: &Admitting<'_>, object: &mut Value) -> ApiResult<()> {
        let world = CacheWorld(&self.parts().cache);
        let key = write.key;
        let refused = |why: String| ApiError::forbidden(&key.resource, &key.name, &why);
        steps::admit(&mut write.admission(object), &world).map_err(refused)?;
        for family in self.parts().families.iter() {
            family.admit(&mut write.admission(object), &world).map_err(refused)?;
        }
        Ok(())
    }

    /// What the families have against the object, and what they warn of.
    pub(super) fn family_errors(
        &self,
        write: &Admitting<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Vec<FieldError> {
        let world = CacheWorld(&self.parts().cache);
        let mut errors = Vec::new();
        for family in self.parts().families.iter() {
            let request = write.admission(object);
            let remarks = family.validate(&request, &world);
            errors.extend(remarks.errors);
            warnings.extend(remarks.warnings);
        }
        errors
    }

    /// Nobody grants what they do not hold: writes of roles and bindings need more than the right to write them.
    pub(super) async fn check_grant(
        &self,
        kind: RbacKind,
        call: &Call,
        key: &ObjectKey,
        old: Option<&Value>,
        new: &Value,
    ) -> ApiResult<()> {
        let change = RoleChange { kind, namespace: &key.namespace, name: &key.name, old, new };
        let (rbac, identity) = (&self.parts().rbac, &*call.identity);
        let check = || match kind {
            RbacKind::Role | RbacKind::ClusterRole => check_role(rbac, identity, change),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => check_binding(rbac, identity, change),
        };
        // However short the request is, what its writer holds may be long.
        let checked = if identity.is_master() { check() } else { self.at_length(call, check).await? };
        checked.map_err(|denial| match denial {
            crate::authz::Denial::Forbidden(message) => {
                ApiError::forbidden_as_said(&key.resource.group, &key.resource.resource, &key.name, message)
            }
            crate::authz::Denial::NoSuchRole { kind, name } => {
                ApiError::not_found(&GroupResource::new(RbacKind::GROUP, kind), &name)
            }
        })
    }

    /// Hands a write to the sequencer and waits until it is durable, or refused.
    pub(super) async fn submit(&self, mut write: Write) -> ApiResult<Result<Written, Refused>> {
        // Held while what the write counts is counted before it.
        let mut turn = None;
        let (mut asked, mut known) = (0, None::<Box<Known>>);
        loop {
            let (key, origin) = (write.key.clone(), write.origin.clone());
            let (dry_run, now_ms, identity) = (write.dry_run, write.now_ms, origin.identity.clone());
            let write_again = |kind, foresight| Write { key, kind, dry_run, now_ms, foresight, origin };
            let command =
                if turn.is_some() { Command::Stage(Box::new(write)) } else { Command::Write(Box::new(write)) };
            let postponed = match self.parts().writes.submit(command).await.map_err(|_| ApiError::stopping())? {
                Answer::Postponed(postponed) => postponed,
                answer => return Ok(answer.written()),
            };
            let kind = match postponed.recount {
                Some(Recount::ToBegin) => {
                    let taken = self.inner.long.stagings.take(&identity).await;
                    turn = Some(taken.map_err(|_| ApiError::too_many_requests())?);
                    postponed.kind
                }
                Some(Recount::Begun(ticket)) => {
                    asked += 1;
                    self.count_on(ticket).await?;
                    postponed.kind
                }
                None => {
                    asked += 1;
                    let evaluated = tokio::task::spawn_blocking(move || postponed.evaluate()).await;
                    let (kind, found) = evaluated.map_err(|_| ApiError::stopping())?;
                    // What was asked for before will be asked for again.
                    known.get_or_insert_default().join(found);
                    kind
                }
            };
            // Policies that change all the while must not keep a write from being decided.
            let foresight = match known.clone() {
                None if asked < ASKED_MAX => Foresight::Asked,
                Some(known) if asked < ASKED_MAX => Foresight::Known(known),
                known => Foresight::Last(known.unwrap_or_default()),
            };
            write = write_again(kind, foresight);
        }
    }

    /// Counts what a write was put off for, to its end. Others are let in between two slices, and nobody but the write waits for
    /// expressions that take long.
    async fn count_on(&self, ticket: u64) -> ApiResult<()> {
        let mut found = Vec::new();
        loop {
            let command = Command::CountOn { ticket, found, now_ms: system_clock() };
            let wanted = match self.parts().writes.submit(command).await.map_err(|_| ApiError::stopping())? {
                Answer::Counted(Counted { is_last: Some(false), wanted }) => wanted,
                // Whatever became of it: the write is sent again, and decided by what is.
                _ => return Ok(()),
            };
            found = Vec::new();
            if !wanted.is_empty() {
                let evaluate = move || wanted.into_iter().map(Wanted::evaluate).collect();
                found = tokio::task::spawn_blocking(evaluate).await.map_err(|_| ApiError::stopping())?;
            }
        }
    }

    /// The same for a write for which something is held. What is held is let go once the write is answered, also when the
    /// client has gone away meanwhile and nobody waits for the answer: what was submitted happens.
    pub(super) async fn submit_holding(
        &self,
        write: Write,
        held: Option<impl Send + 'static>,
    ) -> ApiResult<Result<Written, Refused>> {
        let Some(held) = held else { return self.submit(write).await };
        let api = self.clone();
        let task = tokio::spawn(async move {
            let answer = api.submit(write).await;
            drop(held);
            answer
        });
        task.await.unwrap_or_else(|_| Err(ApiError::stopping()))
    }

    pub(super) fn refused(&self, call: &Call, key: &ObjectKey, refused: Refused) -> ApiError {
        let refused = self.for_reader(call, key, refused);
        ApiError::refused(refused, key, &call.served.kind, &self.parts().families)
    }
}

/// What a custom resource's schema has against it.
pub(super) fn schema_errors(served: &Served, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    served.custom.as_ref().map(|custom| custom.structural.validate(object, old)).unwrap_or_default()
}

/// The object ready for the sequencer, at the version it is stored under. `managed` is its managedFields as text, when
/// they do not stand in the object.
pub(super) fn draft(served: &Served, mut value: Value, managed: Option<&str>) -> ApiResult<Draft> {
    // Whoever wrote it and whatever webhooks returned: on the shelf of a kind stand objects of that kind.
    let stored_version = served.custom.as_ref().map_or(&*served.version, |custom| &*custom.stored_version);
    if let Value::Object(top) = &mut value {
        top.insert("apiVersion".into(), api_version(&served.resource.group, stored_version).into());
        top.insert("kind".into(), (*served.kind).into());
    }
    if let Some(alias) = &served.alias {
        (alias.to_stored)(&mut value);
    }
    Draft::with_managed_fields(value, managed).map_err(|error| match error {
        DraftError::TooDeep => ApiError::unprocessable(error.to_string()),
        DraftError::TooLarge(_) => ApiError::object_too_large(),
        error => ApiError::internal(error),
    })
}

/// Whether an object is short enough to be stored. One that is too long already may get shorter.
pub(super) fn check_size(draft: &Draft, stored: Option<&Object>) -> ApiResult<()> {
    let grows = stored.is_none_or(|stored| draft.bytes() > stored.json.len());
    if draft.bytes() > OBJECT_BYTES_MAX && grows { Err(ApiError::object_too_large()) } else { Ok(()) }
}

/// A write as families see it.
pub(super) struct Admitting<'a> {
    pub operation: Operation,
    pub subresource: &'a str,
    pub key: &'a ObjectKey,
    pub old: Option<&'a Value>,
    pub origin: &'a Origin,
}

impl Admitting<'_> {
    fn admission<'o>(&'o self, object: &'o mut Value) -> Admission<'o> {
        Admission {
            operation: self.operation,
            resource: &self.key.resource,
            subresource: self.subresource,
            namespace: &self.key.namespace,
            name: &self.key.name,
            object,
            old: self.old,
            origin: self.origin,
        }
    }
}

pub(crate) struct CacheWorld<'a>(pub &'a Cache);

impl World for CacheWorld<'_> {
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let listing = self.0.list(resource);
        listing.range(namespace, None).map(|object| object.tree()).collect()
    }

    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = ObjectKey::new(resource.clone(), namespace, name);
        self.0.get(&key).map(|object| object.recent())
    }

    fn parsed_one(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        make: &dyn Fn(&Value) -> families::Parsed,
    ) -> Option<families::Parsed> {
        let key = ObjectKey::new(resource.clone(), namespace, name);
        self.0.get(&key).map(|object| object.parsed(make))
    }

    fn parsed(
        &self,
        resource: &GroupResource,
        namespace: &str,
        make: &dyn Fn(&Value) -> families::Parsed,
    ) -> Vec<families::Parsed> {
        let listing = self.0.list(resource);
        listing.range(namespace, None).map(|object| object.parsed(make)).collect()
    }
}

/// The name in the body of an update has to be the one in the path.
pub(super) fn check_name(call: &Call, object: &Value) -> ApiResult<()> {
    match meta::text(object, "name") {
        "" => Err(ApiError::bad_request(
            "the name of the object (based on URL) was undeterminable: name must be provided",
        )),
        name if name != call.info.name => Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.info.name
        ))),
        _ => match (meta::text(object, "namespace"), call.namespace()) {
            ("", _) | (_, "") => Ok(()),
            (given, namespace) if given == namespace => Ok(()),
            (given, namespace) => Err(ApiError::bad_request(format!(
                "the namespace of the object ({given}) does not match the namespace on the request ({namespace})"
            ))),
        },
    }
}

/// Which of the kinds that grant rights an object is of; mostly none.
pub(super) fn grants(key: &ObjectKey) -> Option<RbacKind> {
    let of_group = &*key.resource.group == RbacKind::GROUP;
    of_group.then(|| RbacKind::from_resource(&key.resource.resource)).flatten()
}
