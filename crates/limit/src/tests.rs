//! Every algorithm against a model that keeps the whole history, and the bugs of other limiters.

mod add;
mod bans;
mod calendar;
mod examples;
mod inspect;
mod model;
mod packed;
mod plans;
mod properties;
mod reduce_bucket;
mod replica_share;
mod reservation;
mod shared;
mod traps;
mod undo;
mod up_to;

use crate::hit_log::HitLog;
use crate::*;

/// 2023-11-15, noon: the start of a second, a minute, an hour and half a day.
const NOON: Micros = 1_700_049_600 * SECOND;

impl State {
    /// Returns how many stamps the log keeps; 0 for a summary.
    fn log_len(&self) -> usize {
        match self.log() {
            HitLog::Stamps(stamps) => stamps.len(),
            HitLog::Summary(_) => 0,
        }
    }
}

/// A limit of `n` with an algorithm.
fn limit(n: u32, algorithm: Algorithm, charge_denied: bool) -> Limit {
    Limit {
        name: Box::default(),
        requests_per_unit: n,
        unit: Some(Unit::Second),
        unit_multiplier: 1,
        in_days: false,
        charge_denied,
        shadow_mode: false,
        algorithm,
    }
}

fn fixed(n: u32, period: Micros) -> Limit {
    limit(n, Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }), false)
}

fn log(n: u32, period: Micros) -> Limit {
    limit(n, Algorithm::SlidingLog(SlidingLog { n, period }), false)
}

fn gcra(n: u32, period: Micros, burst: u32) -> Limit {
    let gcra = Gcra::new(n, period, burst, 0).expect("numbers that fit");
    limit(n, Algorithm::Gcra(gcra), false)
}

fn bucket(capacity: u32, amount: u32, interval: Micros) -> Limit {
    let bucket = TokenBucket { capacity, amount, interval, strict: false, max_debt: 0 };
    limit(amount, Algorithm::TokenBucket(bucket), false)
}

/// A key's state under a plan, with manual time.
#[derive(Clone)]
struct Driver {
    plan: Plan,
    state: State,
    now: Micros,
}

impl Driver {
    fn new(limits: Vec<Limit>) -> Driver {
        Driver { plan: Plan::new(limits), state: State::default(), now: NOON }
    }

    fn charge(&mut self, op: Op) -> ChargeOutcome {
        self.plan.charge(&mut self.state, self.now, op, None)
    }

    fn take(&mut self, hits: u64) -> Decision {
        self.charge(Op::Take(hits)).decision
    }

    /// Returns how much of each limit is used.
    fn used(&self) -> Vec<u64> {
        let read = self.plan.inspect(&self.state, self.now, &[]);
        read.limits.iter().map(|limit| limit.used).collect()
    }

    /// Returns whether `hits` would be allowed after `wait`, without charging.
    fn would_allow(&self, wait: Micros, hits: u64) -> bool {
        let mut later = Driver { now: self.now + wait, ..self.clone() };
        later.take(hits).allowed
    }
}
