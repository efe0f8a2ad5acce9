//! The buckets of `RL.REDUCE`, in memory and in Redis.

use super::*;

/// Commands and their replies. Nothing comes back during the test.
const SCHEDULE: [(&str, &str); 9] = [
    ("RL.REDUCE a 10 86400", "10"),
    ("RL.PREDUCE a 10 86400000 TAKE 4", "9"),
    ("RL.GET a 10 86400 STRICT", "5"),
    ("RL.REDUCE a 10 86400 REFILL 3", "10"),
    ("RL.REDUCE a 10 86400 TAKE 6", "5"),
    ("RL.PGET a 10 86400000", "0"),
    ("RL.REDUCE a 10 86400 TAKE 0", "0"),
    ("RL.GET a 10 86400 TAKE 1", "!ERR syntax error"),
    ("RL.GET a 10 0", "!ERR value is not an integer or out of range"),
];

const AT: [(&str, &str); 7] = [
    ("RL.REDUCE b 2 60 TAKE 2 AT 1000", "2"),
    ("RL.REDUCE b 2 60 AT 1059", "0"),
    ("RL.REDUCE b 2 60 AT 1060 STRICT", "2"),
    ("RL.REDUCE b 2 60 AT 0", "1"),
    // An older time brings nothing back, also with STRICT.
    ("RL.REDUCE c 10 60 TAKE 10 AT 100000 STRICT", "10"),
    ("RL.REDUCE c 10 60 AT 0 STRICT", "0"),
    ("RL.REDUCE c 10 60 AT 100000", "0"),
];

#[test]
fn buckets_are_kept_in_memory_and_in_redis() {
    for (clock, accepts_at) in [(None, true), (Some("server"), false), (Some("caller"), true)] {
        let redis = clock.map(|_| Server::start());
        let setup = setup(redis.as_ref());
        let (_weir, address) = start(match clock {
            Some(clock) => setup.env("WEIR__STORE__REDIS__CLOCK", clock),
            None => setup,
        });
        let mut client = Client::connect(address.port()).unwrap();
        for (command, reply) in SCHEDULE {
            assert_eq!(ask(&mut client, command), reply, "{command} {clock:?}");
        }
        for (command, reply) in AT {
            let refusal = "!ERR AT needs store.redis.clock = caller, or a store that is not Redis";
            let expected = if accepts_at { reply } else { refusal };
            assert_eq!(ask(&mut client, command), expected, "{command} {clock:?}");
        }
        if let Some(redis) = redis {
            let key = "weir:{|reduce=a}r10/10/86400000ms";
            let left = redis.command(&["PTTL", key]).int();
            assert!((86_300_000..=86_400_000 + 10_000).contains(&left), "{left}");
        }
    }
}

/// Every command of a pipeline sees those before it.
#[test]
fn pipelined_buckets_are_charged_in_order() {
    const COMMANDS: usize = 1_000;
    let redis = Server::start();
    for redis in [None, Some(&redis)] {
        let (_weir, address) = start(setup(redis));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let strict = ["", " STRICT"];
        let lines = (0..COMMANDS).map(|i| {
            format!("RL.REDUCE a 4000 86400{}\r\nRL.GET a 4000 86400\r\n", strict[i % 3 / 2])
        });
        stream.write_all(lines.collect::<String>().as_bytes()).unwrap();
        let mut replies = BufReader::new(&mut stream).lines().map(Result::unwrap);
        for i in 0..COMMANDS {
            assert_eq!(replies.next(), Some(format!(":{}", 4_000 - i)));
            assert_eq!(replies.next(), Some(format!(":{}", 4_000 - i - 1)));
        }
    }
}

#[test]
fn policies_reply_while_redis_is_away() {
    for (policy, replies, throttled) in [
        ("error", ["!ERR store unavailable"; 4], "!ERR store unavailable"),
        ("allow", ["10", "10", "10", "10"], "[0 6 6 -1 0]"),
        ("deny", ["0", "0", "0", "0"], "[1 6 0 1 1]"),
        ("local", ["10", "7", "4", "1"], "[0 6 5 -1 120]"),
    ] {
        let mut redis = Server::start();
        let setup = setup(Some(&redis)).env("WEIR__STORE__BUDGET", "200ms");
        let (_weir, address) = start(setup.env("WEIR__STORE__ON_FAILURE", policy));
        let mut client = Client::connect(address.port()).unwrap();
        wait_for("the store", || (ask(&mut client, "RL.GET b 7 60") == "7").then_some(()));
        redis.kill();
        for reply in replies {
            assert_eq!(ask(&mut client, "RL.REDUCE a 10 86400 TAKE 3"), reply, "{policy}");
        }
        assert_eq!(ask(&mut client, "CL.THROTTLE a 5 1 120"), throttled, "{policy}");
    }
}
