//! A ledger of reservations: what stores are compared with.
//!
//! It keeps the hits of each window and what each id has reserved, limit by limit, and computes from these what is
//! granted, returned and added.

use std::collections::{BTreeMap, HashMap};

use weir_limit::{
    Algorithm, Decision, Limit, Micros, Op, Otherwise, Plan, ReservationOp, ReservationResult,
    Reserve, SECOND,
};

/// What is expected of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub allowed: bool,
    granted: u32,
    reserved: u32,
    pub reservation: ReservationResult,
    would_deny: u16,
    /// The hits that are left; none if the request is denied: then they are those of the limit with the longest wait.
    remaining: Option<u64>,
}

impl Answer {
    pub(super) fn of(decision: &Decision) -> Answer {
        Answer {
            allowed: decision.allowed,
            granted: decision.granted,
            reserved: decision.reserved,
            reservation: decision.reservation,
            would_deny: decision.would_deny,
            remaining: decision.allowed.then_some(decision.remaining),
        }
    }
}

/// One key.
#[derive(Clone)]
pub(super) struct Ledger {
    limits: Vec<Counted>,
    /// Open reservations by id.
    open: HashMap<String, Open>,
    /// When the newest operation was made, if it charged all limits. Then each state is of this time.
    pub charged_all: Option<Micros>,
}

/// What an id has reserved.
#[derive(Clone)]
struct Open {
    hits: u32,
    count: u32,
    /// The time of the hits.
    taken: Micros,
    /// Whether the clock had stepped back so that this is not in the window of each limit that counts them.
    is_behind: bool,
    /// One for each limit: whether it took all of them.
    took: Vec<bool>,
    lapses: Micros,
    /// The tag of the request that made the only one; 0 if it adds up.
    tag: u16,
}

impl Open {
    /// Iterates over the limits that took the hits.
    fn took_by<'a>(&'a self, limits: &'a mut [Counted]) -> impl Iterator<Item = &'a mut Counted> {
        let each = limits.iter_mut().zip(&self.took);
        each.filter_map(|(limit, took)| took.then_some(limit))
    }
}

/// What a limit has counted.
#[derive(Clone)]
struct Counted {
    limit: Limit,
    /// The hits of each window or sub-window, by its start.
    windows: BTreeMap<Micros, u64>,
    /// The start of the newest window.
    newest: Micros,
}

impl Counted {
    fn new(limit: &Limit) -> Counted {
        Counted { limit: limit.clone(), windows: BTreeMap::new(), newest: 0 }
    }

    /// Returns the start of the window of a time.
    fn window(&self, t: Micros) -> Micros {
        let span = match &self.limit.algorithm {
            Algorithm::FixedWindow(window) => match &window.calendar {
                Some(calendar) => return calendar.window(t).0,
                None => window.period,
            },
            Algorithm::SlidingWindow(window) => window.period,
            Algorithm::BucketedWindow(window) => window.period.div_ceil(window.buckets.into()),
            other => panic!("{other:?} cannot reserve"),
        };
        t - t % span
    }

    /// Returns how long before its start earlier windows still count.
    fn reach(&self) -> Micros {
        match &self.limit.algorithm {
            Algorithm::SlidingWindow(window) => window.period,
            Algorithm::BucketedWindow(window) => {
                window.period.div_ceil(window.buckets.into()) * u64::from(window.buckets)
            }
            _ => 0,
        }
    }

    /// A clock that stepped back stays in the newest window.
    fn advance(&mut self, now: Micros) {
        self.newest = self.newest.max(self.window(now));
    }

    fn hits_of(&self, window: Micros) -> u64 {
        self.windows.get(&window).copied().unwrap_or(0)
    }

    fn used(&self, now: Micros) -> u64 {
        let elapsed = now.saturating_sub(self.newest);
        match &self.limit.algorithm {
            Algorithm::FixedWindow(_) => self.hits_of(self.newest),
            Algorithm::SlidingWindow(window) => {
                let previous = self.hits_of(self.newest - window.period);
                let weighs = (previous * (window.period - elapsed)).div_ceil(window.period);
                self.hits_of(self.newest) + weighs
            }
            _ => self.windows.range(self.newest - self.reach()..).map(|(_, hits)| hits).sum(),
        }
    }

    fn remaining(&self, now: Micros) -> u64 {
        u64::from(self.limit.requests_per_unit).saturating_sub(self.used(now))
    }

