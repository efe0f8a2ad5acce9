//! States that are read and reset, and hits that are granted.

use std::sync::Arc;

use super::charges::{charge, plan, try_read, try_reset};
use super::reservations;
use crate::charge::{Charge, Key, Role};
use crate::states::States;
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{
    Algorithm, Ban, BucketedWindow, Calendar, Concurrency, CountError, FixedWindow, Gcra, KeyState,
    Limit, Micros, Op, Plan, SECOND, SlidingLog, SlidingWindow, State, TokenBucket, Unit,
};

/// Runs all of the suite about states.
pub async fn conforms(store: &impl States, clock: &ManualClock) {
    reads_what_was_charged(store, clock).await;
    reading_changes_nothing(store, clock).await;
    a_reset_key_starts_over_and_no_other(store).await;
    counts_over_spans(store, clock).await;
    reservations::states_conform(store, clock).await;
    super::bans::reads_and_resets(store, clock).await;
    super::grants::conforms(store, clock).await;
}

/// Plans of every form of a state.
pub fn plans() -> Vec<Arc<Plan>> {
    let (n, s) = (5, SECOND);
    let minute = Limit::fixed_window(n, Unit::Minute, 1).unwrap();
    let with = |algorithm| Limit { charge_denied: false, algorithm, ..minute.clone() };
    let calendar = Calendar::new(Unit::Day, "Europe/Berlin").map(Arc::new).ok();
    let day = FixedWindow { n, period: 86_400 * s, calendar };
    let log = |n, seconds| with(Algorithm::SlidingLog(SlidingLog { n, period: seconds * s }));
    let ring = || with(Algorithm::BucketedWindow(BucketedWindow { n, period: 60 * s, buckets: 6 }));
    let strict = true;
    let bucket = TokenBucket { capacity: n, amount: 2, interval: 9 * s, strict, max_debt: 3 };
    let gcra = || with(Algorithm::Gcra(Gcra::new(n, 60 * s, 4, 0).unwrap()));
    let held = |hold_id: Option<&str>| {
        let hold_id = hold_id.map(Into::into);
        with(Algorithm::Concurrency(Concurrency { n, timeout: 50 * s, hold_id }))
    };
    let shadow = |limit| Limit { shadow_mode: true, ..limit };
    let lengths = [30 * s, 90 * s].into();
    let ban = Ban { after: 1, within: 60 * s, lengths, forget: 600 * s };
    let of_three = Limit::fixed_window(3, Unit::Minute, 1).unwrap();
    let banning = Plan::new(vec![of_three]).with_ban(ban);
    let plans = [
        vec![minute.clone()],
        vec![minute.clone(), Limit::fixed_window(20, Unit::Hour, 1).unwrap()],
        vec![Limit { charge_denied: true, ..with(Algorithm::FixedWindow(day)) }],
        vec![with(Algorithm::SlidingWindow(SlidingWindow { n, period: 60 * s }))],
        vec![log(n, 60)],
        vec![log(2, 10), shadow(log(9, 60)), log(6, 30)],
        vec![ring()],
        vec![with(Algorithm::TokenBucket(bucket))],
        vec![gcra()],
        vec![Limit { charge_denied: true, ..held(None) }],
        vec![held(Some("id"))],
        vec![held(Some("id")), ring(), log(n, 60)],
        vec![ring(), gcra(), log(8, 60)],
        vec![Limit { requests_per_unit: 0, ..gcra() }],
    ]
    .map(Plan::new);
    plans.into_iter().chain([banning]).map(Arc::new).collect()
}

/// Spans within every period, beyond some, and none.
const SPANS: [Micros; 6] = [0, 1, 10 * SECOND, 29 * SECOND, 60 * SECOND, 61 * SECOND];

/// A state and its key, charged in the store and in a model.
struct Mirrored<'a> {
    key: Key<'a>,
    plan: &'a Arc<Plan>,
    model: State,
}

impl Mirrored<'_> {
    async fn charge(&mut self, store: &impl States, now: Micros, op: Op, id: &str) {
        let (key, plan, hold) = (self.key, self.plan, self.plan.hold_id().map(|_| id));
        let one = Charge { key, plan, op, hold, role: Role::Enforced };
        let expected = plan.charge(&mut self.model, now, op, hold).decision;
        assert_eq!(charge(store, &[one], false).await, [expected], "{plan:?}");
    }

    fn expected(&self, now: Micros) -> KeyState {
        self.plan.inspect(&self.model, now, &SPANS)
    }
}

