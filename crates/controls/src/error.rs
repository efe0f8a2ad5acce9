//! Why an operator's control (block, allow or limit) is rejected, and why one leaves a rule's limits as they are.

use weir_limit::NumbersError;
use weir_rules::rate::{Per, Rate};

/// Why a control is rejected, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}; {help}")]
pub struct ControlError {
    pub error: String,
    pub help: String,
    pub kind: ErrorKind,
    /// The names of the limits of which the control must name one; empty in other errors.
    pub names: Vec<String>,
}

/// The kind of an error, from which an API derives its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    Invalid,
    /// The control matches everything, and was not forced.
    NeedsForce,
    /// There is no room for another control.
    TooMany,
    NotFound,
}

impl ControlError {
    pub(super) fn new(kind: ErrorKind, error: impl Into<String>, help: impl Into<String>) -> Self {
        ControlError { error: error.into(), help: help.into(), kind, names: Vec::new() }
    }

    pub(super) fn invalid(error: impl Into<String>, help: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Invalid, error, help)
    }
}

/// Why a rule keeps its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("the rule has several limits: name the one to change, of {}", .0.join(", "))]
    NameNeeded(Vec<String>),
    #[error("the rule has no limit of that name, only {0}")]
    NoSuchLimit(String),
    #[error("the rule has several limits and no names for them: name them in the rule file")]
    Nameless,
    #[error("its limit has no period: write `n` instead of `rate`")]
    NoPeriod,
    #[error(
        "the period of its limit is {own}, not {asked}, which would start the counts over: write {same}"
    )]
    OtherPeriod { own: Per, asked: Per, same: Rate },
    #[error("{0}")]
    Numbers(#[from] NumbersError),
    #[error(
        "the limit may take {0} bytes per key, the maximum is {1} (setting rules.max_log_bytes)"
    )]
    TooManyBytes(u64, u64),
    #[error("controls change the limits of too many rules: write a domain or more entries")]
    TooManyPlans,
}
