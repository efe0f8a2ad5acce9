//! A plan: all limits of one rule, checked and charged together. A store charges it with the state of a key.
//!
//! All must allow; if one denies, only limits that count denied hits are charged. The answer is that of the binding
//! limit: of those that deny the one with the longest wait, else the one with the least remaining.

mod charge;
pub(crate) mod inspect;
pub(crate) mod op;
pub(crate) mod reservation;

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use self::op::Op;
use crate::algorithm::{Hits, Packed};
use crate::algorithms::concurrency::hash_hold_id;
use crate::algorithms::reduce_bucket::ReduceBucket;
use crate::algorithms::{Algorithm, LimitState};
use crate::ban::{Ban, BanState};
use crate::decision::Decision;
use crate::hit_log::{HitLog, LogBounds};
use crate::limit::{ChargeOutcome, Fill, Limit};
use crate::saved::{self, SavedNumbers};
use crate::time::{Micros, SECOND, Unit};

/// The shortest window, or sub-window, whose hits can be granted.
const MIN_GRANTED_WINDOW: Micros = 30 * SECOND;

/// The limits of a rule, ready to be charged.
#[derive(Clone, Debug)]
pub struct Plan {
    limits: Box<[Limit]>,
    /// The most hits that each limit can allow at once; empty if that is the n of each.
    capacities: Box<[u64]>,
    /// The algorithms, periods and alignments: a part of every key, so that no state is misread.
    shape: Box<str>,
    shape_hash: u64,
    /// Whether the shape was given: then all plans of this shape continue each other's states.
    continues: bool,
    /// The bounds of the shared log, if there are sliding_log limits.
    log_bounds: Option<LogBounds>,
    concurrency: Option<u8>,
    /// The hits from which on each limit is near its n; empty if decisions do not list such limits.
    near_from: Box<[u64]>,
    near_limit_ratio: Option<f32>,
    packs: bool,
    needs_expiry: bool,
    can_lease: bool,
    ban: Option<Arc<Ban>>,
    /// The same plan, but no denial is a strike (counts towards a ban); none where that is so already.
    without_strikes: Option<Arc<Plan>>,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Plan) -> bool {
        self.limits == other.limits
            && self.ban == other.ban
            && self.without_strikes.is_some() == other.without_strikes.is_some()
    }
}

impl Eq for Plan {}

impl Plan {
    /// Returns the plan of 1 to 16 limits.
    pub fn new(limits: Vec<Limit>) -> Plan {
        let logs = limits.iter().filter_map(|limit| match &limit.algorithm {
            Algorithm::SlidingLog(log) => Some((log.n, log.period)),
            _ => None,
        });
        let log_bounds = LogBounds::new(logs);
        let mut shape = String::new();
        for limit in &limits {
            if !shape.is_empty() {
                shape.push('+');
            }
            // Writing to a string cannot fail.
            let _ = limit.algorithm.write_shape(&mut shape);
        }
        let in_flight = |limit: &Limit| limit.algorithm.counts_in_flight();
        let concurrency = limits.iter().position(in_flight).map(|at| at as u8);
        let has_burst = |limit: &Limit| limit.capacity() != u64::from(limit.requests_per_unit);
        let capacities: Box<[u64]> = match limits.iter().any(has_burst) {
            true => limits.iter().map(Limit::capacity).collect(),
            false => Box::default(),
        };
        Plan {
            packs: matches!(&*limits, [limit] if limit.algorithm.packs()),
            needs_expiry: matches!(&*limits, [limit] if limit.algorithm.needs_expiry()),
            can_lease: can_lease(&limits),
            limits: limits.into(),
            capacities,
            shape_hash: hash(&shape),
            shape: shape.into(),
            continues: false,
            log_bounds,
            concurrency,
            near_from: Box::default(),
            near_limit_ratio: None,
            ban: None,
            without_strikes: None,
        }
    }

