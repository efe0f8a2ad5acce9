//! The parser, commands and connections in memory, and plans that are kept.

mod client;
mod commands;
mod connection;
mod parser;
mod plans;
#[path = "../../tests/support/reduce.rs"]
mod reduce;
mod waiting;
