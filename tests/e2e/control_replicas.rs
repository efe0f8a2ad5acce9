//! Controls that two replicas share through a real Redis.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::HIGH_LIMIT;
use crate::support::control_api::{ControlApi, of_user};
use crate::support::http;
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::sentinel::{MASTER, Sentinels};
use crate::support::wait_for;
use crate::support::weir::{Setup, Weir, serving};

/// Two replicas.
struct Replicas {
    a: Weir,
    b: Weir,
}

impl Replicas {
    fn start(setup: impl Fn(Setup) -> Setup) -> Replicas {
        let start = || setup(serving(HIGH_LIMIT)).start();
        Replicas { a: start(), b: start() }
    }

    fn on(redis: &Server) -> Replicas {
        Replicas::start(|setup| setup.env("REDIS_URL", redis.addr()))
    }

    /// Waits until exactly these of some users are blocked at both replicas.
    fn wait_until_blocked(&self, users: &[&str], wanted: &[&str]) {
        for (name, weir) in [("a", &self.a), ("b", &self.b)] {
            wait_for(&format!("{wanted:?} of {users:?} are blocked at {name}"), || {
                let is_blocked = |user: &&&str| is_blocked(weir, user);
                users.iter().filter(is_blocked).eq(wanted).then_some(())
            });
        }
    }
}

/// Blocks a user; its name is the id of the control. Returns the answer.
fn block(weir: &Weir, user: &str) -> Value {
    let control = of_user(user, &json!({ "action": "block", "for": "1h" }));
    ControlApi::new(weir).put_good(user, &control)
}

