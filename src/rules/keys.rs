//! The keys of a rule file and the sections they belong in.

use crate::suggest::nearest;

/// A kind of map in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Root,
    Descriptor,
    /// `rate_limit`.
    Limit,
    /// An item of `rate_limits`.
    ListedLimit,
    /// An item of `replaces`.
    Replacement,
}

impl Section {
    fn name(self) -> &'static str {
        match self {
            Section::Root => "the root of the file",
            Section::Descriptor => "a descriptor, beside `key`",
            Section::Limit => "`rate_limit`",
            Section::ListedLimit => "an item of `rate_limits`",
            Section::Replacement => "an item of `replaces`",
        }
    }
}

/// A key, the sections it belongs in, and whether the reference has it.
struct Key(&'static str, &'static [Section], KeyOrigin);

#[derive(PartialEq)]
enum KeyOrigin {
    Reference,
    Weir,
}

use KeyOrigin::{Reference, Weir};
use Section::{Descriptor, Limit, ListedLimit, Replacement, Root};

const KEYS: &[Key] = &[
    Key("domain", &[Root], Reference),
    Key("charge", &[Root], Weir),
    Key("on_store_failure", &[Root], Weir),
    Key("descriptors", &[Root, Descriptor], Reference),
    Key("key", &[Descriptor], Reference),
    Key("value", &[Descriptor], Reference),
    Key("rate_limit", &[Descriptor], Reference),
    Key("rate_limits", &[Descriptor], Weir),
    Key("shadow_mode", &[Descriptor, ListedLimit], Reference),
    Key("quota_mode", &[Descriptor], Reference),
    Key("detailed_metric", &[Descriptor], Reference),
    Key("value_to_metric", &[Descriptor], Reference),
    Key("share_threshold", &[Descriptor], Reference),
    Key("metadata", &[Descriptor], Reference),
    Key("requests_per_unit", &[Limit, ListedLimit], Reference),
    Key("unit", &[Limit, ListedLimit], Reference),
    Key("unlimited", &[Limit], Reference),
    Key("name", &[Limit, ListedLimit, Replacement], Reference),
    Key("replaces", &[Limit, ListedLimit], Reference),
    Key("unit_multiplier", &[Limit, ListedLimit], Weir),
    Key("period", &[Limit, ListedLimit], Weir),
    Key("algorithm", &[Limit, ListedLimit], Weir),
    Key("burst", &[Limit, ListedLimit], Weir),
    Key("refill_amount", &[Limit, ListedLimit], Weir),
    Key("refill_interval", &[Limit, ListedLimit], Weir),
    Key("strict", &[Limit, ListedLimit], Weir),
    Key("buckets", &[Limit, ListedLimit], Weir),
    Key("charge_denied", &[Limit, ListedLimit], Weir),
    Key("max_debt", &[Limit, ListedLimit], Weir),
    Key("hold_id", &[Limit, ListedLimit], Weir),
    Key("hold_timeout", &[Limit, ListedLimit], Weir),
    Key("align", &[Limit, ListedLimit], Weir),
    Key("time_zone", &[Limit, ListedLimit], Weir),
];

/// How a key fits the section it is in.
pub(super) enum Placement {
    /// It belongs there.
    Correct(&'static str),
    /// A key of the reference, which ignores it there; what to write instead.
    Ignored(String),
    /// A key of weir's own that does not belong there; what to write instead.
    Misplaced(String),
    /// No such key exists.
    Unknown,
}

pub(super) fn placement(key: &str, section: Section) -> Placement {
    let Some(Key(name, sections, source)) = KEYS.iter().find(|k| k.0 == key) else {
        return Placement::Unknown;
    };
    if sections.contains(&section) {
        return Placement::Correct(name);
    }
    let sections: Vec<&str> = sections.iter().map(|section| section.name()).collect();
    let help = format!("`{name}` belongs in {}", sections.join(", or "));
    // The reference has no `rate_limits`, so it ignores nothing there.
    if *source == Reference && section != ListedLimit {
        Placement::Ignored(help)
    } else {
        Placement::Misplaced(help)
    }
}

/// Suggests a key similar to an unknown one, or else lists the keys of the section.
pub(super) fn suggestion(key: &str, section: Section) -> String {
    let names: Vec<&str> = KEYS.iter().filter(|k| k.1.contains(&section)).map(|k| k.0).collect();
    match nearest(key, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys of {} are: {}", section.name(), names.join(", ")),
    }
}
