//! Commands over a connection in memory, answered by rules and the memory store.

use std::sync::Arc;

use proptest::prelude::*;

use super::client::{Client, password};
use super::reduce;
use crate::resp::Resp;
use weir_common::clock::ManualClock;
use weir_limit::{ReduceBucket, SECOND};
use weir_store::StoreError;
use weir_store::conformance::fakes::Fake;
use weir_store::memory::MemoryStore;

#[tokio::test]
async fn requests_are_decided_by_rules() {
    let mut client = Client::connect(None);
    assert_eq!(client.send("WEIR.CHECK shop 1 user ann").await, "*5 :1 :1 :-1 :500 $5 burst");
    assert_eq!(client.send("weir.check shop 2 user ann").await, "*5 :2 :0 :500 :500 $5 burst");
    // Looks, and refunds.
    assert_eq!(client.send("WEIR.CHECK shop 0 user ann").await, "*5 :1 :1 :-1 :500 $5 burst");
    assert_eq!(client.send("WEIR.CHECK shop -1 user ann").await, "*5 :1 :2 :-1 :0 $5 burst");
    // More than ever fits.
    assert_eq!(client.send("WEIR.CHECK shop 3 user ann").await, "*5 :2 :0 :-1 :0 $5 burst");
    // Nothing limits.
    for free in ["shop 1 other x", "shop 1 free x", "elsewhere 1 user ann"] {
        assert_eq!(client.send(&format!("WEIR.CHECK {free}")).await, "*5 :1 :-1 :-1 :0 $0");
    }
}

#[tokio::test]
async fn several_descriptors_are_decided_together() {
    let mut client = Client::connect(None);
    assert_eq!(
        client.send("WEIR.CHECKALL shop 2 1 user ann 1 other x").await,
        "*3 :1 *5 :1 :0 :-1 :1000 $5 burst *5 :1 :-1 :-1 :0 $0"
    );
    assert_eq!(
        client.send("WEIR.CHECKALL shop 1 1 user ann 1 user bob").await,
        "*3 :2 *5 :2 :0 :500 :1000 $5 burst *5 :1 :1 :-1 :500 $5 burst"
    );
}

#[tokio::test]
async fn hits_of_a_span_are_counted() {
    let mut client = Client::connect(None);
    assert_eq!(client.send("WEIR.COUNT shop 1m ADD 3 log x").await, ":3");
    client.clock.advance(20 * SECOND);
    assert_eq!(client.send("WEIR.COUNT shop 1m ADD 1 log x").await, ":4");
    assert_eq!(client.send("WEIR.COUNT shop 10s log x").await, ":1");
    assert!(client.send("WEIR.COUNT shop 10s user ann").await.starts_with("-ERR "));
    assert!(client.send("WEIR.COUNT shop 2h log x").await.starts_with("-ERR "));
    assert!(client.send("WEIR.COUNT shop never log x").await.starts_with("-ERR 'never' is not"));
}

#[tokio::test]
async fn keys_are_throttled_as_by_redis_cell() {
    let mut client = Client::connect(None);
    // 15 at once, then 30 a minute.
    assert_eq!(client.send("CL.THROTTLE ann 14 30 60").await, "*5 :0 :15 :14 :-1 :2");
    assert_eq!(client.send("cl.throttle ann 14 30 60 14").await, "*5 :0 :15 :0 :-1 :30");
    assert_eq!(client.send("CL.THROTTLE ann 14 30 60").await, "*5 :1 :15 :0 :2 :30");
    // A look is never too much.
    assert_eq!(client.send("CL.THROTTLE ann 14 30 60 0").await, "*5 :0 :15 :0 :-1 :30");
    // More than ever fits.
    assert_eq!(client.send("CL.THROTTLE ann 14 30 60 16").await, "*5 :1 :15 :0 :-1 :30");
    assert_eq!(client.send("CL.THROTTLE bob 14 30 60 16").await, "*5 :1 :15 :15 :-1 :0");
    client.clock.advance(3 * SECOND);
    assert_eq!(client.send("CL.THROTTLE ann 14 30 60 2").await, "*5 :1 :15 :1 :1 :27");
    // Other numbers go on from there.
    assert_eq!(client.send("CL.THROTTLE ann 29 30 60").await, "*5 :0 :30 :15 :-1 :29");
    assert_eq!(client.send("CL.THROTTLE ann 4 1 1").await, "*5 :1 :5 :0 :25 :29");
    assert_eq!(client.send("CL.THROTTLE ann 4 1 1 0").await, "*5 :1 :5 :0 :24 :29");
    assert_eq!(client.send("CL.THROTTLE ann 4 1000000 1 0").await, "*5 :1 :5 :0 :29 :29");
    assert_eq!(client.send("CL.THROTTLE ann 0 1 31536000").await, "*5 :1 :1 :0 :29 :29");
}

