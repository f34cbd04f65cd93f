//! PATCH: three ways to say what changes, and server-side apply, which says what the caller wants to own.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode};
use kinds::apply::ApplyError;
use kinds::decode::{DecodeError, Format};
use kinds::field_error::{FieldError, SHOWN_VALUE_BYTES_MAX};
use kinds::patch::{self, PatchError};
use serde_json::Value;

use super::change::{Change, RETRIES_MAX, check_version};
use super::create::{Prepared, held};
use super::managed::Author;
use super::negotiate::{PatchType, patch_type};
use super::options::{FieldValidation, WriteOptions};
use super::prepare::{Expected, check_name, fit, parse};
use super::{Api, ApiError, ApiResult, Call, meta, response};
use crate::authz::{Attributes, Decision, forbidden};
use crate::core::{Object, Refused, WriteKind};

impl Api {
    pub(super) async fn patch(&self, call: Call) -> ApiResult<Response<Body>> {
        let expected = Expected::main(&call.served);
        self.patch_as(&call, &expected, "").await
    }

    pub(super) async fn patch_as(
        &self,
        call: &Call,
        expected: &Expected<'_>,
        subresource: &str,
    ) -> ApiResult<Response<Body>> {
        let view = self.view(call)?;
        let how = patch_type(&call.headers, expected.custom.is_none())?;
        let options = WriteOptions::parse(&call.query, "PatchOptions", how == PatchType::Apply)?;
        let author = Author::of(call, &options);
        let patch = Patch::read(call, expected, how)?;
        let key = call.key();
        let writer = (how != PatchType::Apply).then_some(&author);
        let change = Change { call, key: &key, subresource, dry_run: options.dry_run, author: writer };
        let answer = |code, object: &Object, warnings: &[String]| {
            response::object(code, view.object(&self.parts().cache, object), warnings)
        };
        for _ in 0..RETRIES_MAX {
            let mut warnings = Vec::new();
            let changed = self.change(change, &mut warnings, |old, warnings| {
                let new = patch.apply(Some(old), call, expected, &options, &author, subresource, warnings)?;
                check_name(call, &new)?;
                check_version(&key, &new, old)?;
                Ok(new)
            });
            if let Some(object) = changed.await? {
                return Ok(answer(StatusCode::OK, &object, &warnings));
            }
            if how != PatchType::Apply || !subresource.is_empty() {
                return Err(call.not_found());
            }
            let created = self.create_applied(call, expected, &patch, &options, &author, &mut warnings);
            if let Some(object) = created.await? {
                return Ok(answer(StatusCode::CREATED, &object, &warnings));
            }
        }
        Err(ApiError::modified(&key.resource, &key.name))
    }

    /// The request was let in to patch. What would create has to be allowed to create as well.
    fn check_may_create(&self, call: &Call) -> ApiResult<()> {
        let asked = Attributes { verb: "create", ..call.info.attributes() };
        match self.parts().rbac.authorize(&call.identity, &asked) {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied { reason } => {
                let message = forbidden(&call.identity, &asked, &reason);
                Err(ApiError::forbidden_as_said(asked.group, asked.resource, asked.name, message))
            }
        }
    }

    /// Applying what does not exist creates it. None when it exists by now.
    async fn create_applied(
        &self,
        call: &Call,
        expected: &Expected<'_>,
        patch: &Patch,
        options: &WriteOptions,
        author: &Author,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Option<Arc<Object>>> {
        self.check_may_create(call)?;
        if !meta::text(&patch.value, "uid").is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                meta::text(&patch.value, "uid")
            );
            return Err(ApiError::conflict(&call.served.resource, &call.info.name, &why));
        }
        let new = patch.apply(None, call, expected, options, author, "", warnings)?;
        check_name(call, &new)?;
        let prepared = self.prepare_create(call, new, None, options, warnings).await?;
        let Prepared { key, draft, reservation, turn } = prepared;
        let (kind, dry_run) = (WriteKind::Create(draft), options.dry_run);
        match self.submit_holding(call.asks(&key, kind, dry_run), held(reservation, turn)).await? {
            Ok(written) => Ok(Some(written.object)),
            Err(Refused::AlreadyExists) => Ok(None),
            Err(refused) => Err(self.refused(call, &key, refused)),
        }
    }
}

/// A patch as it was sent.
pub(super) struct Patch {
    how: PatchType,
    value: Value,
    /// Duplicate fields in its text, in words.
    problems: Vec<String>,
}

impl Patch {
    pub fn read(call: &Call, expected: &Expected<'_>, how: PatchType) -> ApiResult<Patch> {
        if how == PatchType::Apply {
            let parsed = parse(Format::Yaml, &call.body, expected)
                .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {}", error.message)))?;
            return Ok(Patch { how, value: parsed.value, problems: parsed.problems });
        }
        let parsed = kinds::decode::json(&call.body, None)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
        Ok(Patch { how, value: parsed.value, problems: parsed.problems })
    }

    /// The patched object, fitted to its kind.
    pub fn apply(
        &self,
        old: Option<&Value>,
        call: &Call,
        expected: &Expected<'_>,
        options: &WriteOptions,
        author: &Author,
        subresource: &str,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Value> {
        let schema = expected.schema;
        let original = || old.cloned().unwrap_or_default();
        let patched = match self.how {
            PatchType::Json => patch::json_patch(original(), &self.value),
            PatchType::Merge => patch::merge_patch(original(), &self.value),
            PatchType::Strategic => patch::strategic(original(), self.value.clone(), &schema.catalogue, schema.ty),
            PatchType::Apply => {
                let by = author.writer(call, subresource);
                return kinds::apply::apply(old, &self.value, &by, options.force)
                    .map_err(|error| match error {
                        ApplyError::Conflict(conflicts) => {
                            ApiError::apply_conflict(conflicts.to_string(), conflicts.causes())
                        }
                        ApplyError::BadRequest(why) => ApiError::bad_request(why),
                    })
                    .and_then(|value| self.fit(value, expected, options, warnings));
            }
        };
        let patched = patched.map_err(|error| match error {
            PatchError::BadRequest(why) => ApiError::bad_request(why),
            PatchError::TooLarge(why) => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", why),
            PatchError::Unprocessable(why) => ApiError::unprocessable(why),
        })?;
        self.fit(patched, expected, options, warnings)
    }

    fn fit(
        &self,
        mut value: Value,
        expected: &Expected<'_>,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Value> {
        // A patch changes an object, not what kind of object it is.
        expected.check_kind(&mut value)?;
        let refused = |why: String| {
            // Nobody reads a megabyte that they sent.
            let shown: String = self.value.to_string().chars().take(SHOWN_VALUE_BYTES_MAX).collect();
            ApiError::invalid("", "", "", &[FieldError::invalid("patch", shown, why)])
        };
        let (value, problems) = fit(value, self.problems.clone(), expected).map_err(|error| match error {
            DecodeError::TooLarge(_) => ApiError::object_too_large(),
            error => refused(error.to_string()),
        })?;
        match options.field_validation {
            FieldValidation::Strict if !problems.is_empty() => {
                Err(refused(format!("strict decoding error: {}", problems.join(", "))))
            }
            FieldValidation::Warn => {
                warnings.extend(problems);
                Ok(value)
            }
            _ => Ok(value),
        }
    }
}
