//! Budgets that requests reserve and settle: weir, a real Envoy as examples/envoy/budget.yaml configures it, and a model
//! behind it. [`ROWS`] names the tests of each row of the table in docs/budgets.md.

mod ends;
mod estimates;
mod expressions;
mod ids;

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::thread::{self, JoinHandle};

use serde_json::json;

use crate::support::backend::Backend;
use crate::support::envoy::{self, Envoy};
use crate::support::files::read;
use crate::support::weir::{Weir, serving};
use crate::support::{PATIENCE, http, model, wait_for};

const EXAMPLE: &str = include_str!("../../examples/envoy/budget.yaml");

/// What a user may use in a window.
const BUDGET: u64 = 10_000;

/// What is reserved where a request does not say, and charged where an answer does not.
const ESTIMATE: u64 = 1_000;

/// The rows of the table in docs/budgets.md, each with its tests.
const ROWS: [(&str, &str); 9] = [
    (
        "a number that makes no sense; none; a body that is not JSON",
        "a_number_that_makes_no_sense_reserves_the_default",
    ),
    (
        "an answer or stream without usage; a client that hangs up",
        "an_answer_without_usage_costs_the_default a_client_that_hangs_up_pays_the_default",
    ),
    (
        "the model answers 503 or refuses the connection",
        "an_error_of_the_model_costs_nothing a_model_that_is_down_costs_nothing",
    ),
    ("weir denies the request", "a_denied_request_has_no_end"),
    (
        "a client hangs up before the headers, and the expression does not ask `has(response.code)` first",
        "an_end_must_not_ask_for_a_status_that_is_missing",
    ),
    (
        "a request or JSON answer larger than `per_connection_buffer_limit_bytes` (1 MiB)",
        "what_does_not_fit_the_buffer_costs_nothing",
    ),
    (
        "an expression that fails, or gives no number between 0 and 10⁹",
        "an_expression_that_fails_sends_no_start metadata_alone_sends_no_start_for_odd_numbers",
    ),
    (
        "no `hits_addend` at the start, or 0",
        "a_start_without_hits_reserves_the_estimate_of_the_rule",
    ),
    (
        "`x-request-id` or `%STREAM_ID%` as the ID, not `%UNIQUE_ID%`",
        "a_request_id_is_of_the_client_unless_envoy_is_an_edge \
         a_unique_id_is_the_same_at_both_ends_and_not_of_the_client",
    ),
];

/// The rows of the table in examples/envoy-ai-gateway/budget.md, each with its test.
const GATEWAY_ROWS: [(&str, &str); 5] = [
    ("an answer with usage", "the_second_call_with_an_id_settles_the_first"),
    ("an answer without usage", "with_the_patch_every_request_has_an_end"),
    ("an error of the provider", "without_the_patch_errors_and_clients_that_hang_up_have_no_end"),
    ("a client that hangs up", "without_the_patch_errors_and_clients_that_hang_up_have_no_end"),
    ("a request that weir denies", "with_the_patch_every_request_has_an_end"),
];

/// A request with an estimate of [`ESTIMATE`]: 996 tokens, and 4 for its 19 bytes.
const BODY: &str = r#"{"max_tokens": 996}"#;

/// weir and Envoy with the example, and a model.
struct Budget {
    weir: Weir,
    envoy: Envoy,
}

/// What weir has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    reservations: u64,
    reserved: u64,
    settlements: u64,
    settled: u64,
    unknown: u64,
}

impl Budget {
    fn start() -> Budget {
        Budget::with(EXAMPLE)
    }

    /// Starts with a changed configuration of Envoy.
    fn with(config: &str) -> Budget {
        // No test fails when a day ends.
        let rules =
            include_str!("../../examples/rules/tokens.yaml").replace("10000/d", "10000/year");
        let weir = serving(&rules).env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true").start();
        let envoy = envoy::documented_with(config, &weir, model::start());
        Budget { weir, envoy }
    }

