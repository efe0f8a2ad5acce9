//! Simulates the traffic and the answers of each algorithm.

use weir_limit::{
    Algorithm, BucketedWindow, Concurrency, FixedWindow, Gcra, Limit, Micros, Op, Plan, SECOND,
    SlidingLog, SlidingWindow, State, TokenBucket, Unit,
};

pub const N: u32 = 10;
pub const PERIOD: Micros = 10 * SECOND;
pub const END: Micros = 60 * SECOND;
/// How long a request takes; only concurrency depends on it.
pub const DURATION: Micros = 2 * SECOND;

/// Second 0 of the pictures: the start of a ten-second window.
const START: Micros = 1_700_049_600 * SECOND;

/// The answers of one algorithm.
pub struct Run {
    pub name: &'static str,
    /// The limit, in words.
    pub numbers: &'static str,
    /// The title of the lower half.
    pub counted: &'static str,
    /// How long an admitted request counts there.
    pub counts_for: Micros,
    /// The time of each request, and whether it was admitted.
    pub asked: Vec<(Micros, bool)>,
}

impl Run {
    /// Returns the times of the admitted requests.
    pub fn admitted(&self) -> impl Iterator<Item = Micros> {
        self.asked.iter().filter(|(_, admitted)| *admitted).map(|(at, _)| *at)
    }
}

/// Returns the times of the requests: a trickle, a burst, twice the allowed rate for a while, a pause,
/// a burst across the boundary at 50 s, a trickle.
fn traffic() -> Vec<Micros> {
    let every = |step: u64, from: u64, to: u64| (from..to).step_by(step as usize);
    let milliseconds = every(2_000, 1_000, 9_000)
        .chain(every(67, 13_000, 14_000))
        .chain(every(500, 20_250, 34_000))
        .chain(every(125, 48_500, 51_500))
        .chain(every(1_000, 54_250, 60_000));
    milliseconds.map(|at| at * 1_000).collect()
}

pub fn runs() -> anyhow::Result<Vec<Run>> {
    let (n, period) = (N, PERIOD);
    let token_bucket =
        TokenBucket { capacity: n, amount: 1, interval: SECOND, strict: false, max_debt: 0 };
    let algorithms = [
        (Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }), "10 per 10 s"),
        (Algorithm::SlidingWindow(SlidingWindow { n, period }), "10 per 10 s"),
        (Algorithm::SlidingLog(SlidingLog { n, period }), "10 per 10 s"),
        (
            Algorithm::BucketedWindow(BucketedWindow { n, period, buckets: 10 }),
            "10 per 10 s, 10 buckets",
        ),
        (Algorithm::TokenBucket(token_bucket), "10 tokens, one more each second"),
        (Algorithm::Gcra(Gcra::new(n, period, 3, 0)?), "10 per 10 s, at most 3 at once"),
        (
            Algorithm::Concurrency(Concurrency { n, timeout: END, hold_id: Some("id".into()) }),
            "10 in flight, each for 2 s",
        ),
    ];
    Ok(algorithms.into_iter().map(|(algorithm, numbers)| run(algorithm, numbers)).collect())
}

fn run(algorithm: Algorithm, numbers: &'static str) -> Run {
    let name = algorithm.name();
    let in_flight = matches!(algorithm, Algorithm::Concurrency(_));
    let plan = Plan::new(vec![Limit {
        name: Box::default(),
        requests_per_unit: N,
        unit: Some(Unit::Second),
        unit_multiplier: 10,
        in_days: false,
        charge_denied: false,
        shadow_mode: false,
        algorithm,
    }]);
    let mut state = State::default();
    let mut ends = std::collections::VecDeque::new();
    let mut asked = Vec::new();
    for (i, at) in traffic().into_iter().enumerate() {
        while let Some(&(end, hold)) = ends.front()
            && end <= at
        {
            ends.pop_front();
            plan.charge(&mut state, START + end, Op::Refund(1), Some(hold_name(hold).as_str()));
        }
        let hold = hold_name(i);
        let admitted =
            plan.charge(&mut state, START + at, Op::Take(1), Some(&hold)).decision.allowed;
        asked.push((at, admitted));
        if admitted && in_flight {
            ends.push_back((at + DURATION, i));
        }
    }
    let (counted, counts_for) =
        if in_flight { ("in flight", DURATION) } else { ("admitted in the last 10 s", PERIOD) };
    Run { name, numbers, counted, counts_for, asked }
}

fn hold_name(request: usize) -> String {
    format!("request-{request}")
}
