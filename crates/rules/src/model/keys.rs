//! The table of the YAML keys of rule files. Rule files, xDS messages and overlays (files of patches) are read by it.

pub(crate) mod limits;
#[cfg(test)]
mod tests;

use super::key::Section::{self, Ban, Descriptor, Group, ListedLimit, Reserve, Root};
use super::key::ValueType::{Duration, Flag, Number, Other, Text};
use super::key::{Key, key};
use weir_common::suggest::nearest;

/// All keys but those of limits, in the order in which errors list them. `of_reference`: envoyproxy/ratelimit has it.
const KEYS: &[Key] = &[
    key("domain", &[Root], Text).of_reference(),
    key("charge", &[Root], Other),
    key("on_store_failure", &[Root], Other),
    key("descriptors", &[Root, Descriptor], Other).of_reference(),
    key("key", &[Descriptor], Text).of_reference(),
    key("value", &[Descriptor], Text).of_reference(),
    key("network", &[Descriptor], Other),
    key("values", &[Descriptor], Text),
    key("values_file", &[Descriptor], Other),
    key("group", &[Descriptor], Other),
    key("v4", &[Group], Other),
    key("v6", &[Group], Other),
    key("reserve", &[Descriptor], Other),
    key("id", &[Reserve], Other),
    key("settle", &[Reserve], Other),
    key("estimate", &[Reserve], Other),
    key("at_least", &[Reserve], Other),
    key("at_most", &[Reserve], Other),
    key("timeout", &[Reserve], Other),
    key("ban", &[Descriptor], Other),
    key("after", &[Ban], Number(1, 255)),
    key("within", &[Ban], Duration),
    key("for", &[Ban], Other),
    key("forget", &[Ban], Duration),
    key("lease", &[Descriptor], Flag),
    key("rate_limit", &[Descriptor], Other).of_reference(),
    key("rate_limits", &[Descriptor], Other),
    key("rates", &[Descriptor], Other),
    key("shadow_mode", &[Descriptor, ListedLimit], Flag).of_reference(),
    key("quota_mode", &[Descriptor], Flag).of_reference(),
    key("detailed_metric", &[Descriptor], Flag).of_reference(),
    key("value_to_metric", &[Descriptor], Flag).of_reference(),
    key("share_threshold", &[Descriptor], Flag).of_reference(),
    key("metadata", &[Descriptor], Other).of_reference(),
];

impl Key {
    pub fn all() -> impl Iterator<Item = &'static Key> {
        KEYS.iter().chain(limits::KEYS)
    }

    pub fn find(name: &str) -> Option<&'static Key> {
        Key::all().find(|key| key.name == name)
    }
}

/// Words with which other programs write a limit.
const LIMITS_OF_OTHERS: &str =
    "average day hour limit limits max max_value minute month requests second seconds";

/// Suggests a key similar to an unknown one, or else lists the keys of the section.
pub(crate) fn suggestion(name: &str, section: Section) -> String {
    if LIMITS_OF_OTHERS.split(' ').any(|word| word == name)
        && matches!(section, Descriptor | Section::Limit | ListedLimit)
    {
        return "write the limit as a rate, such as `rate: 10/s`".to_owned();
    }
    let of_section = Key::all().filter(|key| key.sections.contains(&section));
    let names: Vec<&str> = of_section.map(|key| key.name).collect();
    match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys of {} are: {}", section.name(), names.join(", ")),
    }
}
