//! docs/sell-tokens.md from end to end: weir with the rules that the page shows, Envoy as examples/envoy/budget.yaml configures
//! it, and a model. 200 callers at once use up what is left of a billing month, over its end.

use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::clock::{step, steppable};
use crate::support::control_api::ControlApi;
use crate::support::envoy::{self, Envoy};
use crate::support::weir::{Weir, serving};
use crate::support::{http, markdown, model, wait_for, yaml};

const PAGE: &str = include_str!("../../docs/sell-tokens.md");

const ENVOY: &str = include_str!("../../examples/envoy/budget.yaml");

/// The 15th of June 2026 in Vienna, when a billing month ends, in seconds since the epoch.
const END: u64 = 1_781_474_400;

const MINUTE: u64 = 60;

/// What a customer may use in a billing month.
const BUDGET: u64 = 2_000_000;

/// What each request reserves: `at_least`, and what it asks for, 996 tokens, and 4 for its 19 bytes.
const RESERVED: u64 = 1_000;
const BODY: &str = r#"{"max_tokens": 996}"#;

const CALLERS: u64 = 200;
const CUSTOMERS: [&str; 2] = ["ann", "bob"];

/// Returns a file that the page shows.
pub fn shown(name: &str) -> String {
    let files = markdown::files(PAGE);
    files.into_iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// weir and Envoy as the page says, and a model.
struct Shop {
    weir: Weir,
    envoy: Envoy,
    api: ControlApi,
}

/// A call that has reached the model, or was denied.
struct Call {
    user: &'static str,
    usage: u64,
    status: JoinHandle<u16>,
}

impl Shop {
    fn start(time: u64) -> Shop {
        assert!(
            PAGE.contains("(../examples/envoy/budget.yaml)"),
            "the page names the configuration"
        );
        let weir = steppable(serving(&shown("tokens.yaml"))).file("offset", &offset(time)).start();
        let envoy = envoy::documented_with(ENVOY, &weir, model::start());
        let api = ControlApi::new(&weir);
        Shop { weir, envoy, api }
    }

    /// Steps weir's clock, and waits until no customer has used anything of a limit.
    fn step_to(&self, time: u64, fresh: &str) {
        step(&self.weir, &offset(time));
        wait_for("weir follows the clock", || {
            CUSTOMERS.iter().all(|user| self.used(user, fresh) == 0).then_some(())
        });
    }

    /// Returns what a limit of a customer counts.
    fn used(&self, user: &str, limit: &str) -> u64 {
        let state = self.api.good(&format!("/v1/state?domain=budget&descriptor=user={user}"));
        let limits = state["limits"].as_array().expect("limits");
        let limit = limits.iter().find(|state| state["name"] == limit).expect("the limit");
        limit["used"].as_u64().unwrap_or(0)
    }

    /// Charges tokens that are known, whatever the minute allows.
    fn spend(&self, user: &str, tokens: u64) {
        let control = json!({
            "domain": "budget", "entries": [{ "key": "user", "value": user }],
            "action": "limit", "limit": { "name": "minute", "n": BUDGET },
        });
        self.api.put_good("sold", &control);
        let entries = json!([{ "key": "user", "value": user }]);
        let descriptor = json!({ "entries": entries, "hitsAddend": tokens.to_string() });
        let request = json!({ "domain": "budget", "descriptors": [descriptor] });
        let answer = http::post(self.weir.http, "/json", request.to_string()).json();
        assert_eq!(answer["overallCode"], "OK", "{answer}");
        assert_eq!(self.api.delete("/v1/controls/sold").0, 200);
    }

    /// Sends a request on a thread of its own, which the model answers with this usage when it is released.
    fn begin(&self, user: &'static str, usage: u64, body: &'static str) -> Call {
        let address = self.envoy.address;
        let status = thread::spawn(move || {
            let headers = [("x-user", user), ("content-type", "application/json")];
            let path = format!("/slow/{usage}");
            http::ask(address, "POST", &path, &headers, body.as_bytes()).unwrap().status
        });
        Call { user, usage, status }
    }

    /// Sends requests of all customers at the same time, and waits until each is denied or has reached the model, which
    /// then holds all that run.
    fn begin_all(&self, usage: impl Fn(u64) -> u64) -> Vec<Call> {
        let before = self.envoy.backend.held();
        let customers = CUSTOMERS.iter().cycle().zip(0..CALLERS);
        let calls: Vec<Call> =
            customers.map(|(&user, number)| self.begin(user, usage(number), BODY)).collect();
        wait_for("each call is denied or runs", || {
            let denied = calls.iter().filter(|call| call.status.is_finished()).count();
            (denied + self.envoy.backend.held() - before == calls.len()).then_some(())
        });
        calls
    }

    /// Lets the model answer all calls, and waits until Envoy has settled them. Returns what the admitted ones of each customer
    /// have used.
    fn end(&self, calls: Vec<Call>) -> Vec<(&'static str, u64)> {
        let metric = |result: &str| {
            let labels = format!("domain=\"budget\",rule=\"user\",result=\"{result}\"");
            self.weir.metric(&format!("weir_settlements_total{{{labels}}}"))
        };
        let (before, unknown) = (metric("settled"), metric("unknown"));
        self.envoy.backend.release(self.envoy.backend.held());
        let ended =
            calls.into_iter().map(|call| (call.user, call.usage, call.status.join().unwrap()));
        let ended: Vec<_> = ended.collect();
        assert!(ended.iter().all(|(_, _, status)| [200, 429].contains(status)), "{ended:?}");
        let admitted = ended.into_iter().filter(|(_, _, status)| *status == 200);
        let admitted: Vec<_> = admitted.map(|(user, usage, _)| (user, usage)).collect();
        let settled = before + admitted.len() as u64;
        wait_for("all are settled", || (metric("settled") == settled).then_some(()));
        assert_eq!(metric("unknown"), unknown, "each end has its reservation");
        admitted
    }
}

/// Returns the offset of a clock that shows this time.
fn offset(time: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs();
    format!("{:+}", i128::from(time) - i128::from(now))
}

fn sum(calls: &[(&str, u64)], user: &str) -> u64 {
    calls.iter().filter(|(caller, _)| *caller == user).map(|(_, usage)| usage).sum()
}

#[test]
fn nobody_exceeds_a_budget_by_a_token_over_the_end_of_a_month() {
    let mut time = END - 30 * MINUTE;
    let shop = Shop::start(time);
    let mut used = CUSTOMERS.map(|user| {
        shop.spend(user, BUDGET - 60_000);
        BUDGET - 60_000
    });
    shop.spend("max", BUDGET - 1_200);

    // In each minute, 200 callers share what is left, until it is less than a request may use.
    loop {
        time += 2 * MINUTE;
        shop.step_to(time, "minute");
        let calls = shop.begin_all(|number| RESERVED - number % 100);
        for user in CUSTOMERS {
            assert!(shop.used(user, "month") <= BUDGET, "{user}");
        }
        let admitted = shop.end(calls);
        for (user, used) in CUSTOMERS.iter().zip(&mut used) {
            *used += sum(&admitted, user);
            assert_eq!(shop.used(user, "month"), *used, "{user}: what the model has made");
        }
        if admitted.is_empty() {
            break;
        }
    }
    assert!(time < END - 10 * MINUTE, "the month has not ended");
    for (user, used) in CUSTOMERS.iter().zip(used) {
        assert!((BUDGET - RESERVED + 1..=BUDGET).contains(&used), "{user}: {used}");
    }

    // Only a request that uses more than `at_least` goes over a budget, once.
    let larger = shop.begin("max", 5_000, r#"{"max_tokens": 4996}"#);
    wait_for("it runs", || (shop.envoy.backend.held() == 1).then_some(()));
    assert_eq!(shop.used("max", "month"), BUDGET, "it has reserved what is left");
    assert_eq!(shop.end(vec![larger]), [("max", 5_000)]);
    assert_eq!(shop.used("max", "month"), BUDGET + 3_800);
    assert!(shop.end(vec![shop.begin("max", 1, BODY)]).is_empty(), "nothing is left");

    // These run over the end of the month. Half of them use more than they have reserved.
    let overnight = (0..20).map(|number| shop.begin("eve", 500 + number % 2 * 1_000, BODY));
    let mut calls: Vec<Call> = overnight.collect();
    wait_for("they run", || (shop.envoy.backend.held() == 20).then_some(()));
    assert_eq!(shop.used("eve", "month"), 20 * RESERVED);
    shop.step_to(END + MINUTE, "month");
    assert_eq!((shop.used("eve", "month"), shop.used("max", "month")), (0, 0));

    // The new month is charged for its own requests, and for what the old ones use beyond their reservations.
    calls.extend(shop.begin_all(|number| RESERVED - number % 100));
    let admitted = shop.end(calls);
    assert_eq!(admitted.iter().filter(|(user, _)| *user == "eve").count(), 20);
    for user in CUSTOMERS {
        let used = sum(&admitted, user);
        assert!(used > 0);
        assert_eq!(shop.used(user, "month"), used, "{user}");
    }
    assert_eq!(shop.used("eve", "month"), 10 * 500);
}

#[test]
fn the_rules_of_both_gateways_sell_the_same() {
    let limits = |limits: &Value| -> Vec<Value> { limits.as_array().expect("limits").clone() };
    let rule = &yaml::document(&shown("tokens.yaml"))["descriptors"][0];
    let patch = &yaml::document(&shown("tokens.overlay.yaml"))["patches"][0]["set"];
    assert_eq!(limits(&rule["rate_limits"]), limits(&patch["rate_limits"]));
    let reserve = &rule["reserve"];
    assert_eq!(reserve["at_least"], RESERVED);
    assert_eq!(reserve["at_most"], patch["reserve"]["at_most"]);
}
