//! Leases under load and faults: what replicas admit of a window together, counted by their clients.
//!
//! In an ordinary run this takes seconds. With `WEIR_LONG_TESTS`, windows and runs are longer, more replicas take part
//! and Redis, networks and operators change things too.

mod clients;
mod operators;
mod redis_faults;
mod windows;

use std::thread::sleep;

use self::clients::{HOT, Load, Micros, Outcome, Sample, Target};
use self::windows::{Limit, Report};
use super::*;
use crate::clock::{step, steppable};
use crate::support::control_api::ControlApi;
use crate::support::http;
use crate::support::redis::Server;

/// The rules, in the order of the file. Only `fixed` charges what it denies.
const RULES: [&str; 7] = ["fixed", "plain", "sliding", "ring", "both", "day", "total"];
const FIXED: u8 = 0;
const PLAIN: u8 = 1;
const SLIDING: u8 = 2;
const RING: u8 = 3;
const BOTH: u8 = 4;
const DAY: u8 = 5;
const TOTAL: u8 = 6;

/// The sub-windows of `ring`.
const BUCKETS: u64 = 5;

/// The windows of `fixed` that those of the longer limit of `both` have.
const LONGER: u64 = 3;

/// More than anybody asks for.
const UNREACHED: u64 = 4_000_000_000;

const SECOND: Micros = 1_000_000;

/// A number of hits in a number of seconds, and the length of leases.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    n: u64,
    seconds: u64,
    leases_for: &'static str,
}

/// Leases take much of a window.
const SHORT: Numbers = Numbers { n: 400, seconds: 1, leases_for: "400ms" };

/// So long that a debug build overloads it.
const LONG: Numbers = Numbers { n: 10_000, seconds: 10, leases_for: "100ms" };

/// Whether tests may take minutes.
fn is_long() -> bool {
    std::env::var_os("WEIR_LONG_TESTS").is_some()
}

impl Numbers {
    fn rules(self) -> String {
        let Numbers { n, seconds, .. } = self;
        let (longer_n, longer) = (2 * n, LONGER * seconds);
        format!(
            "\
domain: load
descriptors:
  - key: fixed
    rate_limit: {{ period: {seconds}s, requests_per_unit: {n} }}
  - key: plain
    rate_limit: {{ period: {seconds}s, requests_per_unit: {n}, charge_denied: false }}
  - key: sliding
    rate_limit: {{ algorithm: sliding_window, period: {seconds}s, requests_per_unit: {n} }}
  - key: ring
    rate_limit: {{ algorithm: bucketed_window, buckets: {BUCKETS}, period: {seconds}s, requests_per_unit: {n} }}
  - key: both
    rate_limits:
      - {{ period: {seconds}s, requests_per_unit: {n} }}
      - {{ period: {longer}s, requests_per_unit: {longer_n} }}
      - {{ unit: year, requests_per_unit: {UNREACHED} }}
  - key: day
    rate_limit: {{ unit: day, align: calendar, requests_per_unit: {longer_n}, charge_denied: false }}
  - key: total
    rate_limit: {{ unit: year, requests_per_unit: {UNREACHED} }}
"
        )
    }

    fn limits(self) -> [Limit; 7] {
        let Numbers { n, seconds, .. } = self;
        let step = seconds * SECOND;
        let plain = Limit { name: "plain", rule: PLAIN, n, step, buckets: 0, estimates: false };
        [
            Limit { name: "fixed", rule: FIXED, ..plain },
            plain,
            Limit { name: "sliding", rule: SLIDING, estimates: true, ..plain },
            Limit {
                name: "ring",
                rule: RING,
                step: step.div_ceil(BUCKETS),
                buckets: BUCKETS,
                ..plain
            },
            Limit { name: "both", rule: BOTH, ..plain },
            Limit { name: "longer", rule: BOTH, n: 2 * n, step: LONGER * step, ..plain },
            Limit { name: "day", rule: DAY, n: 2 * n, step: 86_400 * SECOND, ..plain },
        ]
    }
}

/// Replicas on one store, under load.
struct Exam {
    setup: Box<dyn Fn(Setup) -> Setup>,
    rules: String,
    replicas: Vec<Weir>,
    load: Load,
}

