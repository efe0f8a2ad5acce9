//! Quotas on real Envoys: what Envoys, replicas and other callers of a key admit together, counted behind them.
//!
//! In an ordinary run this takes seconds, and a window for the bound. With `WEIR_LONG_TESTS` it takes up to twenty
//! windows, with faults and operators meanwhile. All Envoys deny what no grant decides.

mod clients;
mod disturbed;
mod hostile;
mod many_ids;
mod windows;

use std::net::SocketAddr;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::windows::{Admission, LATE, SECOND, Window, count, now};
use crate::support::backend::Backend;
use crate::support::envoy::{Envoy, run_with_workers};
use crate::support::load::{Got, Load};
use crate::support::redis::Server;
use crate::support::traffic::Traffic;
use crate::support::weir::{Setup, Weir, serving};

/// Microseconds since the Unix epoch, by the clock that Redis reads too.
type Micros = u64;

/// A number of hits in a number of seconds.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    n: u64,
    seconds: u64,
}

const LONG: Numbers = Numbers { n: 1_000, seconds: 60 };

/// The shortest window that is granted. The load is the same.
const SHORT: Numbers = Numbers { n: 500, seconds: 30 };

/// The clients of an Envoy, and the requests of each in a second.
type Rate = (u32, u32);

/// Five times the limit, of which the three Envoys get about 80, 15 and 5 %.
const SKEWED: [Rate; 3] = [(6, 11), (2, 7), (2, 2)];

/// The value of the entry of an Envoy whose requests all have one bucket.
const ONE: &str = "{ string_value: one }";

/// How long it may take until a changed limit reaches all Envoys.
const CHANGING: Micros = 3 * SECOND;

/// Whether tests may take minutes.
fn is_long() -> bool {
    std::env::var_os("WEIR_LONG_TESTS").is_some()
}

impl Numbers {
    fn for_this_run() -> Numbers {
        if is_long() { LONG } else { SHORT }
    }

    fn rules(self) -> String {
        let limit = format!("{{ period: {}s, requests_per_unit: {} }}", self.seconds, self.n);
        format!("domain: shop\ndescriptors: [{{ key: user, rate_limit: {limit} }}]\n")
    }

    fn window(self) -> Micros {
        self.seconds * SECOND
    }
}

/// A weir that serves quotas.
fn quotas(numbers: Numbers) -> Setup {
    serving(&numbers.rules()).env("WEIR__RLQS__ENABLED", "true").env("WEIR__RLQS__FALLBACK", "deny")
}

/// One of two replicas, with gRPC at this address.
fn replica(numbers: Numbers, redis: &Server, grpc: &str) -> Weir {
    let setup = quotas(numbers).env("REDIS_URL", redis.addr()).env("WEIR__STORE__REPLICAS", "2");
    let mut setup = setup.store_times("1s").arg("--grpc-address").arg(grpc);
    for place in ["--http-address", "--debug-address"] {
        setup = setup.arg(place).arg("127.0.0.1:0");
    }
    setup.start_as_it_is()
}

/// Starts an Envoy of two workers, whose bucket has an entry `user` with this value.
fn start_envoy(weir: &Weir, backend: &Backend, user: &str) -> Envoy {
    let config = include_str!("quotas_exam/envoy.yaml")
        .replace("{weir}", &weir.grpc.port().to_string())
        .replace("{backend}", &backend.address.port().to_string())
        .replace("{user}", user);
    // Its own backend gets nothing: that of the exam is there longer.
    run_with_workers(2, &config, Backend::start(), "ingress")
}

/// Three Envoys, two replicas and Redis under load.
struct Exam {
    numbers: Numbers,
    redis: Server,
    weirs: Vec<Weir>,
    envoys: Vec<Envoy>,
    backend: Backend,
    started: Micros,
    traffic: Vec<Traffic>,
    /// What sends calls to the replicas.
    callers: Vec<Load>,
    /// The limits, each with the time from which it counted.
    limits: Vec<(Micros, u64)>,
}

impl Exam {
    fn start(numbers: Numbers, rates: [Rate; 3]) -> Exam {
        let (redis, backend) = (Server::start(), Backend::start());
        let weirs: Vec<Weir> = (0..2).map(|_| replica(numbers, &redis, "127.0.0.1:0")).collect();
        let envoys = (0..3).map(|at| start_envoy(&weirs[at % 2], &backend, ONE)).collect();
        let (traffic, callers, limits) = (Vec::new(), Vec::new(), vec![(0, numbers.n)]);
        let started = now();
        let mut exam =
            Exam { numbers, redis, weirs, envoys, backend, started, traffic, callers, limits };
        exam.send(rates);
        exam
    }

    /// Sends requests to the Envoys at these rates, instead of those before.
    fn send(&mut self, rates: [Rate; 3]) {
        self.traffic.drain(..).for_each(|traffic| drop(traffic.stop()));
        let envoys = self.envoys.iter().zip(rates);
        let start = |(envoy, (clients, per_second)): (&Envoy, Rate)| {
            Traffic::start(envoy.address, clients, per_second)
        };
        self.traffic = envoys.map(start).collect();
    }

