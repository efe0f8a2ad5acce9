//! `weir health`: what it prints and how it exits.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use crate::support::api::HIGH_LIMIT;
use crate::support::redis::{Server, free_port};
use crate::support::weir::{Setup, Weir, serving};

/// Runs `weir health` with these arguments. Returns its exit code and its output.
fn health(args: &[&str]) -> (Option<i32>, String) {
    run(Setup::new(), args)
}

fn run(setup: Setup, args: &[&str]) -> (Option<i32>, String) {
    let setup = args.iter().fold(setup.arg("health"), |setup, arg| setup.arg(arg));
    let (status, output) = setup.run();
    (status.code(), output)
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}{path}")
}

fn ready() -> (Option<i32>, String) {
    (Some(0), "ok\n".to_owned())
}

fn not_ready(reasons: &str) -> (Option<i32>, String) {
    (Some(1), reasons.to_owned())
}

/// A service without rules, and without the Redis that it needs.
fn not_ready_weir() -> Weir {
    let mut redis = Server::start();
    redis.kill();
    let setup = serving("domain: [").env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
    setup.start_unhealthy()
}

#[test]
fn prints_the_reasons_and_exits_1_while_weir_is_not_ready() {
    let weir = not_ready_weir();
    let reasons = "no rules are loaded\nredis has not answered yet\n";
    for address in [weir.http, weir.debug] {
        assert_eq!(health(&["--url", &url(address, "/readyz")]), not_ready(reasons));
        assert_eq!(health(&["--url", &url(address, "/livez")]), ready());
    }
    assert_eq!(health(&["--server", &url(weir.debug, "/")]), not_ready(reasons));
    let setup = Setup::new().env("WEIR_SERVER", url(weir.debug, ""));
    assert_eq!(run(setup, &[]), not_ready(reasons));
    let setup = Setup::new().env("WEIR_SERVER", "nowhere");
    let (code, output) = run(setup, &[]);
    assert!(code == Some(1) && output.starts_with("WEIR_SERVER is \"nowhere\": "), "{output}");
}

#[test]
fn asks_the_debug_port_that_the_environment_sets() {
    let weir = serving(HIGH_LIMIT).start();
    let (http, debug) = (url(weir.http, "/healthcheck"), weir.debug);
    assert_eq!(health(&["--url", &http]), ready());
    let port = debug.port().to_string();
    for (name, value) in [
        ("WEIR__DEBUG__ADDRESS", debug.to_string()),
        ("WEIR__DEBUG__ADDRESS", format!("0.0.0.0:{port}")),
        ("DEBUG_PORT", port),
    ] {
        // Errors of other settings are reported by `weir serve`.
        let setup = Setup::new().env(name, value).env("WEIR__GRPC__ADDRESS", "nowhere");
        assert_eq!(run(setup, &[]), ready(), "{name}");
    }
    let (code, output) = run(Setup::new().env("WEIR__DEBUG__ADDRESS", "nowhere"), &[]);
    assert_eq!(code, Some(1));
    assert!(output.contains("debug.address is \"nowhere\""), "{output}");
}

#[test]
fn a_server_that_does_not_answer_is_not_ready() {
    let nobody = format!("http://127.0.0.1:{}/readyz", free_port());
    let (code, output) = health(&["--url", &nobody]);
    assert_eq!(code, Some(1));
    let cause = format!("no answer from {nobody}: connection refused; start weir, or name another");
    assert!(output.starts_with(&cause), "{output}");
    let debug = free_port().to_string();
    let (_, output) = run(Setup::new().env("DEBUG_PORT", debug), &[]);
    assert!(output.ends_with("start weir, or name its debug port with --server\n"), "{output}");

    // Accepts nothing, but the system completes the connection.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = url(silent.local_addr().unwrap(), "/readyz");
    let (code, output) = health(&["--url", &silent, "--timeout", "50ms"]);
    assert_eq!(code, Some(1));
    assert!(output.ends_with(": not within 50ms: raise --timeout\n"), "{output}");
}

/// Answers one request with `head` and then `body`, until the client closes the connection.
fn answering(head: &'static str, body: impl Iterator<Item = u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        assert!(client.read(&mut [0; 4096]).unwrap() > 0);
        client.write_all(head.as_bytes()).unwrap();
        let mut body = body.peekable();
        while body.peek().is_some() {
            let part: Vec<u8> = body.by_ref().take(4096).collect();
            if client.write_all(&part).is_err() {
                break;
            }
        }
    });
    address
}