    fn model(&self) -> &Backend {
        &self.envoy.backend
    }

    /// Sends a request of a user. Returns its status.
    fn ask_as(&self, user: &str, path: &str, body: &str) -> u16 {
        let headers = [("x-user", user), ("content-type", "application/json")];
        let answer = http::ask(self.envoy.address, "POST", path, &headers, body.as_bytes());
        answer.unwrap_or_else(|e| panic!("{path}: {e}")).status
    }

    fn ask(&self, path: &str, body: &str) -> u16 {
        self.ask_as("ann", path, body)
    }

    /// Sends a request in chunks, without reading the answer.
    fn send(&self, path: &str, body: &str) -> TcpStream {
        self.send_with(path, body, "content-type: application/json\r\n")
    }

    /// As [`Self::send`], with these headers.
    fn send_with(&self, path: &str, body: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.envoy.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: test\r\nx-user: ann\r\nconnection: close\r\n{headers}\
             transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        )
        .unwrap();
        stream
    }

    /// Sends a request on a thread of its own. Returns its status.
    fn begin(&self, path: String) -> JoinHandle<u16> {
        let address = self.envoy.address;
        thread::spawn(move || {
            let headers = [("x-user", "ann"), ("content-type", "application/json")];
            http::ask(address, "POST", &path, &headers, BODY.as_bytes()).unwrap().status
        })
    }

    /// Sends a call to weir with an ID. Returns what is left of the budget.
    fn call(&self, entries: &[(&str, &str)], hits: u64) -> u64 {
        let entries: Vec<_> =
            entries.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
        let descriptor = json!({ "entries": entries, "hitsAddend": hits.to_string() });
        let request = json!({ "domain": "budget", "descriptors": [descriptor] });
        let answer = http::post(self.weir.http, "/json", request.to_string()).json();
        answer["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
    }

    fn remaining_of(&self, user: &str) -> u64 {
        self.call(&[("user", user)], 0)
    }

    fn remaining(&self) -> u64 {
        self.remaining_of("ann")
    }

    fn counts(&self) -> Counts {
        let count = |name: &str, labels: &str| {
            self.weir
                .metric(&format!("weir_{name}_total{{domain=\"budget\",rule=\"user\"{labels}}}"))
        };
        Counts {
            reservations: count("reservations", ",result=\"allowed\""),
            reserved: count("reserved_hits", ""),
            settlements: count("settlements", ",result=\"settled\""),
            settled: count("settled_hits", ""),
            unknown: count("settlements", ",result=\"unknown\""),
        }
    }

    /// Waits until Envoy has sent `wanted` ends of requests, which it does after the response.
    fn wait_for_ends(&self, wanted: u64) -> Counts {
        wait_for(&format!("{wanted} ends"), || {
            let counts = self.counts();
            (counts.settlements + counts.unknown >= wanted).then_some(counts)
        })
    }

    /// Sends a request. Returns its status, what it has reserved and what it was settled with.
    fn cost(&self, path: &str, body: &str) -> (u16, u64, u64) {
        let before = self.counts();
        let status = self.ask(path, body);
        let (reserved, settled) = self.cost_since(before);
        (status, reserved, settled)
    }

    /// Returns what one request since then has reserved, and what it was settled with.
    fn cost_since(&self, before: Counts) -> (u64, u64) {
        let after = self.wait_for_ends(before.settlements + before.unknown + 1);
        assert_eq!(after.unknown, before.unknown, "the end of a reservation");
        assert_eq!(after.reservations, before.reservations + 1, "one start");
        assert_eq!(after.settlements, before.settlements + 1, "one end");
        (after.reserved - before.reserved, after.settled - before.settled)
    }
}

