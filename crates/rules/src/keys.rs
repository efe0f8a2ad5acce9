//! The keys of a rule file and the sections they belong in.

use weir_common::suggest::nearest;

/// A kind of map in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Root,
    Descriptor,
    /// `group` of a descriptor.
    Group,
    /// `reserve` of a descriptor.
    Reserve,
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
            Section::Group => "`group`",
            Section::Reserve => "`reserve`",
            Section::Limit => "`rate_limit`",
            Section::ListedLimit => "an item of `rate_limits`",
            Section::Replacement => "an item of `replaces`",
        }
    }
}

/// A key, the sections it belongs in, and whether the reference has it.
struct KnownKey(&'static str, &'static [Section], KeyOrigin);

#[derive(PartialEq)]
enum KeyOrigin {
    Reference,
    Weir,
}

use KeyOrigin::{Reference, Weir};
use Section::{Descriptor, Group, Limit, ListedLimit, Replacement, Reserve, Root};

const KEYS: &[KnownKey] = &[
    KnownKey("domain", &[Root], Reference),
    KnownKey("charge", &[Root], Weir),
    KnownKey("on_store_failure", &[Root], Weir),
    KnownKey("descriptors", &[Root, Descriptor], Reference),
    KnownKey("key", &[Descriptor], Reference),
    KnownKey("value", &[Descriptor], Reference),
    KnownKey("network", &[Descriptor], Weir),
    KnownKey("values_file", &[Descriptor], Weir),
    KnownKey("group", &[Descriptor], Weir),
    KnownKey("v4", &[Group], Weir),
    KnownKey("v6", &[Group], Weir),
    KnownKey("reserve", &[Descriptor], Weir),
    KnownKey("id", &[Reserve], Weir),
    KnownKey("settle", &[Reserve], Weir),
    KnownKey("estimate", &[Reserve], Weir),
    KnownKey("at_least", &[Reserve], Weir),
    KnownKey("at_most", &[Reserve], Weir),
    KnownKey("timeout", &[Reserve], Weir),
    KnownKey("lease", &[Descriptor], Weir),
    KnownKey("rate_limit", &[Descriptor], Reference),
    KnownKey("rate_limits", &[Descriptor], Weir),
    KnownKey("shadow_mode", &[Descriptor, ListedLimit], Reference),
    KnownKey("quota_mode", &[Descriptor], Reference),
    KnownKey("detailed_metric", &[Descriptor], Reference),
    KnownKey("value_to_metric", &[Descriptor], Reference),
    KnownKey("share_threshold", &[Descriptor], Reference),
    KnownKey("metadata", &[Descriptor], Reference),
    KnownKey("requests_per_unit", &[Limit, ListedLimit], Reference),
    KnownKey("unit", &[Limit, ListedLimit], Reference),
    KnownKey("unlimited", &[Limit], Reference),
    KnownKey("name", &[Limit, ListedLimit, Replacement], Reference),
    KnownKey("replaces", &[Limit, ListedLimit], Reference),
    KnownKey("unit_multiplier", &[Limit, ListedLimit], Weir),
    KnownKey("period", &[Limit, ListedLimit], Weir),
    KnownKey("algorithm", &[Limit, ListedLimit], Weir),
    KnownKey("burst", &[Limit, ListedLimit], Weir),
    KnownKey("refill_amount", &[Limit, ListedLimit], Weir),
    KnownKey("refill_interval", &[Limit, ListedLimit], Weir),
    KnownKey("strict", &[Limit, ListedLimit], Weir),
    KnownKey("buckets", &[Limit, ListedLimit], Weir),
    KnownKey("charge_denied", &[Limit, ListedLimit], Weir),
    KnownKey("max_debt", &[Limit, ListedLimit], Weir),
    KnownKey("hold_id", &[Limit, ListedLimit], Weir),
    KnownKey("hold_timeout", &[Limit, ListedLimit], Weir),
    KnownKey("align", &[Limit, ListedLimit], Weir),
    KnownKey("time_zone", &[Limit, ListedLimit], Weir),
];

/// The keys of rule files, each with the sections it belongs in.
pub(super) fn known_keys() -> impl Iterator<Item = (&'static str, &'static [Section])> {
    KEYS.iter().map(|key| (key.0, key.1))
}

/// How a key fits the section it is in.
pub(super) enum Placement {
    /// The key is at the right place.
    Correct(&'static str),
    /// A key of the reference, which ignores it there; what to write instead.
    Ignored(String),
    /// A key that has no effect there and does no harm.
    Harmless,
    /// A key of weir's own that does not belong there; what to write instead.
    Misplaced(String),
    /// No such key exists.
    Unknown,
}

/// Whether rule files have a key of this name.
pub(super) fn is_known(key: &str) -> bool {
    KEYS.iter().any(|known| known.0 == key)
}

pub(super) fn placement(key: &str, section: Section) -> Placement {
    let Some(KnownKey(name, sections, source)) = KEYS.iter().find(|k| k.0 == key) else {
        return Placement::Unknown;
    };
    if sections.contains(&section) {
        return Placement::Correct(name);
    }
    // Envoy Gateway's dumps name each file.
    if *name == "name" && section == Root {
        return Placement::Harmless;
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