impl Exam {
    fn start(
        setup: impl Fn(Setup) -> Setup + 'static,
        numbers: Numbers,
        replicas: usize,
        target: Target,
    ) -> Exam {
        let setup =
            move |other: Setup| setup(other.env("WEIR__STORE__LEASES_FOR", numbers.leases_for));
        let (setup, rules) = (Box::new(setup), numbers.rules());
        let replicas: Vec<Weir> = (0..replicas).map(|_| replica(&setup, &rules)).collect();
        let addresses = replicas.iter().map(|weir| weir.grpc).collect();
        let clients = if is_long() { 32 } else { 16 };
        let load = Load::start(&RULES, addresses, clients, target);
        Exam { setup, rules, replicas, load }
    }

    /// Starts another process in the place of one that has ended.
    fn replace(&mut self, at: usize) {
        self.replicas[at] = replica(&self.setup, &self.rules);
        self.load.replace(at, self.replicas[at].grpc);
    }

    fn stop(self) -> (Outcome, Vec<Weir>) {
        (self.load.stop(), self.replicas)
    }

    /// Stops short load. Fails if some window surely admitted more than n, no hit was leased, or hits were returned twice.
    fn stop_and_examine(self, title: &str) -> Vec<Weir> {
        let (outcome, replicas) = self.stop();
        examine(title, &outcome, &SHORT.limits());
        assert!(leased(&replicas) > 0);
        assert_none_returned_twice(&outcome, &replicas[0]);
        replicas
    }
}

fn replica(setup: impl Fn(Setup) -> Setup, rules: &str) -> Weir {
    setup(serving(rules).env("WEIR__DRAIN__DELAY", "0")).start()
}

/// Counts in this Redis, with time for a busy machine.
fn on(redis: &Server) -> impl Fn(Setup) -> Setup + 'static {
    let url = redis.addr();
    move |setup| setup.env("REDIS_URL", &url)
}

fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds));
}

/// Fails if some window surely admitted more than n. Prints and returns what was admitted.
fn examine(title: &str, outcome: &Outcome, limits: &[Limit]) -> Vec<Report> {
    let admitted = outcome.samples.iter().filter(|sample| sample.admitted);
    let admitted: u64 = admitted.map(|sample| u64::from(sample.hits)).sum();
    let Outcome { samples, requests, failed } = outcome;
    let answers = samples.len();
    println!("{title}: {requests} requests, {failed} failed, {answers} answers, {admitted} hits");
    let reports: Vec<Report> =
        limits.iter().map(|limit| limit.examine(samples, |_| limit.n)).collect();
    for (limit, report) in limits.iter().zip(&reports) {
        if let Some((least, mean)) = report.parts() {
            let windows = report.overloaded.len();
            let name = limit.name;
            println!("  {name}: of {windows} overloaded windows {mean:.4} of n, least {least:.4}");
        }
    }
    let over: Vec<&String> = reports.iter().flat_map(|report| &report.over).collect();
    assert!(over.is_empty(), "{title}: {over:#?}");
    reports
}

/// Returns the hits of the hot value of a rule that clients know to be admitted.
fn admitted(samples: &[Sample], rule: u8) -> u64 {
    let of_key = |sample: &&Sample| sample.rule == rule && sample.value == HOT && sample.admitted;
    samples.iter().filter(of_key).map(|sample| u64::from(sample.hits)).sum()
}

/// Returns the hits of the hot value that the store has counted for a year.
fn used(weir: &Weir, rule: u8) -> u64 {
    let rule = RULES[usize::from(rule)];
    let state = ControlApi::new(weir).good(&format!("/v1/state?domain=load&descriptor={rule}=hot"));
    let limits = state["limits"].as_array().expect("limits");
    limits.last().expect("a limit")["used"].as_u64().expect("a count")
}

/// Fails if hits were returned that had been admitted: when all leases have ended, no less is counted than was
/// admitted, and no more if each request has an answer.
fn assert_none_returned_twice(outcome: &Outcome, weir: &Weir) {
    for rule in [BOTH, TOTAL] {
        let admitted = admitted(&outcome.samples, rule);
        if outcome.failed == 0 {
            wait_for("leases are returned", || (used(weir, rule) <= admitted).then_some(()));
        } else {
            seconds(1);
        }
        let used = used(weir, rule);
        println!("  {}: {admitted} admitted, {used} counted", RULES[usize::from(rule)]);
        assert!(admitted <= used, "{}: {admitted} of {used}", RULES[usize::from(rule)]);
    }
}

/// Returns the hits that these replicas admitted from leases.
fn leased(replicas: &[Weir]) -> u64 {
    let served = |weir: &Weir| weir.metric("weir_leased_hits_total{result=\"served\"}");
    let served = replicas.iter().map(served).sum();
    println!("  {served} hits from leases");
    served
}

/// How many replicas take part.
fn sizes() -> &'static [usize] {
    if is_long() { &[2, 8] } else { &[2] }
}