    /// Returns the number of requests that were sent since the rates changed.
    fn sent(&self) -> u64 {
        self.traffic.iter().flat_map(|traffic| traffic.outcomes().into_values()).sum()
    }

    /// Lets the load run until this many whole windows have ended.
    fn run(&self, windows: u64) {
        let window = self.numbers.window();
        let end = (now() / window + 1 + windows) * window + LATE;
        sleep(Duration::from_micros(end - now()));
    }

    /// Stops the load, and prints what it got. Fails if some window surely admitted more than the limit.
    fn stop(self, title: &str) -> (Vec<Admission>, Vec<Window>, Vec<Weir>) {
        let ended = now();
        for traffic in self.traffic {
            println!("{title}: {:?}", traffic.stop());
        }
        let micros = |duration: Duration| duration.as_micros() as Micros;
        let by_envoys = self.backend.seen_at().into_iter().map(|at| {
            let at = micros(at.duration_since(UNIX_EPOCH).expect("after 1970"));
            Admission { earliest: at - LATE, latest: at }
        });
        let mut admissions: Vec<Admission> = by_envoys.collect();
        for call in self.callers.into_iter().flat_map(Load::stop) {
            if call.got == Got::Ok {
                let sent = now() - micros(call.sent.elapsed());
                let latest = sent + micros(call.took) + LATE;
                admissions.push(Admission { earliest: sent - LATE, latest });
            }
        }
        for weir in &self.weirs {
            let metric = |name: &str| weir.metric(&format!("weir_rlqs_{name}_hits_total"));
            let [granted, returned, excess] = ["granted", "returned", "excess"].map(metric);
            println!("  granted {granted}, returned {returned}, excess {excess}");
        }
        let windows = count(&admissions, self.started..ended, self.numbers.window());
        let over = |window: &&Window| {
            let n = largest_limit(&self.limits, &window.span);
            window.print(n);
            window.sure > n
        };
        let over: Vec<&Window> = windows.iter().filter(over).collect();
        assert!(over.is_empty(), "{title}: {over:#?}");
        (admissions, windows, self.weirs)
    }
}

/// Returns the largest of limits that counted in a span of time. Each is there with the time from which it counted.
fn largest_limit(limits: &[(Micros, u64)], span: &Range<Micros>) -> u64 {
    let ends = limits.iter().skip(1).map(|(at, _)| at + CHANGING).chain([Micros::MAX]);
    let counted =
        limits.iter().zip(ends).filter(|((at, _), end)| *at < span.end && *end > span.start);
    counted.map(|((_, n), _)| *n).max().expect("some limit always counts")
}

/// Returns the part of the limit that whole windows have admitted.
fn used(windows: &[Window], n: u64) -> f64 {
    let whole: Vec<&Window> = windows.iter().filter(|window| window.is_whole).collect();
    let used: u64 = whole.iter().map(|window| window.may.min(n)).sum();
    let used = used as f64 / (n * whole.len() as u64) as f64;
    println!("  {:.2} % used", used * 100.0);
    used
}

/// Fails if Envoys admitted anything beyond their grants.
fn assert_no_excess(weirs: &[Weir]) {
    for weir in weirs {
        assert_eq!(weir.metric("weir_rlqs_excess_hits_total"), 0);
    }
}

/// The short one takes a part of a window and a whole one, so up to a minute.
#[test]
fn three_envoys_use_a_window_and_never_admit_more() {
    let numbers = Numbers::for_this_run();
    let exam = Exam::start(numbers, SKEWED);
    exam.run(if is_long() { 20 } else { 1 });
    let (_, windows, weirs) = exam.stop("five times the limit, skewed");
    // A slow build is short of time.
    let least = if is_long() { 0.95 } else { 0.5 };
    let used = used(&windows, numbers.n);
    assert!(used >= least, "{used}");
    assert_no_excess(&weirs);
}

#[test]
fn load_below_the_limit_is_admitted() {
    let exam = Exam::start(LONG, [(2, 2), (1, 3), (1, 3)]);
    let counts = || (exam.sent(), exam.backend.seen() as u64);
    let run = |windows, seconds| match is_long() {
        true => exam.run(windows),
        false => sleep(Duration::from_secs(seconds)),
    };
    run(0, 5);
    let (sent_before, admitted_before) = counts();
    run(4, 10);
    let (sent, admitted) = counts();
    let admitted = (admitted - admitted_before) as f64 / (sent - sent_before) as f64;
    let (_, _, weirs) = exam.stop("60 % of the limit, evenly");
    println!("  {:.2} % admitted", admitted * 100.0);
    // Envoys deny for some seconds when a window ends, perhaps in these ten.
    let least = if is_long() { 0.95 } else { 0.4 };
    assert!(admitted >= least, "{admitted}");
    assert_no_excess(&weirs);
}
