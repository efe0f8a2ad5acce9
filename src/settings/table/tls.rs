//! `grpc.tls`, `http.tls` and `resp.tls`: TLS on the listeners.

use std::path::PathBuf;

use super::group;

group! {
    /// TLS on the gRPC listener.
    GrpcTlsSettings "grpc.tls" {
        /// Whether gRPC is served over TLS only. The other settings of the group need it.
        enabled: bool = "false", reference ["GRPC_SERVER_USE_TLS"];
        /// PEM file with weir's certificate, followed by those of intermediate authorities. This and
        /// the other files are read again when they change.
        cert: Option<PathBuf> = "", reference ["GRPC_SERVER_TLS_CERT"];
        /// PEM file with the key of the certificate.
        key: Option<PathBuf> = "", reference ["GRPC_SERVER_TLS_KEY"];
        /// PEM file with the CA certificates that a client's certificate must come from; clients then
        /// need one. Empty: clients need no certificate.
        client_ca: Option<PathBuf> = "", reference ["GRPC_CLIENT_TLS_CACERT"];
        /// Names of clients, one of which a client's certificate must have: DNS names, IP addresses, and
        /// URIs, such as SPIFFE IDs. A URI that ends in /* means all that start so. Empty: every
        /// certificate of client_ca is accepted.
        client_sans: Vec<String> = "", reference ["GRPC_CLIENT_TLS_SAN"];
    }
}

group! {
    /// TLS on the HTTP listener.
    HttpTlsSettings "http.tls" {
        /// Whether HTTP is served over TLS only, including /healthcheck. No variable of the reference
        /// sets it: its probes speak plain HTTP.
        enabled: bool = "false";
        /// PEM file with weir's certificate, as grpc.tls.cert.
        cert: Option<PathBuf> = "";
        /// PEM file with the key of the certificate.
        key: Option<PathBuf> = "";
        /// PEM file with the CA certificates that a client's certificate must come from, as
        /// grpc.tls.client_ca.
        client_ca: Option<PathBuf> = "";
        /// Names of clients, as grpc.tls.client_sans.
        client_sans: Vec<String> = "";
    }
}

group! {
    /// TLS on the listener for Redis clients.
    RespTlsSettings "resp.tls" {
        /// Whether the listener speaks TLS only.
        enabled: bool = "false";
        /// PEM file with weir's certificate, as grpc.tls.cert.
        cert: Option<PathBuf> = "";
        /// PEM file with the key of the certificate.
        key: Option<PathBuf> = "";
        /// PEM file with the CA certificates that a client's certificate must come from, as
        /// grpc.tls.client_ca.
        client_ca: Option<PathBuf> = "";
        /// Names of clients, as grpc.tls.client_sans.
        client_sans: Vec<String> = "";
    }
}
