//! `/v1/events`: what operators see while it happens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::support::redis::Server;
use crate::support::weir::{Weir, serving};
use crate::support::{PATIENCE, http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
";

/// The most subscribers.
const MAX_SUBSCRIBERS: usize = 16;

const SUBSCRIBE: &[u8] = b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A subscriber that reads.
struct Events {
    status: u16,
    head: String,
    reader: BufReader<TcpStream>,
    /// Received, but not the whole of an event yet.
    text: String,
}

impl Events {
    fn open(weir: &Weir) -> Events {
        let mut stream = TcpStream::connect(weir.debug).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(SUBSCRIBE).unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Events { status, head, reader, text: String::new() }
    }

    /// Opens a subscription that is accepted, and reads the first status.
    fn subscribe(weir: &Weir) -> Events {
        let mut events = Events::open(weir);
        assert_eq!(events.status, 200, "{}", events.head);
        events.until("status", |_| true);
        events
    }

    /// Reads a chunk; returns false at the end.
    fn read_chunk(&mut self) -> bool {
        let mut length = String::new();
        self.reader.read_line(&mut length).unwrap();
        let length = usize::from_str_radix(length.trim_end(), 16).expect("the length of a chunk");
        let mut chunk = vec![0; length + 2];
        self.reader.read_exact(&mut chunk).unwrap();
        self.text += std::str::from_utf8(&chunk[..length]).unwrap();
        length > 0
    }

    /// Returns the name and the data of the next event; none at the end.
    fn next(&mut self) -> Option<(String, Value)> {
        while !self.text.contains("\n\n") {
            if !self.read_chunk() {
                return None;
            }
        }
        let (event, rest) = self.text.split_once("\n\n").unwrap();
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once('\n').unwrap();
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let event = (name.to_owned(), data);
        self.text = rest.to_owned();
        Some(event)
    }

    /// Returns the data of the next event of this name that is wanted.
    fn until(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        loop {
            let (other, data) = self.next().expect("more events");
            if other == name && wanted(&data) {
                return data;
            }
            others.push((other, data));
            assert!(Instant::now() < deadline, "no {name}: {others:?}");
        }
    }
}

/// Asks for a decision about a user. Returns the status of HTTP.
fn hit(weir: &Weir, user: &str) -> u16 {
    let entry = json!({ "key": "user", "value": user });
    hit_with(weir, &json!([entry]))
}

fn hit_with(weir: &Weir, entries: &Value) -> u16 {
    let body = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
    http::post(weir.http, "/json", body.to_string()).status
}

fn put_control(weir: &Weir, id: &str, control: &Value) {
    let headers = [("host", "localhost"), ("content-type", "application/json")];
    let (path, body) = (format!("/v1/controls/{id}"), control.to_string());
    let put = http::ask(weir.debug, "PUT", &path, &headers, body.as_bytes()).unwrap();
    assert_eq!(put.status, 200, "{put:?}");
}

#[test]
fn a_status_has_the_keys_of_all_replicas_that_share_their_lists() {
    let redis = Server::start();
    let setup = || serving(RULES).env("REDIS_URL", redis.addr()).env("WEIR__TOP__SHARE", "true");
    let (a, b) = (setup().start(), setup().start());
    for weir in [&a, &b, &b] {
        hit(weir, "ann");
    }
    for weir in [&a, &b] {
        let has_all = |status: &Value| {
            let top = &status["top"];
            (&top["hits"]["replicas"], &top["hits"]["rows"][0]["count"]) == (&json!(2), &json!(3))
                && (&top["denied"]["scope"], &top["denied"]["total"]) == (&json!("all"), &json!(2))
        };
        Events::subscribe(weir).until("status", has_all);
    }
}

#[test]
fn operators_see_denials_reloads_controls_and_the_store() {
    let mut redis = Server::start();
    let address = format!("127.0.0.1:{}", redis.port());
    let setup = serving(RULES).env("REDIS_URL", address);
    let weir = setup.env("WEIR__TOP__REDACT", "token").start();
    let mut events = Events::subscribe(&weir);
    let header = |name: &str| events.head.to_ascii_lowercase().contains(name);
    assert!(header("content-type: text/event-stream\r\n") && header("cache-control: no-store\r\n"));

    assert_eq!(hit(&weir, "<img>"), 200);
    assert_eq!(hit(&weir, "<img>"), 429);
    let denial = events.until("denial", |_| true);
    assert_eq!(denial["entries"], json!([{ "key": "user", "value": "<img>" }]));
    assert_eq!((&denial["domain"], &denial["rule"]), (&json!("shop"), &json!("user")));
    assert_eq!((&denial["limit"], &denial["control"]), (&json!("1 per year"), &Value::Null));
    let status = events.until("status", |status| status["requests"]["over_limit"] == 1);
    assert_eq!(status["rules"]["rows"][0]["over_limit"], 1, "{status}");
    assert_eq!(status["top"]["denied"]["rows"][0]["entries"], denial["entries"], "{status}");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));

    let more =
        format!("{RULES}  - key: token\n    rate_limit: {{ unit: day, requests_per_unit: 0 }}\n");
    std::fs::write(weir.path("rules.yaml"), &more).unwrap();
    let reload = events.until("reload", |_| true);
    assert_eq!((&reload["ok"], &reload["summary"]["rules"]), (&json!(true), &json!(2)));
    assert_eq!(reload["changes"]["list"], json!(["1 rule added (shop.token)"]));
    assert_eq!(hit_with(&weir, &json!([{ "key": "token", "value": "s3cret" }])), 429);
    let denial = events.until("denial", |_| true);
    assert!(denial["entries"][0]["value"].as_str().unwrap().starts_with("hash:"), "{denial}");
    std::fs::write(weir.path("rules.yaml"), "domain: shop\nuint: day\n").unwrap();
    let refusal = events.until("reload", |reload| reload["ok"] == false);
    assert!(refusal["error"].as_str().unwrap().contains("uint"), "{refusal}");
    let problems = events.until("problems", |_| true)["problems"].clone();
    let problem = &problems[0];
    assert_eq!((&problem["kind"], &problem["count"]), (&json!("rules"), &json!(1)), "{problem}");
    assert_eq!((&problem["line"], &problem["column"]), (&json!(2), &json!(1)), "{problem}");
    assert!(problem["file"].as_str().unwrap().ends_with("rules.yaml"), "{problem}");
    let text = problem["text"].as_str().unwrap();
    assert!(
        text.starts_with("new rules are rejected, the previous ones stay active: config error, "),
        "{problem}"
    );
    assert_eq!(events.until("status", |_| true)["problems"], problems);
    let since = problem["since"].clone();

    let block = json!({
        "domain": "shop", "entries": [{ "key": "user", "value": "ann" }], "action": "block",
    });
    put_control(&weir, "no-ann", &block);
    events.until("controls", |_| true);
    assert_eq!(hit(&weir, "ann"), 429);
    let blocked = events.until("denial", |_| true);
    assert_eq!((&blocked["control"], &blocked["limit"]), (&json!("no-ann"), &Value::Null));

    redis.kill();
    let down = events.until("store", |_| true);
    assert_eq!((&down["up"], down["error"].is_string()), (&json!(false), true), "{down}");
    let kinds = |data: &Value| -> Vec<String> {
        let problems = data["problems"].as_array().unwrap().iter();
        problems.map(|problem| problem["kind"].as_str().unwrap().to_owned()).collect()
    };
    let all = events.until("problems", |data| kinds(data) == ["rules", "store", "controls"]);
    assert_eq!(all["problems"][0]["since"], since);
    let [_, store, controls] = &all["problems"].as_array().unwrap()[..] else { panic!("{all}") };
    let text = store["text"].as_str().unwrap();
    assert!(
        text.starts_with("the store failed: requests are answered by the policy error"),
        "{all}"
    );
    let text = controls["text"].as_str().unwrap();
    assert!(text.contains("changes apply to this replica only"), "{all}");
    let text = http::get(weir.debug, "/status?format=text").body;
    assert!(text.contains("\nproblems[1].kind: store\n"), "{text}");
    wait_for("the history has them", || {
        let history = http::get_with(weir.debug, "/v1/history", &[("host", "localhost")]).json();
        let recorded = history["events"].as_array().unwrap().iter();
        let recorded = recorded.filter(|event| event["event"] == "problems").map(kinds);
        recorded.collect::<Vec<_>>().contains(&kinds(&all)).then_some(())
    });
    redis.restart();
    assert_eq!(events.until("store", |_| true)["up"], true);
    events.until("status", |status| status["store"]["connected"] == true);
    std::fs::write(weir.path("rules.yaml"), RULES).unwrap();
    events.until("problems", |data| kinds(data).is_empty());
}

