//! The plans of the schedules.

use std::sync::Arc;

use weir_limit::{
    Algorithm, Ban, BucketedWindow, Calendar, Concurrency, FixedWindow, Gcra, Limit, Plan, SECOND,
    SlidingLog, SlidingWindow, TokenBucket, Unit,
};

/// A year in seconds.
const YEAR: u64 = 365 * 86_400;

pub(super) const PLANS: usize = 56;

fn limit(n: u32, algorithm: Algorithm) -> Limit {
    Limit {
        name: Box::default(),
        requests_per_unit: n,
        unit: None,
        unit_multiplier: 1,
        in_days: false,
        charge_denied: false,
        shadow_mode: false,
        algorithm,
    }
}

/// The plans of the schedules. Some have one shape, so they share their counts.
pub(super) fn plans() -> [Arc<Plan>; PLANS] {
    let s = SECOND;
    let fixed = |n, seconds| {
        limit(n, Algorithm::FixedWindow(FixedWindow { n, period: seconds * s, calendar: None }))
    };
    let calendar = |n| {
        let calendar = Calendar::new(Unit::Day, "Europe/Berlin").unwrap();
        let starts = if n == 9 { "06:00" } else { "00:00" };
        let calendar = calendar.starting(starts).map(Arc::new);
        let window = FixedWindow { n, period: 86_400 * s, calendar };
        limit(n, Algorithm::FixedWindow(window))
    };
    let sliding =
        |n, seconds| limit(n, Algorithm::SlidingWindow(SlidingWindow { n, period: seconds * s }));
    let log = |n, seconds| limit(n, Algorithm::SlidingLog(SlidingLog { n, period: seconds * s }));
    let bucketed = |n, seconds, buckets| {
        let window = BucketedWindow { n, period: seconds * s, buckets };
        limit(n, Algorithm::BucketedWindow(window))
    };
    let token = |capacity, amount, seconds, strict| {
        let (interval, max_debt, n) = (seconds * s, capacity, amount);
        let amount = u32::max(amount, 1);
        let bucket = TokenBucket { capacity, amount, interval, strict, max_debt };
        limit(n, Algorithm::TokenBucket(bucket))
    };
    let gcra = |n, seconds, burst, debt| {
        limit(n, Algorithm::Gcra(Gcra::new(n, seconds * s, burst, debt).unwrap()))
    };
    let continuing = |n, seconds, burst| {
        limit(n, Algorithm::Gcra(Gcra::continuing(n, seconds * s, burst).unwrap()))
    };
    let concurrency = |n, hold_id: Option<&str>| {
        let hold_id = hold_id.map(Into::into);
        limit(n, Algorithm::Concurrency(Concurrency { n, timeout: 30 * s, hold_id }))
    };
    let denied = |limit| Limit { charge_denied: true, ..limit };
    let shadow = |limit| Limit { shadow_mode: true, ..limit };
    let held = || concurrency(2, Some("id"));
    let each_alone = [
        vec![denied(fixed(3, 1))],
        vec![denied(fixed(2, 1))],
        vec![denied(fixed(5, 60))],
        vec![denied(fixed(8, 3_600))],
        vec![denied(fixed(0, 60))],
        vec![fixed(4, 60)],
        vec![calendar(6)],
        vec![sliding(5, 60)],
        vec![log(4, 10)],
        vec![bucketed(6, 60, 6)],
        vec![token(4, 2, 10, false)],
        vec![token(3, 1, 7, true)],
        vec![gcra(3, 60, 3, 0)],
        vec![denied(gcra(7, 60, 4, 2))],
        // As while n and burst change.
        vec![gcra(1, 60, 9, 0)],
        vec![denied(gcra(1_000, 60, 2, 1))],
        vec![gcra(3_000_017, 60, 3, 0)],
        vec![denied(concurrency(3, None))],
        vec![held()],
        vec![fixed(2, 1), fixed(5, 60), log(6, 10), gcra(10, 60, 5, 0)],
        vec![log(3, 5), shadow(log(4, 60)), sliding(9, 60), log(6, 60)],
        vec![held(), fixed(5, 60), log(4, 10)],
        vec![fixed(4, 60), denied(token(5, 1, 3, false)), bucketed(7, 30, 3), calendar(9)],
        vec![gcra(0, 60, 5, 0), shadow(sliding(2, 10))],
        vec![log(100, 60), denied(bucketed(50, 600, 60)), shadow(token(2, 1, 2, true))],
        vec![fixed(2, 1), fixed(5, 60), denied(fixed(9, 3_600))],
        vec![fixed(4, 10), shadow(fixed(2, 1)), fixed(u32::MAX, 100 * YEAR)],
        // Nothing is allowed.
        vec![fixed(0, 60)],
        vec![denied(sliding(0, 60))],
        // Not of the shape of a plan above, whose states would expire by that plan's refill.
        vec![denied(token(4, 0, 11, false))],
        vec![denied(gcra(0, 60, 5, 3))],
        vec![denied(concurrency(0, None))],
        vec![Limit { requests_per_unit: 0, ..held() }],
        vec![denied(fixed(0, 1)), fixed(5, 60), shadow(denied(bucketed(0, 60, 6)))],
        vec![fixed(5, 60), shadow(log(0, 10)), denied(calendar(0))],
        // The longest and the largest.
        vec![gcra(1, YEAR, 100, 0)],
        vec![denied(gcra(7, YEAR, 1_000, 1_000))],
        vec![denied(gcra(10_007, YEAR, 1_000_000, 1_000_000)), denied(fixed(u32::MAX, 100 * YEAR))],
        vec![sliding(3, 100 * YEAR)],
        vec![denied(token(u32::MAX, u32::MAX, 100 * YEAR, false))],
        vec![denied(sliding(u32::MAX, 1)), bucketed(u32::MAX, 100 * YEAR, 3_600)],
        vec![fixed(u32::MAX, 100 * YEAR)],
    ]
    .map(|limits| Plan::new(per_second(limits)).with_near_limit_ratio(Some(0.5)));
    // These continue each other's states.
    let shared = [
        continuing(3, 60, 3),
        continuing(7, 61, 5),
        continuing(1_000_003, 1, 4),
        continuing(1, YEAR, 142),
    ]
    .map(|limit| Plan::with_shape(limit, "cell"));
    let ban = |after, within, lengths: &[u64], forget| Ban {
        after,
        within: within * s,
        lengths: lengths.iter().map(|length| length * s).collect(),
        forget: forget * s,
    };
    let banning =
        |limits, ban| Plan::new(per_second(limits)).with_near_limit_ratio(Some(0.5)).with_ban(ban);
    let minute = banning(vec![denied(fixed(2, 60))], ban(2, 30, &[20, 30], 3));
    let several = || vec![fixed(2, 1), log(4, 60), shadow(fixed(1, 60)), bucketed(6, 60, 6)];
    let login = banning(several(), ban(2, 60, &[1, 10, 90], 100));
    let banning = [
        // As a control changes them.
        Plan::new(per_second(vec![denied(fixed(1, 60))])).with_bans_of(&minute),
        Plan::new(per_second(several())).with_bans_of(&login),
        minute,
        login,
        // Of the shape of those, with other numbers. A store forgets what the numbers of the last charge forget.
        banning(vec![denied(fixed(3, 60))], ban(1, 30, &[5, 40], 3)),
        banning(several(), ban(1, 60, &[60, 70], 100)),
        banning(vec![gcra(3, 60, 3, 0)], ban(3, 9, &[2, 4, 8, 16], 60)),
        banning(vec![denied(token(3, 1, 7, true))], ban(1, 1, &[1], 0)),
        banning(vec![concurrency(2, None), sliding(2, 10)], ban(1, 60, &[7], 0)),
        banning(vec![held(), fixed(2, 60)], ban(2, 100 * YEAR, &[100 * YEAR], 0)),
    ];
    let mut plans = each_alone.into_iter().chain(shared).chain(banning).map(Arc::new);
    std::array::from_fn(|_| plans.next().unwrap())
}

/// Lets a store with a second one keep the states of about every other shape there, whatever its periods.
fn per_second(limits: Vec<Limit>) -> Vec<Limit> {
    let unit = (Plan::new(limits.clone()).limit_id(0).is_multiple_of(2)).then_some(Unit::Second);
    limits.into_iter().map(|limit| Limit { unit, ..limit }).collect()
}
