//! Random schedules of reservations.

use std::num::NonZeroU16;
use std::sync::Arc;

use super::charges::of;
use super::ledger::{Answer, Ledger};
use crate::charge::{Charge, Key, Role};
use crate::conformance::charges::charge;
use crate::states::StateKey;
use crate::store::Store;
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{
    Algorithm, BucketedWindow, Calendar, FixedWindow, Limit, Micros, Op, Otherwise, Plan,
    ReservationOp, ReservationResult, Reserve, SECOND, SlidingWindow, Unit,
};

const KEYS: usize = 2;
const IDS: usize = 3;
const MINUTE: Micros = 60 * SECOND;

/// Less than each period and interval: after a longer step states are moved, which a store need not keep of an
/// operation that charges nothing.
const MAX_STEP_BACK: Micros = 6 * SECOND;

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    /// Returns a number below `end`, by splitmix64.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    fn reserve(&mut self) -> Reserve {
        let least = 1 + self.below(3) as u32;
        let timeout = [20, 60, 3_600][self.below(3) as usize];
        Reserve { least, most: least + self.below(7) as u32, timeout }
    }

    fn op(&mut self) -> Op {
        let hits = self.below(9) as u32;
        Op::Reservation(match self.below(20) {
            0 | 1 => return Op::Take(0),
            2 | 3 => return Op::Take(1 + self.below(4)),
            4..9 => ReservationOp::Reserve { reserve: self.reserve(), once: None },
            9 => {
                let once = NonZeroU16::new(1 + hits as u16 % 2);
                ReservationOp::Reserve { reserve: self.reserve(), once }
            }
            10..14 => ReservationOp::settle(hits),
            14 => ReservationOp::Settle { used: hits, otherwise: Otherwise::Nothing },
            it @ 15..18 => {
                let otherwise = Otherwise::Reserve(self.reserve());
                ReservationOp::Settle { used: if it < 17 { 0 } else { hits }, otherwise }
            }
            _ => ReservationOp::Cancel(hits),
        })
    }

    /// Returns how much time passes; less than nothing if the clock steps back, which it does most often
    /// soon after a window has started.
    fn pass(&mut self, now: Micros, steps_back: bool) -> i64 {
        let is_new = now % MINUTE < SECOND;
        if steps_back && self.below(if is_new { 3 } else { 20 }) == 0 {
            return -(self.below(MAX_STEP_BACK).cast_signed());
        }
        let most = match self.below(20) {
            0..8 => 1,
            8..12 => SECOND,
            12..15 => 20 * SECOND,
            15 | 16 => 90 * SECOND,
            17 => 200 * SECOND,
            _ => return (MINUTE - now % MINUTE + self.below(SECOND)).cast_signed(),
        };
        self.below(most).cast_signed()
    }
}

/// The plans of the schedules. Windows of a month are the calendar's.
fn plans() -> Vec<Arc<Plan>> {
    let month = |n| {
        let calendar = Some(Arc::new(billing_month()));
        let period = Unit::Month.period(1).expect("a period");
        of(n, Algorithm::FixedWindow(FixedWindow { n, period, calendar }))
    };
    let fixed =
        |n| of(n, Algorithm::FixedWindow(FixedWindow { n, period: MINUTE, calendar: None }));
    let sliding = |n| of(n, Algorithm::SlidingWindow(SlidingWindow { n, period: MINUTE }));
    let bucketed = |n| {
        let window = BucketedWindow { n, period: MINUTE, buckets: 7 };
        of(n, Algorithm::BucketedWindow(window))
    };
    // Takes that are denied are charged; reservations never are.
    let denied = |limit| Limit { charge_denied: true, ..limit };
    let shadow = |limit| Limit { shadow_mode: true, ..limit };
    [
        vec![fixed(15)],
        vec![month(40)],
        vec![sliding(15)],
        vec![bucketed(15)],
        vec![denied(fixed(15))],
        vec![denied(month(40))],
        vec![denied(sliding(15))],
        vec![shadow(fixed(9))],
        vec![shadow(denied(fixed(9)))],
        vec![month(60), sliding(15)],
        vec![fixed(20), shadow(sliding(6))],
        vec![denied(sliding(15)), shadow(denied(bucketed(6)))],
        vec![denied(fixed(20)), month(90), bucketed(20)],
    ]
    .map(|limits| Arc::new(Plan::new(limits)))
    .into()
}