/// A state reads as the arithmetic of plans says: unused, used, over its limit, partly or all expired,
/// refunded, and after a clock stepped back.
pub async fn reads_what_was_charged(store: &impl States, clock: &ManualClock) {
    let before = clock.now();
    for (i, plan) in plans().iter().enumerate() {
        let value = i.to_string();
        let entries = [("case", "read"), ("key", value.as_str())];
        let key = Key { domain: "states", entries: &entries };
        let mut state = Mirrored { key, plan, model: State::default() };
        let ops = [
            (0, None),
            (0, Some(Op::Take(2))),
            (9_999_999, Some(Op::Take(1))),
            (SECOND, Some(Op::Take(4))),
            (20 * SECOND, Some(Op::Take(2))),
            (0, Some(Op::Take(2))),
            (7, Some(Op::Refund(1))),
            (25 * SECOND, None),
            (14 * SECOND, Some(Op::Take(3))),
            (3_600 * SECOND, None),
            (1, Some(Op::Take(1))),
            (86_400 * SECOND, None),
        ];
        for (id, (pass, op)) in ops.into_iter().enumerate() {
            clock.advance(pass);
            let now = clock.now();
            if let Some(op) = op {
                let id = if op.returns_hits() { 4 } else { id };
                state.charge(store, now, op, &id.to_string()).await;
            }
            let read = try_read(store, key, plan, &SPANS).await;
            assert_eq!(read, Ok(state.expected(now)), "{id}: {plan:?}");
        }
        let read = try_read(store, key, plan, &[]).await.unwrap();
        assert!(read.limits.iter().all(|limit| limit.used == 0), "{plan:?}");
        // Back by less than a period, and by more.
        state.charge(store, clock.now(), Op::Take(2), "late").await;
        for back in [5 * SECOND, 90 * 86_400 * SECOND] {
            clock.step(-back.cast_signed());
            let read = try_read(store, key, plan, &SPANS).await;
            assert_eq!(read, Ok(state.expected(clock.now())), "{back}: {plan:?}");
        }
        clock.set(before);
    }
}

/// Decisions are the same whether states are read in between or not, and reading creates no state.
pub async fn reading_changes_nothing(store: &impl States, clock: &ManualClock) {
    for (i, plan) in plans().iter().enumerate() {
        let value = i.to_string();
        let entries = [("case", "unchanged"), ("key", value.as_str())];
        let key = Key { domain: "states", entries: &entries };
        let mut state = Mirrored { key, plan, model: State::default() };
        for (id, pass) in [0, 0, 3, 11 * SECOND, SECOND, 0, 59 * SECOND].into_iter().enumerate() {
            clock.advance(pass);
            let reads = [
                try_read(store, key, plan, &SPANS).await,
                try_read(store, key, plan, &SPANS).await,
            ];
            assert_eq!(reads[0], reads[1], "{plan:?}");
            state.charge(store, clock.now(), Op::Take(1), &id.to_string()).await;
        }
    }
}

/// A key that is reset counts from zero; keys beside it, and its counts of another shape, stay.
pub async fn a_reset_key_starts_over_and_no_other(store: &impl States) {
    let other = plan(9, Unit::Year);
    for (i, plan) in plans().iter().enumerate() {
        let (value, beside) = (i.to_string(), format!("{i}_"));
        let entries = [[("key", value.as_str())], [("key", beside.as_str())]];
        let keys = entries.each_ref().map(|entries| Key { domain: "reset", entries });
        let take = async |key, plan: &Arc<Plan>, id| {
            let hold = plan.hold_id().map(|_| id);
            let one = Charge { key, plan, op: Op::Take(2), hold, role: Role::Enforced };
            charge(store, &[one], false).await.swap_remove(0)
        };
        let used = async |key, plan| {
            let read = try_read(store, key, plan, &[]).await.unwrap();
            read.limits.iter().map(|limit| limit.used).collect::<Vec<_>>()
        };
        let first = take(keys[0], plan, "a").await;
        take(keys[1], plan, "a").await;
        take(keys[0], &other, "a").await;
        let before = [used(keys[1], plan).await, used(keys[0], &other).await];
        for id in ["b", "c"] {
            take(keys[0], plan, id).await;
            // A key without a state is reset too.
            for _ in 0..2 {
                assert_eq!(try_reset(store, keys[0], plan).await, Ok(()));
                let unused = plan.limits().iter().map(|_| 0).collect::<Vec<_>>();
                assert_eq!(used(keys[0], plan).await, unused, "{plan:?}");
                let read = try_read(store, keys[0], plan, &[]).await.unwrap();
                assert!(read.ban.is_none_or(|ban| ban.ends_in == 0), "{plan:?}");
            }
            assert_eq!(take(keys[0], plan, id).await, first, "{plan:?}");
        }
        assert_eq!([used(keys[1], plan).await, used(keys[0], &other).await], before);
    }
}

