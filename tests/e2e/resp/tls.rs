//! TLS: with redis-cli and a password, and the end of connections.

use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{setup, start};
use crate::support::PATIENCE;
use crate::support::certificates::Authority;
use crate::support::tls::{SERVER_NAME, TlsClient};
use crate::support::weir::Setup;

/// `weir serve` with a certificate of an authority.
fn with_tls(authority: &Authority) -> Setup {
    let server = authority.sign(&[SERVER_NAME]);
    let setup = setup(None)
        .file("tls.crt", &server.cert)
        .file("tls.key", &server.key)
        .file("ca.crt", &authority.pem)
        .env("WEIR__RESP__TLS__ENABLED", "true");
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    setup.env("WEIR__RESP__TLS__CERT", cert).env("WEIR__RESP__TLS__KEY", key)
}

#[test]
fn redis_cli_connects_with_tls_and_a_password() {
    let authority = Authority::new();
    let setup = with_tls(&authority).file("password", "secret\n");
    let password = setup.path("password");
    let (weir, address) = start(setup.env("WEIR__RESP__PASSWORD_FILE", password));
    let run = |arguments: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "--no-auth-warning"])
            .args(arguments)
            .args(["WEIR.CHECK", "shop", "1", "user", "ann"])
            .output()
            .expect("redis-cli");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let ca = weir.path("ca.crt");
    let tls = ["--tls", "--sni", SERVER_NAME, "--cacert", ca.to_str().unwrap()];
    let with = |more: &[&'static str]| [&tls[..], more].concat();
    let checked = run(&with(&["-a", "secret"]));
    assert!(checked.starts_with("1 2 -1 ") && checked.ends_with(" per-user"), "{checked}");
    let checked = run(&with(&["-3", "--user", "default", "-a", "secret"]));
    assert!(checked.starts_with("1 1 -1 ") && checked.ends_with(" per-user"), "{checked}");
    let refused = run(&with(&["-a", "wrong"]));
    assert!(refused.contains("WRONGPASS") && refused.contains("NOAUTH"), "{refused}");
    assert!(run(&tls).contains("NOAUTH"));
    let plain = run(&["-a", "secret"]);
    assert!(!plain.contains("per-user"), "{plain}");
}

/// Without a closing notice, reading would be an error: someone else may have cut the replies off.
#[tokio::test(flavor = "multi_thread")]
async fn connections_end_with_a_closing_notice() {
    let authority = Authority::new();
    let (mut weir, address) = start(with_tls(&authority).env("WEIR__DRAIN__DELAY", "0"));
    let client = TlsClient::new(&authority, None).offering(&[]);
    for (sent, reply) in [
        ("PING\r\nQUIT\r\n", "+PONG\r\n+OK\r\n"),
        ("*a\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("POST / HTTP/1.1\r\n", ""),
    ] {
        let mut stream = client.connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut replies = String::new();
        let read = timeout(PATIENCE, stream.read_to_string(&mut replies));
        read.await.expect("an end in time").expect("a closing notice");
        assert_eq!(replies, reply, "{sent}");
    }
    let mut idle = client.connect(address).await.unwrap();
    idle.write_all(b"PING\r\n").await.unwrap();
    idle.read_exact(&mut [0; 7]).await.unwrap();
    weir.signal("TERM");
    let read = timeout(PATIENCE, idle.read(&mut [0])).await.expect("an end in time");
    assert_eq!(read.expect("a closing notice"), 0);
    weir.wait_until_ended();
}
