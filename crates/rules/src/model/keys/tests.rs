//! The page of rule keys has what the table has.

use super::{Key, Section, ValueType};

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