/// Logs count exactly, rings by sub-windows, idle ones count zero; and nothing else counts.
pub async fn counts_over_spans(store: &impl States, clock: &ManualClock) {
    let hour = 3_600 * SECOND;
    // Aligned, so that the sub-windows below are.
    clock.set(clock.now().next_multiple_of(hour));
    let with = |algorithm| {
        let limit = Limit::fixed_window(1_000, Unit::Hour, 1).unwrap();
        Arc::new(Plan::new(vec![Limit { charge_denied: false, algorithm, ..limit }]))
    };
    let ring =
        with(Algorithm::BucketedWindow(BucketedWindow { n: 1_000, period: hour, buckets: 60 }));
    let log = with(Algorithm::SlidingLog(SlidingLog { n: 1_000, period: hour }));
    let key = |plan: &Arc<Plan>| {
        let entries: &[_] = if Arc::ptr_eq(plan, &ring) { &[("by", "r")] } else { &[("by", "l")] };
        Key { domain: "counts", entries }
    };
    let take = async |hits| {
        for plan in [&ring, &log] {
            let (key, op, role) = (key(plan), Op::Take(hits), Role::Enforced);
            let one = Charge { key, plan, op, hold: None, role };
            assert!(charge(store, &[one], false).await[0].allowed);
        }
    };
    let minutes = [60 * SECOND, 300 * SECOND, hour];
    let counts = async |plan, spans: &[Micros]| {
        let read = try_read(store, key(plan), plan, spans).await.unwrap();
        let count = |count: Result<_, CountError>| count.map(|it: weir_limit::SpanCount| it.count);
        read.counts.into_iter().map(count).collect::<Result<Vec<_>, _>>()
    };
    take(1).await;
    clock.advance(90 * SECOND);
    take(10).await;
    clock.advance(29 * SECOND);
    take(100).await;
    assert_eq!(counts(&log, &minutes).await, Ok(vec![110, 111, 111]));
    // It is the last second of the second minute, so the span reaches into the first.
    assert_eq!(counts(&ring, &minutes).await, Ok(vec![111, 111, 111]));
    clock.advance(SECOND);
    // At the start of the third minute the first has left the span, and all of the second is in it.
    assert_eq!(counts(&log, &minutes).await, Ok(vec![110, 111, 111]));
    assert_eq!(counts(&ring, &minutes).await, Ok(vec![110, 111, 111]));
    clock.advance(31 * SECOND);
    // The ten came 61 s ago: they count until their sub-window has left the span.
    assert_eq!(counts(&log, &minutes).await, Ok(vec![100, 111, 111]));
    assert_eq!(counts(&ring, &minutes).await, Ok(vec![110, 111, 111]));
    clock.advance(29 * SECOND - 1);
    assert_eq!(counts(&ring, &minutes).await, Ok(vec![0, 111, 111]));
    // One lap of the ring, and many.
    for idle in [hour + 60 * SECOND, 25 * hour, 400 * 24 * hour] {
        clock.advance(idle);
        assert_eq!(counts(&log, &minutes).await, Ok(vec![0; 3]));
        assert_eq!(counts(&ring, &minutes).await, Ok(vec![0; 3]));
        take(3).await;
        assert_eq!(counts(&ring, &minutes).await, Ok(vec![3; 3]));
    }
    for plan in [&ring, &log] {
        let (span, longest) = (hour + 1, hour);
        assert_eq!(counts(plan, &[span]).await, Err(CountError::TooLong { span, longest }));
        assert_eq!(counts(plan, &[0]).await, Err(CountError::Zero));
    }
    let lone = plan(5, Unit::Hour);
    let read = try_read(store, key(&lone), &lone, &[1]).await.unwrap();
    assert_eq!(read.counts, [Err(CountError::NoTimes("fixed_window".to_owned()))]);
}
