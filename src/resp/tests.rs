//! The parser against a naive one, and commands over a connection in memory.

mod commands;
mod parser;
