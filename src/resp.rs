//! The Redis protocol: limits for any Redis client.
//!
//! - `parser`, `reply`: the protocol, in versions 2 and 3
//! - `server`: what all connections share
//! - `connection`: reads, answers and writes, in turns with other connections
//! - `session`: commands about the connection itself
//! - `command`: the names and errors of those that charge or read the store
//! - `commands`: what these do; `plans` keeps the plans that they describe

mod command;
mod commands;
mod connection;
pub mod parser;
mod plans;
mod reply;
mod server;
mod session;
#[cfg(test)]
mod tests;

pub use self::server::{Limits, MAX_REQUEST_BYTES, MIN_BUFFERED_BYTES, Resp, RespStats};
