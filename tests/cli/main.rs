//! The program as people run it on files: check, explain, overlays, replay and tests of rules.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests wait for other processes, and a poisoned lock fails them"
)]

mod check;
mod check_envoy;
mod check_envoy_files;
mod check_envoy_reserve;
mod explain;
mod hostile_files;
mod overlay;
mod replay;
mod replay_formats;
mod rule_tests;
mod schema;
mod support;
