//! The parts of the load generators.

pub mod connection;
pub mod cpu;
pub mod frames;
pub mod message;
pub mod report;
pub mod worker;
