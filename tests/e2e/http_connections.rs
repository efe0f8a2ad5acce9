//! Bounds on HTTP connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{code, request};
use crate::support::weir::{Setup, serving};
use crate::support::{PATIENCE, http, wait_for};

fn setup() -> Setup {
    serving(
        "domain: shop\ndescriptors:\n  - key: user\n    \
         rate_limit: { unit: year, requests_per_unit: 2 }\n",
    )
}

const GET: &[u8] = b"GET /healthcheck HTTP/1.1\r\nhost: test\r\n\r\n";

#[tokio::test]
async fn a_timeout_of_zero_means_none() {
    let weir = setup().env("WEIR__CLIENTS__TIMEOUT", "0").start();
    assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
    assert_eq!(http::get(weir.debug, "/status").status, 200);
    let request_body =
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    assert_eq!(http::post(weir.http, "/json", request_body).status, 200);
    assert_eq!(code(weir.grpc, request("shop", &[("user", "ann")])).await, Code::Ok);
    assert!(!weir.said().contains("panicked"), "{}", weir.said());
}

/// A connection with a small receive buffer.
fn narrow(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

#[test]
fn a_client_that_does_not_read_answers_is_disconnected() {
    let weir = setup()
        .env("WEIR__CLIENTS__TIMEOUT", "100ms")
        .env("WEIR__HTTP__MAX_CONNECTIONS", "1")
        .start();
    let mut silent = narrow(weir.http);
    silent.set_nonblocking(true).unwrap();
    // Megabytes of responses: more than the system buffers.
    let requests = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n".repeat(10_000);
    let _ = silent.write(&requests);
    // It has the only place, so only probes are served until it is disconnected.
    for probe in ["/healthcheck", "/livez", "/readyz"] {
        assert_eq!(http::get(weir.http, probe).status, 200, "{probe}");
    }
    wait_for("its disconnection", || {
        (http::get(weir.http, "/metrics").status == 200).then_some(())
    });
    assert!(silent.write(&requests).is_err());
}

#[test]
fn idle_connections_make_room() {
    let weir =
        setup().env("WEIR__CLIENTS__TIMEOUT", "1h").env("WEIR__HTTP__MAX_CONNECTIONS", "2").start();
    let kept: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut kept = TcpStream::connect(weir.http).unwrap();
            kept.set_read_timeout(Some(PATIENCE)).unwrap();
            kept.write_all(GET).unwrap();
            let mut answer = [0; 17];
            kept.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200 OK\r\n");
            kept
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
    }
    drop(kept);
}
