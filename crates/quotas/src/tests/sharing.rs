//! How much of a limit is used by Envoys that share it, and that it is never more: 20 windows of simulated Envoys.

use super::*;

/// Requests a minute, as in the rules.
const N: u64 = 1_000;

const RULES: &str = "domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1000}}
";

const WINDOWS: u64 = 20;
const MINUTE: Micros = 60 * SECOND;
const STEP: Micros = SECOND / 100;
const REPORT_INTERVAL: Micros = 5 * SECOND;

/// An Envoy with one bucket. It obeys at once, and denies where it has no order.
struct Envoy {
    stream: Stream,
    /// Requests a minute.
    load: u64,
    /// What has come of the next request, in the time of all requests of a minute.
    coming: Micros,
    next_report: Micros,
    is_known: bool,
    order: Option<Order>,
    ends: Micros,
    tokens: u32,
    unreported: Usage,
}

impl Envoy {
    /// `start` is when in a minute an Envoy with one request a minute sends it.
    fn new(bench: &Bench, at: u64, load: u64, start: Micros) -> Envoy {
        let next_report = START + (at + 1) * 17 * SECOND / 10 % REPORT_INTERVAL;
        let coming = (at * 7_919 * SECOND + MINUTE - start) % MINUTE;
        let (is_known, order, ends, tokens, unreported) = Default::default();
        let stream = bench.open();
        Envoy { stream, load, coming, next_report, is_known, order, ends, tokens, unreported }
    }

    /// Lets a step of time pass. Returns the requests that came, and those that were admitted.
    fn step(&mut self, now: Micros) -> (u64, u64) {
        if self.stream.until_due() == Some(Duration::ZERO) {
            self.stream.due();
            let actions = sent(&mut self.stream);
            self.obey(now, actions);
        }
        if now >= self.next_report {
            self.next_report += REPORT_INTERVAL;
            if self.is_known {
                self.report(now);
            }
        }
        let (mut offered, mut admitted) = (0, 0);
        self.coming += self.load * STEP;
        while self.coming >= MINUTE {
            self.coming -= MINUTE;
            offered += 1;
            admitted += u64::from(self.admits(now));
            // A new bucket is reported at once.
            if !self.is_known {
                self.is_known = true;
                self.report(now);
            }
        }
        (offered, admitted)
    }

    fn admits(&mut self, now: Micros) -> bool {
        let admits = now < self.ends
            && match self.order {
                Some(Order::Admit(_)) if self.tokens > 0 => {
                    self.tokens -= 1;
                    true
                }
                order => order == Some(Order::Allow),
            };
        self.unreported.admitted += u64::from(admits);
        self.unreported.denied += u64::from(!admits);
        admits
    }

    fn report(&mut self, now: Micros) {
        let report = (Some(id(&[("user", "a")])), std::mem::take(&mut self.unreported));
        self.stream.report(message("d", [report].into_iter()), |_| true).expect("a valid report");
        let actions = sent(&mut self.stream);
        self.obey(now, actions);
    }

    fn obey(&mut self, now: Micros, actions: Vec<QuotaAction>) {
        for action in actions {
            let Some((order, seconds)) = action.order else {
                (self.is_known, self.order, self.tokens) = Default::default();
                continue;
            };
            assert!(seconds > 0);
            self.tokens = match (self.order, order) {
                // Without a denial before it, it keeps what is left.
                (Some(Order::Admit(_)), Order::Admit(hits)) => self.tokens + hits,
                (_, Order::Admit(hits)) => hits,
                _ => 0,
            };
            (self.order, self.ends) = (Some(order), now + u64::from(seconds) * SECOND);
        }
    }
}

/// Simulates Envoys with these requests a minute, and asserts the bound. Returns the percent of what could be admitted.
fn simulate(loads: &[u64], replicas: u32, start: Micros) -> f64 {
    simulate_rules(RULES, loads, replicas, start)
}

fn simulate_rules(rules: &str, loads: &[u64], replicas: u32, start: Micros) -> f64 {
    let bench = Bench::new(rules, QuotaOptions { replicas, ..OPTIONS });
    let envoys = loads.iter().enumerate();
    let mut envoys: Vec<Envoy> =
        envoys.map(|(at, load)| Envoy::new(&bench, at as u64, *load, start)).collect();
    let (mut all_offered, mut all_admitted) = (0, 0);
    for window in 0..WINDOWS {
        let mut used = 0;
        for step in 0..MINUTE / STEP {
            let now = START + window * MINUTE + step * STEP;
            bench.clock.set(now);
            for envoy in &mut envoys {
                let (offered, admitted) = envoy.step(now);
                all_offered += offered;
                used += admitted;
            }
            if now.is_multiple_of(SECOND) {
                let left = u64::from(bench.ask(&[("user", "a")], 0));
                assert!(used + left <= N, "{used} of {N} used, {left} left, at {now}");
            }
        }
        all_admitted += used;
    }
    assert_eq!(bench.quotas.counts.excess.load(std::sync::atomic::Ordering::Relaxed), 0);
    100.0 * all_admitted as f64 / all_offered.min(N * WINDOWS) as f64
}

#[test]
fn most_of_the_limit_is_used_and_never_more() {
    // With the least percent to admit, and what a model of this simulation has admitted.
    let cases: [(&[u64], f64, f64); 7] = [
        (&[4_000, 750, 250], 95.0, 99.9),
        (&[5_000, 0, 0, 0, 0, 0, 0, 0, 0, 0], 90.0, 99.4),
        (&[5_000, 6, 6, 6, 6, 6, 6, 6, 6, 6], 90.0, 99.3),
        (&[5_000, 12, 12, 12, 12, 12, 12, 12, 12, 12], 90.0, 99.4),
        (&[1_667, 1_667, 1_666], 90.0, 98.4),
        (&[500; 10], 90.0, 96.5),
        (&[200; 3], 95.0, 97.2),
    ];
    for (loads, least, model) in cases {
        let admitted = simulate(loads, 1, 0);
        eprintln!("{loads:?}: {admitted:.1} %, by the model {model} %");
        assert!(admitted >= least, "{loads:?}: {admitted:.1} %, by the model {model} %");
    }
}

#[test]
fn idle_envoys_keep_little_from_one_with_all_of_the_load() {
    for start in (0..60).step_by(10) {
        for (envoys, replicas) in [(10, 1), (5, 2)] {
            let mut loads = vec![1; envoys];
            loads[0] = 5_000;
            let admitted = simulate(&loads, replicas, start * SECOND);
            eprintln!("{envoys} Envoys from second {start}, {replicas} replicas: {admitted:.1} %");
            assert!(admitted >= 90.0, "{admitted:.1} %");
        }
    }
}

/// What is left of grants when a window ends stays charged to longer limits.
#[test]
fn little_of_a_longer_limit_is_lost_at_the_ends_of_windows() {
    let both = "rate_limits: [{unit: minute, requests_per_unit: 1000}, {unit: hour, requests_per_unit: 2100}]";
    let rules = RULES.replace("rate_limit: {unit: minute, requests_per_unit: 1000}", both);
    assert_ne!(rules, RULES);
    let admitted = simulate_rules(&rules, &[60], 1, 0);
    assert!(admitted >= 95.0, "{admitted:.1} %");
}
