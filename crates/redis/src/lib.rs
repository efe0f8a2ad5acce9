//! Counting in Redis, shared by all replicas of weir: the Redis store.
//!
//! Lua scripts charge hits to keys, atomically; they are in `lua/`, and the header of each describes its arguments and
//! its reply. A script returns the state before the charge and the time; [`limit`](weir_limit) computes the decision
//! from them, as for every store. Where a script would do no more than `INCRBY`, that is sent instead;
//! `counter.rs` explains when.
//!
//! The path of a charge, each module using only those after it:
//!
//! - `store`: the connections of the current thread, to one server or to a `cluster`
//! - `connection`: of a thread to one server; `connection/driver` has its states
//! - `round_trip`: over one socket; sends a batch, answers its charges, returns redirects
//! - `batch`: charges as script calls (`script`, `lua/`) and plain `INCRBY`s
//! - `codec`: rules, states and replies as the scripts pack them
//! - `counter`: the number that the state of a lone fixed window is, and the `INCRBY`s that add to it
//! - `pending_charge`: a charge, and the answers that its request waits for, until its deadline (`deadlines`)
//!
//! Operators' commands, and what replicas share, have a connection of their own (`admin`): `states`, `shared_table`,
//! `replica_texts`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod admin;
mod batch;
mod cluster;
mod codec;
mod connection;
mod context;
mod counter;
mod deadlines;
mod key;
mod log;
mod master;
mod operations;
mod options;
mod pending_charge;
mod refusal;
mod replica_texts;
mod round_trip;
mod script;
mod shared_table;
mod states;
mod store;
#[cfg(test)]
mod tests;

pub use self::context::RedisCounts;
pub use self::options::{
    ClockSource, Endpoint, Login, PasswordFile, RedisAccess, RedisOptions, Tls, Topology,
};
pub use self::store::RedisStore;
