//! Warnings about the domain and the keys of a control that no rule has: mostly they are misspelled.

use crate::controls::Control;
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

fn unknown(what: &str, name: &str, near: Option<&str>, place: &str) -> String {
    match near {
        Some(near) => format!("unknown {what} '{name}': did you mean '{near}'?"),
        None => format!("unknown {what} '{name}': {place}"),
    }
}
