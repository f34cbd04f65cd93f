//! One rule of a role, and the two questions about it: does it allow a request, does it cover another rule.

use serde_json::{Map, Value, json};

use super::Attributes;

/// Breaking a rule into its single permissions multiplies verbs, groups, resources and names; a role that makes more
/// than this many is refused rather than letting one request spend seconds in the comparison.
pub const PERMISSIONS_MAX: usize = 50_000;

pub(super) const ALL: &str = "*";

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

/// The `rules` of a Role or ClusterRole. Whatever is not a list of strings is read as empty, which grants nothing.
pub fn parse_rules(role: &Value) -> Vec<Rule> {
    let Some(rules) = role.get("rules").and_then(Value::as_array) else { return Vec::new() };
    rules.iter().map(Rule::parse).collect()
}

impl Rule {
    pub fn parse(value: &Value) -> Rule {
        let strings = |field: &str| -> Vec<String> {
            let list = value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: strings("verbs"),
            groups: strings("apiGroups"),
            resources: strings("resources"),
            resource_names: strings("resourceNames"),
            non_resource_urls: strings("nonResourceURLs"),
        }
    }

    pub fn to_value(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |field: &str, list: &[String]| {
            if !list.is_empty() {
                fields.insert(field.into(), json!(list));
            }
        };
        put("apiGroups", &self.groups);
        put("resources", &self.resources);
        put("resourceNames", &self.resource_names);
        put("nonResourceURLs", &self.non_resource_urls);
        put("verbs", &self.verbs);
        Value::Object(fields)
    }

    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        if !has(&self.verbs, asked.verb) {
            return false;
        }
        if asked.is_resource() {
            has(&self.groups, asked.group)
                && self.resources.iter().any(|rule| resource_matches(rule, asked.resource, asked.subresource))
                && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == asked.name))
        } else {
            self.non_resource_urls.iter().any(|rule| url_matches(rule, asked.path))
        }
    }

    /// Whether holding `self` means holding everything in `other`.
    pub fn covers(&self, other: &Rule) -> bool {
        let verbs = other.verbs.iter().all(|verb| has(&self.verbs, verb));
        let resources = other.groups.iter().all(|group| has(&self.groups, group))
            && other.resources.iter().all(|resource| {
                let (base, sub) = resource.split_once('/').unwrap_or((resource, ""));
                self.resources.iter().any(|rule| rule == resource || resource_matches(rule, base, sub))
            });
        // An empty list of names means all names, so a limited holder covers only a limited rule.
        let names = self.resource_names.is_empty()
            || (!other.resource_names.is_empty()
                && other.resource_names.iter().all(|name| self.resource_names.contains(name)));
        let urls =
            other.non_resource_urls.iter().all(|url| self.non_resource_urls.iter().any(|rule| url_matches(rule, url)));
        verbs && resources && names && urls
    }

    /// The single permissions of this rule: one verb on one resource of one group (and one name), or on one URL.
    /// `None` when there are more than `room`.
    pub fn permissions(&self, room: usize) -> Option<Vec<Rule>> {
        let names = self.resource_names.len().max(1);
        let count = [self.groups.len(), self.resources.len(), names]
            .iter()
            .try_fold(1_usize, |product, len| product.checked_mul(*len))?
            .checked_add(self.non_resource_urls.len())?
            .checked_mul(self.verbs.len())?;
        if count > room {
            return None;
        }
        let mut single = Vec::with_capacity(count);
        for verb in &self.verbs {
            for group in &self.groups {
                for resource in &self.resources {
                    let base = Rule {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        single.push(base);
                        continue;
                    }
                    for name in &self.resource_names {
                        single.push(Rule { resource_names: vec![name.clone()], ..base.clone() });
                    }
                }
            }
            for url in &self.non_resource_urls {
                single.push(Rule {
                    verbs: vec![verb.clone()],
                    non_resource_urls: vec![url.clone()],
                    ..Rule::default()
                });
            }
        }
        Some(single)
    }

    /// One line, as Kubernetes prints a rule in an escalation refusal: `{APIGroups:[""], Resources:["pods"], …}`.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        let mut put = |field: &str, list: &[String]| {
            if !list.is_empty() {
                parts.push(format!("{field}:{}", quoted(list)));
            }
        };
        put("APIGroups", &self.groups);
        put("Resources", &self.resources);
        put("NonResourceURLs", &self.non_resource_urls);
        put("ResourceNames", &self.resource_names);
        put("Verbs", &self.verbs);
        format!("{{{}}}", parts.join(", "))
    }
}

