//! Commands whose server fails after a part of the work.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::{Value, json};

use super::at;

fn control(id: &str, keys: [&str; 2]) -> Value {
    let entries = keys.map(|key| json!({ "key": key, "value": "x" }));
    json!({
        "id": id, "domain": "shop", "entries": entries, "exact": false, "action": "block", "until": null,
        "left_ms": null, "reason": "", "by": "", "at": "2026-01-01T00:00:00Z",
    })
}

/// Starts a server with two blocks of the same client, of which it deletes the first.
fn start() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (first, second) = (control("one", ["a", "b"]), control("two", ["b", "a"]));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let head = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = head.take_while(|line| !line.is_empty()).collect();
            let (status, answer) = match head[0].split([' ', '?']).take(2).collect::<Vec<_>>()[..] {
                ["GET", "/v1/controls"] => {
                    (200, json!({ "controls": [first, second], "share_error": null }))
                }
                ["DELETE", "/v1/controls/one"] => {
                    (200, json!({ "control": first, "shared": true, "kept": true }))
                }
                _ => (503, json!({ "error": "the store is away", "help": "try again" })),
            };
            let answer = answer.to_string();
            let length = answer.len();
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n");
            let _ = (&stream).write_all((head + &answer).as_bytes());
        }
    });
    address
}

#[test]
fn unblock_reports_what_it_has_deleted_before_an_error() {
    let server = start();
    let ran = at(server, "unblock -d shop a=x,b=x");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(ran.out, "deleted one: block shop a=x,b=x\n");
    assert_eq!(ran.err, "error: the store is away\nhelp: try again\n");
    let ran = at(server, "unblock -d shop a=x,b=x --output json");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(ran.json()["deleted"][0]["control"]["id"], "one");
    // Without anything deleted, there is only the error.
    let ran = at(server, "remove two --output json");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
}
