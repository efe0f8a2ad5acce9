//! The parser, commands over a connection in memory, and plans that are kept.

mod commands;
mod parser;
mod plans;
