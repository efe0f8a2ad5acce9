//! The listener for Redis clients.

mod cell;
mod clients;
mod hostile;
mod reduce;
mod tls;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::support::console;
use crate::support::control_api::{ControlApi, of_user};
use crate::support::files::read;
use crate::support::markdown::blocks_of;
use crate::support::redis::{Client, Reply, Server};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{PATIENCE, http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: year, requests_per_unit: 3 }
  - key: log
    rate_limit: { name: exact, unit: year, requests_per_unit: 5, algorithm: sliding_log }
  - key: many
    rate_limit: { unit: year, requests_per_unit: 1000000 }
";

/// `weir serve` with a listener for Redis clients.
fn setup(redis: Option<&Server>) -> Setup {
    let setup = serving(RULES).env("WEIR__RESP__ADDRESS", "127.0.0.1:0");
    match redis {
        Some(redis) => setup.env("REDIS_URL", redis.addr()),
        None => setup,
    }
}

/// Returns the address of the listener.
pub(crate) fn address(weir: &mut Weir) -> SocketAddr {
    let rest = weir.until_said("Listening for RESP on '").expect("weir runs");
    rest.split('\'').next().unwrap_or_default().parse().expect("an address")
}

fn start(setup: Setup) -> (Weir, SocketAddr) {
    let mut weir = setup.start();
    let address = address(&mut weir);
    (weir, address)
}

/// Sends a command of words without blanks.
fn send(client: &mut Client, command: &str) -> Reply {
    client.send(&command.split(' ').collect::<Vec<_>>()).expect("a reply")
}

/// Returns a reply of integers and texts as one line.
pub(crate) fn line(reply: &Reply) -> String {
    match reply {
        Reply::List(list) => {
            format!("[{}]", list.iter().map(line).collect::<Vec<_>>().join(" "))
        }
        Reply::Text(text) if text.is_empty() => "-".into(),
        Reply::Error(error) => format!("!{error}"),
        Reply::Nil => "nil".into(),
        other => other.text(),
    }
}

fn ask(client: &mut Client, command: &str) -> String {
    line(&send(client, command))
}

/// Returns a reply without its last but one number, the time until the reset.
fn without_reset(reply: &str) -> String {
    let mut words: Vec<_> = reply.trim_matches(['[', ']']).split(' ').collect();
    words.remove(3);
    words.join(" ")
}

#[test]
fn requests_are_decided_in_memory_and_in_redis() {
    let redis = Server::start();
    for redis in [None, Some(&redis)] {
        let (_weir, address) = start(setup(redis));
        let mut client = Client::connect(address.port()).unwrap();
        let mut check = |command: &str| without_reset(&ask(&mut client, command));
        assert_eq!(check("WEIR.CHECK shop 2 user ann"), "1 1 -1 per-user");
        assert_eq!(check("WEIR.CHECK shop 0 user ann"), "1 1 -1 per-user");
        let denied = check("WEIR.CHECK shop 2 user ann");
        assert!(denied.starts_with("2 0 ") && !denied.contains("-1"), "{denied}");
        assert_eq!(check("WEIR.CHECK shop 1 unknown x"), "1 -1 -1 -");
        let all = ask(&mut client, "WEIR.CHECKALL shop 1 1 user bob 1 log bob 2 many a other b");
        assert!(all.starts_with("[1 [1 2 -1 "), "{all}");
        assert!(all.ends_with(" exact] [1 -1 -1 0 -]]"), "{all}");
        assert_eq!(ask(&mut client, "WEIR.COUNT shop 1h ADD 3 log bob"), "4");
        assert_eq!(ask(&mut client, "WEIR.COUNT shop 1h log bob"), "4");
        let refused = ask(&mut client, "WEIR.CHECK shop -1 user ann");
        assert_eq!(
            refused,
            "!ERR descriptor 0: negative hits are disabled (setting resp.allow_negative_hits)"
        );
        assert_eq!(ask(&mut client, "CL.THROTTLE x 2 1 3600"), "[0 3 2 -1 3600]");
        assert_eq!(ask(&mut client, "CL.THROTTLE x 2 1 3600 2"), "[0 3 0 -1 10800]");
        assert_eq!(ask(&mut client, "CL.THROTTLE x 2 1 3600"), "[1 3 0 3600 10800]");
        assert_eq!(ask(&mut client, "CL.THROTTLE x 5 1 3600"), "[0 6 2 -1 14400]");
        // Neither rules nor other clients reach these keys.
        assert_eq!(
            ask(&mut client, "WEIR.CHECK  1 throttle x"),
            "!ERR rate limit domain must not be empty"
        );
    }
    assert!(redis.command(&["EXISTS", "weir:{|throttle=x}cell"]) == Reply::Int(1));
}