#[test]
fn overload_gets_all_of_a_window_and_never_more() {
    for &size in sizes() {
        let (numbers, run) = match size {
            _ if !is_long() => (SHORT, 3),
            // A million hits.
            2 => (LONG, 100),
            _ => (LONG, 45),
        };
        let redis = Server::start();
        let exam = Exam::start(on(&redis), numbers, size, Target::Steady);
        seconds(run);
        let (outcome, replicas) = exam.stop();
        let limits = numbers.limits();
        let reports = examine(&format!("{size} replicas, steady"), &outcome, &limits);
        // Eight replicas of a slow build have too few requests each for a lease.
        assert!(size > 2 || leased(&replicas) > 0);
        assert_none_returned_twice(&outcome, &replicas[0]);
        for (limit, report) in limits.iter().zip(reports) {
            let least = limit.n - 8 * size as u64;
            let exact = ["plain", "longer"].contains(&limit.name);
            // A busy machine may stop a replica that holds the last hits of a window.
            let first = if is_long() { 0 } else { report.overloaded.len() / 2 };
            let are_full = report.overloaded.iter().skip(first).all(|hits| *hits >= least);
            assert!(!exact || are_full, "{limit:?}: {report:?}");
        }
    }
}

#[test]
fn load_that_jumps_between_replicas_never_gets_more_than_a_window() {
    if !is_long() {
        return;
    }
    for &size in sizes() {
        for leases_for in [LONG.leases_for, "0s"] {
            let redis = Server::start();
            let numbers = Numbers { leases_for, ..LONG };
            let exam = Exam::start(on(&redis), numbers, size, Target::Jumping);
            seconds(45);
            let (outcome, replicas) = exam.stop();
            let title = format!("{size} replicas, jumping, leases for {leases_for}");
            let limits = LONG.limits();
            let reports = examine(&title, &outcome, &limits);
            for (limit, report) in limits.iter().zip(reports) {
                // A window that charges what it denies gets a little less.
                let is_whole = report.parts().is_none_or(|(least, _)| least >= 0.98);
                assert!(is_whole || !["plain", "longer"].contains(&limit.name), "{report:?}");
            }
            assert_eq!(leased(&replicas) > 0, leases_for != "0s");
            assert_none_returned_twice(&outcome, &replicas[0]);
        }
    }
}

/// Replicas are killed, stop in good order, or stand still for longer than a window.
#[test]
fn replicas_that_come_and_go_never_admit_more_than_a_window() {
    let rounds = if is_long() { 8 } else { 1 };
    for &size in sizes() {
        let redis = Server::start();
        let mut exam = Exam::start(on(&redis), SHORT, size, Target::Steady);
        let stops = if is_long() { &[200, 1_100, 3_200][..] } else { &[200, 1_100] };
        for round in 0..rounds {
            for (i, millis) in stops.iter().enumerate() {
                let replica = &exam.replicas[(round + i) % size];
                sleep(Duration::from_millis(300));
                replica.signal("STOP");
                sleep(Duration::from_millis(*millis));
                replica.signal("CONT");
            }
            assert!(leased(&exam.replicas) > 0);
            let killed = (round + 1) % size;
            exam.replicas[killed].kill();
            exam.replace(killed);
            sleep(Duration::from_millis(200));
            let stopped = round % size;
            exam.replicas[stopped].signal("TERM");
            assert!(exam.replicas[stopped].wait_until_ended().success());
            exam.replace(stopped);
        }
        sleep(Duration::from_millis(500));
        let (outcome, replicas) = exam.stop();
        examine(&format!("{size} replicas, come and go"), &outcome, &SHORT.limits());
        assert_none_returned_twice(&outcome, &replicas[0]);
    }
}

/// Redis has the time, so the clocks of replicas do not matter; but a year away, weir's calendar has no days to ask for.
#[test]
fn replicas_whose_clocks_step_never_admit_more_than_a_window() {
    if !is_long() {
        return;
    }
    let redis = Server::start();
    let on = on(&redis);
    let exam = Exam::start(move |setup| steppable(on(setup)), SHORT, 2, Target::Steady);
    seconds(1);
    for _ in 0..6 {
        for offset in ["+0.3", "-0.4", "+1.1", "-7", "+1d", "-1y", "+0"] {
            for weir in &exam.replicas {
                step(weir, offset);
                sleep(Duration::from_millis(350));
            }
        }
    }
    for weir in exam.stop_and_examine("clocks step") {
        assert!(weir.said().contains("the wall clock stepped"), "{}", weir.said());
    }
}
