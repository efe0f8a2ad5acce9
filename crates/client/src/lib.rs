//! Connects weir to other servers (Redis, xDS, OTLP), and commands to weir: TLS with certificates, and HTTP requests.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

#[cfg(feature = "http")]
pub mod http;
pub mod tls;