    /// Bans keys that its limits deny too often. Other methods that change a plan are called before this one.
    pub fn with_ban(self, ban: Ban) -> Plan {
        let shape = format!("{}+ban", self.shape);
        let (ban, packs, can_lease) = (Some(Arc::new(ban)), false, false);
        let banning = Plan { ban, packs, can_lease, ..self.reshape(&shape) };
        Plan { without_strikes: Some(Arc::new(banning.clone())), ..banning }
    }

    /// Obeys the bans of another plan, of which it has the limits with other numbers. Its denials are no strikes.
    pub fn with_bans_of(self, plan: &Plan) -> Plan {
        match &plan.ban {
            Some(ban) => Plan { without_strikes: None, ..self.with_ban(Ban::clone(ban)) },
            None => self,
        }
    }

    /// Returns when keys are banned; none if they are not.
    pub fn ban(&self) -> Option<&Ban> {
        self.ban.as_deref()
    }

    /// Returns the plan for denials that are no strikes: a control decides. It obeys a ban all the same.
    pub fn without_strikes(self: &Arc<Plan>) -> &Arc<Plan> {
        self.without_strikes.as_ref().unwrap_or(self)
    }

    /// Returns whether denials are strikes.
    pub fn counts_strikes(&self) -> bool {
        self.without_strikes.is_some()
    }

    /// Lets decisions list the limits, besides the binding one, of whose n this part is used.
    pub fn with_near_limit_ratio(mut self, ratio: Option<f32>) -> Plan {
        let from = |ratio| {
            self.limits.iter().map(move |limit| limit.near_threshold(ratio).ceil() as u64).collect()
        };
        self.near_from = ratio.filter(|_| self.limits.len() > 1).map(from).unwrap_or_default();
        self.near_limit_ratio = ratio;
        self
    }

    /// Returns the part of n from which on decisions list a limit; none if they list none.
    pub fn near_limit_ratio(&self) -> Option<f32> {
        self.near_limit_ratio
    }

    /// Returns the plan of a limit whose states continue under every plan of `shape`: it must be able to read them all.
    pub fn with_shape(limit: Limit, shape: &str) -> Plan {
        Plan::new(vec![limit]).reshaped(shape)
    }

    fn reshaped(self, shape: &str) -> Plan {
        Plan { continues: true, ..self.reshape(shape) }
    }

    fn reshape(self, shape: &str) -> Plan {
        Plan { shape_hash: hash(shape), shape: shape.into(), ..self }
    }

    /// Returns the limits, in the order of the rule.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Returns the algorithms, periods and alignments in order, and whatever else an old state would
    /// be misread without. It is part of every key, so a rule of another shape starts with new states.
    /// `n` is not in it, so changing `n` keeps the counts.
    pub fn shape(&self) -> &str {
        &self.shape
    }

