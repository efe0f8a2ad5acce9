//! Certificates, names and reloading without sockets.
