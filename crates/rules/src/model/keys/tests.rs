//! The page of rule keys has what the table has.

use crate::model::key::{Key, Section, ValueType};
use weir_limit::AlgorithmKind as Kind;

#[test]
fn every_key_has_a_row_and_an_example() {
    let page = include_str!("../../../../../docs/reference/rule-keys.md");
    let guide = include_str!("../../../../../docs/rules.md");
    for key in Key::all() {
        assert!(page.contains(&format!("| `{}` |", key.name)), "{} has no row", key.name);
        let example = format!("{}:", key.name);
        let is_shown = [page, guide].iter().any(|text| text.contains(&example));
        assert!(is_shown, "{} has no example", key.name);
    }
}

#[test]
fn every_key_of_a_limit_is_on_the_page_with_its_type_and_its_algorithms() {
    let page = include_str!("../../../../../docs/reference/rule-keys.md");
    let limits = [Section::Limit, Section::ListedLimit];
    for key in Key::all().filter(|key| limits.iter().any(|limit| key.sections.contains(limit))) {
        let value = match key.value {
            ValueType::Flag => "boolean".to_owned(),
            ValueType::Number(0, u32::MAX) => "number".to_owned(),
            ValueType::Number(min, max) => format!("{min} to {max}"),
            ValueType::Duration => "duration".to_owned(),
            ValueType::Text | ValueType::Other => String::new(),
        };
        let start = format!("| `{}` | {value}", key.name);
        let row = page.lines().rfind(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("{start} is missing"));
        if let [algorithm] = key.takers {
            let name = super::limits::names(*algorithm)[0];
            assert!(row.contains(&format!("`{name}`")), "{row}");
        }
    }
}

/// Without its keys, an algorithm with a period would be compiled without one.
#[test]
fn the_keys_of_a_period_are_for_all_algorithms_with_one() {
    let has_period = |kind| match kind {
        Kind::Concurrency | Kind::ReduceBucket => false,
        Kind::FixedWindow
        | Kind::SlidingWindow
        | Kind::SlidingLog
        | Kind::BucketedWindow
        | Kind::TokenBucket
        | Kind::Gcra => true,
    };
    for key in ["unit", "unit_multiplier", "period"].map(|name| Key::find(name).unwrap()) {
        for kind in Kind::ALL {
            assert_eq!(key.is_for(kind), has_period(kind), "{}: {kind:?}", key.name);
        }
    }
}
