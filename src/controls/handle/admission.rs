//! Whether a control may be put: what it would do, and whether there is room for it.

use std::sync::Arc;

use super::Controls;
use crate::controls::compiled::Examined;
use crate::controls::error::{ControlError, ErrorKind};
use crate::controls::index::Index;
use crate::controls::plans::Plans;
use crate::controls::set::ControlSet;
use crate::controls::{Action, Control, MAX_COMPARED, PlanError};
use crate::limit::Micros;
use crate::rules::RuleSet;

impl Controls {
    /// Checks that there is room for a control.
    pub(super) fn check_room(
        &self,
        set: &ControlSet,
        control: &Control,
        rules: Option<&RuleSet>,
    ) -> Result<(), ControlError> {
        let others = || set.controls().filter(|other| other.id != control.id);
        let (count, max) = (others().count() + 1, self.options.max);
        if count > max {
            let error = format!("there are {max} controls already");
            let help = "delete some, or match several clients with `*` in a value";
            return Err(ControlError::new(ErrorKind::TooMany, error, help));
        }
        let index = Index::new(others().cloned().chain([Arc::new(control.clone())]));
        if let (Action::Limit(_), Some(rules)) = (&control.action, rules)
            && let (_, Some(PlanError::TooManyPlans)) =
                Plans::new(index.rows(), rules, self.active.max_log_bytes())
        {
            let error = PlanError::TooManyPlans.to_string();
            let help = "delete some controls of the action `limit`, or name more entries";
            return Err(ControlError::new(ErrorKind::TooMany, error, help));
        }
        // Replicas that were cut off from each other may have too many together: then those that add
        // none to compare still have room.
        let compared = index.most_compared();
        if compared > MAX_COMPARED && compared > Index::new(others().cloned()).most_compared() {
            let error =
                format!("over {MAX_COMPARED} controls have no exact value, or only the same one");
            let help = "give one of the entries a value of its own without `*`";
            return Err(ControlError::new(ErrorKind::TooMany, error, help));
        }
        Ok(())
    }
}

/// Checks what a control would do. Returns what the operator may not expect.
pub(super) fn check(
    control: &Control,
    examined: &Examined,
    now: Micros,
    force: bool,
) -> Result<Vec<String>, ControlError> {
    if control.is_expired(now) {
        let help = "write a time in the future, or a duration";
        return Err(ControlError::invalid("`until` has passed", help));
    }
    if control.matches_everything() && !force {
        let of = if control.domain == "*" { "every domain" } else { "its domain" };
        let error = match control.entries.is_empty() {
            true => format!("the control matches everything of {of}: it has no entries"),
            // A client may have chosen such a value, so that an operator blocks all others too.
            false => {
                format!("the control matches every value of its keys in {of}: `*` is any text")
            }
        };
        let help = "write other entries, or force it";
        return Err(ControlError::new(ErrorKind::NeedsForce, error, help));
    }
    let mut warnings = Vec::new();
    if let Action::Limit(_) = control.action {
        match examined.unchanged.first() {
            Some((rule, error)) if examined.changed == 0 => {
                let error = format!("the limit does not fit the rule {rule}: {error}");
                return Err(ControlError::invalid(error, "change `limit`, or the entries"));
            }
            None if examined.changed == 0 => {
                warnings.push("no rule with a limit matches: it has no effect now".to_owned());
            }
            _ => {}
        }
        let unchanged = examined.unchanged.iter().take(10);
        warnings.extend(unchanged.map(|(rule, error)| format!("{rule} stays as it is: {error}")));
    }
    Ok(warnings)
}