#[tokio::test]
async fn numbers_of_throttles_are_checked() {
    let mut client = Client::connect(None);
    for arguments in [
        "a -1 1 1",
        "a 4294967295 1 1",
        "a 1 0 1",
        "a 1 1 0",
        "a 1 1 1 -1",
        "a 1 1 1 4294967296",
        "a 1 x 1",
        "a 1 1.5 1",
        "a 1 -1 1",
        // More than 142 years.
        "a 142 1 31536000",
    ] {
        let reply = client.send(&format!("CL.THROTTLE {arguments}")).await;
        assert_eq!(reply, "-ERR value is not an integer or out of range", "{arguments}");
    }
    for arguments in ["", "a 1 1", "a 1 1 1 1 1"] {
        let reply = client.send(&format!("CL.THROTTLE {arguments}")).await;
        let wanted = "-ERR wrong number of arguments for 'cl.throttle' command";
        assert_eq!(reply, wanted, "{arguments}");
    }
    assert_eq!(
        client.send("CL.THROTTLE a 4294967294 4294967295 1 4294967295").await,
        "*5 :0 :4294967295 :0 :-1 :1"
    );
    assert_eq!(client.send("CL.THROTTLE b 0 1 4294967295").await, "*5 :0 :1 :0 :-1 :4294967295");
}

