//! The type of a YAML key of rule files, such as `rate_limit`: in which maps it may be, and the type of its value.

use super::proto::{FieldValue, RateLimitPolicy};
use weir_common::named_enum;
use weir_limit::AlgorithmKind;

named_enum! {
    /// A kind of map in a rule file, as errors name it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Section, name {
        Root = "the root of the file",
        Descriptor = "a descriptor, beside `key`",
        Group = "`group`",
        Reserve = "`reserve`",
        Ban = "`ban`",
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
    /// Whether envoyproxy/ratelimit has the key, too.
    pub(super) is_reference: bool,
    /// The algorithms whose limits accept it; empty if all do, or if it is no key of limits.
    pub takers: &'static [AlgorithmKind],
    /// Whether a limit in words, such as `10 per second`, contains its value.
    pub in_text: bool,
    /// Reads its field from the xDS message of a limit; none for keys that `xds` reads one by one.
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

pub(super) const fn key(name: &'static str, sections: &'static [Section], value: ValueType) -> Key {
    let (is_reference, takers, in_text, field) = (false, &[] as &[AlgorithmKind], false, None);
    Key { name, sections, value, is_reference, takers, in_text, field }
}

impl Key {
    /// Notes that envoyproxy/ratelimit has the key, too.
    pub(super) const fn of_reference(self) -> Key {
        Key { is_reference: true, ..self }
    }

    pub fn belongs(&self) -> String {
        let sections: Vec<&str> = self.sections.iter().map(|section| section.name()).collect();
        format!("`{}` belongs in {}", self.name, sections.join(", or "))
    }

    /// Returns whether the key has no effect in a section that it does not belong in: the reference ignores its own
    /// keys there. It has no `rate_limits`, so it ignores nothing there.
    pub fn is_ignored(&self, section: Section) -> bool {
        self.is_reference && section != Section::ListedLimit
    }

    pub fn is_for(&self, algorithm: AlgorithmKind) -> bool {
        self.takers.is_empty() || self.takers.contains(&algorithm)
    }
}
