//! Reads rule files and xDS resources, reports their errors, and compiles them to trees that find a descriptor's rule.
//!
//! A file or resource ([`Document`]) is parsed into a tree of nodes with positions. `read` walks the tree once, reports
//! every problem, and adds the rules to the matcher of their domain.
//!
//! `syntax`, `model` and [`source`] each use only those before them. `matcher` has all domains, each with the tree of
//! its descriptors. `overlay` has an operator's patches, which `read` applies to rules. `compile`, `lint`, `compare`,
//! `describe` and `to_yaml` handle whole sets, and are on top of all.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod compare;
mod compile;
mod describe;
mod lint;
mod matcher;
mod metrics;
mod model;
mod options;
mod overlay;
pub mod rate;
mod read;
mod schema;
pub mod source;
mod syntax;
#[cfg(test)]
mod tests;
mod to_yaml;

pub use compare::{Change, Difference, ListedRule, compare};
pub use compile::Loaded;
pub use describe::{LimitDescription, RuleDescription, RuleOfDomain};
pub use matcher::near_miss::NearMiss;
pub use matcher::trace::{Candidate, Level, Trace, TraceStep, Within};
pub use matcher::unordered::UnorderedMatch;
pub use matcher::{Domain, Found, RuleSet};
pub use metrics::{HitTotals, RuleTotals, collect_metrics, totals};
pub use model::proto;
pub use model::reserve::{Reserve, ReserveStep};
pub use model::rule::{Metadata, Rule};
pub use model::stats::{ReserveCounts, ReserveStats, RuleSeries, RuleStats};
pub use model::value_set::{Group, MatchKind};
pub use options::RuleOptions;
pub use overlay::patcher::OverlayReport;
pub use overlay::{Overlay, OverlayError};
pub use schema::json_schema;
pub use source::lists::{ListFile, Lists, WatchedLists};
pub use source::manifest::SourceFile;
pub use source::{YAML_HEADER, xds};
pub use syntax::document::Document;
pub use syntax::position::{Origin, Position};
pub use syntax::problem::{DEFAULT_MAX_PROBLEMS, Omitted, Problem, Problems, Severity};
pub use syntax::{tree, values, yaml};
