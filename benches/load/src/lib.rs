//! Shared parts of the load generator and the hostile clients.

pub mod connection;
pub mod cpu;
pub mod frames;
pub mod message;
pub mod reconnect;
pub mod report;
pub mod socket;
pub mod worker;