#[test]
fn the_seventeenth_subscriber_is_refused() {
    let weir = serving(RULES).start();
    let mut subscribers: Vec<Events> =
        (0..MAX_SUBSCRIBERS).map(|_| Events::subscribe(&weir)).collect();
    let headers = [("host", "localhost")];
    let refused = http::get_with(weir.debug, "/v1/events", &headers);
    assert_eq!(refused.status, 503);
    let error = refused.json();
    assert_eq!(error["error"], "there are 16 subscribers already");
    assert!(error["help"].is_string(), "{error}");
    // The others go on, and one that leaves makes room.
    subscribers[0].until("status", |_| true);
    drop(subscribers.pop());
    wait_for("room", || (Events::open(&weir).status == 200).then_some(()));
}

/// Subscribes with small buffers, and never reads.
fn subscribe_without_reading(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(SUBSCRIBE).unwrap();
    stream
}

/// The open connections of the debug port.
fn connections(weir: &Weir) -> u64 {
    weir.metric(r#"weir_connections{listener="debug"}"#)
}

/// Blocks everyone, and fills the buffers of the system with denials that are long in JSON until
/// `is_enough` returns true for the bytes that a subscriber has read, who reads all and misses nothing.
fn flood(weir: &Weir, reading: &mut Events, is_enough: impl Fn(usize) -> bool + Sync) {
    let everyone = json!({
        "domain": "shop", "entries": [{ "key": "user", "value": "\u{1}*" }], "action": "block",
    });
    put_control(weir, "all", &everyone);
    let long = "\u{1}".repeat(100);
    let mut entries = vec![json!({ "key": "user", "value": long })];
    entries.resize(8, json!({ "key": long, "value": long }));
    let entries = json!(entries);
    let is_over = AtomicBool::new(false);
    let end = Instant::now() + PATIENCE;
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = 0;
            while !is_enough(bytes) && Instant::now() < end {
                let (name, data) = reading.next().expect("more events");
                assert_ne!(name, "dropped", "{data}");
                bytes += data.to_string().len();
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(is_enough(bytes), "{bytes} bytes");
        });
        while !is_over.load(Ordering::Relaxed) && !reader.is_finished() {
            assert_eq!(hit_with(weir, &entries), 429);
            thread::sleep(Duration::from_millis(5));
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_subscriber_that_reads_stays_beyond_the_timeout_and_one_that_does_not_is_closed() {
    let timeout = Duration::from_millis(500);
    let weir = serving(RULES).env("WEIR__HTTP__TIMEOUT", "500ms").start();
    let mut reading = Events::subscribe(&weir);
    let _stalled = subscribe_without_reading(weir.debug);
    wait_for("both subscribe", || (connections(&weir) == 2).then_some(()));
    let started = Instant::now();
    flood(&weir, &mut reading, |_| started.elapsed() > 2 * timeout && connections(&weir) == 1);
}

#[test]
fn subscribers_do_not_delay_the_end() {
    let setup = serving(RULES).env("WEIR__DRAIN__DELAY", "0s").env("WEIR__DRAIN__TIMEOUT", "2h");
    let mut weir = setup.env("WEIR__HTTP__TIMEOUT", "1h").start();
    let mut subscribers: Vec<Events> = (0..3).map(|_| Events::subscribe(&weir)).collect();
    let _stalled = subscribe_without_reading(weir.debug);
    wait_for("all subscribe", || (connections(&weir) == 4).then_some(()));
    // More than the buffers of the system hold.
    flood(&weir, &mut subscribers[0], |bytes| bytes > 512 << 10);
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    // The last chunk comes before the end of the connection.
    while subscribers[0].next().is_some() {}
    let said = weir.said_in_all();
    assert!(!said.contains("did not end in time"), "{said}");
}

#[test]
fn subscribers_that_leave_leave_nothing_behind() {
    let weir = serving(RULES).start();
    let come_and_go = |times: usize| {
        for _ in 0..times {
            let events = Events::open(&weir);
            // A few may not be gone yet.
            assert!([200, 503].contains(&events.status), "{}", events.head);
        }
        wait_for("all have left", || (connections(&weir) == 0).then_some(()));
    };
    come_and_go(100);
    let before = weir.resident_bytes();
    come_and_go(1_000);
    let grown = weir.resident_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{} KiB", grown >> 10);
    let all: Vec<Events> = (0..MAX_SUBSCRIBERS).map(|_| Events::subscribe(&weir)).collect();
    assert_eq!(all.len(), MAX_SUBSCRIBERS);
}
