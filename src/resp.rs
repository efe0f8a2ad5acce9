//! A server of the Redis protocol (RESP): any Redis client can use rate limits, by commands such as `CL.THROTTLE`.
//!
//! - `parser`, `reply`: the protocol, in versions 2 and 3
//! - `server`: what all connections share
//! - `connection`: reads, answers and writes, in turns with other connections
//! - `session`: commands about the connection itself, such as `AUTH` and `HELLO`
//! - `command`: the names and errors of the commands that count hits against limits or read them
//! - `commands`: what these do; `plans` caches the limits that they describe

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
