//! Servers that send interim responses (1xx) continuously, or do not answer.

use crate::support::api::{ask, user_request};
use crate::support::hostile::{Behavior, Hostile};
use crate::support::wait_for;
use crate::support::weir::{Setup, serving};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
";

/// What each failure says.
const FAILURE: &str = "more than 32 interim responses (1xx)";

#[cfg(feature = "otlp")]
fn traced(server: &Hostile, protocol: &str) -> Setup {
    serving(RULES)
        .env("TRACING_ENABLED", "true")
        .env("TRACING_SAMPLING_RATE", "1")
        .env("TRACING_EXPORTER_PROTOCOL", protocol)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", server.address))
}

#[cfg(feature = "otlp")]
#[tokio::test]
async fn a_collector_sends_up_to_a_bound() {
    for (protocol, behavior) in [("grpc", Behavior::InterimHttp2), ("http", Behavior::InterimHttp1)]
    {
        let server = Hostile::start(behavior);
        // The number ends the call, not its timeout.
        let mut weir = traced(&server, protocol).env("WEIR__OTLP__TIMEOUT", "1h").start();
        ask(weir.grpc, user_request()).await.unwrap();
        let said = weir.until_said("cannot export telemetry").unwrap();
        assert!(said.contains(FAILURE), "{protocol}: {said}");
        server.wait_until_closed(1);
        let failures = "weir_otlp_export_failures_total{signal=\"traces\"}";
        assert!(weir.metric(failures) >= 1);
    }
}

#[cfg(feature = "otlp")]
#[tokio::test]
async fn a_request_to_a_collector_that_times_out_ends_its_connection() {
    let server = Hostile::start(Behavior::Silent);
    let mut weir = traced(&server, "grpc").env("WEIR__OTLP__TIMEOUT", "300ms").start();
    ask(weir.grpc, user_request()).await.unwrap();
    let said = weir.until_said("cannot export telemetry").unwrap();
    assert!(said.contains("no answer within 300ms"), "{said}");
    server.wait_until_closed(1);
}

fn asking(server: &Hostile) -> Setup {
    Setup::new()
        .arg("serve")
        .env("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .env("CONFIG_GRPC_XDS_SERVER_URL", server.address.to_string())
        .env("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10ms")
        .env("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "50ms")
}

fn check_management(server: &Hostile, setup: Setup) {
    let mut weir = setup.start_unhealthy();
    let said = weir.until_said("no stream from the management server").unwrap();
    assert!(said.contains(FAILURE), "{said}");
    // It reconnects.
    server.wait_until_closed(2);
    wait_for("failures are counted", || {
        (weir.metric("weir_xds_stream_failures_total") >= 2).then_some(())
    });
}

#[test]
fn a_management_server_sends_up_to_a_bound() {
    let server = Hostile::start(Behavior::InterimHttp2);
    check_management(&server, asking(&server));
}

#[cfg(feature = "tls")]
#[test]
fn a_management_server_sends_up_to_a_bound_over_tls() {
    let authority = crate::support::certificates::Authority::new();
    let server = Hostile::start_tls(Behavior::InterimHttp2, &authority.sign(&["xds.test"]));
    let setup = asking(&server).file("ca.pem", &authority.pem);
    let ca = setup.path("ca.pem");
    let setup = setup
        .env("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true")
        .env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ca)
        .env("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.test");
    check_management(&server, setup);
}

/// Runs a command, which must fail because of the server.
fn check_command(args: &[&str]) {
    let setup = args.iter().fold(Setup::new(), |setup, arg| setup.arg(arg));
    let (status, output) = setup.run();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains(FAILURE), "{output}");
}

#[test]
fn commands_accept_up_to_a_bound() {
    let server = Hostile::start(Behavior::InterimHttp2);
    let address = server.address.to_string();
    check_command(&["hit", &address, "--timeout", "1h", "-d", "shop", "user=ann"]);
    server.wait_until_closed(1);
    let server = Hostile::start(Behavior::InterimHttp1);
    let url = format!("http://{}/readyz", server.address);
    check_command(&["health", "--url", &url, "--timeout", "1h"]);
    server.wait_until_closed(1);
}
