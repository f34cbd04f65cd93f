//! What somebody holds, arranged so that one permission is found among thousands of rules without reading them all.
//!
//! Whoever may write roles decides how many rules there are on both sides of a comparison. So each word of a rule leads to
//! the rules that have it, the rarest word of a question is followed, and all steps of one comparison are counted.

use std::cell::Cell;

use hashbrown::{HashMap, HashSet};

use super::rules::{ALL, Rule, url_matches};

/// Steps that one comparison may take. An ordinary role against what an administrator of a namespace holds takes some
/// thousands; this many take a few hundredths of a second.
pub(crate) const STEPS_MAX: usize = 500_000;

/// A comparison that would take longer than anybody may keep a thread busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

#[derive(Default)]
struct Words<'a> {
    rules: HashMap<&'a str, Vec<u32>>,
    has: HashSet<(u32, &'a str)>,
}

impl<'a> Words<'a> {
    fn add(&mut self, rule: u32, words: &'a [String]) {
        for word in words {
            if self.has.insert((rule, word)) {
                self.rules.entry(word).or_default().push(rule);
            }
        }
    }

    fn of(&self, words: &[&str]) -> Vec<u32> {
        words.iter().filter_map(|word| self.rules.get(word)).flatten().copied().collect()
    }

    fn count(&self, words: &[&str]) -> usize {
        words.iter().filter_map(|word| self.rules.get(word)).map(Vec::len).sum()
    }

    fn any(&self, rule: u32, words: &[&str]) -> bool {
        words.iter().any(|word| self.has.contains(&(rule, *word)))
    }
}

pub(super) struct Held<'a> {
    rules: Vec<&'a Rule>,
    verbs: Words<'a>,
    groups: Words<'a>,
    resources: Words<'a>,
    names: Words<'a>,
    /// Rules about all names.
    nameless: Vec<u32>,
    /// Rules about paths.
    paths: Vec<u32>,
    steps: Cell<usize>,
}