/// A list as Go's `%q` prints it: `["a" "b"]`.
pub(super) fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

fn has(list: &[String], asked: &str) -> bool {
    list.iter().any(|item| item == asked || item == ALL)
}

/// `*`, `pods`, `pods/status` and `*/status`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((base, sub)) => !subresource.is_empty() && sub == subresource && (base == resource || base == ALL),
    }
}

/// The whole path, or a prefix when the rule ends in `*`.
pub(super) fn url_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `verbs groups resources [names]`, comma-separated lists, `-` for the core group; or `verbs url urls`.
    fn rule(line: &str) -> Rule {
        let list = |field: &str| -> Vec<String> {
            field.split(',').map(|item| if item == "-" { String::new() } else { item.into() }).collect()
        };
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [verbs, "url", urls] => Rule { verbs: list(verbs), non_resource_urls: list(urls), ..Rule::default() },
            [verbs, groups, resources] => {
                Rule { verbs: list(verbs), groups: list(groups), resources: list(resources), ..Rule::default() }
            }
            [verbs, groups, resources, names] => Rule {
                verbs: list(verbs),
                groups: list(groups),
                resources: list(resources),
                resource_names: list(names),
                ..Rule::default()
            },
            _ => panic!("not a rule: {line}"),
        }
    }

    #[test]
    fn a_rule_allows_what_it_names_and_nothing_else() {
        let cases = [
            ("get - pods", "get - pods", true),
            ("get - pods", "list - pods", false),
            ("get - pods", "get apps pods", false),
            ("get - pods", "get - pods/status", false),
            ("get - pods/status", "get - pods", false),
            ("get - pods/status", "get - pods/status", true),
            ("get - */status", "get - pods/status", true),
            ("get - */status", "get - pods", false),
            ("get - */status", "get - pods/scale", false),
            ("get - *", "get - pods/scale", true),
            ("* * *", "impersonate - users", true),
            ("get - pods a,b", "get - pods b", true),
            ("get - pods a,b", "get - pods c", false),
            ("get - pods a,b", "get - pods", false),
            ("get url /metrics", "get url /metrics", true),
            ("get url /metrics", "get url /metrics/x", false),
            ("get url /api/*", "get url /api/v1", true),
            ("get url /api/*", "get url /api", false),
            ("get url *", "get url /anything", true),
            ("post url *", "get url /anything", false),
            ("* * *", "get url /api", false),
            ("get url *", "get - pods", false),
        ];
        for (held, asked, expected) in cases {
            let wanted = rule(asked);
            let (resource, subresource) = match wanted.resources.first() {
                Some(text) => text.split_once('/').unwrap_or((text, "")),
                None => ("", ""),
            };
            let attributes = Attributes {
                verb: &wanted.verbs[0],
                group: wanted.groups.first().map_or("", String::as_str),
                resource,
                subresource,
                name: wanted.resource_names.first().map_or("", String::as_str),
                path: wanted.non_resource_urls.first().map_or("", String::as_str),
                ..Attributes::default()
            };
            assert_eq!(rule(held).allows(&attributes), expected, "{held} | {asked}");
            assert_eq!(rule(held).covers(&wanted), expected, "covers: {held} | {asked}");
        }
    }

    #[test]
    fn covering_is_by_lists_and_stars() {
        let cases = [
            ("get,list - pods,services", "get - pods,services", true),
            ("get - pods", "get,list - pods", false),
            ("get - *", "get - */status", true),
            ("get - */status", "get - */status", true),
            ("get - pods", "get - *", false),
            ("get - pods", "* - pods", false),
            ("get url /a*", "get url /ab*", true),
            ("get url /a/b", "get url /a*", false),
        ];
        for (held, other, expected) in cases {
            assert_eq!(rule(held).covers(&rule(other)), expected, "{held} | {other}");
        }
    }

    #[test]
    fn the_breakdown_is_bounded() {
        let many = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        let wide = Rule { verbs: many(100), groups: many(100), resources: many(100), ..Rule::default() };
        assert_eq!(wide.permissions(PERMISSIONS_MAX), None);
        assert_eq!(rule("get,list - pods a,b").permissions(PERMISSIONS_MAX).map(|list| list.len()), Some(4));
        assert_eq!(rule("get,list url /a,/b").permissions(4).map(|list| list.len()), Some(4));
    }
}