    /// Returns a number that identifies a limit by its index and the shape, and is spread evenly.
    pub fn limit_id(&self, index: u8) -> u64 {
        // Any odd factor; this is 2^64 divided by the golden ratio.
        self.shape_hash ^ u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Returns whether every state of this plan fits into [`Packed`].
    pub fn packs(&self) -> bool {
        self.packs
    }

    /// Returns whether a state that has expired must not be used, because it would not mean the same as none.
    pub fn needs_expiry(&self) -> bool {
        self.needs_expiry
    }

    /// Returns the key of the descriptor's last entry, if that names a hold and is not part of the key.
    pub fn hold_id(&self) -> Option<&str> {
        self.limits.get(usize::from(self.concurrency?))?.algorithm.hold_id()
    }

    /// Returns the index of the concurrency limit, if any.
    pub fn concurrency(&self) -> Option<u8> {
        self.concurrency
    }

    /// Returns the most hits that a limit, by its index, can allow at once.
    #[inline]
    pub fn capacity_of(&self, limit: u8) -> u64 {
        let limit = usize::from(limit);
        let n = || u64::from(self.limits[limit].requests_per_unit);
        self.capacities.get(limit).copied().unwrap_or_else(n)
    }

    /// Returns the [smallest capacity](smallest_capacity) of the limits.
    pub fn capacity(&self) -> u64 {
        smallest_capacity(&self.limits)
    }

    /// Returns whether every limit has a period of one second: the reference can keep these in another Redis.
    pub fn per_second(&self) -> bool {
        let second = |limit: &Limit| (limit.unit, limit.unit_multiplier) == (Some(Unit::Second), 1);
        self.limits.iter().all(second)
    }

    /// Returns whether its hits are counted in metrics as the reference counts them, which charges a denied request in
    /// part: those of a lone window that charges denied hits.
    #[inline]
    pub fn counts_as_reference(&self) -> bool {
        let [limit] = &*self.limits else { return false };
        limit.charge_denied
            && !limit.shadow_mode
            && self.ban.is_none()
            && matches!(limit.algorithm, Algorithm::FixedWindow(_))
    }

    /// Returns whether a denial may be repeated until its wait is over without charging again:
    /// charging would only deny again, and change nothing that decides or is reported. A [ban](Decision::banned) may be
    /// repeated whatever the plan.
    pub fn repeats_denials(&self) -> bool {
        let alone = self.limits.len() == 1;
        self.ban.is_none()
            && self.limits.iter().all(|limit| {
                !limit.shadow_mode && limit.algorithm.repeats_denials(limit.charge_denied, alone)
            })
    }

    /// Returns whether a denial of some hits holds as long for more hits. Otherwise these may wait longer, and
    /// because of another limit.
    pub fn denial_covers_more_hits(&self) -> bool {
        matches!(&*self.limits, [limit] if limit.algorithm.denial_covers_more_hits())
    }

    /// Returns how long a denial that [may be repeated](Self::repeats_denials) stays as it is if nothing is charged:
    /// until its wait is over. One that no wait ends stays, but the reset of a window starts over.
    pub fn denial_lasts(&self, denial: &Decision) -> Micros {
        denial.retry_after.unwrap_or_else(|| {
            let limit = self.limits.get(usize::from(denial.limit));
            let recurs = limit.is_some_and(|limit| limit.algorithm.reset_recurs());
            if recurs { denial.reset_after } else { Micros::MAX }
        })
    }

    /// Returns the share of one of `replicas` replicas, for when replicas cannot count together: the same limits in the
    /// same order. Its shape may differ, so that it shares no states with the whole plan. A
    /// [given shape](Self::with_shape) stays: shares of it continue each other's states.
    pub fn replica_share(&self, replicas: u32) -> Plan {
        let replicas = replicas.max(1);
        let share = |limit: &Limit| {
            let mut share = limit.replica_share(replicas);
            if let (true, Algorithm::Gcra(gcra)) = (self.continues, &limit.algorithm) {
                let gcra = gcra.continuing_share(limit.requests_per_unit, replicas);
                share.algorithm = Algorithm::Gcra(gcra);
            }
            share
        };
        let plan = Plan::new(self.limits.iter().map(share).collect());
        if self.continues { plan.reshaped(&self.shape) } else { plan }
    }

    /// Returns the plan whose hits are charged only when they are asked for.
    pub fn without_leases(self) -> Plan {
        Plan { can_lease: false, ..self }
    }

    /// Returns whether hits may be charged early, to use them until the [end](Self::window_end) of the window.
    pub fn can_lease(&self) -> bool {
        self.can_lease
    }

    /// Returns whether clients may be granted hits, as quotas: they can be leased, and each window or sub-window is long
    /// enough for clients to report what they have used.
    pub fn can_grant(&self) -> bool {
        // Lengths of calendar windows differ, but none is short.
        let is_long = |limit: &Limit| {
            let end = |t| limit.algorithm.window_end(t).unwrap_or(t);
            end(end(0)) - end(0) >= MIN_GRANTED_WINDOW
        };
        self.can_lease && self.limits.iter().all(is_long)
    }

    /// Returns the end of the earliest window, or sub-window, of `t`: hits that are charged at `t` count for
    /// every request until then. `t` where some limit does not count by windows.
    pub fn window_end(&self, t: Micros) -> Micros {
        let ends = self.limits.iter().map(|limit| limit.algorithm.window_end(t).unwrap_or(t));
        ends.min().unwrap_or(t)
    }

    /// Charges a packed state, for a plan that [`packs`](Self::packs). For others, every state is that of a new key.
    pub fn charge_packed(
        &self,
        packed: &mut Packed,
        now: Micros,
        op: Op,
        hold: Option<&str>,
    ) -> ChargeOutcome {
        match (&*self.limits, op) {
            // As it is most of what memory does, without the lists that several limits need.
            ([limit], Op::Take(_)) if self.packs => {
                let hits = Hits { count: op.hits(), hold: hold.map_or(0, hash_hold_id) };
                limit.take_packed(packed, now, hits)
            }
            _ => self.charge_unpacked(packed, now, op, hold),
        }
    }
}

/// The state of all limits of a plan for one key. The default is that of a key never seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    limits: Box<[LimitState]>,
    log: HitLog,
    ban: Option<Box<BanState>>,
}

