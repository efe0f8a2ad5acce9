//! Bans: the strikes of a key, its ban, and what works during one.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::charges::{charge, take, try_read, try_reset};
use crate::charge::{Charge, Key, Role};
use crate::states::States;
use crate::store::Store;
use weir_common::clock::ManualClock;
use weir_limit::{
    Ban, Decision, Limit, Micros, Op, Plan, ReservationOp, ReservationResult, Reserve, SECOND,
    Unit, UpTo,
};

const MINUTE: Micros = 60 * SECOND;

/// A lone window of `n` a minute; with two strikes in ten minutes a key is banned for a second, then for an hour.
fn plan(n: u32) -> Plan {
    let lengths = [SECOND, 60 * MINUTE].into();
    let ban = Ban { after: 2, within: 10 * MINUTE, lengths, forget: 600 * MINUTE };
    Plan::new(Limit::fixed_window(n, Unit::Minute, 1).into_iter().collect()).with_ban(ban)
}

/// Runs all of the suite about bans.
pub async fn conforms(store: &impl Store, clock: &ManualClock) {
    bans_end_to_the_microsecond(store, clock).await;
    strikes_and_rows_end_to_the_microsecond(store, clock).await;
    denied_reservations_are_strikes(store, clock).await;
    a_control_counts_no_strikes_and_obeys_bans(store).await;
    other_keys_and_other_numbers(store, clock).await;
}

/// A ban begins with the last strike, denies all that asks, and ends at its instant.
async fn bans_end_to_the_microsecond(store: &impl Store, clock: &ManualClock) {
    let plan = Arc::new(plan(3));
    let take = async |hits| take(store, "bans", "a", &plan, hits).await;
    for length in [SECOND, 60 * MINUTE, 60 * MINUTE] {
        assert!(take(3).await.allowed);
        let first = take(1).await;
        assert_eq!((first.allowed, first.banned), (false, false));
        // One strike for each request, whatever its hits.
        let second = take(900).await;
        assert_eq!((second.banned, second.ban_begins), (true, true));
        assert_eq!(second.retry_after, Some(length));
        for (pass, hits) in [(0, 1), (0, 0), (length - 1, 1), (0, 0), (0, u64::MAX)] {
            clock.advance(pass);
            let denied = take(hits).await;
            assert_eq!((denied.allowed, denied.banned, denied.ban_begins), (false, true, false));
            assert_eq!((denied.remaining, denied.limit), (0, 0));
            assert_eq!(denied.retry_after, Some(denied.reset_after));
        }
        assert_eq!(take(0).await.retry_after, Some(1));
        clock.advance(1);
        let after = take(0).await;
        assert!(!after.banned);
        // Denied hits were charged before the ban, and none during it.
        clock.advance(MINUTE);
    }
    // The row ends once it is forgotten.
    clock.advance(600 * MINUTE);
    assert!(!take(4).await.banned);
    assert_eq!(take(1).await.retry_after, Some(SECOND));
}

/// The second of two strikes bans until `within` after the first one. Lengths start over `forget` after a ban.
async fn strikes_and_rows_end_to_the_microsecond(store: &impl Store, clock: &ManualClock) {
    let plan = Arc::new(plan(3));
    for (edge, begins) in [(1, true), (0, false)] {
        let value = format!("within-{edge}");
        let take = async || take(store, "ban-edges", &value, &plan, 9).await;
        take().await;
        clock.advance(10 * MINUTE - edge);
        assert_eq!(take().await.ban_begins, begins, "{edge}");
    }
    for (edge, length) in [(1, 60 * MINUTE), (0, SECOND)] {
        let value = format!("forget-{edge}");
        let take = async || take(store, "ban-edges", &value, &plan, 9).await;
        take().await;
        assert_eq!(take().await.retry_after, Some(SECOND));
        clock.advance(SECOND + 600 * MINUTE - edge);
        take().await;
        assert_eq!(take().await.retry_after, Some(length), "{edge}");
    }
}

