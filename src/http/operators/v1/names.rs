//! Names of rules in queries.

use weir_common::suggest::Suggester;
use weir_rules::{Rule, RuleSet};

/// The longest text of a client in an error.
pub(super) const MAX_CHARS: usize = 100;

/// A name that no rule has.
pub(super) struct Unknown<'a> {
    /// `domain` or `rule`.
    pub what: &'static str,
    pub name: &'a str,
    /// The most similar name of a rule.
    pub near: Option<&'a str>,
}

/// Returns the domain if there are no rules for it, else the path if none of them has it.
pub(super) fn unknown<'a>(
    rules: &'a RuleSet,
    domain: &'a str,
    rule: Option<&'a str>,
) -> Option<Unknown<'a>> {
    let mut suggester = Suggester::default();
    if rules.domain(domain).is_none() {
        let near = rules.nearest_domain(domain, &mut suggester);
        return Some(Unknown { what: "domain", name: domain, near });
    }
    let name = rule?;
    let of_domain = rules.rules().filter(|rule| rule.domain() == domain);
    let paths: Vec<&str> = of_domain.map(Rule::path).collect();
    let is_known = paths.contains(&name);
    let near = || suggester.nearest(name, paths.into_iter());
    (!is_known).then(|| Unknown { what: "rule", name, near: near() })
}
