//! `weir replay`: decides recorded traffic by rules, and shows what they would have refused.

mod report;