#[tokio::test]
async fn errors_are_worded_as_by_redis() {
    let mut client = Client::connect(None);
    for (line, error) in [
        ("Get a", "-ERR unknown command 'Get'"),
        ("WEIR.CHECK \"\" 1 user a", "-ERR rate limit domain must not be empty"),
        ("WEIR.CHECK shop", "-ERR wrong number of arguments for 'weir.check' command"),
        ("WEIR.CHECK shop 1 user", "-ERR wrong number of arguments for 'weir.check' command"),
        ("WEIR.CHECK shop x user a", "-ERR value is not an integer or out of range"),
        ("WEIR.CHECK shop 4294967296 user a", "-ERR value is not an integer or out of range"),
        (
            "WEIR.CHECKALL shop 1 2 user a",
            "-ERR wrong number of arguments for 'weir.checkall' command",
        ),
        ("WEIR.CHECKALL shop 1 0", "-ERR value is not an integer or out of range"),
        ("WEIR.CHECKALL shop 1", "-ERR wrong number of arguments for 'weir.checkall' command"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("SELECT a", "-ERR value is not an integer or out of range"),
        ("CLIENT SETINFO other x", "-ERR Unrecognized option 'other'"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command"),
    ] {
        assert_eq!(client.send(line).await, error, "{line}");
    }
}

#[tokio::test]
async fn clients_introduce_themselves() {
    let mut client = Client::connect(None);
    assert_eq!(client.send("PING\r\nPING x\r\nSELECT 0").await, "+PONG $1 x +OK");
    assert_eq!(
        client.send("CLIENT SETNAME app\r\nCLIENT GETNAME\r\nCLIENT SETINFO lib-name x").await,
        "+OK $3 app +OK"
    );
    let hello = client.send("HELLO 3").await;
    assert!(hello.starts_with("%7 $6 server $4 weir"), "{hello}");
    assert!(hello.contains("$5 proto :3"), "{hello}");
    assert_eq!(client.send("COMMAND DOCS\r\nCOMMAND COUNT").await, "%0 :0");
    assert_eq!(client.send("COMMAND INFO get set\r\nCOMMAND INFO").await, "*2 _ _ *0");
    assert_eq!(client.send("RESET\r\nCOMMAND DOCS\r\nCLIENT GETNAME").await, "+RESET *0 $-1");
}

#[tokio::test]
async fn a_password_is_needed_if_there_is_one() {
    let mut client = Client::connect(Some(password("secret")));
    let lines = "WEIR.CHECK shop 1 user ann\r\nAUTH wrong\r\nAUTH ann secret\r\nHELLO 3";
    let refused = client.send_until(lines, "AUTH secret", "+OK\r\n").await;
    assert_eq!(
        refused.split(" -").map(|error| error.split(' ').next().unwrap()).collect::<Vec<_>>(),
        ["-NOAUTH", "WRONGPASS", "WRONGPASS", "NOAUTH"]
    );
    assert_eq!(client.send("PING").await, "+PONG");
    let mut open = Client::connect(None);
    assert!(open.send("AUTH secret").await.starts_with("-ERR AUTH <password> called without"));
    assert_eq!(open.send("AUTH default secret").await, "+OK");
    let mut other = Client::connect(Some(password("secret")));
    assert!(other.send("HELLO 3 AUTH default secret").await.starts_with("%7 "));
}

#[tokio::test]
async fn buckets_reply_the_tokens_before() {
    let mut client = Client::connect(None);
    // One bucket, whatever the command.
    assert_eq!(client.send("RL.REDUCE a 10 5 REFILL 3").await, ":10");
    assert_eq!(client.send("rl.preduce a 10 5000 refill 3 take 5").await, ":9");
    assert_eq!(client.send("RL.GET a 10 5 REFILL 3").await, ":4");
    assert_eq!(client.send("RL.PGET a 10 5000 REFILL 3").await, ":4");
    // More than there are: denied, and nothing is left.
    assert_eq!(client.send("RL.REDUCE a 10 5 REFILL 3 TAKE 5").await, ":4");
    assert_eq!(client.send("RL.REDUCE a 10 5 REFILL 3 TAKE 0").await, ":0");
    client.clock.advance(5 * SECOND);
    assert_eq!(client.send("RL.GET a 10 5 REFILL 3 STRICT").await, ":3");
    // Other numbers are another bucket, and REFILL is max by default.
    assert_eq!(client.send("RL.REDUCE a 10 5").await, ":10");
    assert_eq!(client.send("RL.GET a 10 5 REFILL 10").await, ":9");
    for other in ["a 11 5 REFILL 3", "a 10 6 REFILL 3", "a 10 5 REFILL 4", "b 10 5 REFILL 3"] {
        let max = other.split(' ').nth(1).unwrap();
        assert_eq!(client.send(&format!("RL.GET {other}")).await, format!(":{max}"));
    }
    // Nor is it that of another command.
    assert_eq!(client.send("CL.THROTTLE a 9 10 5").await, "*5 :0 :10 :9 :-1 :1");
}

#[tokio::test]
async fn buckets_go_by_the_time_of_the_caller() {
    let mut client = Client::connect(None);
    assert_eq!(client.send("RL.REDUCE a 10 5 AT 2 TAKE 10").await, ":10");
    assert_eq!(client.send("RL.PGET a 10 5000 AT 6999").await, ":0");
    // The last of equal options wins, in any order and case.
    assert_eq!(client.send("RL.GET a 10 5 at 1 strict At 7 STRICT").await, ":10");
    assert_eq!(client.send("RL.REDUCE b 10 5 TAKE 0 REFILL 0 TAKE 4 REFILL 10").await, ":10");
    assert_eq!(client.send("RL.GET b 10 5").await, ":6");
    // Strict: nothing comes back until the bucket has been quiet for an interval.
    assert_eq!(client.send("RL.REDUCE c 2 5 AT 10 TAKE 2 STRICT").await, ":2");
    assert_eq!(client.send("RL.REDUCE c 2 5 AT 14 STRICT").await, ":0");
    assert_eq!(client.send("RL.REDUCE c 2 5 AT 18 STRICT").await, ":0");
    assert_eq!(client.send("RL.REDUCE c 2 5 AT 23 STRICT").await, ":2");

    let clock = client.clock.clone();
    let store = MemoryStore::new(clock.clone(), 1_000);
    let mut client = Client::connect_to(store, clock, None, Resp::refusing_at);
    assert_eq!(
        client.send("RL.GET a 10 5 AT 7").await,
        "-ERR AT needs store.redis.clock = caller, or a store that is not Redis"
    );
    assert_eq!(client.send("RL.GET a 10 5").await, ":10");
}

proptest! {
    #[test]
    fn buckets_agree_with_the_model((buckets, steps) in reduce::schedules(false)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = Client::connect(None);
            let mut model = reduce::Model::new(true);
            for (i, step) in steps.iter().enumerate() {
                let (bucket, expected) = model.step(&client.clock, &buckets, step);
                let ReduceBucket { max, refill, interval, strict, at } = bucket;
                let mut options = vec![format!("rEFILL {refill}")];
                options.extend(at.map(|at| format!("at {at}")));
                options.extend(strict.then(|| "Strict".to_owned()));
                let lines = step.takes.iter().map(|take| {
                    let (name, options) = match take {
                        0 => ("rl.pget", options.clone()),
                        _ => ("RL.PREDUCE", [&options[..], &[format!("TAKE {take}")]].concat()),
                    };
                    let mut options = options;
                    let turn = i % options.len();
                    options.rotate_left(turn);
                    format!("{name} {} {max} {interval} {}", step.key(), options.join(" "))
                });
                let lines: Vec<String> = lines.collect();
                let expected: Vec<String> = expected.iter().map(|it| format!(":{it}")).collect();
                let replies = client.send(&lines.join("\r\n")).await;
                assert_eq!(replies, expected.join(" "), "{lines:?}");
            }
        });
    }
}

