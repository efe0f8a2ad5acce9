//! Warns about rules that are valid but probably not meant, where that shows only in a whole rule set: descriptors that
//! others hide, and `replaces` without a rule to replace. Runs once a set is compiled, only for `weir check`.

use std::collections::{HashMap, HashSet};

use crate::matcher::overlap::{HiddenChild, Shadowed};
use crate::matcher::{MatcherNode, RuleSet};
use crate::syntax::position::Origin;
use crate::syntax::problem::{Problem, Problems};
use weir_common::suggest::Suggester;

/// The maximum number of comparisons between descriptors of one level, over a whole set.
const MAX_COMPARISONS: usize = 1 << 23;

/// A name in `replaces`: a rule disables the rules of this name where a request matches both.
#[derive(Debug)]
pub(super) struct Replaced {
    pub domain: Box<str>,
    pub name: Box<str>,
    pub origin: Origin,
}

/// Warns about rules that no entry reaches, and about `replaces` that name nothing.
pub(super) fn lint(set: &RuleSet, replaced: &[Replaced], problems: &mut Problems) {
    let mut nodes: Vec<&MatcherNode> = set.domains.values().map(|domain| &domain.root).collect();
    let mut comparisons = MAX_COMPARISONS;
    while let Some(node) = nodes.pop() {
        nodes.extend(node.children().iter().map(|child| &child.below));
        for Shadowed { text, origin, any_value, by, by_origin } in node.shadowed(&mut comparisons) {
            let message = match any_value {
                true => format!(
                    "no entry with the key '{text}' gets here: the wildcard '{by}' matches all of them"
                ),
                false => format!(
                    "the wildcard '{text}' is unreachable: '{by}', earlier in the file, matches all that \
                     it does"
                ),
            };
            let help = match any_value && !text.contains('*') {
                true => "remove one of the two, or make the wildcard narrower",
                false => "move it before the other, or remove it",
            };
            problems.of_files([warning(origin, message, help).with_first(by_origin.clone())]);
        }
        for HiddenChild { child, by, above } in node.hidden(&mut comparisons) {
            let (child_text, above, by_text) = (&child.text, &above.text, &by.text);
            let message = format!(
                "'{by_text}' matches before '{above}', so that '{child_text}' below '{above}' is never reached for it"
            );
            let help = format!(
                "write `{}` below this descriptor too, or `unlimited: true` if it is an exception",
                child.entry().0
            );
            problems
                .of_files([warning(&by.origin, message, help).with_first(child.origin.clone())]);
        }
    }
    lint_replaced(set, replaced, problems);
}

fn lint_replaced(set: &RuleSet, replaced: &[Replaced], problems: &mut Problems) {
    if replaced.is_empty() {
        return;
    }
    let mut names: HashMap<&str, HashSet<&str>> = HashMap::new();
    let mut unlimited: HashSet<(&str, &str)> = HashSet::new();
    for rule in set.rules() {
        let Some(plan) = &rule.plan else {
            unlimited.insert((rule.domain(), &rule.limit_name));
            continue;
        };
        let limits = plan.limits().iter().map(|limit| &*limit.name);
        let named = limits.chain([&*rule.limit_name]).filter(|name| !name.is_empty());
        names.entry(rule.domain()).or_default().extend(named);
    }
    let (none, mut suggester) = (HashSet::new(), Suggester::default());
    for Replaced { domain, name, origin } in replaced {
        let names = names.get(&**domain).unwrap_or(&none);
        if names.contains(&**name) {
            continue;
        }
        if unlimited.contains(&(&**domain, &**name)) {
            let message =
                format!("'{name}' is an unlimited rule, which `replaces` does not disable");
            problems.of_files([warning(origin, message, "remove the item")]);
            continue;
        }
        let message = format!("no rule of the domain '{domain}' has the name '{name}'");
        let help = match suggester.nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write the `name` of another rule's limit, or remove the item".to_owned(),
        };
        problems.of_files([warning(origin, message, help)]);
    }
}

fn warning(origin: &Origin, message: String, help: impl Into<String>) -> Problem {
    Problem::of_file(&origin.file, message, help).at(origin.position).warning()
}