/// A reservation that is denied is a strike, also where nothing was counted before; a settlement is none.
async fn denied_reservations_are_strikes(store: &impl Store, clock: &ManualClock) {
    let plan = Arc::new(plan(10));
    let make = async |id: &str, op: ReservationOp| -> Decision {
        let key = Key { domain: "ban-reserve", entries: &[("key", "a")] };
        let op = Op::Reservation(op);
        let one = Charge { key, plan: &plan, op, hold: Some(id), role: Role::Enforced };
        charge(store, &[one], false).await.swap_remove(0)
    };
    let reserve = |least| {
        let reserve = Reserve { least, most: least, timeout: 3_600 };
        ReservationOp::Reserve { reserve, once: None }
    };
    assert_eq!(make("one", reserve(4)).await.reservation, ReservationResult::Reserved);
    assert!(!make("two", reserve(11)).await.banned);
    assert!(make("one", ReservationOp::settle(90)).await.allowed);
    let denied = make("two", reserve(1)).await;
    assert!(denied.ban_begins, "{denied:?}");
    assert!(make("three", reserve(1)).await.banned);
    clock.advance(MINUTE);
    assert_eq!(make("one", reserve(4)).await.reservation, ReservationResult::Reserved);
    assert!(!make("two", reserve(11)).await.banned);
    assert!(make("two", reserve(11)).await.ban_begins);
    // What was reserved before stays, and can be settled.
    let settled = make("one", ReservationOp::settle(1)).await;
    assert_eq!((settled.allowed, settled.reservation), (true, ReservationResult::Settled));
    assert!(make("one", reserve(1)).await.banned);
}

/// Denials by the plan of a control are no strikes; a ban of the rule holds for it, too.
async fn a_control_counts_no_strikes_and_obeys_bans(store: &impl Store) {
    let rule = Arc::new(plan(3));
    let limits = Limit::fixed_window(1, Unit::Minute, 1).into_iter().collect();
    let control = Arc::new(Plan::new(limits).with_bans_of(&rule));
    let take = async |plan, hits| take(store, "ban-control", "a", plan, hits).await;
    for plan in [&control, rule.without_strikes()] {
        for _ in 0..5 {
            assert!(!take(plan, 9).await.banned);
        }
    }
    take(&rule, 1).await;
    assert!(take(&rule, 1).await.ban_begins);
    for plan in [&control, rule.without_strikes()] {
        assert!(take(plan, 0).await.banned);
    }
}

/// Keys are banned one by one. Other numbers keep strikes and bans; what asks for nothing goes on.
async fn other_keys_and_other_numbers(store: &impl Store, clock: &ManualClock) {
    let (few, more) = (Arc::new(plan(1)), Arc::new(plan(2)));
    let of = async |value: &str, plan: &Arc<Plan>, op| {
        let entries = [("key", value)];
        let key = Key { domain: "ban-numbers", entries: &entries };
        let one = Charge { key, plan, op, hold: None, role: Role::Enforced };
        charge(store, &[one], false).await.swap_remove(0)
    };
    assert!(!of("a", &few, Op::Take(3)).await.banned);
    assert!(of("a", &more, Op::Take(1)).await.ban_begins);
    assert!(of("a", &few, Op::Take(1)).await.banned);
    assert!(of("b", &few, Op::Take(1)).await.allowed);
    let add = of("a", &few, Op::Add { hits: 1, limits: u16::MAX }).await;
    assert!(add.allowed && of("a", &few, Op::Refund(9)).await.allowed);
    let share = NonZeroU32::MIN;
    let granted = of("a", &more, Op::UpTo(UpTo { least: 0, most: 2, share })).await;
    assert_eq!((granted.allowed, granted.granted), (true, 0));
    assert!(of("a", &more, Op::UpTo(UpTo { least: 1, most: 2, share })).await.banned);
    clock.advance(SECOND);
    assert!(of("a", &more, Op::Take(2)).await.allowed, "the refund counted");
}

/// A reading tells strikes and bans; a reset ends both.
pub async fn reads_and_resets(store: &impl States, clock: &ManualClock) {
    let plan = Arc::new(plan(1));
    let key = Key { domain: "ban-state", entries: &[("key", "a")] };
    let take = async |hits| take(store, "ban-state", "a", &plan, hits).await;
    let read = async || try_read(store, key, &plan, &[]).await.unwrap().ban.unwrap();
    assert_eq!((read().await.strikes, read().await.bans), (0, 0));
    take(2).await;
    clock.advance(5);
    let struck = read().await;
    assert_eq!((struck.strikes, struck.after, struck.since, struck.ends_in), (1, 2, 5, 0));
    assert!(take(1).await.ban_begins);
    clock.advance(7);
    let banned = read().await;
    assert_eq!((banned.strikes, banned.bans, banned.since), (0, 1, 12));
    assert_eq!(banned.ends_in, SECOND - 7);
    try_reset(store, key, &plan).await.unwrap();
    assert_eq!((read().await.bans, read().await.ends_in), (0, 0));
    assert!(take(1).await.allowed);
}