impl<'a> Held<'a> {
    pub fn new(rules: &'a [Rule]) -> Held<'a> {
        let mut held = Held {
            rules: Vec::new(),
            verbs: Words::default(),
            groups: Words::default(),
            resources: Words::default(),
            names: Words::default(),
            nameless: Vec::new(),
            paths: Vec::new(),
            steps: Cell::new(0),
        };
        let mut known = HashSet::new();
        for rule in rules.iter().filter(|rule| known.insert(*rule)) {
            let Ok(at) = u32::try_from(held.rules.len()) else { break };
            held.rules.push(rule);
            held.verbs.add(at, &rule.verbs);
            held.groups.add(at, &rule.groups);
            held.resources.add(at, &rule.resources);
            held.names.add(at, &rule.resource_names);
            if rule.resource_names.is_empty() {
                held.nameless.push(at);
            }
            if !rule.non_resource_urls.is_empty() {
                held.paths.push(at);
            }
        }
        held
    }

    /// Whether one of the rules covers all of another.
    pub fn covers(&self, rule: &Rule) -> Result<bool, TooLong> {
        for at in self.likely(rule) {
            if self.has_all(at, rule)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The rules that may cover another: those that have the rarest of its first words. Whatever covers it is among those
    /// of each of its words.
    fn likely(&self, one: &Rule) -> Vec<u32> {
        let Some(resource) = one.resources.first() else {
            let all = 0..u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
            return if one.non_resource_urls.is_empty() { all.collect() } else { self.paths.clone() };
        };
        let patterns = resource_patterns(resource);
        let mut sorts = vec![(&self.resources, patterns.iter().map(String::as_str).collect::<Vec<&str>>())];
        for (words, word) in [(&self.verbs, one.verbs.first()), (&self.groups, one.groups.first())] {
            sorts.extend(word.map(|word| (words, vec![word.as_str(), ALL])));
        }
        let rarest =
            sorts.into_iter().map(|(words, of)| (words.count(&of), words, of)).min_by_key(|(count, ..)| *count);
        let mut named: Vec<u32> = one.resource_names.first().map(|name| self.names.of(&[name])).unwrap_or_default();
        match rarest {
            Some((count, words, of)) if count < named.len() + self.nameless.len() => words.of(&of),
            _ => {
                named.extend(&self.nameless);
                named
            }
        }
    }

    fn has_all(&self, at: u32, rule: &Rule) -> Result<bool, TooLong> {
        let holds = self.rules[at as usize];
        for verb in &rule.verbs {
            self.step()?;
            if !self.verbs.any(at, &[verb, ALL]) {
                return Ok(false);
            }
        }
        for group in &rule.groups {
            self.step()?;
            if !self.groups.any(at, &[group, ALL]) {
                return Ok(false);
            }
        }
        for resource in &rule.resources {
            self.step()?;
            let patterns = resource_patterns(resource);
            if !patterns.iter().any(|pattern| self.resources.any(at, &[pattern])) {
                return Ok(false);
            }
        }
        // An empty list of names means all names, so a limited holder covers only a limited rule.
        if !holds.resource_names.is_empty() {
            if rule.resource_names.is_empty() {
                return Ok(false);
            }
            for name in &rule.resource_names {
                self.step()?;
                if !self.names.any(at, &[name]) {
                    return Ok(false);
                }
            }
        }
        for url in &rule.non_resource_urls {
            let mut covered = false;
            for pattern in &holds.non_resource_urls {
                self.step()?;
                covered |= url_matches(pattern, url);
            }
            if !covered {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn step(&self) -> Result<(), TooLong> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX { Err(TooLong) } else { Ok(()) }
    }
}

/// What a rule may say to mean this resource: itself, everything, and `*/status` for `pods/status`.
fn resource_patterns(resource: &str) -> Vec<String> {
    let mut patterns = vec![resource.to_owned(), ALL.to_owned()];
    if let Some((_, subresource)) = resource.split_once('/') {
        patterns.push(format!("{ALL}/{subresource}"));
    }
    patterns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Every combination of a few words on both sides: the arrangement says what comparing one by one says.
    #[test]
    fn it_says_what_comparing_each_rule_says() {
        let verbs = [&["get"][..], &["get", "list"], &["*"], &[]];
        let groups = [&[""][..], &["apps", ""], &["*"]];
        let resources = [&["pods"][..], &["pods/status"], &["*/status"], &["*"], &["pods", "secrets"], &["*/*"], &[]];
        let names = [&[][..], &["a"], &["a", "b"]];
        let urls = [&[][..], &["/api/*"], &["/api", "*"]];
        let mut rules = Vec::new();
        for verb in verbs {
            for group in groups {
                for resource in resources {
                    for name in names {
                        for url in urls {
                            rules.push(Rule {
                                verbs: words(verb),
                                groups: words(group),
                                resources: words(resource),
                                resource_names: words(name),
                                non_resource_urls: words(url),
                            });
                        }
                    }
                }
            }
        }
        for (at, asked) in rules.iter().enumerate() {
            // Three held rules, drawn over all of them.
            let held: Vec<Rule> = [at * 7 + 3, at * 13 + 5, at / 2].map(|at| rules[at % rules.len()].clone()).into();
            let expected = held.iter().any(|holds| holds.covers(asked));
            assert_eq!(Held::new(&held).covers(asked), Ok(expected), "{asked:?} by {held:?}");
        }
    }

    #[test]
    fn thousands_of_rules_are_found_by_their_rarest_word_and_the_steps_are_counted() {
        let name = |at: usize| Rule {
            verbs: words(&["get"]),
            groups: words(&[""]),
            resources: words(&["pods"]),
            resource_names: vec![format!("n{at}")],
            ..Rule::default()
        };
        let many: Vec<Rule> = (0..14_000).map(name).collect();
        let held = Held::new(&many);
        assert!(many.iter().all(|rule| held.covers(rule) == Ok(true)));
        assert!(held.steps.get() < 100_000, "{}", held.steps.get());
        // Rules that have every word of the question, but never together.
        let half = |verb: &str, resource: &str| Rule {
            verbs: words(&[verb]),
            groups: words(&[""]),
            resources: words(&[resource]),
            ..Rule::default()
        };
        let mut apart = Vec::new();
        for at in 0..4_000 {
            let own = format!("v{at}");
            apart.push(Rule { verbs: words(&["get", &own]), ..half("", "secrets") });
            apart.push(Rule { resources: words(&["pods", &own]), ..half("list", "") });
        }
        let held = Held::new(&apart);
        let asked = half("get", "pods");
        assert_eq!(held.covers(&asked), Ok(false));
        let all: Result<Vec<bool>, TooLong> = (0..1_000).map(|_| held.covers(&asked)).collect();
        assert_eq!(all, Err(TooLong));
    }
}
