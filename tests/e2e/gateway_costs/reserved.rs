//! Costs of Envoy Gateway that requests reserve: the policy of examples/envoy-ai-gateway, its overlay, and its patch of the
//! end. tests/e2e/budgets.rs names these tests for the rows of the example's table.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Gateway, Policy};
use crate::sell_tokens;
use crate::support::files::read;
use crate::support::{http, wait_for, yaml};

const LIMIT: u64 = 2_000_000;
const ESTIMATE: u64 = 4_000;

const ROUTE: &str = "httproute/default/openai/rule/0/match/0/www_example_com";

/// The tokens of a request whose end comes after that of another one, which uses less.
const NEXT: u64 = 100_000;

const ACME: [(&str, &str); 1] = [("x-tenant-id", "acme")];

fn example(name: &str) -> Value {
    yaml::document(&read(format!("examples/envoy-ai-gateway/{name}.yaml")))
}

/// Returns the policy with the expression of the example at the end of a request.
fn patched_policy() -> Policy {
    let mut policy = Policy::read("cost-reserve");
    let patch = &example("budget-end")["spec"]["jsonPatches"][0]["operation"];
    let path = patch["jsonPath"].as_str().expect("a path");
    let format_of_ends = "..rate_limits[?(@.apply_on_stream_done == true)].hits_addend.format";
    assert!(path.ends_with(format_of_ends), "{path}");
    for item in policy.route["rate_limits"].as_array_mut().expect("items") {
        if item["apply_on_stream_done"] == true {
            item["hits_addend"]["format"] = patch["value"].clone();
        }
    }
    policy
}

/// What weir has counted: hits reserved, reservations settled, the hits of these, and requests denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    reserved: u64,
    settlements: u64,
    settled: u64,
    denied: u64,
}

struct Reserved(Gateway);

impl Reserved {
    fn start(policy: &Policy) -> Reserved {
        Reserved::with(policy, &read("examples/envoy-ai-gateway/budget.overlay.yaml"))
    }

    fn with(policy: &Policy, overlay: &str) -> Reserved {
        Reserved(Gateway::start_with(policy, Some(overlay)))
    }

    /// Calls weir for the tenant. Returns what is left; none if the call was denied.
    fn call(&self, id: &str, hits: u64) -> Option<u64> {
        let keys = [(ROUTE, ROUTE), ("rule-0-match-0", "acme"), ("rule-0-match-1", id)];
        let entries = keys.map(|(key, value)| json!({ "key": key, "value": value }));
        let descriptor = json!({ "entries": entries, "hitsAddend": hits.to_string() });
        let request = json!({ "domain": self.0.domain, "descriptors": [descriptor] });
        let answer = http::post(self.0.weir.http, "/json", request.to_string()).json();
        let status = &answer["statuses"][0];
        (status["code"] == "OK").then(|| status["limitRemaining"].as_u64().unwrap_or(0))
    }

    /// Reserves, and settles with 0: all calls of this rule have an ID. A call that was denied has reserved nothing, and
    /// another one could.
    fn remaining(&self) -> u64 {
        let reserved = self.call("look", 0);
        let settled = reserved.and_then(|_| self.call("look", 0));
        settled.unwrap_or(0)
    }

    /// Charges tokens without a reservation.
    fn spend(&self, tokens: u64) {
        self.call("spend", tokens);
    }

    fn counts(&self) -> Counts {
        let rule = format!("{ROUTE}_{ROUTE}.rule-0-match-0.rule-0-match-1");
        let count = |name: &str, result: &str| {
            let labels = format!("domain=\"{}\",rule=\"{rule}\"{result}", self.0.domain);
            self.0.weir.metric(&format!("weir_{name}_total{{{labels}}}"))
        };
        Counts {
            reserved: count("reserved_hits", ""),
            settlements: count("settlements", ",result=\"settled\""),
            settled: count("settled_hits", ""),
            denied: count("reservations", ",result=\"denied\""),
        }
    }

    /// Sends a request by `send`, then one of another tenant, and waits for the end of the latter. Returns the counts before
    /// and after. Envoy sends the ends in this order, but weir may count them in the other one.
    fn send(&self, send: impl FnOnce()) -> (Counts, Counts) {
        let before = self.counts();
        send();
        assert_eq!(self.0.ask(u32::try_from(NEXT).unwrap(), &[("x-tenant-id", "next")]), 200);
        let after = wait_for("the end of the other request", || {
            let ended = |counts: &Counts| {
                // Each number is a scrape of its own, and the end may come between two of them.
                counts.settled >= before.settled + NEXT && counts.settlements > before.settlements
            };
            Some(self.counts()).filter(ended)
        });
        assert_eq!(after.reserved, before.reserved + 2 * ESTIMATE, "both have started");
        (before, after)
    }

