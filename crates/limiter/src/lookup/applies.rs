//! What applies to a descriptor.

use std::sync::Arc;

use crate::Options;
use weir_limit::Plan;
use weir_rules::{Found, Rule};

/// What applies to a descriptor.
pub(crate) enum Match<'s> {
    /// No rule, or one that another rule of the request replaces.
    Nothing,
    Rule(Found<'s>),
    Override(Arc<Plan>),
}

impl<'s> Match<'s> {
    pub fn rule(&self) -> Option<&'s Rule> {
        match self {
            Match::Rule(found) => Some(found.rule),
            _ => None,
        }
    }

    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            Match::Nothing => None,
            Match::Rule(found) => found.rule.plan.as_ref(),
            Match::Override(plan) => Some(plan),
        }
    }

    /// Returns whether the key has other values than the request.
    pub(super) fn replaces_values(&self) -> bool {
        matches!(self, Match::Rule(found) if found.replaces_values)
    }

    /// Returns whether it counts as a quota. With the global quota mode a descriptor without a match
    /// does; an unlimited rule never does.
    pub(super) fn is_quota(&self, options: &Options) -> bool {
        match self {
            Match::Rule(found) if found.rule.plan.is_none() => false,
            Match::Rule(found) => options.quota_mode || found.rule.quota_mode,
            _ => options.quota_mode,
        }
    }
}
