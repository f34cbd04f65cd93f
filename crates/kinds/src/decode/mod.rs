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

pub use crate::bounds::{DEPTH_MAX, VALUES_MAX};
use crate::bounds::{Room, TooLarge};
use crate::facts::facts;
use crate::schema::{Catalogue, TypeId};

/// How many unknown or duplicate fields are named. Kubernetes names as many; the rest adds nothing for the reader.
pub const FIELD_PROBLEMS_MAX: usize = 100;

/// The type of a CRD's schema, which three of its own fields hold or hold something else in its place.
const CRD_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Why a body could not be read. `Display` is what Kubernetes would have said, where it says anything; [`refusal`] makes
/// the message of the answer of it.
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
    /// What the kind always has, or has by default, would make too much of it.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("the body is not valid UTF-8")]
    Utf8,
    /// The bytes are not the envelope of an object.
    #[error("{0}")]
    Envelope(&'static str),
    /// The bytes in the envelope are not the message they claim to be.
    #[error("{0}")]
    Protobuf(&'static str),
    /// The body names a kind that nobody knows.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    /// The body names a kind, but not the one that belongs here.
    #[error("converting ({version}.{kind}) to ({wanted}): unknown conversion")]
    WrongKind { version: String, kind: String, wanted: String },
}

/// A tree and what was odd about its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub value: Value,
    /// See [`Body::problems`].
    pub problems: Vec<String>,
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
    /// Ready words, in the order of the text: `unknown field "spec.hardd"`, `duplicate field "spec.hard"`. They are the
    /// warnings of `fieldValidation=Warn`; for `Strict`, [`strict_refusal`] makes one message of them.
    pub problems: Vec<String>,
}

/// Reads a body of a built-in kind and fits it to its type. A body that names another kind is refused; one that names
/// none is taken for the right one, as Kubernetes does.
pub fn body(format: Format, bytes: &[u8], catalogue: &Catalogue, ty: TypeId) -> Result<Body, DecodeError> {
    let Parsed { value, mut problems } = match format {
        Format::Json => json(bytes, Some((catalogue, ty)))?,
        Format::Yaml => yaml(bytes, Some((catalogue, ty)))?,
        Format::Protobuf => Parsed { value: protobuf(bytes, catalogue, ty)?, problems: Vec::new() },
    };
    check_kind(&value, catalogue, ty)?;
    let Fitted { value, unknown } = fit(catalogue, ty, value)?;
    for path in unknown {
        let problem = format!("unknown field {}", crate::field_error::quote(&path));
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    Ok(Body { value, problems })
}

fn check_kind(value: &Value, catalogue: &Catalogue, ty: TypeId) -> Result<(), DecodeError> {
    let (Some(api_version), Some(kind)) = (value["apiVersion"].as_str(), value["kind"].as_str()) else { return Ok(()) };
    if api_version.is_empty() || kind.is_empty() || !std::ptr::eq(catalogue, &facts().catalogue) {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match facts().kind(group, version, kind) {
        Some(named) if named == ty => Ok(()),
        Some(_) => {
            // The Go package and type: io.k8s.api.core.v1.Pod is core.Pod inside the server.
            let name = catalogue.get(ty).name.as_deref().unwrap_or_default();
            let words: Vec<&str> = name.rsplitn(4, '.').collect();
            let wanted = match &words[..] {
                [kind, _, package, ..] => format!("{package}.{kind}"),
                _ => name.to_owned(),
            };
            Err(DecodeError::WrongKind { version: version.to_owned(), kind: kind.to_owned(), wanted })
        }
        None => Err(DecodeError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() }),
    }
}

/// The message of the 400 answer to a body that could not be read, where an object of this version and kind was wanted.
pub fn refusal(error: &DecodeError, bytes: &[u8], version: &str, kind: &str) -> String {
    let unrecognized = |words: &str| {
        format!("the object provided is unrecognized (must be of type {kind}): {words}{error} ({})", summary(bytes))
    };
    match error {
        DecodeError::Syntax(words) if words.starts_with("yaml: ") => unrecognized(""),
        DecodeError::Syntax(_) | DecodeError::TooDeep => unrecognized("couldn't get version/kind; json parse error: "),
        DecodeError::TooManyValues | DecodeError::TooLarge(_) | DecodeError::Utf8 | DecodeError::Envelope(_) => {
            unrecognized("")
        }
        DecodeError::Type(_) | DecodeError::Protobuf(_) => {
            format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}")
        }
        DecodeError::UnknownKind { api_version, kind: given } => {
            let version = api_version.rsplit('/').next().unwrap_or(api_version);
            format!("{given} in version {version:?} cannot be handled as a {kind}: {error}")
        }
        DecodeError::WrongKind { version, kind: given, .. } => {
            format!("{given} in version {version:?} cannot be handled as a {kind}: {error}")
        }
    }
}

/// The message of the 400 answer under `fieldValidation=Strict`.
pub fn strict_refusal(problems: &[String], version: &str, kind: &str) -> String {
    let problems = problems.join(", ");
    format!("{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {problems}")
}

/// How much of a body that is no object is shown to its sender.
const SUMMARY_BYTES_MAX: usize = 30;

fn summary(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SUMMARY_BYTES_MAX)];
    let more = if shown.len() < bytes.len() { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// Whether bytes are a protobuf body, whatever their content type says.
pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(&PROTOBUF_MAGIC)
}
