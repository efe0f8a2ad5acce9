//! Warnings about what is probably misspelled in a control: a domain or a key that no rule has, and a value
//! that is nearly a network.

use crate::controls::Control;
use weir_common::network::{Network, NetworkError};
use weir_common::suggest::Suggester;
use weir_rules::RuleSet;

/// Returns a warning for each name in a control that no rule has. A control may match without a rule, so none
/// is an error.
pub(super) fn unknown_names(control: &Control, rules: &RuleSet) -> Vec<String> {
    let is_any_domain = control.domain == "*";
    if is_any_domain && control.entries.is_empty() {
        return Vec::new();
    }
    if rules.domains() == 0 {
        return vec!["no rules are loaded: the domain and the keys are not checked".to_owned()];
    }
    let mut suggester = Suggester::default();
    let domain = rules.domain(&control.domain).filter(|_| !is_any_domain);
    if domain.is_none() && !is_any_domain {
        let near = rules.nearest_domain(&control.domain, &mut suggester);
        return vec![unknown("domain", &control.domain, near, "no rule has it")];
    }
    let entries = control.entries.iter().enumerate();
    let keys = entries.filter(|(at, entry)| {
        let is_new = control.entries.iter().take(*at).all(|earlier| earlier.key != entry.key);
        is_new && !rules.has_key(domain, &entry.key)
    });
    let place = if is_any_domain { "no rule has it" } else { "no rule of the domain has it" };
    keys.map(|(_, entry)| {
        let near = rules.nearest_key(domain, &entry.key, &mut suggester);
        unknown("key", &entry.key, near, place)
    })
    .collect()
}

/// Returns a warning for each value that is written as a network and is none. It matches as a text.
pub(super) fn not_networks(control: &Control) -> Vec<String> {
    let values = control.entries.iter().map(|entry| &*entry.value).filter(|_| !control.text);
    let why = |value: &str| match Network::parse(value).err()? {
        NetworkError::Invalid(_) => None,
        NetworkError::PrefixTooLong { max, .. } => {
            Some(format!("its prefix is longer than {max} bits"))
        }
        NetworkError::HostBits { meant, .. } => {
            Some(format!("it has bits set after its prefix: did you mean '{meant}'?"))
        }
    };
    let warning = |value: &str| {
        Some(format!("'{value}' is not a network and matches this text alone: {}", why(value)?))
    };
    values.filter_map(warning).collect()
}

fn unknown(what: &str, name: &str, near: Option<&str>, place: &str) -> String {
    match near {
        Some(near) => format!("unknown {what} '{name}': did you mean '{near}'?"),
        None => format!("unknown {what} '{name}': {place}"),
    }
}
