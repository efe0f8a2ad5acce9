//! gRPC on a Unix socket.
