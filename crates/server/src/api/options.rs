//! The options of a request: `ListOptions`, `CreateOptions`, `PatchOptions`, `DeleteOptions`, read from the query (and,
//! for deletions, the body) and checked as Kubernetes checks them.

use kinds::field_error::FieldError;
use serde_json::Value;

use super::status::{ApiError, ApiResult};
use crate::request::percent_decode;

/// Parameters one query may have; clients send a handful.
pub const PARAMETERS_MAX: usize = 64;
/// The longest name of a field manager, as in Kubernetes.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// A decoded query string.
#[derive(Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub fn parse(query: Option<&str>) -> ApiResult<Query> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            if pairs.len() >= PARAMETERS_MAX {
                return Err(ApiError::bad_request(format!("a query may have at most {PARAMETERS_MAX} parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decode(name), decode(value)) {
                (Some(name), Some(value)) => pairs.push((name, value)),
                _ => return Err(ApiError::bad_request("the query is not valid percent-encoded UTF-8")),
            }
        }
        Ok(Query { pairs })
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Kubernetes' reading of a boolean: absent is false, `0` and `false` are false, everything else is true.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
    }

    fn number(&self, name: &str) -> ApiResult<Option<i64>> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }
}

fn decode(text: &str) -> Option<String> {
    if text.contains('+') {
        return percent_decode(&text.replace('+', " ")).map(Into::into);
    }
    percent_decode(text).map(Into::into)
}

/// How the resourceVersion of a list is meant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Match {
    Unset,
    NotOlderThan,
    Exact,
}

