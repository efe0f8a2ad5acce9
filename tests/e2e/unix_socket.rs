//! gRPC on a Unix socket.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use tokio::net::UnixStream;

use crate::connections::{framed_request, head, send};
use crate::support::weir::{Setup, serving};
use crate::support::{api, http};

/// `weir serve` with gRPC on the Unix socket `weir.sock` in its directory.
fn setup() -> Setup {
    let setup = serving(api::HIGH_LIMIT);
    let path = setup.path("weir.sock");
    setup.env("GRPC_UDS", path)
}

async fn assert_served(path: &Path) {
    let stream = UnixStream::connect(path).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let answer = send(&mut client, head(), &[framed_request("ann")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_replaces_the_port_and_is_removed_at_the_end() {
    let mut weir = setup().env("WEIR__DRAIN__DELAY", "0").start();
    let path = weir.path("weir.sock");
    let said = weir.said();
    assert!(said.contains(&format!("Listening for gRPC on '{}'", path.display())), "{said}");
    assert_served(&path).await;
    assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(!path.exists());
}

#[tokio::test]
async fn the_socket_of_a_killed_process_is_replaced() {
    let setup = setup();
    let path = setup.path("weir.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    let _weir = setup.start();
    assert_served(&path).await;
}

#[tokio::test]
async fn what_belongs_to_others_stays() {
    let weir = setup().start();
    let path = weir.path("weir.sock");
    let second = serving(api::HIGH_LIMIT).env("GRPC_UDS", &path);
    let (status, output) = second.arg("--http-address").arg("127.0.0.1:0").run();
    assert_eq!(status.code(), Some(1), "{output}");
    let wanted = format!("cannot listen on {} (grpc.uds)", path.display());
    assert!(output.contains(&wanted) && output.contains("another process listens"), "{output}");
    assert_served(&path).await;

    let (status, output) = setup().file("weir.sock", "precious").run();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("the file exists and is not a socket"), "{output}");
}