/// Deletes the block of a user. Returns the answer.
fn unblock(weir: &Weir, user: &str) -> Value {
    let (status, answer) = ControlApi::new(weir).delete(&format!("/v1/controls/{user}"));
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn all_replicas_spare_whom_a_block_spares() {
    let redis = Server::start();
    let Replicas { a, b } = Replicas::on(&redis);
    let draft = json!({
        "domain": "shop", "entries": [], "action": "block", "for": "1h",
        "except": [{ "key": "user", "value": "partner*" }],
    });
    let (status, written) = ControlApi::new(&a).put("all?force=1", &draft);
    assert_eq!(status, 200, "{written}");
    wait_for("the block at the other replica", || is_blocked(&b, "ann").then_some(()));
    assert!(!is_blocked(&b, "partner-1") && !is_blocked(&a, "partner-1"));
    let listed = ControlApi::new(&b).good("/v1/controls/all");
    assert_eq!(listed["control"]["except"], draft["except"]);
}

fn is_blocked(weir: &Weir, user: &str) -> bool {
    let entries = [json!({ "key": "user", "value": user })];
    let request = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
    http::post(weir.http, "/json", request.to_string()).status == 429
}

/// How long a block may take to reach the other replica: a second if `WEIR_STRICT_TIMES` is set, else
/// what a busy machine needs. Half of them always take a second at most.
fn longest() -> Duration {
    let is_strict = std::env::var_os("WEIR_STRICT_TIMES").is_some_and(|value| !value.is_empty());
    Duration::from_secs(if is_strict { 1 } else { 5 })
}

#[test]
fn a_block_at_one_replica_denies_at_the_other() {
    const THREADS: usize = 8;
    const TRIES: usize = 10;
    let redis = Server::start();
    let Replicas { a, b } = Replicas::on(&redis);
    let attempt = |user: &str| {
        assert!(!is_blocked(&b, user));
        let sent = Instant::now();
        block(&a, user);
        wait_for("the block at the other replica", || is_blocked(&b, user).then_some(()));
        sent.elapsed()
    };
    let tries = |thread: usize| -> Vec<Duration> {
        (0..TRIES).map(|number| attempt(&format!("user-{thread}-{number}"))).collect()
    };
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let tries = &tries;
        let start = |thread| scope.spawn(move || tries(thread));
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    times.sort_unstable();
    let within = times.iter().filter(|time| **time <= Duration::from_secs(1)).count();
    let percentile = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{within} of {} within a second", times.len());
    println!(
        "least {:?}, half {:?}, 99 % {:?}, most {:?}",
        percentile(0),
        percentile(50),
        percentile(99),
        percentile(100)
    );
    assert!(percentile(50) <= Duration::from_secs(1) && percentile(100) <= longest(), "{times:?}");
}

#[test]
fn a_network_blocks_its_addresses_at_the_other_replica_unless_it_is_a_text() {
    let redis = Server::start();
    let replicas = Replicas::on(&redis);
    let users = ["10.1.2.3", "[::ffff:10.1.2.3]:80", "192.0.2.1", "192.0.2.0/24", "ann"];
    let put = |network: &str, text: bool| {
        let block = of_user(network, &json!({ "action": "block", "for": "1h", "text": text }));
        let (status, written) = ControlApi::new(&replicas.a).post("", &block);
        assert_eq!((status, &written["shared"]), (200, &json!(true)), "{written}");
    };
    put("10.0.0.0/8", false);
    put("192.0.2.0/24", true);
    replicas.wait_until_blocked(&users, &[users[0], users[1], users[3]]);
    // A replica that starts now reads the same.
    Replicas::on(&redis).wait_until_blocked(&users, &[users[0], users[1], users[3]]);
}

#[test]
fn controls_outlast_a_sentinel_failover() {
    let users = ["before", "during", "after", "nobody"];
    let mut group = Sentinels::start();
    let replicas = Replicas::start(|setup| {
        setup
            .env("WEIR__STORE__REDIS__TOPOLOGY", "sentinel")
            .env("WEIR__STORE__REDIS__URL", group.addresses().join(","))
            .env("WEIR__STORE__REDIS__SENTINEL__MASTER_NAME", MASTER)
    });
    assert_eq!(block(&replicas.a, "before")["shared"], true);
    replicas.wait_until_blocked(&users, &["before"]);
    group.master.kill();
    let during = block(&replicas.a, "during");
    println!("shared during the failover: {}", during["shared"]);
    assert!(is_blocked(&replicas.a, "during") && is_blocked(&replicas.b, "before"));
    group.wait_for_failover();
    replicas.wait_until_blocked(&users, &["before", "during"]);
    wait_for("changes are shared again", || {
        (block(&replicas.b, "after")["shared"] == true).then_some(())
    });
    replicas.wait_until_blocked(&users, &["before", "during", "after"]);
    unblock(&replicas.a, "before");
    replicas.wait_until_blocked(&users, &["during", "after"]);
}

/// Known controls stay, changes apply where they were made, and are shared afterwards.
fn survives_an_outage(redis: &mut Server, start: fn(&mut Server), end: fn(&mut Server)) {
    let users = ["known", "deleted-at-a", "deleted-at-b", "new-at-a", "new-at-b"];
    let replicas = Replicas::on(redis);
    for user in &users[..3] {
        assert_eq!(block(&replicas.a, user)["shared"], true);
    }
    replicas.wait_until_blocked(&users, &users[..3]);
    start(redis);
    let changes = [(&replicas.a, users[3], users[1]), (&replicas.b, users[4], users[2])];
    // Each waits for Redis, which answers none.
    thread::scope(|scope| {
        for (weir, new, deleted) in changes {
            scope.spawn(move || assert_eq!(block(weir, new)["shared"], false));
            scope.spawn(move || assert_eq!(unblock(weir, deleted)["shared"], false));
        }
    });
    for (weir, new, deleted) in changes {
        assert!(is_blocked(weir, new) && !is_blocked(weir, deleted) && is_blocked(weir, "known"));
    }
    assert!(!is_blocked(&replicas.b, users[3]) && is_blocked(&replicas.b, users[1]));
    end(redis);
    replicas.wait_until_blocked(&users, &["known", "new-at-a", "new-at-b"]);
    wait_for("changes are shared again", || {
        (block(&replicas.b, "known")["shared"] == true).then_some(())
    });
    // A replica that starts now has them too.
    let third = Replicas::on(redis);
    third.wait_until_blocked(&users, &["known", "new-at-a", "new-at-b"]);
}

#[test]
fn controls_outlast_a_redis_that_loses_its_data() {
    survives_an_outage(&mut Server::start(), Server::kill, Server::restart);
}

#[test]
fn controls_outlast_a_redis_that_hangs() {
    survives_an_outage(&mut Server::start(), |redis| redis.stop(), |redis| redis.go_on());
}

/// A replica behind a proxy, with a permanent block of `mallory`
/// in its Redis.
fn beside_a_block(redis: &Server, proxy: &Proxy) -> Setup {
    let other = serving(HIGH_LIMIT).env("REDIS_URL", redis.addr()).start();
    let forever = of_user("mallory", &json!({ "action": "block", "for": "forever" }));
    assert_eq!(ControlApi::new(&other).put_good("mallory", &forever)["shared"], true);
    serving(HIGH_LIMIT)
        .env("REDIS_URL", format!("127.0.0.1:{}", proxy.port()))
        .env("WEIR__STORE__REDIS__CONNECT_TIMEOUT", "10s")
}

#[test]
fn a_replica_is_ready_when_it_knows_the_controls() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let setup = beside_a_block(&redis, &proxy);
    // Connecting takes longer than the start of everything else.
    proxy.delay(Duration::from_millis(100));
    let weir = setup.start();
    proxy.resume();
    assert!(is_blocked(&weir, "mallory"), "{}", weir.said());
    assert!(!weir.said().contains("controls are not shared"), "{}", weir.said());
}

