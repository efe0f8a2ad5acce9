//! Faults and operators while Envoys decide.

use std::fs;

use serde_json::json;

use super::*;
use crate::support::api::request;
use crate::support::control_api::{ControlApi, of_user};

fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds));
}

impl Exam {
    /// Kills an Envoy, and starts another one in its place.
    fn replace_envoy(&mut self, at: usize, rates: [Rate; 3]) {
        drop(self.envoys.remove(at));
        seconds(1);
        self.envoys.insert(at, start_envoy(&self.weirs[at % 2], &self.backend, ONE));
        self.send(rates);
    }

    /// Kills a weir, and starts another one at its address.
    fn replace_weir(&mut self, at: usize) {
        self.weirs[at].kill();
        seconds(1);
        self.weirs[at] = replica(self.numbers, &self.redis, &self.weirs[at].grpc.to_string());
    }

    /// Edits the rules of both replicas.
    fn set_limit(&mut self, n: u64) {
        self.numbers.n = n;
        self.limits.push((now(), n));
        for weir in &self.weirs {
            fs::write(weir.path("rules.yaml"), self.numbers.rules()).expect("a file");
        }
    }

    /// Blocks the user at one replica until the block ends by itself. Returns when nothing may be admitted.
    fn block(&self, for_seconds: u64, within: Micros) -> Range<Micros> {
        let begun = now();
        let block = json!({ "action": "block", "for": format!("{for_seconds}s") });
        ControlApi::new(&self.weirs[1]).put_good("exam", &of_user("one", &block));
        let from = now() + within;
        seconds(for_seconds);
        from..begun + for_seconds * SECOND
    }
}

/// Half of [`SKEWED`], and the calls in a second of each replica that are the other half.
const HALF: [Rate; 3] = [(6, 5), (2, 4), (2, 1)];
const CALLS: u32 = 20;

#[test]
fn faults_and_operators_never_let_a_window_admit_more() {
    let numbers = Numbers::for_this_run();
    let mut exam = Exam::start(numbers, SKEWED);
    // Short runs are mostly those of slow builds.
    let (pause, block_for, within) =
        if is_long() { (40, 10, 3 * SECOND / 2) } else { (1, 4, 3 * SECOND) };
    seconds(pause);
    let mut blocked = Vec::new();
    let rounds = if is_long() { 2 } else { 1 };
    for round in 1..=rounds {
        let rates = if round < rounds { SKEWED } else { HALF };
        if round == rounds {
            exam.send(rates);
            let requests = [request("shop", &[("user", "one")])];
            let call = |weir: &Weir| Load::start(weir.grpc, CALLS, &requests);
            exam.callers = exam.weirs.iter().map(call).collect();
            seconds(pause);
        }
        blocked.push(exam.block(block_for, within));
        exam.replace_envoy(0, rates);
        seconds(pause);
        exam.replace_weir(0);
        seconds(pause);
        exam.redis.stop();
        seconds(if is_long() { 10 } else { 1 });
        exam.redis.go_on();
        seconds(pause);
        for n in [numbers.n * 3 / 2, numbers.n * 7 / 10, numbers.n] {
            exam.set_limit(n);
            seconds(pause);
        }
        let [busiest, other, least_busy] = rates;
        for rates in [[least_busy, other, busiest], rates].into_iter().take(rounds) {
            exam.send(rates);
            seconds(pause);
        }
    }
    let (admissions, ..) = exam.stop("five times the limit, skewed, disturbed");
    assert!(!admissions.is_empty());
    for span in blocked {
        let admitted = admissions.iter().filter(|admission| admission.is_in(&span)).count();
        println!("  {admitted} admitted while blocked");
        assert_eq!(admitted, 0, "{span:?}");
    }
}
