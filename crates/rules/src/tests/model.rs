//! The matcher against a model that does it the plain way: texts put together, globs by recursion.

use proptest::prelude::*;

use super::{find, good};

/// A descriptor of the model.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    text: String,
    key: String,
    value: String,
    limited: bool,
    below: Vec<Rule>,
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|i| glob(rest, &text[i..])),
        [first, rest @ ..] => text.first() == Some(first) && glob(rest, &text[1..]),
    }
}

fn model(rules: &[Rule], entries: &[(&str, &str)]) -> Option<String> {
    let (&(key, value), rest) = entries.split_first()?;
    let joined = format!("{key}_{value}");
    let rule = rules
        .iter()
        .find(|rule| rule.text == joined)
        .or_else(|| {
            let mut wildcards = rules.iter().filter(|rule| rule.text.contains('*'));
            wildcards.find(|rule| glob(rule.text.as_bytes(), joined.as_bytes()))
        })
        .or_else(|| rules.iter().find(|rule| rule.text == key))?;
    if rest.is_empty() {
        return rule.limited.then(|| rule.text.clone());
    }
    model(&rule.below, rest).map(|below| format!("{}.{below}", rule.text))
}

pub(super) fn yaml(rules: &[Rule], depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for Rule { key, value, limited, below, .. } in rules {
        *out += &format!("{indent}- key: '{key}'\n{indent}  value: '{value}'\n");
        if *limited {
            *out += &format!("{indent}  rate_limit: {{ unit: day, requests_per_unit: 1 }}\n");
        }
        if !below.is_empty() {
            *out += &format!("{indent}  descriptors:\n");
            yaml(below, depth + 1, out);
        }
    }
}

fn level(below: BoxedStrategy<Vec<Rule>>) -> BoxedStrategy<Vec<Rule>> {
    let rule = ("[ab_*]{1,3}", "[ab_*]{0,4}", any::<bool>(), below);
    prop::collection::vec(rule, 0..6)
        .prop_map(|rules| {
            let mut level: Vec<Rule> = Vec::new();
            for (key, value, limited, below) in rules {
                let text = if value.is_empty() { key.clone() } else { format!("{key}_{value}") };
                if level.iter().all(|rule| rule.text != text) {
                    level.push(Rule { text, key, value, limited, below });
                }
            }
            level
        })
        .boxed()
}

pub(super) fn tree() -> BoxedStrategy<Vec<Rule>> {
    level(level(level(Just(Vec::new()).boxed())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn finds_what_the_model_finds(
        rules in tree(),
        requests in prop::collection::vec(
            prop::collection::vec(("[ab_*]{0,3}", "[ab_*]{0,5}"), 0..4), 1..20),
    ) {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        yaml(&rules, 0, &mut text);
        let set = good(&text);
        for request in requests {
            let entries: Vec<_> = request.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            prop_assert_eq!(
                find(&set, &entries).map(str::to_owned), model(&rules, &entries), "{:?}", entries
            );
        }
    }
}