/// `ListOptions`, for lists and watches.
#[derive(Debug)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub resource_version: String,
    pub version_match: Match,
    pub limit: usize,
    pub continue_at: String,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    pub fn parse(query: &Query, watch: bool) -> ApiResult<ListOptions> {
        let version_match = query.text("resourceVersionMatch");
        let options = ListOptions {
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
            resource_version: query.text("resourceVersion"),
            version_match: match version_match.as_str() {
                "NotOlderThan" => Match::NotOlderThan,
                "Exact" => Match::Exact,
                _ => Match::Unset,
            },
            limit: query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0),
            continue_at: query.text("continue"),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents"),
            timeout_seconds: query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()),
        };
        let errors = options.check(&version_match, watch);
        if errors.is_empty() {
            return Ok(options);
        }
        Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors))
    }

    fn check(&self, version_match: &str, watch: bool) -> Vec<FieldError> {
        let forbidden = |field: &str, why: &str| vec![FieldError::forbidden(field, why)];
        if !matches!(version_match, "" | "NotOlderThan" | "Exact") {
            return vec![FieldError::not_supported(
                "resourceVersionMatch",
                version_match,
                &["Exact", "NotOlderThan", ""],
            )];
        }
        let field = "resourceVersionMatch";
        if watch {
            return match (self.send_initial_events, self.version_match) {
                (Some(_), Match::NotOlderThan) | (None, Match::Unset) => Vec::new(),
                (Some(_), _) => {
                    forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
                }
                (None, _) => {
                    forbidden(field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
                }
            };
        }
        if self.send_initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        match self.version_match {
            Match::Unset => Vec::new(),
            _ if self.resource_version.is_empty() => {
                forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
            }
            _ if !self.continue_at.is_empty() => {
                forbidden(field, "resourceVersionMatch is forbidden when continue is provided")
            }
            Match::Exact if self.resource_version == "0" => {
                forbidden(field, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
            }
            _ => Vec::new(),
        }
    }
}

/// What happens to fields the kind does not have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// `CreateOptions`, `UpdateOptions` and `PatchOptions`, which are all but the same.
#[derive(Debug)]
pub struct WriteOptions {
    pub dry_run: bool,
    /// As given; empty when the client did not say.
    pub field_manager: String,
    pub field_validation: FieldValidation,
    pub force: bool,
}

impl WriteOptions {
    /// `kind` is the name of the options in messages; `apply` is whether this is a server-side apply.
    pub fn parse(query: &Query, kind: &str, apply: bool) -> ApiResult<WriteOptions> {
        let mut errors = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_manager = query.text("fieldManager");
        if apply && field_manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if field_manager.len() > FIELD_MANAGER_BYTES_MAX {
            errors.push(FieldError::too_long("fieldManager", FIELD_MANAGER_BYTES_MAX));
        }
        if let Some((at, c)) = field_manager.char_indices().find(|(_, c)| c.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
            errors.push(FieldError::invalid("fieldManager", field_manager.as_str(), why));
        }
        let force = query.flag("force");
        if force.is_some() && !apply {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", kind, "", &errors));
        }
        Ok(WriteOptions { dry_run, field_manager, field_validation, force: force.unwrap_or(false) })
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let mut dry = false;
    for value in values.filter(|value| !value.is_empty()) {
        match value {
            "All" => dry = true,
            other => errors.push(FieldError::not_supported("dryRun", other, &["All"])),
        }
    }
    dry
}

/// What becomes of the objects that this one owns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// `DeleteOptions`.
#[derive(Debug, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// `orphanDependents: false` was asked for in as many words.
    pub cascades: bool,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// The body wins over the query, as in Kubernetes. `body` is null when there was none.
    pub fn parse(query: &Query, body: &Value) -> ApiResult<DeleteOptions> {
        let mut errors = Vec::new();
        let field = |name: &str| body.get(name).filter(|value| !value.is_null());
        let listed: Vec<&str> = match field("dryRun") {
            Some(list) => list.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
            None => query.all("dryRun").collect(),
        };
        let dry_run = dry_run(listed.into_iter(), &mut errors);
        let grace_seconds = match field("gracePeriodSeconds") {
            Some(seconds) => seconds.as_i64(),
            None => query.number("gracePeriodSeconds")?,
        };
        let orphan = field("orphanDependents").and_then(Value::as_bool).or_else(|| query.flag("orphanDependents"));
        let policy = field("propagationPolicy").and_then(Value::as_str).or_else(|| query.get("propagationPolicy"));
        if orphan.is_some() && policy.is_some_and(|policy| !policy.is_empty()) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", policy.unwrap_or_default(), why));
        }
        let propagation = match (policy, orphan) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("") | None, None) | (Some(""), _) => None,
            (Some(other), _) => {
                let supported = ["Background", "Foreground", "Orphan"];
                errors.push(FieldError::not_supported("propagationPolicy", other, &supported));
                None
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        let precondition = |name: &str| {
            field("preconditions").and_then(|given| given.get(name)).and_then(Value::as_str).map(str::to_owned)
        };
        Ok(DeleteOptions {
            dry_run,
            grace_seconds,
            propagation,
            cascades: orphan == Some(false),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str, watch: bool) -> Result<ListOptions, String> {
        ListOptions::parse(&Query::parse(Some(query)).map_err(|e| e.message)?, watch).map_err(|error| error.message)
    }

    #[test]
    fn list_options_are_checked_as_kubernetes_does() {
        let cases = [
            ("limit=500&resourceVersion=0", false, ""),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", true, ""),
            ("resourceVersionMatch=NotOlderThan", false, "forbidden unless resourceVersion is provided"),
            ("resourceVersionMatch=Exact&resourceVersion=0", false, "is forbidden for resourceVersion \"0\""),
            ("resourceVersionMatch=Exact&resourceVersion=5", false, ""),
            ("resourceVersionMatch=Never&resourceVersion=5", false, "Unsupported value: \"Never\""),
            ("resourceVersionMatch=Exact&resourceVersion=5&continue=x", false, "forbidden when continue is provided"),
            ("sendInitialEvents=true", true, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
            ("sendInitialEvents=true", false, "sendInitialEvents is forbidden for list"),
            ("resourceVersionMatch=NotOlderThan", true, "is forbidden for watch unless sendInitialEvents is provided"),
            ("limit=abc", false, "strconv.ParseInt: parsing \"abc\": invalid syntax"),
            ("labelSelector=%zz", false, "not valid percent-encoded UTF-8"),
        ];
        for (query, watch, expected) in cases {
            match list(query, watch) {
                Ok(_) => assert_eq!(expected, "", "{query}"),
                Err(message) => assert!(!expected.is_empty() && message.contains(expected), "{query}: {message}"),
            }
        }
    }

    #[test]
    fn write_options_are_checked_as_kubernetes_does() {
        let parse = |query: &str, apply| {
            WriteOptions::parse(&Query::parse(Some(query)).expect("a query"), "PatchOptions", apply)
                .map_err(|e| e.message)
        };
        assert!(parse("dryRun=All", false).expect("fine").dry_run);
        assert!(parse("fieldManager=a%0Ab", false).expect_err("control").contains("invalid character U+000A"));
        let missing = parse("", true).expect_err("no manager");
        assert_eq!(
            missing,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
        assert!(parse("force=true", false).expect_err("force").contains("may not be specified for non-apply patch"));
        assert!(parse("dryRun=Some", false).expect_err("dry").contains("dryRun: Unsupported value: \"Some\""));
        assert!(parse("fieldValidation=Lax", false).expect_err("lax").contains("fieldValidation: Unsupported value"));
    }

    #[test]
    fn deletions_read_the_body_first() {
        let query = Query::parse(Some("gracePeriodSeconds=5&propagationPolicy=Foreground")).expect("a query");
        let options = DeleteOptions::parse(&query, &Value::Null).expect("options");
        assert_eq!((options.grace_seconds, options.propagation), (Some(5), Some(Propagation::Foreground)));
        let body =
            serde_json::json!({"gracePeriodSeconds": 0, "propagationPolicy": "Orphan", "preconditions": {"uid": "u"}});
        let options = DeleteOptions::parse(&query, &body).expect("options");
        assert_eq!((options.grace_seconds, options.propagation), (Some(0), Some(Propagation::Orphan)));
        assert_eq!(options.uid.as_deref(), Some("u"));
        let bad = serde_json::json!({"propagationPolicy": "Never"});
        assert!(DeleteOptions::parse(&Query::default(), &bad).is_err());
    }
}