#[test]
fn other_answers_are_not_ready() {
    for (head, wanted) in [
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            "answered 302 Found: name the URL that it redirects to\n",
        ),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "answered 404 Not Found\n"),
        (
            "hello\r\n\r\n",
            "invalid HTTP version parsed; if the server uses TLS, write https:// in the URL\n",
        ),
    ] {
        let (code, output) = health(&["--url", &url(answering(head, [].into_iter()), "/readyz")]);
        assert_eq!(code, Some(1), "{head}");
        assert!(output.ends_with(wanted), "{output}");
    }
    // The answer is bounded, and cannot control the terminal.
    let endless = answering("HTTP/1.1 503 No\r\n\r\n", std::iter::repeat(b'x'));
    let (code, output) = health(&["--url", &url(endless, "/readyz")]);
    assert_eq!(code, Some(1));
    assert!(output.ends_with(": more than 16384 bytes\n"), "{output}");
    let colored = answering("HTTP/1.1 503 No\r\n\r\n", "\x1b[31mno\n".bytes());
    assert_eq!(health(&["--url", &url(colored, "/readyz")]), not_ready("\\u001b[31mno\n"));
    // The debug port answers any path.
    let weir = serving(HIGH_LIMIT).start();
    let (code, output) = health(&["--url", &url(weir.debug, "/ready")]);
    assert_eq!(code, Some(1));
    assert!(output.contains("/ready is not a health endpoint: use the path /readyz"), "{output}");
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, wanted) in [
        (&["--url", "localhost:8080"][..], "write a URL such as http://127.0.0.1:6070/"),
        (&["--url", "http://a/", "--server", "http://a"], "cannot be used with"),
        (&["--timeout", "5"], "write a duration above zero, such as 500ms, 10s or 5m"),
        (&["--cert", "a.pem"], "--key <FILE>"),
    ] {
        let (code, output) = health(args);
        assert_eq!(code, Some(2), "{args:?}");
        assert!(output.contains(wanted), "{output}");
    }
    let (code, output) = health(&["--help"]);
    assert_eq!(code, Some(0));
    for option in [
        "--server <URL>",
        "--url <URL>",
        "--timeout <DURATION>",
        "--ca <FILE>",
        "http://127.0.0.1:6070",
    ] {
        assert!(output.contains(option), "{option}: {output}");
    }
}

#[test]
fn https_is_verified_and_the_debug_port_needs_no_certificate() {
    use crate::support::certificates::Authority;
    use crate::support::{http, wait_for};

    let (servers, clients) = (Authority::new(), Authority::named("clients"));
    let server = servers.sign(&["127.0.0.1"]);
    let setup = serving(HIGH_LIMIT)
        .file("tls.crt", &server.cert)
        .file("tls.key", &server.key)
        .file("clients.crt", &clients.pem)
        .file("servers.crt", &servers.pem);
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    let client_ca = setup.path("clients.crt");
    let weir = setup
        .env("WEIR__HTTP__TLS__ENABLED", "true")
        .env("WEIR__HTTP__TLS__CERT", cert)
        .env("WEIR__HTTP__TLS__KEY", key)
        .env("WEIR__HTTP__TLS__CLIENT_CA", client_ca)
        .start_unhealthy();
    wait_for("weir is ready", || (http::get(weir.debug, "/readyz").status == 200).then_some(()));
    let (own_cert, own_key) = clients.sign(&["probe"]).write(&weir.path(""), "probe");
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (own_cert, own_key) = (path(&own_cert), path(&own_key));
    let (trusted, other) = (path(&weir.path("servers.crt")), path(&weir.path("clients.crt")));
    let https = format!("https://{}/readyz", weir.http);
    let with =
        |ca: &str| health(&["--url", &https, "--ca", ca, "--cert", &own_cert, "--key", &own_key]);
    assert_eq!(with(&trusted), ready());
    let (code, output) = with(&other);
    assert_eq!(code, Some(1));
    assert!(output.contains("invalid peer certificate"), "{output}");
    // Without a client certificate, HTTP answers nothing, but the debug port does.
    assert_eq!(health(&["--url", &https, "--ca", &trusted]).0, Some(1));
    assert_eq!(health(&["--url", &url(weir.debug, "/readyz")]), ready());
    // Unusable files are named.
    let (code, output) = health(&["--url", &https, "--ca", "/none"]);
    assert_eq!((code, output.starts_with("--ca names /none: ")), (Some(1), true), "{output}");
}