#[test]
fn exactly_as_many_calls_as_the_budget_allows_reach_the_model() {
    let budget = Budget::start();
    // Each uses another number of tokens.
    let calls: Vec<(u64, JoinHandle<u16>)> =
        (1..=200).map(|usage| (usage, budget.begin(format!("/slow/{usage}")))).collect();
    wait_for("all others are denied", || {
        let denied = calls.iter().filter(|(_, call)| call.is_finished()).count();
        (denied == 190 && budget.model().held() == 10).then_some(())
    });
    assert_eq!(budget.remaining(), 0);
    assert_eq!(budget.counts().reserved, BUDGET);
    budget.model().release(10);
    let statuses = calls.into_iter().map(|(usage, call)| (usage, call.join().unwrap()));
    let passed: Vec<u64> =
        statuses.filter(|(_, status)| *status == 200).map(|(usage, _)| usage).collect();
    assert_eq!((passed.len(), budget.model().seen()), (10, 10));
    let counts = budget.wait_for_ends(10);
    assert_eq!((counts.settlements, counts.unknown), (10, 0));
    assert_eq!(budget.remaining(), BUDGET - passed.iter().sum::<u64>());
}

#[test]
fn half_of_the_clients_hang_up() {
    let budget = Budget::start();
    let mut calls: Vec<TcpStream> = Vec::new();
    for number in 0..10 {
        let path = if number < 4 { "/slow/123" } else { "/slow-stream/123" };
        calls.push(budget.send(path, BODY));
    }
    wait_for("all reach the model", || (budget.model().held() == 10).then_some(()));
    assert_eq!(budget.ask("/json/1", BODY), 429);
    // Every other one: two before the headers, three after the first events.
    let mut number = 0;
    calls.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    assert_eq!(budget.wait_for_ends(5).settled, 5 * ESTIMATE);
    budget.model().release(10);
    let counts = budget.wait_for_ends(10);
    assert_eq!((counts.settlements, counts.unknown), (10, 0));
    assert_eq!(budget.remaining(), BUDGET - 5 * ESTIMATE - 5 * 123);
}

#[test]
fn the_items_that_explain_prints_reserve_and_settle() {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["explain", "examples/rules/tokens.yaml", "--envoy-actions", "user"]);
    let printed = weir.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap().stdout;
    let printed = String::from_utf8(printed).unwrap();
    let items: String = printed.lines().map(|line| format!("{:22}{line}\n", "")).collect();
    let (before, rest) = EXAMPLE.split_once("                      rate_limits:\n").unwrap();
    let (_, after) = rest.split_once("                      rate_limit_service:\n").unwrap();
    let config = format!("{before}{items}                      rate_limit_service:\n{after}");
    let budget = Budget::with(&config);
    assert_eq!(budget.cost("/json/123", BODY), (200, ESTIMATE, 123));
    assert_eq!(budget.remaining(), BUDGET - 123);
}

#[test]
fn the_rows_of_the_tables_are_tested() {
    let sources =
        ["budgets", "budgets/ends", "budgets/estimates", "budgets/expressions", "budgets/ids"];
    let sources = sources.into_iter().chain(["gateway_costs/reserved"]);
    let tests: String = sources.map(|name| read(format!("tests/e2e/{name}.rs"))).collect();
    let tables = [
        ("docs/budgets.md", &ROWS[..]),
        ("examples/envoy-ai-gateway/budget.md", &GATEWAY_ROWS[..]),
    ];
    for (name, rows) in tables {
        let page = read(name);
        let table = page.lines().skip_while(|line| !line.starts_with("| What happens |"));
        let table = table.skip(2).map_while(|line| line.strip_prefix("| "));
        let shown: Vec<&str> = table.filter_map(|row| row.split(" | ").next()).collect();
        let tested: Vec<&str> = rows.iter().map(|(row, _)| *row).collect();
        assert_eq!(shown, tested, "{name}");
        for test in rows.iter().flat_map(|(_, names)| names.split(' ')) {
            assert!(tests.contains(&format!("#[test]\nfn {test}() {{")), "{test}");
        }
    }
}
