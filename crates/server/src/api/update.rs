//! PUT.

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::Value;

use super::change::{Change, check_uid};
use super::managed::Author;
use super::options::WriteOptions;
use super::prepare::{Expected, check_name};
use super::{Api, ApiError, ApiResult, Call, meta, response};

impl Api {
    pub(super) async fn update(&self, call: Call) -> ApiResult<Response<Body>> {
        let expected = Expected::main(&call.served);
        self.update_as(&call, &expected, "").await
    }

    pub(super) async fn update_as(
        &self,
        call: &Call,
        expected: &Expected<'_>,
        subresource: &str,
    ) -> ApiResult<Response<Body>> {
        let view = self.view(call)?;
        let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
        let key = call.key();
        let author = Author::of(call, &options);
        let read = |warnings: &mut Vec<String>| {
            let new = self.decode(call, expected, options.field_validation, warnings)?;
            check_name(call, &new).map(|()| new)
        };
        let modified = || ApiError::modified(&key.resource, &key.name);
        let change = Change { call, key: &key, subresource, dry_run: options.dry_run, author: Some(&author) };
        let (mut warnings, mut is_conditional) = (Vec::new(), false);
        let changed = self.change(change, &mut warnings, |old, warnings| {
            // What was made from one version is not made again from the next.
            if is_conditional {
                return Err(modified());
            }
            let new = read(warnings)?;
            is_conditional = self.check_version(call, &new, old)?;
            Ok(new)
        });
        match changed.await? {
            Some(object) => Ok(response::object(StatusCode::OK, view.object(&self.parts().cache, &object), &warnings)),
            None if is_conditional => Err(modified()),
            None => {
                read(&mut warnings)?;
                Err(call.not_found())
            }
        }
    }

    /// Whether the new object says which version it was made from; refused when that is not the stored one.
    fn check_version(&self, call: &Call, new: &Value, old: &Value) -> ApiResult<bool> {
        let (resource, name) = (&call.served.resource, &call.info.name);
        check_uid(resource, name, new, old)?;
        match meta::text(new, "resourceVersion") {
            "" | "0" if call.served.strategy.allows_unconditional_update() => Ok(false),
            "" | "0" => Err(call.invalid(name, &[meta::version_required()])),
            version if version == meta::text(old, "resourceVersion") => Ok(true),
            version if version.parse::<u64>().is_err() => {
                let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
                let error = kinds::field_error::FieldError::invalid("metadata.resourceVersion", version, why);
                Err(call.invalid(name, &[error]))
            }
            _ => Err(ApiError::modified(resource, name)),
        }
    }
}