#[test]
fn pipelined_commands_are_answered_in_order_and_charged_together() {
    const COMMANDS: usize = 5_000;
    let redis = Server::start();
    for redis in [None, Some(&redis)] {
        // A lease may answer before a command that was sent earlier and waits for Redis.
        let setup = setup(redis).env("WEIR__STORE__LEASES_FOR", "0s");
        let (_weir, address) = start(setup);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut sender = stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            for i in 0..COMMANDS {
                let command = match i % 4 {
                    0 => format!("ECHO {i}\r\n"),
                    1 => "WEIR.CHECK shop 1 many a\r\n".to_owned(),
                    2 => "CL.THROTTLE a 10000 1 100000\r\n".to_owned(),
                    _ if i % 400 == 3 => "WEIR.COUNT shop 1h log a\r\n".to_owned(),
                    _ => "UNKNOWN\r\n".to_owned(),
                };
                sender.write_all(command.as_bytes()).unwrap();
            }
            sender.write_all(b"QUIT\r\nPING\r\n").unwrap();
        });
        let mut replies = BufReader::new(&mut stream).lines().map(Result::unwrap);
        let mut next = || replies.next().expect("another line");
        for i in 0..COMMANDS {
            match i % 4 {
                0 => {
                    let echoed = i.to_string();
                    assert_eq!(next(), format!("${}", echoed.len()));
                    assert_eq!(next(), echoed);
                }
                1 => {
                    assert_eq!([next(), next()], ["*5", ":1"]);
                    // Every command sees those before it.
                    assert_eq!(next(), format!(":{}", 1_000_000 - i / 4 - 1));
                    assert_eq!([next(), next().split_off(0)][0], ":-1");
                    assert_eq!([next(), next()], ["$0", ""]);
                }
                2 => {
                    assert_eq!([next(), next(), next()], ["*5", ":0", ":10001"]);
                    assert_eq!(next(), format!(":{}", 10_000 - i / 4));
                    assert_eq!(next(), ":-1");
                    next();
                }
                _ if i % 400 == 3 => assert_eq!(next(), ":0"),
                _ => assert_eq!(next(), "-ERR unknown command 'UNKNOWN'"),
            }
        }
        // Nothing is answered after QUIT.
        assert_eq!(next(), "+OK");
        assert_eq!(replies.next(), None);
        sending.join().unwrap();
    }
    // A round trip charges many of them.
    let stats = redis.command(&["INFO", "commandstats"]).text();
    let calls = stats.lines().filter_map(|line| {
        let calls = line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?;
        calls.parse::<usize>().ok()
    });
    let calls: usize = calls.sum();
    assert!((1..COMMANDS / 10).contains(&calls), "{stats}");
}

#[test]
fn controls_apply() {
    let (weir, address) = start(setup(None));
    let mut client = Client::connect(address.port()).unwrap();
    let api = ControlApi::new(&weir);
    api.put_good("no-ann", &of_user("ann", &json!({ "action": "block", "for": "1h" })));
    let blocked = ask(&mut client, "WEIR.CHECK shop 1 user ann");
    assert!(blocked.starts_with("[2 0 3") && blocked.ends_with(" -]"), "{blocked}");
    assert_eq!(without_reset(&ask(&mut client, "WEIR.CHECK shop 1 user bob")), "1 2 -1 per-user");
    assert_eq!(api.delete("/v1/controls/no-ann").0, 200);
    assert_eq!(without_reset(&ask(&mut client, "WEIR.CHECK shop 1 user ann")), "1 2 -1 per-user");
}

#[test]
fn a_store_that_is_away_is_an_error_and_comes_back() {
    let mut redis = Server::start();
    let setup = setup(Some(&redis)).env("WEIR__STORE__BUDGET", "200ms");
    let (_weir, address) = start(setup);
    let mut client = Client::connect(address.port()).unwrap();
    let commands =
        ["WEIR.CHECK shop 1 many a", "CL.THROTTLE a 10000 1 1", "WEIR.COUNT shop 1h log a"];
    for command in commands {
        assert!(!ask(&mut client, command).starts_with('!'));
    }
    redis.kill();
    for command in commands {
        assert_eq!(ask(&mut client, command), "!ERR store unavailable", "{command}");
    }
    assert_eq!(ask(&mut client, "PING"), "PONG");
    redis.restart();
    for command in commands {
        wait_for("the store is back", || {
            (!ask(&mut client, command).starts_with('!')).then_some(())
        });
    }
}

