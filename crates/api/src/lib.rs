//! What the server and the commands share: the messages of gRPC and their JSON form, the messages of `/v1`, the headers of
//! responses, and connections to gRPC servers.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod grpc_client;
pub mod headers;
pub mod json;
pub mod messages;
pub mod proto;