#[test]
fn a_replica_that_cannot_read_the_controls_is_not_ready() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let setup = beside_a_block(&redis, &proxy);
    redis.command(&["RENAME", "weir:{controls}", "other"]);
    redis.command(&["SET", "weir:{controls}", "of another program"]);
    let mut weir = setup.start_unhealthy();
    weir.until_said("controls are not shared").unwrap();
    let answer = wait_for("the rules are loaded", || {
        let answer = http::get(weir.http, "/readyz");
        (!answer.body.contains("no rules")).then_some(answer)
    });
    let reason = "controls are not read from redis yet\n".to_owned();
    assert_eq!((answer.status, answer.body), (503, reason));
    redis.command(&["RENAME", "other", "weir:{controls}"]);
    wait_for("weir is ready", || weir.is_healthy().then_some(()));
    assert!(is_blocked(&weir, "mallory"));
}

#[test]
fn readiness_does_not_wait_for_controls_that_cannot_be_had() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let setup = || beside_a_block(&redis, &proxy);
    redis.command(&["DEL", "weir:{controls}"]);
    let [policy, forced] = [("STORE__ON_FAILURE", "local"), ("HEALTH__FORCE_START", "true")]
        .map(|(name, value)| (format!("WEIR__{name}"), value));
    for (name, value) in [policy, forced] {
        let setup = setup();
        redis.command(&["DEL", "weir:{controls}"]);
        redis.command(&["SET", "weir:{controls}", "of another program"]);
        setup.env(&name, value).start();
        redis.command(&["DEL", "weir:{controls}"]);
    }
    // A user without the permission shares no controls.
    let setup = setup();
    let user = ["on", ">pw", "~*", "+@all", "-hscan"];
    redis.command(&[&["ACL", "SETUSER", "weir"], &user[..]].concat());
    let mut weir = setup.env("REDIS_AUTH", "weir:pw").start();
    weir.until_said("controls are not shared").unwrap();
}

#[test]
fn only_the_redis_with_the_controls_counts() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let setup = beside_a_block(&redis, &proxy);
    let mut per_second = Server::start();
    let address = per_second.addr();
    per_second.kill();
    proxy.delay(Duration::from_millis(100));
    let weir = setup
        .env("WEIR__STORE__REDIS__PER_SECOND__URL", address)
        .env("WEIR__STORE__ON_FAILURE", "local")
        .start();
    proxy.resume();
    assert!(is_blocked(&weir, "mallory"), "{}", weir.said());
}
