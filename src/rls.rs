//! Envoy's rate-limit service: its API (`service`), and the HTTP/2 server that receives it (`grpc`).

pub mod grpc;
pub mod service;
