//! Answers without a round trip, over stores in memory.

mod denials;
mod leases;