#[tokio::test]
async fn arguments_of_buckets_are_checked() {
    const INTEGER: &str = "-ERR value is not an integer or out of range";
    const SYNTAX: &str = "-ERR syntax error";
    let mut client = Client::connect(None);
    for (line, error) in [
        ("RL.REDUCE a 10", "-ERR wrong number of arguments for 'rl.reduce' command"),
        ("RL.PGET", "-ERR wrong number of arguments for 'rl.pget' command"),
        ("RL.REDUCE a 0 5", INTEGER),
        ("RL.REDUCE a 4294967296 5", INTEGER),
        ("RL.REDUCE a x 5", INTEGER),
        ("RL.REDUCE a 10 0", INTEGER),
        ("RL.REDUCE a 10 -5", INTEGER),
        ("RL.REDUCE a 10 9223372036854775807", INTEGER),
        ("RL.REDUCE a 10 5 REFILL 0", INTEGER),
        ("RL.REDUCE a 10 5 REFILL 4294967296", INTEGER),
        ("RL.REDUCE a 10 5 REFILL STRICT 1", INTEGER),
        ("RL.REDUCE a 10 5 TAKE -1", INTEGER),
        ("RL.REDUCE a 10 5 AT -1", INTEGER),
        ("RL.PREDUCE a 10 5 AT 4503599627370496", INTEGER),
        ("RL.REDUCE a 10 5 AT 4503599627371", INTEGER),
        ("RL.REDUCE a 10 5 REFILL", SYNTAX),
        ("RL.REDUCE a 10 5 REFILL 1 STRICT abc", SYNTAX),
        ("RL.REDUCE a 10 5 OTHER 1", SYNTAX),
        ("RL.GET a 10 5 TAKE 1", SYNTAX),
        ("RL.PGET a 0 60 TAKE 2", SYNTAX),
        ("RL.SESSIONIZE a 10 5", "-ERR unknown command 'RL.SESSIONIZE'"),
    ] {
        assert!(client.send(line).await.starts_with(error), "{line}");
    }
    for (line, reply) in [
        (
            "RL.PREDUCE a 4294967295 9223372036854775807 REFILL 4294967295 TAKE 9223372036854775807",
            ":4294967295",
        ),
        ("RL.PGET a 4294967295 9223372036854775807", ":0"),
        ("RL.PREDUCE a 1 1 AT 4503599627370495", ":1"),
    ] {
        assert_eq!(client.send(line).await, reply, "{line}");
    }
}

#[tokio::test]
async fn a_store_that_fails_is_an_error() {
    let clock = Arc::new(ManualClock::new(1_700_000_000 * SECOND));
    let store = Fake::new(MemoryStore::new(clock.clone(), 1_000));
    store.fail(|_| Some(StoreError::TimedOut));
    let mut client = Client::connect_to(store, clock, None, |resp| resp);
    for line in
        ["RL.REDUCE a 10 5", "RL.PGET a 10 5", "CL.THROTTLE a 10 5 1", "WEIR.CHECK shop 1 user a"]
    {
        assert_eq!(client.send(line).await, "-ERR store unavailable", "{line}");
    }
}
