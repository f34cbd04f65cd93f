//! Which form the client wants its answer in, and which form its body has.
//!
//! Answers are JSON, or YAML for those who want it first. kubectl and client-go offer protobuf first and read JSON as well.
//! The `as=` parameter asks for a transformation on top: a Table to print, or only the metadata.

use http::{HeaderMap, header};
use kinds::decode::Format;

use super::status::{ApiError, ApiResult};

/// How objects are shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Form {
    #[default]
    Object,
    /// Rows and columns, for printing.
    Table,
    /// Only apiVersion, kind and metadata.
    Metadata,
}

const YAML: &str = "application/yaml";
/// What we answer with, and what an Accept header may ask for and be answered in JSON all the same.
const ANSWERED: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// Header values longer than this are nonsense; it bounds the parsing.
const HEADER_BYTES_MAX: usize = 4096;

/// One alternative of an Accept header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths, as the header allows three digits.
    quality: u32,
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    fn is_json(&self) -> bool {
        matches!(self.media, "*/*" | "application/*")
            || ANSWERED.iter().any(|known| self.media.eq_ignore_ascii_case(known))
    }
}

fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let mut all: Vec<Clause<'_>> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .filter(|text| text.len() <= HEADER_BYTES_MAX)
        .flat_map(|text| text.split(','))
        .filter_map(clause)
        .collect();
    // A stable sort: of equal wishes the first named wins.
    all.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    all
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|media| !media.is_empty())?;
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
        .collect();
    let quality = parameters.iter().find(|(key, _)| *key == "q").map_or(Some(1000), |(_, value)| quality(value))?;
    (quality > 0).then_some(Clause { media, parameters, quality })
}

/// `0.25` in thousandths, without a float.
fn quality(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some((whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(digits.parse().ok()?)?).min(1000))
}

/// The form asked for. `list` says whether the answer is a list (or a watch, whose items count as objects).
pub fn form(headers: &HeaderMap) -> ApiResult<Form> {
    let clauses = clauses(headers);
    if clauses.is_empty() {
        // No header accepts anything; a header of which nothing is left accepts nothing.
        return if headers.contains_key(header::ACCEPT) {
            Err(ApiError::not_acceptable(ANSWERED))
        } else {
            Ok(Form::Object)
        };
    }
    clauses
        .iter()
        .filter(|clause| clause.is_json())
        .find_map(transformation)
        .ok_or_else(|| ApiError::not_acceptable(ANSWERED))
}

fn transformation(clause: &Clause<'_>) -> Option<Form> {
    let Some(kind) = clause.parameter("as") else { return Some(Form::Object) };
    let meta = clause.parameter("g") == Some("meta.k8s.io");
    match (kind, clause.parameter("v")) {
        ("Table", Some("v1" | "v1beta1")) if meta => Some(Form::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", Some("v1" | "v1beta1")) if meta => Some(Form::Metadata),
        _ => None,
    }
}

/// Whether the answer is to be YAML: the first wish that we can fulfil at all is.
pub fn wants_yaml(headers: &HeaderMap) -> bool {
    clauses(headers)
        .iter()
        .find(|clause| clause.is_json() && transformation(clause).is_some())
        .is_some_and(|clause| clause.media.eq_ignore_ascii_case(YAML))
}

/// The version of aggregated discovery the client understands; none for the legacy documents.
pub fn aggregated_discovery(headers: &HeaderMap) -> Option<&'static str> {
    clauses(headers).iter().filter(|clause| clause.is_json()).find_map(|clause| {
        match (clause.parameter("as"), clause.parameter("g"), clause.parameter("v")) {
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Some(Some("v2")),
            // Offered, but not in a version we have: the next alternative.
            (Some(_), ..) => None,
            (None, ..) => Some(None),
        }
    })?
}

/// The four ways to patch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The format of a body. One without a Content-Type is taken for JSON, as Kubernetes does.
pub fn body_format(headers: &HeaderMap) -> ApiResult<Format> {
    match media_type(headers).to_ascii_lowercase().as_str() {
        "" | "application/json" | "text/json" => Ok(Format::Json),
        "application/yaml" | "text/yaml" | "application/x-yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(ApiError::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            ANSWERED.join(", ")
        ))),
    }
}

pub fn patch_type(headers: &HeaderMap, strategic: bool) -> ApiResult<PatchType> {
    match media_type(headers).to_ascii_lowercase().as_str() {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if strategic => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ => {
            let mut accepted = vec!["application/json-patch+json", "application/merge-patch+json"];
            if strategic {
                accepted.push("application/strategic-merge-patch+json");
            }
            accepted.push("application/apply-patch+yaml");
            Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().expect("a header"))])
    }

    #[test]
    fn the_first_form_we_have_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let cases = [
            (kubectl, Some(Form::Table)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Object)),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::Metadata),
            ),
            ("application/json;as=Chart;v=v1;g=meta.k8s.io, */*", Some(Form::Object)),
            ("application/json;as=Chart;v=v1;g=meta.k8s.io", None),
            ("text/html", None),
            ("text/html, application/*;q=0.1", Some(Form::Object)),
            ("application/json;q=0", None),
            ("application/json;q=0.2, application/json;as=Table;v=v1;g=meta.k8s.io;q=0.5", Some(Form::Table)),
            ("", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(form(&headers(header::ACCEPT, accept)).ok(), expected, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new()).ok(), Some(Form::Object));
    }

    #[test]
    fn aggregated_discovery_is_for_those_who_ask_first() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(aggregated_discovery(&headers(header::ACCEPT, kubectl)), Some("v2"));
        assert_eq!(aggregated_discovery(&headers(header::ACCEPT, old)), None);
        assert_eq!(aggregated_discovery(&headers(header::ACCEPT, "application/json")), None);
    }

    #[test]
    fn bodies_come_in_three_formats_and_patches_in_four() {
        let of = |value| body_format(&headers(header::CONTENT_TYPE, value)).ok();
        assert_eq!(of("application/json; charset=utf-8"), Some(Format::Json));
        assert_eq!(of("application/yaml"), Some(Format::Yaml));
        assert_eq!(of("application/vnd.kubernetes.protobuf"), Some(Format::Protobuf));
        assert_eq!(of("application/cbor"), None);
        let patch = |value, strategic| patch_type(&headers(header::CONTENT_TYPE, value), strategic).ok();
        assert_eq!(patch("application/strategic-merge-patch+json", true), Some(PatchType::Strategic));
        assert_eq!(patch("application/strategic-merge-patch+json", false), None);
        assert_eq!(patch("application/json", true), None);
    }
}
