//! From the bytes of a request to an object, and from an object to one that fits its kind.
//!
//! ```text
//! JSON ─┐
//! YAML ─┼─> Value ──> fit(schema): wrong types refused, unknown fields found and dropped,
//! proto ┘             values brought into the one form in which they are stored
//! ```
//!
//! [`body`] does all of it. The reader of each format only builds a tree; everything that depends on the kind happens in
//! [`fit`], so an object is the same object whichever way it came in.

mod fit;
mod json;
mod protobuf;
#[cfg(test)]
mod tests;
mod time;
mod yaml;

use serde_json::Value;

pub use fit::{Fitted, apply_defaults, fit};
pub use json::json;
pub use protobuf::{PROTOBUF_MAGIC, protobuf};
pub use yaml::yaml;

use crate::schema::{Catalogue, TypeId};

/// How deep objects and lists may nest. The deepest built-in kinds, CRD schemas aside, need about 20; every walk over an
/// object is recursive, and this bounds its stack.
pub const DEPTH_MAX: usize = 128;

/// How many values one body may hold. The smallest value takes two bytes of text and some 32 of memory; this bounds the
/// memory of a body made of nothing but tiny values, and leaves room for the largest ConfigMap.
pub const VALUES_MAX: usize = 500_000;

/// How many unknown or duplicate fields are named. Kubernetes names as many; the rest adds nothing for the reader.
pub const FIELD_PROBLEMS_MAX: usize = 100;

/// The type of a CRD's schema, which three of its own fields hold or hold something else in its place.
const CRD_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Why a body could not be read. `Display` is what Kubernetes would have said, where it says anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON or YAML at all.
    #[error("{0}")]
    Syntax(String),
    /// A value has the wrong type or does not parse as what its field wants.
    #[error("{0}")]
    Type(String),
    #[error("exceeded max depth")]
    TooDeep,
    #[error("the object has more than {VALUES_MAX} values")]
    TooManyValues,
    #[error("the body is not valid UTF-8")]
    Utf8,
    /// The bytes are not the protobuf message they claim to be.
    #[error("proto: {0}")]
    Protobuf(&'static str),
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind { api_version: String, kind: String },
}

/// A tree and what was odd about its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub value: Value,
    /// Paths of fields that appear twice; the last one counted.
    pub duplicates: Vec<String>,
}

/// The formats a request body can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// An object that fits its kind, and what `fieldValidation` has to say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    pub value: Value,
    /// Ready words, in the order Kubernetes has them: `unknown field "spec.hardd"`, `duplicate field "spec.hard"`.
    pub problems: Vec<String>,
}

/// Reads a body of a built-in kind or of a custom resource and fits it to its type.
pub fn body(format: Format, bytes: &[u8], catalogue: &Catalogue, ty: TypeId) -> Result<Body, DecodeError> {
    let parsed = match format {
        Format::Json => json(bytes, Some((catalogue, ty)))?,
        Format::Yaml => yaml(bytes, Some((catalogue, ty)))?,
        Format::Protobuf => Parsed { value: protobuf(bytes, catalogue, ty)?, duplicates: Vec::new() },
    };
    let Fitted { value, unknown } = fit(catalogue, ty, parsed.value)?;
    let unknown = unknown.iter().map(|path| format!("unknown field {}", crate::field_error::quote(path)));
    let duplicates =
        parsed.duplicates.iter().map(|path| format!("duplicate field {}", crate::field_error::quote(path)));
    Ok(Body { value, problems: duplicates.chain(unknown).collect() })
}

/// Whether bytes are a protobuf body, whatever their content type says.
pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(&PROTOBUF_MAGIC)
}
