//! A model of the bucket of `RL.REDUCE`, to compare stores with: its formula as it is written, in
//! integers that never overflow. Tests of the stores and of the Redis protocol include this file.

use std::collections::HashMap;

use proptest::prelude::*;

use weir_common::clock::{Clock, ManualClock};
use weir_limit::{Micros, ReduceBucket, SECOND};

/// Time passes, then some charges of one bucket are made.
#[derive(Clone, Debug)]
pub struct Step {
    /// In microseconds; the clock may step back.
    pass: i64,
    key: usize,
    /// The index of the bucket among those of the schedule.
    bucket: usize,
    strict: bool,
    at: Option<At>,
    /// The tokens that each charge takes.
    pub takes: Vec<u64>,
}

/// A caller's time.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Relative to the store's, in thousandths of the bucket's interval.
    Near(i64),
    Exactly(u64),
}

/// `max`, `refill` and `interval` of a bucket.
type Numbers = (u32, u32, u64);

/// The buckets of a schedule, and its steps.
pub type Schedule = (Vec<Numbers>, Vec<Step>);

const KEYS: [&str; 2] = ["a", "b"];

/// The longest interval that milliseconds in an integer of Redis can have.
const LONGEST: u64 = i64::MAX as u64;

/// The last instant: memory counts seconds in 32 bits.
const END: Micros = 4_000_000_000 * SECOND;

/// Random schedules over few keys and buckets. `steps_back`: whether the store's clock may step back.
pub fn schedules(steps_back: bool) -> impl Strategy<Value = Schedule> {
    let tokens = || {
        prop_oneof![
            6 => 1_u32..12,
            1 => Just(1),
            1 => prop_oneof![Just(1 << 31), Just(u32::MAX - 1), Just(u32::MAX)],
            1 => 1..=u32::MAX,
        ]
    };
    let interval = prop_oneof![
        1 => Just(1_u64),
        2 => 1_u64..50,
        4 => 100_u64..20_000,
        1 => prop_oneof![Just((1 << 52) - 1), Just(1 << 52), Just(LONGEST)],
        1 => 1..=LONGEST,
    ];
    let buckets = prop::collection::vec((tokens(), tokens(), interval), 1..4);
    buckets.prop_flat_map(move |buckets| {
        let steps = prop::collection::vec(step(buckets.clone(), steps_back), 1..60);
        (Just(buckets), steps)
    })
}

fn step(buckets: Vec<Numbers>, steps_back: bool) -> impl Strategy<Value = Step> {
    (0..KEYS.len(), 0..buckets.len()).prop_flat_map(move |(key, bucket)| {
        let (max, _, interval) = buckets[bucket];
        let interval = interval.min(1 << 33).cast_signed() * 1_000;
        let back = if steps_back { -2 * interval } else { 0 };
        let pass = prop_oneof![
            3 => Just(0),
            3 => 0..interval,
            2 => 0..4 * interval,
            1 => back..=0,
            1 => 0..100 * SECOND.cast_signed(),
        ];
        let at = prop_oneof![
            4 => Just(None),
            4 => (-3_000_i64..4_000).prop_map(|thousandths| Some(At::Near(thousandths))),
            1 => prop_oneof![Just(0), Just(ReduceBucket::END - 1), 0..ReduceBucket::END]
                .prop_map(|at| Some(At::Exactly(at))),
        ];
        let take = prop_oneof![
            2 => Just(0_u64),
            6 => 1_u64..5,
            1 => (0..3_u64).prop_map(move |more| u64::from(max) - 1 + more),
            1 => prop_oneof![Just(u64::from(u32::MAX)), Just(1 << 32), Just(LONGEST)],
        ];
        (pass, prop::bool::weighted(0.3), at, prop::collection::vec(take, 1..4)).prop_map(
            move |(pass, strict, at, takes)| Step { pass, key, bucket, strict, at, takes },
        )
    })
}

/// What the model keeps for a key and a bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: i128,
    last: i128,
    /// The first second at which the key is gone, if it expires.
    gone: i128,
}

/// Returns the tokens before, and stores what `take` of them leaves.
fn reduce(
    slot: &mut Option<Bucket>,
    (max, refill, interval): Numbers,
    (take, strict, at): (u64, bool, Option<u64>),
    now: Micros,
    expires: bool,
) -> i128 {
    let (max, refill, interval) = (i128::from(max), i128::from(refill), i128::from(interval));
    let at = at.map_or(i128::from(now / 1_000), i128::from);
    let seconds = |micros: i128| (micros + 999_999).div_euclid(1_000_000);
    if expires && slot.is_some_and(|bucket| i128::from(now / SECOND) >= bucket.gone) {
        *slot = None;
    }
    let mut bucket = slot.unwrap_or(Bucket { tokens: max, last: at, gone: 0 });
    let k = ((at - bucket.last).div_euclid(interval)).max(0);
    let before = max.min(bucket.tokens + k * refill);
    bucket.last += k * interval;
    if take > 0 {
        bucket.tokens = (before - i128::from(take)).max(0);
        if strict && bucket.tokens == 0 {
            bucket.last = bucket.last.max(at);
        }
        let lifetime = (max + refill - 1) / refill * interval * 1_000;
        bucket.gone = seconds(i128::from(now) + lifetime);
        *slot = Some(bucket);
    }
    before
}

/// What a schedule has counted so far.
pub struct Model {
    slots: HashMap<(usize, Numbers), Option<Bucket>>,
    /// Whether states expire by the clock of the schedule.
    expires: bool,
}

impl Model {
    pub fn new(expires: bool) -> Model {
        Model { slots: HashMap::new(), expires }
    }

    /// Lets the time of a step pass, and makes its charges. Returns the bucket as it is charged, and the
    /// tokens before each charge.
    pub fn step(
        &mut self,
        clock: &ManualClock,
        buckets: &[Numbers],
        step: &Step,
    ) -> (ReduceBucket, Vec<i128>) {
        let limit = buckets[step.bucket];
        let (max, refill, interval) = limit;
        clock.set(clock.now().saturating_add_signed(step.pass).clamp(1, END));
        let now = clock.now();
        let at = step.at.map(|at| match at {
            At::Exactly(at) => at,
            At::Near(thousandths) => {
                let offset = i128::from(thousandths) * i128::from(interval) / 1_000;
                let at = i128::from(now / 1_000) + offset;
                u64::try_from(at.max(0)).unwrap_or(u64::MAX).min(ReduceBucket::END - 1)
            }
        });
        let slot = self.slots.entry((step.key, limit)).or_default();
        let takes = step.takes.iter();
        let charge = |&take: &u64| reduce(slot, limit, (take, step.strict, at), now, self.expires);
        let before = takes.map(charge).collect();
        (ReduceBucket { max, refill, interval, strict: step.strict, at }, before)
    }
}

impl Step {
    pub fn key(&self) -> &'static str {
        KEYS[self.key]
    }
}
