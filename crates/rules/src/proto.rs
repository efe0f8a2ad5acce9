//! The messages of rules from a management server, generated when the crate is built.

#![allow(clippy::all, missing_docs, rustdoc::all)]

include!(concat!(env!("OUT_DIR"), "/ratelimit.config.ratelimit.v3.rs"));
