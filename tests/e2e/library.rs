//! A service that uses the limiter as a library, and shares its counters with weir.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::support::http;
use crate::support::program::Program;
use crate::support::redis::Server;
use crate::support::weir::serving;

const RULES: &str = include_str!("../../examples/library/rules.yaml");

/// The limit of the rules.
const LIMIT: u32 = 100;

/// The example beside the program that is tested: `cargo test` builds it, as it has tests of its own.
fn start(redis: &Server) -> (Program, SocketAddr) {
    let program = Path::new(env!("CARGO_BIN_EXE_weir")).with_file_name("library-example");
    assert!(program.is_file(), "it is not built: cargo build --package library-example");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/library/rules.yaml");
    let mut command = Command::new(program);
    command.args([rules, "127.0.0.1:0", &redis.addr()]);
    let mut program = Program::start("the example", &mut command);
    let address = program.until_said("listening on ").expect("it listens");
    (program, address.parse().expect("an address"))
}

#[test]
fn the_library_and_weir_are_never_over_the_limit_together() {
    let redis = Server::start();
    let weir = serving(RULES).env("REDIS_URL", redis.addr()).start();
    let (_library, library) = start(&redis);
    let descriptor = r#"{"entries":[{"key":"user","value":"ann"}]}"#;
    let question = format!(r#"{{"domain":"shop","descriptors":[{descriptor}]}}"#);
    let [passed, denied, failed] = [(); 3].map(|()| AtomicU32::new(0));
    let count = |status: u16| {
        let counter = match status {
            200 => &passed,
            429 => &denied,
            _ => &failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..LIMIT {
                    count(http::get_with(library, "/", &[("x-user", "ann")]).status);
                }
            });
            scope.spawn(|| {
                for _ in 0..LIMIT {
                    count(http::post(weir.http, "/json", &question).status);
                }
            });
        }
    });
    let [passed, denied, failed] = [passed, denied, failed].map(AtomicU32::into_inner);
    // On a busy machine, an answer of Redis may come too late for a hit that it counted.
    assert!(passed <= LIMIT && passed + failed >= LIMIT, "{passed} {failed}");
    assert!(denied >= 2 * LIMIT, "{denied}");
}