#[test]
fn a_password_is_read_again_when_its_file_changes() {
    let setup = setup(None).file("password", "first\n");
    let path = setup.path("password");
    let (weir, address) = start(setup.env("WEIR__RESP__PASSWORD_FILE", &path));
    let mut client = Client::connect(address.port()).unwrap();
    for command in ["WEIR.CHECK shop 1 user a", "CL.THROTTLE a 1 1 1", "PING", "COMMAND"] {
        assert_eq!(ask(&mut client, command), "!NOAUTH Authentication required.");
    }
    assert!(ask(&mut client, "HELLO 2").starts_with("!NOAUTH HELLO must be called with"));
    assert!(ask(&mut client, "HELLO 4 AUTH default first").starts_with("!NOPROTO "));
    assert!(ask(&mut client, "AUTH other").starts_with("!WRONGPASS invalid username-password"));
    assert!(ask(&mut client, "HELLO 2 AUTH default other").starts_with("!WRONGPASS "));
    assert!(ask(&mut client, "AUTH ann first").starts_with("!WRONGPASS "));
    assert_eq!(ask(&mut client, "AUTH first"), "OK");
    assert_eq!(ask(&mut client, "PING"), "PONG");
    assert_eq!(ask(&mut client, "RESET"), "RESET");
    assert!(ask(&mut client, "PING").starts_with("!NOAUTH "));
    let hello = ask(&mut client, "HELLO 2 AUTH default first SETNAME app");
    assert!(hello.starts_with("[server weir version "), "{hello}");
    assert_eq!(ask(&mut client, "CLIENT GETNAME"), "app");

    std::fs::write(&path, "second\n").unwrap();
    let mut other = Client::connect(address.port()).unwrap();
    wait_for("the new password", || (ask(&mut other, "AUTH second") == "OK").then_some(()));
    assert!(ask(&mut other, "AUTH first").starts_with("!WRONGPASS "));
    // Clients that are in stay in.
    assert_eq!(ask(&mut client, "PING"), "PONG");
    // Three at first, and at least the one above.
    assert!(weir.metric("weir_resp_wrong_passwords_total") >= 4);
    weir.has_said("Redis client sent a wrong password");
    // The log has neither.
    assert!(!weir.said().contains("second"));
}

#[test]
fn clients_are_served_until_the_listeners_close() {
    let mut weir =
        setup(None).env("WEIR__DRAIN__DELAY", "1s").env("WEIR__DRAIN__TIMEOUT", "2h").start();
    let address = address(&mut weir);
    let mut idle = TcpStream::connect(address).unwrap();
    // It never stops to send.
    let busy = std::thread::spawn(move || {
        let mut client = Client::connect(address.port()).unwrap();
        let mut answered = 0;
        while client.send(&["WEIR.CHECK", "shop", "1", "many", "a"]).is_ok() {
            answered += 1;
        }
        answered
    });
    weir.signal("TERM");
    wait_for("health fails", || (http::get(weir.http, "/healthcheck").status == 500).then_some(()));
    let mut client = Client::connect(address.port()).unwrap();
    assert_eq!(ask(&mut client, "PING"), "PONG");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(busy.join().unwrap() > 0);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
}

/// Reads until the connection is closed, with a reset or without.
fn read_to_end(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut replies = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => replies.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(replies).unwrap()
}

#[test]
fn a_client_that_is_done_sending_is_answered() {
    let (_weir, address) = start(setup(None));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"PING\r\nWEIR.CHECK shop 1 user a\r\nPIN").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let replies = read_to_end(&mut stream);
    assert!(replies.starts_with("+PONG\r\n*5\r\n:1\r\n") && replies.ends_with("per-user\r\n"));
}

#[test]
fn the_examples_of_the_document_work_as_pasted() {
    let name = "docs/redis-protocol.md";
    let document = read(name);
    let rules = blocks_of(&document, "yaml").swap_remove(0);
    let (weir, address) = start(setup(None).file("rules.yaml", &rules.text));
    let examples = blocks_of(&document, "console");
    assert!(examples.len() >= 5);
    for example in examples {
        // Without a terminal, redis-cli leaves out the types.
        let text = example.text.replace("redis-cli -p 6380", "redis-cli --no-raw -p 6380");
        let text = text.replace("6380", &address.port().to_string());
        let ran = console::run(&text, &weir.path(""));
        ran.unwrap_or_else(|error| panic!("{name}:{}: {error}", example.line));
    }
}