    /// Returns whether hits fit; none are a look.
    fn allows(&self, now: Micros, hits: u32) -> bool {
        match (hits, self.limit.charge_denied) {
            (0, true) => self.used(now) <= u64::from(self.limit.requests_per_unit),
            _ => u64::from(hits.max(1)) <= self.remaining(now),
        }
    }

    /// Counts hits, also beyond the limit.
    fn add(&mut self, hits: u32) {
        *self.windows.entry(self.newest).or_default() += u64::from(hits);
    }

    /// Returns hits of a reservation to the limit, where they still count.
    fn return_hits(&mut self, hits: u32, open: &Open) {
        let window = self.window(open.taken);
        if window + self.reach() >= self.newest {
            let counted = self.windows.entry(window).or_default();
            let (hits, before) = (u64::from(hits), *counted);
            assert!(open.is_behind || before >= hits, "hits that were returned");
            *counted = before.saturating_sub(hits);
        }
    }
}

impl Ledger {
    pub(super) fn new(plan: &Plan) -> Ledger {
        let limits = plan.limits().iter().map(Counted::new).collect();
        Ledger { limits, open: HashMap::new(), charged_all: None }
    }

    /// Makes an operation.
    pub(super) fn make(&mut self, now: Micros, op: Op, id: &str) -> Answer {
        self.charged_all = None;
        self.limits.iter_mut().for_each(|limit| limit.advance(now));
        let mut answer = match op {
            Op::Take(hits) => {
                let (took, answer) = self.take(now, hits as u32);
                // What is denied is charged where the limit says so.
                for (limit, took) in self.limits.iter_mut().zip(took) {
                    if !took && limit.limit.charge_denied {
                        limit.add(hits as u32);
                    }
                }
                answer
            }
            Op::Reservation(op) => self.make_reservation(now, op, id),
            _ => panic!("{op:?} is not in the schedules"),
        };
        answer.remaining = answer.allowed.then(|| self.remaining(now));
        answer
    }

    fn make_reservation(&mut self, now: Micros, op: ReservationOp, id: &str) -> Answer {
        let is_open = self.is_open(now, id);
        match op {
            ReservationOp::Reserve { reserve, once: None }
            | ReservationOp::Settle { otherwise: Otherwise::Reserve(reserve), .. }
                if !is_open || op.used().is_none() =>
            {
                self.reserve(now, reserve, id, 0)
            }
            ReservationOp::Reserve { reserve, once: Some(tag) } if !is_open => {
                self.reserve(now, reserve, id, tag.get())
            }
            ReservationOp::Reserve { once, .. } => {
                let open = self.open.get(id).expect("it is open");
                let is_same = open.count == 1 && once.is_some_and(|tag| open.tag == tag.get());
                let (reserved, reservation) = match is_same {
                    true => (open.hits, ReservationResult::Repeated),
                    false => (open.hits, ReservationResult::Conflict),
                };
                Answer { allowed: true, reserved, reservation, ..Answer::default() }
            }
            ReservationOp::Settle { used, .. } if is_open => {
                let open = self.open.remove(id).expect("it is open");
                self.settle(used, open, id)
            }
            ReservationOp::Cancel(hits) if is_open => {
                let open = self.open.remove(id).expect("it is open");
                self.cancel(hits, open, id)
            }
            ReservationOp::Settle { .. } | ReservationOp::Cancel(_) => {
                self.open.remove(id);
                let granted = match op {
                    ReservationOp::Settle { used, otherwise: Otherwise::Charge } => used,
                    _ => 0,
                };
                self.limits.iter_mut().for_each(|limit| limit.add(granted));
                let reservation = ReservationResult::Unknown;
                Answer { allowed: true, granted, reservation, ..Answer::default() }
            }
        }
    }

    /// Returns whether an id has hits that can be settled.
    pub(super) fn is_open(&self, now: Micros, id: &str) -> bool {
        self.open.get(id).is_some_and(|open| now < open.lapses)
    }

    /// Returns the ids that have reserved hits, with the number of their reservations.
    pub(super) fn open(&self) -> impl Iterator<Item = (&str, u32)> {
        self.open.iter().map(|(id, open)| (id.as_str(), open.count))
    }