impl State {
    /// Returns the state of all limits of a plan, in their order.
    pub fn new(limits: Box<[LimitState]>) -> State {
        State { limits, log: HitLog::EMPTY, ban: None }
    }

    /// Returns the state with the strikes and the ban of its key.
    pub fn with_ban(self, ban: BanState) -> State {
        State { ban: (ban != BanState::default()).then(|| Box::new(ban)), ..self }
    }

    fn ban_state(&self) -> BanState {
        self.ban.as_deref().copied().unwrap_or_default()
    }

    /// Returns how full a state is now that was `fill` when it was charged last: a key whose ban has ended is not full.
    pub fn fill_now(&self, fill: Fill, now: Micros) -> Fill {
        match &self.ban {
            Some(ban) if ban.bans > 0 && !ban.is_banned(now) => fill.min(Fill::High),
            _ => fill,
        }
    }

    /// Returns the state with the log of its sliding_log limits.
    pub fn with_log(self, log: HitLog) -> State {
        State { log, ..self }
    }

    /// Returns the log that the sliding_log limits share.
    pub fn log(&self) -> &HitLog {
        &self.log
    }

    /// Appends the state as it is saved, without its log, which follows.
    pub fn save_limits(&self, out: &mut Vec<u8>) {
        saved::put(out, (self.limits.len() + usize::from(self.ban.is_some())) as u64);
        for limit in &self.limits {
            limit.save(out);
        }
        if let Some(ban) = &self.ban {
            ban.save(out);
        }
    }

    /// Reads a saved state with its log; none if no state is written like that.
    pub fn restore(bytes: &[u8]) -> Option<State> {
        let mut numbers = SavedNumbers(bytes);
        let len = numbers.next_len()?;
        let (mut limits, mut ban) = (Vec::new(), None);
        for _ in 0..len {
            let mut behind_tag = numbers;
            if behind_tag.next()? == BanState::TAG {
                numbers = behind_tag;
                ban = Some(Box::new(BanState::restore(&mut numbers)?));
            } else {
                limits.push(LimitState::restore(&mut numbers)?);
            }
        }
        let log = HitLog::restore(&mut numbers)?;
        numbers.is_empty().then_some(State { limits: limits.into(), log, ban })
    }
}

impl ReduceBucket {
    /// Returns the plan of this limit alone.
    pub fn plan(self) -> Plan {
        Plan::new(vec![Limit::without_period(self.max, Algorithm::ReduceBucket(self), true)])
    }
}

/// Returns whether hits may be charged to `limits` early: all of them count by windows, so that it does not
/// matter when within a window they are charged, and whatever else they count and report stays the same.
fn can_lease(limits: &[Limit]) -> bool {
    let several = limits.len() > 1;
    limits.iter().all(|limit| {
        let charges_more = several && limit.charge_denied;
        !limit.shadow_mode && !charges_more && limit.algorithm.window_end(0).is_some()
    })
}

