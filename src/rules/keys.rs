//! The keys of a rule file, and where each belongs.

use crate::suggest::nearest;

/// A map of a rule file, by what it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Root,
    Descriptor,
    Limit,
    /// One of `rate_limits`.
    Listed,
    Replace,
}

impl At {
    fn name(self) -> &'static str {
        match self {
            At::Root => "the root of the file",
            At::Descriptor => "a descriptor, beside `key`",
            At::Limit => "`rate_limit`",
            At::Listed => "an item of `rate_limits`",
            At::Replace => "an item of `replaces`",
        }
    }
}

/// A key, where it may stand, and whether the reference knows it.
struct Key(&'static str, &'static [At], Origin);

#[derive(PartialEq)]
enum Origin {
    Reference,
    Weir,
}

use At::{Descriptor, Limit, Listed, Replace, Root};
use Origin::{Reference, Weir};

const KEYS: &[Key] = &[
    Key("domain", &[Root], Reference),
    Key("charge", &[Root], Weir),
    Key("on_store_failure", &[Root], Weir),
    Key("descriptors", &[Root, Descriptor], Reference),
    Key("key", &[Descriptor], Reference),
    Key("value", &[Descriptor], Reference),
    Key("rate_limit", &[Descriptor], Reference),
    Key("rate_limits", &[Descriptor], Weir),
    Key("shadow_mode", &[Descriptor, Listed], Reference),
    Key("quota_mode", &[Descriptor], Reference),
    Key("detailed_metric", &[Descriptor], Reference),
    Key("value_to_metric", &[Descriptor], Reference),
    Key("share_threshold", &[Descriptor], Reference),
    Key("metadata", &[Descriptor], Reference),
    Key("requests_per_unit", &[Limit, Listed], Reference),
    Key("unit", &[Limit, Listed], Reference),
    Key("unlimited", &[Limit], Reference),
    Key("name", &[Limit, Listed, Replace], Reference),
    Key("replaces", &[Limit, Listed], Reference),
    Key("unit_multiplier", &[Limit, Listed], Weir),
    Key("period", &[Limit, Listed], Weir),
    Key("algorithm", &[Limit, Listed], Weir),
    Key("burst", &[Limit, Listed], Weir),
    Key("refill_amount", &[Limit, Listed], Weir),
    Key("refill_interval", &[Limit, Listed], Weir),
    Key("strict", &[Limit, Listed], Weir),
    Key("buckets", &[Limit, Listed], Weir),
    Key("charge_denied", &[Limit, Listed], Weir),
    Key("max_debt", &[Limit, Listed], Weir),
    Key("hold_id", &[Limit, Listed], Weir),
    Key("hold_timeout", &[Limit, Listed], Weir),
    Key("align", &[Limit, Listed], Weir),
    Key("time_zone", &[Limit, Listed], Weir),
];

/// What a key is where it stands.
pub(super) enum Standing {
    /// Where it belongs.
    Right(&'static str),
    /// Elsewhere than the reference looks for it; what to do instead.
    Ignored(String),
    /// A key of weir's own elsewhere than it belongs; what to do instead.
    Misplaced(String),
    /// No key at all.
    Unknown,
}

pub(super) fn standing(key: &str, at: At) -> Standing {
    let Some(Key(name, places, origin)) = KEYS.iter().find(|k| k.0 == key) else {
        return Standing::Unknown;
    };
    if places.contains(&at) {
        return Standing::Right(name);
    }
    let belongs: Vec<&str> = places.iter().map(|place| place.name()).collect();
    let help = format!("`{name}` belongs in {}", belongs.join(", or "));
    // The reference has no `rate_limits` in which it would ignore anything.
    if *origin == Reference && at != Listed {
        Standing::Ignored(help)
    } else {
        Standing::Misplaced(help)
    }
}

/// What may have been meant by an unknown key, or which keys belong there.
pub(super) fn belonging(key: &str, at: At) -> String {
    let here: Vec<&str> = KEYS.iter().filter(|k| k.1.contains(&at)).map(|k| k.0).collect();
    match nearest(key, here.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("in {} there may be: {}", at.name(), here.join(", ")),
    }
}