/// One charge of a batch, by indices of key and id.
#[derive(Clone, Debug)]
struct Asked {
    key: usize,
    id: usize,
    op: Op,
}

/// What is expected of a store, for one plan.
struct Schedule<'a> {
    plan: &'a Arc<Plan>,
    domain: String,
    random: Random,
    ledgers: Vec<Ledger>,
    /// The names of keys and ids. Those of which a store may know or not that they have expired, after the
    /// clock stepped back, are replaced.
    keys: Vec<String>,
    ids: Vec<String>,
    names: usize,
    /// The latest time that the clock has shown.
    latest: Micros,
    /// Whether batches are charged together.
    together: bool,
}

/// Random schedules are answered, and count, as the ledger says. `used` returns what the limits of a key
/// have counted, if that can be read. `steps_back`: whether the clock does.
pub(super) async fn agrees(
    store: &impl Store,
    clock: &ManualClock,
    (domain, steps): (&str, usize),
    steps_back: bool,
    used: impl AsyncFn(StateKey<'_>) -> Option<Vec<u64>>,
) {
    let plans = plans();
    let cases = plans.iter().flat_map(|plan| [(plan, false), (plan, true)]);
    for (i, (plan, together)) in cases.enumerate() {
        set_before_the_end_of_a_month(clock);
        let seed = i as u64 / 2;
        let mut schedule = Schedule::new(plan, format!("{domain}-{i}"), seed, together);
        for step in 0..steps / 2 {
            let pass = schedule.random.pass(clock.now(), steps_back);
            if pass < 0 {
                schedule.step_back(store, clock, pass).await;
            } else {
                clock.step(pass);
            }
            let is_behind = clock.now() < schedule.latest;
            // Together only while it is not: a store may have forgotten what was before.
            if together && is_behind {
                continue;
            }
            let asked = schedule.batch(clock.now());
            let expected = schedule.expected(&asked, clock.now());
            let actual = schedule.charge(store, &asked).await;
            assert_eq!(actual, expected, "{step} of {plan:?}, {together}: {asked:?}");
            let at = asked[0].key;
            let entries = [("key", schedule.keys[at].as_str())];
            let key = Key { domain: &schedule.domain, entries: &entries };
            if let Some(used) = used(StateKey { key, plan, together, id: None }).await {
                let expected = schedule.ledgers[at].used(clock.now());
                assert_eq!(used, expected, "{step} of {plan:?}: {asked:?}");
            }
            // A store may forget a state that counts nothing, and with it that its window is ahead.
            if is_behind && schedule.ledgers[at].used(clock.now()).iter().all(|used| *used == 0) {
                schedule.rename(store, at).await;
            }
        }
        for key in 0..KEYS {
            schedule.close(store, key).await;
        }
    }
}

/// A month from the fifteenth.
fn billing_month() -> Calendar {
    let month = Calendar::new(Unit::Month, "Europe/Vienna").ok();
    month.and_then(|month| month.starting("15")).expect("a calendar")
}

fn set_before_the_end_of_a_month(clock: &ManualClock) {
    let (_, end) = billing_month().window(clock.now() + 10 * MINUTE);
    clock.set(end - 3 * MINUTE + 123_456);
}

impl<'a> Schedule<'a> {
    fn new(plan: &'a Arc<Plan>, domain: String, seed: u64, together: bool) -> Schedule<'a> {
        let names = |kind, count| (0..count).map(|i| format!("{kind}{i}")).collect();
        Schedule {
            plan,
            domain,
            random: Random(seed),
            ledgers: vec![Ledger::new(plan); KEYS],
            keys: names("key", KEYS),
            ids: names("id", IDS),
            names: KEYS.max(IDS),
            latest: 0,
            together,
        }
    }

    fn batch(&mut self, now: Micros) -> Vec<Asked> {
        self.latest = self.latest.max(now);
        let most = if now < self.latest { 1 } else { 3 };
        let count = 1 + self.random.below(most);
        let asked = |_| {
            let (key, id) = (self.random.below(KEYS as u64), self.random.below(IDS as u64));
            Asked { key: key as usize, id: id as usize, op: self.random.op() }
        };
        let mut batch: Vec<Asked> = (0..count).map(asked).collect();
        for at in (1..batch.len()).filter(|_| self.together) {
            let (before, asked) = (&batch[..at], &batch[at]);
            // Where the batch is denied, it would settle what was not reserved.
            if before.iter().any(|it| (it.key, it.id) == (asked.key, asked.id)) {
                batch[at].op = Op::Take(0);
            }
        }
        batch
    }

    /// Makes a batch in the ledgers.
    fn expected(&mut self, batch: &[Asked], now: Micros) -> Vec<Answer> {
        let before = self.ledgers.clone();
        let mut make =
            |asked: &Asked| self.ledgers[asked.key].make(now, asked.op, &self.ids[asked.id]);
        let answers: Vec<Answer> = batch.iter().map(&mut make).collect();
        if self.together && answers.iter().any(|answer| !answer.allowed) {
            self.ledgers = before;
            for (asked, answer) in batch.iter().zip(&answers) {
                let ledger = &mut self.ledgers[asked.key];
                ledger.charged_all = None;
                let settled = answer.reservation == ReservationResult::Settled;
                if asked.op.is_unconditional() || settled {
                    ledger.make(now, asked.op, &self.ids[asked.id]);
                }
            }
        }
        answers
    }

    async fn charge(&self, store: &impl Store, batch: &[Asked]) -> Vec<Answer> {
        let entries: Vec<_> = self.keys.iter().map(|key| [("key", key.as_str())]).collect();
        let charge_of = |asked: &Asked| Charge {
            key: Key { domain: &self.domain, entries: &entries[asked.key] },
            plan: self.plan,
            op: asked.op,
            hold: matches!(asked.op, Op::Reservation(_)).then_some(&*self.ids[asked.id]),
            role: Role::Enforced,
        };
        let charges: Vec<Charge<'_>> = batch.iter().map(charge_of).collect();
        charge(store, &charges, self.together).await.iter().map(Answer::of).collect()
    }

    /// Lets the clock step back. Keys whose state is not of this time, and ids that have lapsed, begin
    /// under new names: a store may have forgotten them.
    async fn step_back(&mut self, store: &impl Store, clock: &ManualClock, step: i64) {
        let now = clock.now();
        for key in 0..KEYS {
            if self.ledgers[key].charged_all != Some(now) {
                self.rename(store, key).await;
            }
        }
        for id in &mut self.ids {
            let has_lapsed = |ledger: &Ledger| {
                ledger.open().any(|(open, _)| open == id) && !ledger.is_open(now, id)
            };
            if self.ledgers.iter().any(has_lapsed) {
                self.names += 1;
                *id = format!("id{}", self.names);
            }
        }
        clock.step(step);
    }

    /// Starts over with a new name for a key.
    async fn rename(&mut self, store: &impl Store, key: usize) {
        self.close(store, key).await;
        self.names += 1;
        self.keys[key] = format!("key{}", self.names);
        self.ledgers[key] = Ledger::new(self.plan);
    }

    /// Removes what ids of a key have reserved, so that they do not add up in the store.
    async fn close(&self, store: &impl Store, key: usize) {
        let entries = [("key", self.keys[key].as_str())];
        for (id, count) in self.ledgers[key].open() {
            let cancel = Charge {
                key: Key { domain: &self.domain, entries: &entries },
                plan: self.plan,
                op: Op::Reservation(ReservationOp::Cancel(u32::MAX)),
                hold: Some(id),
                role: Role::Enforced,
            };
            charge(store, &vec![cancel; count as usize], self.together).await;
        }
    }
}