    /// The end of the request that `send` sends settles `hits`.
    fn settles(&self, hits: u64, send: impl FnOnce()) {
        let (before, _) = self.send(send);
        let settled = Counts {
            reserved: before.reserved + 2 * ESTIMATE,
            settlements: before.settlements + 2,
            settled: before.settled + hits + NEXT,
            denied: before.denied,
        };
        wait_for(&format!("an end with {hits} hits"), || (self.counts() == settled).then_some(()));
    }

    /// The request that `send` sends has no end.
    fn has_no_end(&self, send: impl FnOnce()) {
        let (before, after) = self.send(send);
        assert_eq!(after.settlements, before.settlements + 1, "only the other one has an end");
    }

    fn answer(&self, tokens: u32) {
        assert_eq!(self.0.ask(tokens, &ACME), 200);
    }

    fn error(&self) {
        assert_eq!(self.0.get("/fails", &ACME), 503);
    }

    /// The client disconnects before the headers of the answer.
    fn hang_up(&self) {
        let (envoy, backend) = (&self.0.envoy, &self.0.envoy.backend);
        let mut client = TcpStream::connect(envoy.address).unwrap();
        client.write_all(b"GET /slow HTTP/1.1\r\nhost: test\r\nx-tenant-id: acme\r\n\r\n").unwrap();
        wait_for("the backend", || (backend.held() == 1).then_some(()));
        drop(client);
        let ended = "http.ingress.downstream_cx_destroy_remote_active_rq";
        wait_for("Envoy notices", || (envoy.stat(ended) == 1).then_some(()));
        backend.release(1);
    }
}

#[test]
fn the_files_of_the_example_are_those_that_are_tested() {
    let [policy, rules] = ["budget-policy", "budget-generated"].map(example);
    let tested = Policy::read("cost-reserve");
    assert_eq!((policy, rules), (tested.resource, tested.rules));
}

#[test]
fn the_second_call_with_an_id_settles_the_first() {
    let budget = Reserved::start(&Policy::read("cost-reserve"));
    budget.settles(1_200, || budget.answer(1_200));
    budget.settles(5_000, || budget.answer(5_000));
    assert_eq!(budget.remaining(), LIMIT - 6_200);
    // The rest of the budget but 1500: a request reserves what is left, and the next one is denied.
    budget.spend(LIMIT - 6_200 - 1_500);
    let slow = {
        let address = budget.0.envoy.address;
        std::thread::spawn(move || http::get_with(address, "/slow", &ACME).status)
    };
    wait_for("the backend", || (budget.0.envoy.backend.held() == 1).then_some(()));
    assert_eq!(budget.remaining(), 0);
    assert_eq!(budget.0.ask(1, &ACME), 429);
    budget.0.envoy.backend.release(1);
    assert_eq!(slow.join().unwrap(), 200);
    wait_for("the end", || (budget.remaining() == 1_500).then_some(()));
}

#[test]
fn the_overlay_of_sell_tokens_reserves_and_settles() {
    let overlay = sell_tokens::shown("tokens.overlay.yaml");
    let budget = Reserved::with(&Policy::read("cost-reserve"), &overlay);
    budget.settles(1_200, || budget.answer(1_200));
    // The minute, which has the fewest left.
    assert_eq!(budget.remaining(), 40_000 - 1_200);
    let rules = http::get(budget.0.weir.debug, "/rlconfig").body;
    assert!(rules.contains("unit=MONTH requests_per_unit=2000000"), "{rules}");
}

#[test]
fn without_the_patch_errors_and_clients_that_hang_up_have_no_end() {
    let budget = Reserved::start(&Policy::read("cost-reserve"));
    // An answer without usage.
    budget.settles(0, || budget.answer(0));
    budget.has_no_end(|| budget.error());
    budget.has_no_end(|| budget.hang_up());
    assert_eq!(budget.remaining(), LIMIT - 2 * ESTIMATE, "they stay reserved");
}

#[test]
fn with_the_patch_every_request_has_an_end() {
    let budget = Reserved::start(&patched_policy());
    budget.settles(1_200, || budget.answer(1_200));
    budget.settles(ESTIMATE, || budget.answer(0));
    budget.settles(0, || budget.error());
    budget.settles(ESTIMATE, || budget.hang_up());
    assert_eq!(budget.remaining(), LIMIT - 1_200 - 2 * ESTIMATE);
    // The end of a denied request would be denied, too.
    budget.spend(LIMIT);
    assert_eq!(budget.0.ask(1, &ACME), 429);
    let third = [("x-tenant-id", "third")];
    budget.settles(2, || assert_eq!(budget.0.ask(2, &third), 200));
    assert_eq!(budget.counts().denied, 1);
}

#[test]
fn a_client_cannot_choose_the_id_of_its_reservation() {
    let budget = Reserved::start(&Policy::read("cost-reserve"));
    let id = "11111111-1111-4111-8111-111111111111";
    let headers = [("x-tenant-id", "acme"), ("x-request-id", id)];
    budget.settles(500, || assert_eq!(budget.0.ask(500, &headers), 200));
    // This ID has no reservation, so the call reserves.
    assert_eq!(budget.call(id, 0), Some(LIMIT - 500 - ESTIMATE));
}