/// Returns the most hits that limits can allow at once: the smallest capacity of those that enforce, or of
/// all if none does; 0 if they deny every hit.
pub fn smallest_capacity(limits: &[Limit]) -> u64 {
    let enforced = limits.iter().filter(|limit| !limit.shadow_mode).map(Limit::capacity).min();
    enforced.or_else(|| limits.iter().map(Limit::capacity).min()).unwrap_or(0)
}

fn hash(shape: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(shape.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use crate::{
        BucketedWindow, Calendar, FixedWindow, Gcra, Limit, Plan, SECOND, SlidingWindow, Unit,
    };

    fn limit(algorithm: impl Into<crate::Algorithm>) -> Limit {
        let minute = Limit::fixed_window(5, Unit::Minute, 1).unwrap();
        Limit { algorithm: algorithm.into(), charge_denied: false, ..minute }
    }

    fn sliding() -> Limit {
        limit(SlidingWindow { n: 5, period: 60 * SECOND })
    }

    #[test]
    fn windows_can_be_leased_until_the_earliest_ends() {
        let hour = Limit::fixed_window(5, Unit::Hour, 1).unwrap();
        let ring = limit(BucketedWindow { n: 5, period: 60 * SECOND, buckets: 7 });
        let hour_alone = Plan::new(vec![hour.clone()]);
        assert!(hour.charge_denied && hour_alone.can_lease());
        assert_eq!(hour_alone.window_end(1), 3_600 * SECOND);
        let hour = Limit { charge_denied: false, ..hour };
        let three = Plan::new(vec![hour, sliding(), ring]);
        assert!(three.can_lease() && !three.clone().without_leases().can_lease());
        let span = (60 * SECOND).div_ceil(7);
        assert_eq!(three.window_end(0), span);
        assert_eq!(three.window_end(span), 2 * span);
        assert_eq!(three.window_end(59 * SECOND), 60 * SECOND);
        assert_eq!(three.window_end(60 * SECOND), 7 * span);
        assert_eq!(three.window_end(7 * span), 8 * span);
    }

    #[test]
    fn other_plans_cannot_be_leased() {
        let hour = Limit::fixed_window(5, Unit::Hour, 1).unwrap();
        let gcra = limit(Gcra::new(5, 60 * SECOND, 5, 0).unwrap());
        for limits in [
            vec![gcra],
            vec![hour, sliding()],
            vec![Limit { shadow_mode: true, ..sliding() }, sliding()],
        ] {
            assert!(!Plan::new(limits).can_lease());
        }
    }

    #[test]
    fn only_long_windows_can_be_granted() {
        let sliding = |seconds| limit(SlidingWindow { n: 5, period: seconds * SECOND });
        let ring = |buckets| limit(BucketedWindow { n: 5, period: 60 * SECOND, buckets });
        let calendar = Calendar::new(Unit::Day, "Europe/Berlin").unwrap();
        let day = FixedWindow { n: 5, period: 86_400 * SECOND, calendar: Some(calendar.into()) };
        let year = Limit::fixed_window(5, Unit::Year, 1).unwrap();
        for (limits, can_grant) in [
            (vec![Limit::fixed_window(5, Unit::Minute, 1).unwrap()], true),
            (vec![Limit::fixed_window(5, Unit::Second, 1).unwrap()], false),
            (vec![limit(day)], true),
            (vec![year.clone()], true),
            (vec![sliding(30)], true),
            (vec![sliding(29)], false),
            (vec![ring(2)], true),
            (vec![ring(3)], false),
            (vec![sliding(60), ring(2)], true),
            (vec![sliding(60), sliding(1)], false),
            // It charges what the other limit denies.
            (vec![year, sliding(60)], false),
            (vec![limit(Gcra::new(5, 60 * SECOND, 5, 0).unwrap())], false),
        ] {
            let plan = Plan::new(limits);
            assert_eq!(plan.can_grant(), can_grant, "{plan:?}");
            assert!(!plan.without_leases().can_grant());
        }
    }
}
