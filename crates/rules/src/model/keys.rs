//! The keys of rule files: one table, by which files, overlays and messages are read, and limits written.

pub(crate) mod limits;
#[cfg(test)]
mod tests;

use weir_common::named_enum;
use weir_common::suggest::nearest;
use weir_limit::AlgorithmKind;

use super::proto::{FieldValue, RateLimitPolicy};

named_enum! {
    /// A kind of map in a rule file, as messages name it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Section, name {
        Root = "the root of the file",
        Descriptor = "a descriptor, beside `key`",
        Group = "`group`",
        Reserve = "`reserve`",
        Limit = "`rate_limit`",
        ListedLimit = "an item of `rate_limits`",
        Replacement = "an item of `replaces`",
    }
}

#[derive(Debug)]
pub(crate) struct Key {
    pub name: &'static str,
    pub sections: &'static [Section],
    pub value: ValueType,
    is_reference: bool,
    /// The algorithms whose limits take it, if others do not.
    pub takers: &'static [AlgorithmKind],
    /// Whether the text of a limit contains its value.
    pub in_text: bool,
    /// Its field in the message of a limit; none for a key that all limits take.
    pub field: Option<fn(&RateLimitPolicy) -> FieldValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    Text,
    Flag,
    /// A whole number from the first to the second.
    Number(u32, u32),
    /// From a microsecond to 100 years.
    Duration,
    /// A value that has a reader of its own.
    Other,
}

use Section::{Descriptor, Group, ListedLimit, Reserve, Root};
use ValueType::{Flag, Other, Text};

/// The keys of all sections but limits, in the order in which messages list them.
const KEYS: &[Key] = &[
    of_reference("domain", &[Root], Text),
    key("charge", &[Root], Other),
    key("on_store_failure", &[Root], Other),
    of_reference("descriptors", &[Root, Descriptor], Other),
    of_reference("key", &[Descriptor], Text),
    of_reference("value", &[Descriptor], Text),
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
    key("lease", &[Descriptor], Flag),
    of_reference("rate_limit", &[Descriptor], Other),
    key("rate_limits", &[Descriptor], Other),
    key("rates", &[Descriptor], Other),
    of_reference("shadow_mode", &[Descriptor, ListedLimit], Flag),
    of_reference("quota_mode", &[Descriptor], Flag),
    of_reference("detailed_metric", &[Descriptor], Flag),
    of_reference("value_to_metric", &[Descriptor], Flag),
    of_reference("share_threshold", &[Descriptor], Flag),
    of_reference("metadata", &[Descriptor], Other),
];

const fn key(name: &'static str, sections: &'static [Section], value: ValueType) -> Key {
    let (is_reference, takers, in_text, field) = (false, &[] as &[AlgorithmKind], false, None);
    Key { name, sections, value, is_reference, takers, in_text, field }
}

const fn of_reference(name: &'static str, sections: &'static [Section], value: ValueType) -> Key {
    Key { is_reference: true, ..key(name, sections, value) }
}

impl Key {
    pub fn all() -> impl Iterator<Item = &'static Key> {
        KEYS.iter().chain(limits::KEYS)
    }

    pub fn find(name: &str) -> Option<&'static Key> {
        Key::all().find(|key| key.name == name)
    }

    pub fn belongs(&self) -> String {
        let sections: Vec<&str> = self.sections.iter().map(|section| section.name()).collect();
        format!("`{}` belongs in {}", self.name, sections.join(", or "))
    }

    /// Returns whether the key has no effect in a section that it does not belong in: the reference ignores its own
    /// keys there. It has no `rate_limits`, so it ignores nothing there.
    pub fn is_ignored(&self, section: Section) -> bool {
        self.is_reference && section != ListedLimit
    }

    pub fn is_for(&self, algorithm: AlgorithmKind) -> bool {
        self.takers.is_empty() || self.takers.contains(&algorithm)
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
