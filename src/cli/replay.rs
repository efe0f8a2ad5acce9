//! `weir replay`: decides recorded traffic by rules, and shows what they would have refused.

#[allow(dead_code, reason = "no command prints it yet")]
mod html;
mod report;