    /// Returns the hits that each limit has counted.
    pub(super) fn used(&mut self, now: Micros) -> Vec<u64> {
        self.limits.iter_mut().for_each(|limit| limit.advance(now));
        self.limits.iter().map(|limit| limit.used(now)).collect()
    }

    /// Returns what the limits that bind have left.
    fn remaining(&self, now: Micros) -> u64 {
        let all_shadow = self.limits.iter().all(|it| it.limit.shadow_mode);
        let bind = self.limits.iter().filter(|it| all_shadow || !it.limit.shadow_mode);
        bind.map(|it| it.remaining(now)).min().expect("a limit")
    }

    /// Returns what the limits that enforce have left; none if there are none.
    fn room(&self, now: Micros) -> Option<u64> {
        let enforce = self.limits.iter().filter(|it| !it.limit.shadow_mode);
        enforce.map(|it| it.remaining(now)).min()
    }

    /// Takes hits where they are allowed. Returns which limits took them, too.
    fn take(&mut self, now: Micros, hits: u32) -> (Vec<bool>, Answer) {
        let allowed = self.limits.iter().all(|it| it.limit.shadow_mode || it.allows(now, hits));
        let mut answer = Answer { allowed, ..Answer::default() };
        let mut took = Vec::new();
        for (i, it) in self.limits.iter_mut().enumerate() {
            let fits = it.allows(now, hits);
            answer.would_deny |= u16::from(it.limit.shadow_mode && !fits) << i;
            took.push(fits && allowed);
            if fits && allowed {
                it.add(hits);
            }
        }
        let charged_all = hits > 0 && took.iter().all(|took| *took);
        self.charged_all = charged_all.then_some(now);
        (took, answer)
    }

    fn reserve(&mut self, now: Micros, reserve: Reserve, id: &str, tag: u16) -> Answer {
        let room = self.room(now).unwrap_or(u64::MAX);
        let most = u64::from(reserve.most).min(room) as u32;
        let granted = most.max(reserve.least);
        let (took, mut answer) = self.take(now, granted);
        if !answer.allowed {
            return answer;
        }
        answer.granted = granted;
        answer.reservation = ReservationResult::Reserved;
        // Behind the newest window hits count in it, if they do for each limit.
        let newest = self.limits.iter().map(|limit| limit.newest).fold(now, Micros::max);
        let counts = |t| self.limits.iter().all(|limit| limit.window(t) == limit.newest);
        let taken = if counts(newest) { newest } else { now };
        let is_behind = !counts(taken);
        let lapses = (now + u64::from(reserve.timeout) * SECOND).next_multiple_of(SECOND);
        let before = self.open.remove(id).filter(|open| now < open.lapses);
        let open = match before.filter(|open| counts(open.taken)) {
            Some(open) => Open {
                hits: open.hits + granted,
                count: open.count + 1,
                taken: open.taken.min(taken),
                is_behind,
                took: open.took.iter().zip(took).map(|(before, took)| *before && took).collect(),
                lapses: open.lapses.max(lapses),
                tag: 0,
            },
            None => Open { hits: granted, count: 1, taken, is_behind, took, lapses, tag },
        };
        self.open.insert(id.to_owned(), open);
        answer
    }

    /// Settles one reservation of an id with the hits that were used.
    fn settle(&mut self, used: u32, open: Open, id: &str) -> Answer {
        let reserved = open.hits / open.count;
        for limit in open.took_by(&mut self.limits) {
            match reserved.checked_sub(used) {
                Some(0) => {}
                Some(rest) => limit.return_hits(rest, &open),
                None => limit.add(used - reserved),
            }
        }
        let granted = used.saturating_sub(reserved);
        self.close(open, reserved, id, granted)
    }

    /// Cancels one reservation of an id, which returns its hits.
    fn cancel(&mut self, hits: u32, open: Open, id: &str) -> Answer {
        let hits = hits.min(open.hits);
        for limit in open.took_by(&mut self.limits) {
            limit.return_hits(hits, &open);
        }
        self.close(open, hits, id, 0)
    }

    fn close(&mut self, open: Open, reserved: u32, id: &str, granted: u32) -> Answer {
        if open.count > 1 {
            let (hits, count) = (open.hits - reserved, open.count - 1);
            self.open.insert(id.to_owned(), Open { hits, count, ..open });
        }
        let reservation = ReservationResult::Settled;
        Answer { allowed: true, granted, reserved, reservation, ..Answer::default() }
    }
}
