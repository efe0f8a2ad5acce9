//! Connects `weir hit` to the gRPC server, and explains why a connection fails.

use std::error::Error;
use std::{io, iter};

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::arguments::HitArgs;
use crate::http_client::is_not_tls;
use weir_api::grpc_client;
use weir_client::tls::ClientTlsError;
use weir_common::error::with_causes;

pub(super) async fn connect(args: &HitArgs) -> Result<Channel, String> {
    let (authority, is_tls) = (&args.address.authority, is_tls(args));
    let is_unix = authority.starts_with("unix:");
    let endpoint = match is_unix {
        true if is_tls => return Err("a Unix socket has no TLS".to_owned()),
        true => Endpoint::from_shared(authority.clone()),
        false => grpc_client::endpoint(authority, is_tls),
    };
    let endpoint = endpoint.map_err(|error| with_causes(&error))?;
    let mut endpoint = endpoint.connect_timeout(args.timeout).timeout(args.timeout);
    if is_tls {
        endpoint = with_tls(endpoint, args)?;
    }
    let connected = match is_unix {
        true => endpoint.connect().await,
        false => grpc_client::connect(&endpoint).await,
    };
    connected.map_err(|error| format!("cannot connect to {authority}: {}", connect_error(&error)))
}

fn is_tls(args: &HitArgs) -> bool {
    args.address.is_tls || args.tls || args.files.are_given() || args.server_name.is_some()
}

/// Returns the causes of a failed connection, and for a common one what to do.
fn connect_error(error: &(dyn Error + 'static)) -> String {
    match causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()) {
        Some(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => {
            "connection refused; start `weir serve`, or write another address before -d".to_owned()
        }
        Some(cause) if is_not_tls(cause) => {
            "the server does not use TLS: omit the options of TLS, and https://".to_owned()
        }
        _ => with_causes(error),
    }
}

/// Returns the error of a call. That of a server which does not speak HTTP/2 says what to do.
pub(super) fn explain(error: Status, args: &HitArgs) -> Status {
    // Such a server closes the connection, or sends what is not a frame.
    let is_other = |cause: &(dyn Error + 'static)| {
        cause.is::<tonic::transport::Error>()
            || cause.is::<h2::Error>()
            || cause.is::<hyper::Error>()
    };
    if !matches!(error.code(), Code::Unknown | Code::Internal) || !causes(&error).any(is_other) {
        return error;
    }
    let address = &args.address.authority;
    let tls = match is_tls(args) || address.starts_with("unix:") {
        true => "",
        false => "; if it uses TLS, write --tls, and --ca if its certificate needs it",
    };
    let message = format!(
        "the connection failed: check that {address} is the address of gRPC, with port 8081 by default{tls}"
    );
    Status::new(error.code(), message)
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (**error).source())
}

fn with_tls(endpoint: Endpoint, args: &HitArgs) -> Result<Endpoint, String> {
    let pem = args.files.certificates().read()?;
    let name = args.server_name.as_deref().unwrap_or_default();
    grpc_client::with_tls(endpoint, &pem, name).map_err(|error| match error {
        ClientTlsError::Name(_) => {
            format!("--server-name is {name:?}; write a DNS name of the server's certificate")
        }
        ClientTlsError::Certificates(error) => error,
    })
}
