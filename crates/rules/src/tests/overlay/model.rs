//! The matching of entries against a model that does it the plain way, by recursion.

use proptest::prelude::*;

use super::patched;
use crate::Rule;

/// An item of `match.entries`; none for `{any: true}`.
type Item = Option<(String, Option<String>)>;

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|i| glob(rest, &text[i..])),
        [first, rest @ ..] => text.first() == Some(first) && glob(rest, &text[1..]),
    }
}

fn model(items: &[Item], path: &[(&str, &str)]) -> bool {
    match (items, path) {
        ([], path) => path.is_empty(),
        ([None, rest @ ..], path) => (0..=path.len()).any(|i| model(rest, &path[i..])),
        ([Some(_), ..], []) => false,
        ([Some((key, value)), rest @ ..], [(k, v), below @ ..]) => {
            let value_matches =
                value.as_ref().is_none_or(|value| glob(value.as_bytes(), v.as_bytes()));
            glob(key.as_bytes(), k.as_bytes()) && value_matches && model(rest, below)
        }
    }
}

/// All paths of up to three entries with a few keys and values.
fn rules() -> String {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    add(&mut text, 0);
    text
}

fn add(text: &mut String, depth: usize) {
    for (key, value) in [("a", ""), ("a", "x"), ("ab", "xy"), ("b", "")] {
        let indent = "  ".repeat(depth);
        *text += &format!("{indent}- key: {key}\n{indent}  value: '{value}'\n");
        // Descriptors without a limit are not matched.
        if depth != 1 || key != "b" {
            *text += &format!("{indent}  rate_limit: {{ unit: day }}\n");
        }
        if depth < 2 {
            *text += &format!("{indent}  descriptors:\n");
            add(text, depth + 1);
        }
    }
}

fn yaml(items: &[Item]) -> String {
    let items = items.iter().map(|item| match item {
        None => "{ any: true }".to_owned(),
        Some((key, None)) => format!("{{ key: '{key}' }}"),
        Some((key, Some(value))) => format!("{{ key: '{key}', value: '{value}' }}"),
    });
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// The same as `key=value,key2`; none if that means something else.
fn text(items: &[Item]) -> Option<String> {
    let items = items.iter().map(|item| match item {
        None => Some("**".to_owned()),
        Some((key, None)) => Some(key.clone()).filter(|key| key != "**"),
        Some((_, Some(value))) if value.is_empty() => None,
        Some((key, Some(value))) => Some(format!("{key}={value}")),
    });
    Some(format!("'{}'", items.collect::<Option<Vec<_>>>()?.join(",")))
}

/// The lines of the patches that changed a rule.
fn lines(rule: &Rule) -> Vec<u32> {
    rule.patches.iter().filter_map(|origin| origin.position.line()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn patches_match_what_the_model_matches(
        patches in prop::collection::vec(
            prop::collection::vec(
                prop::option::weighted(0.7, ("[ab*]{1,3}", prop::option::of("[xy*]{0,3}"))),
                1..5,
            ),
            1..6,
        ),
    ) {
        let mut text = "patches:\n".to_owned();
        let mut of_text = text.clone();
        for items in &patches {
            let maps = yaml(items);
            let written = self::text(items).unwrap_or_else(|| maps.clone());
            text += &format!("- {{ match: {{ entries: {maps} }}, set: {{ name: n }} }}\n");
            of_text += &format!("- {{ match: {{ entries: {written} }}, set: {{ name: n }} }}\n");
        }
        let (set, report) = patched(&rules(), &text);
        let (same, _) = patched(&rules(), &of_text);
        prop_assert!(set.rules().map(lines).eq(same.rules().map(lines)), "{}\n{}", text, of_text);
        let mut matched = vec![false; patches.len()];
        for rule in set.rules() {
            let path: Vec<_> = rule.entries().collect();
            let wanted = patches.iter().zip(0_u32..).filter(|(items, _)| model(items, &path));
            let wanted: Vec<u32> = wanted.map(|(_, index)| index + 2).collect();
            wanted.iter().for_each(|line| matched[*line as usize - 2] = true);
            prop_assert_eq!(lines(rule), wanted, "{:?}\n{}", path, text);
        }
        let unmatched = matched.iter().filter(|matched| !**matched).count();
        prop_assert_eq!(report.problems.len(), unmatched, "{:#?}", report.problems);
    }
}
