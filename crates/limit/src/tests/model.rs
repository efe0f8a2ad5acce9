//! Naive models that decide from the whole history.

use super::*;

/// The time and the number of charged hits.
type History = Vec<(Micros, u64)>;

/// One limit, decided from its history.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub kind: Kind,
    pub n: u64,
    pub period: Micros,
    /// Whether denied hits are charged, and the debt that they, or hits that are added, may cause.
    pub charge_denied: bool,
    pub max_debt: u64,
    history: History,
    /// For buckets: what is missing, and since when.
    missing: u128,
    last: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Fixed,
    Sliding,
    HitLog,
    Bucketed { buckets: u64 },
    Token { capacity: u64, amount: u64, strict: bool },
    Gcra { burst: u64 },
}

impl Model {
    pub fn new(kind: Kind, n: u64, period: Micros) -> Model {
        let (charge_denied, max_debt) = (false, 0);
        Model { kind, n, period, charge_denied, max_debt, history: Vec::new(), missing: 0, last: 0 }
    }

    /// Owes up to `max_debt` beyond a bucket's capacity.
    pub fn owing(self, max_debt: u64) -> Model {
        Model { max_debt, ..self }
    }

    /// Charges denied hits too, up to `max_debt` beyond a bucket's capacity.
    pub fn charging_denied(self, max_debt: u64) -> Model {
        // A log never charges denied hits.
        let charge_denied = self.kind != Kind::HitLog;
        Model { charge_denied, max_debt, ..self }
    }

    pub fn limit(&self) -> Limit {
        let (n, period) = (self.n as u32, self.period);
        let algorithm = match self.kind {
            Kind::Fixed => Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }),
            Kind::Sliding => Algorithm::SlidingWindow(SlidingWindow { n, period }),
            Kind::HitLog => Algorithm::SlidingLog(SlidingLog { n, period }),
            Kind::Bucketed { buckets } => {
                Algorithm::BucketedWindow(BucketedWindow { n, period, buckets: buckets as u32 })
            }
            Kind::Token { capacity, amount, strict } => Algorithm::TokenBucket(TokenBucket {
                capacity: capacity as u32,
                amount: amount as u32,
                interval: period,
                strict,
                max_debt: self.max_debt as u32,
            }),
            Kind::Gcra { burst } => Algorithm::Gcra(
                Gcra::new(n, period, burst as u32, self.max_debt as u32).expect("numbers that fit"),
            ),
        };
        limit(n, algorithm, self.charge_denied)
    }

    /// Returns the most hits that can ever be allowed at once.
    pub fn capacity(&self) -> u64 {
        match self.kind {
            _ if self.n == 0 => 0,
            Kind::Token { capacity, .. } => capacity,
            Kind::Gcra { burst } => burst,
            _ => self.n,
        }
    }

    fn sum(&self, from: impl Fn(Micros) -> bool) -> u64 {
        self.history.iter().filter(|(t, _)| from(*t)).map(|(_, h)| h).sum()
    }

    /// Refills buckets up to `now`, one step at a time.
    fn refill(&mut self, now: Micros) {
        match self.kind {
            Kind::Token { amount, .. } => {
                while self.missing > 0 && self.last + self.period <= now {
                    self.missing = self.missing.saturating_sub(amount.into());
                    self.last += self.period;
                }
                if self.missing == 0 {
                    self.last = now;
                }
            }
            // In units of hits times the period, which are exact: n of them drain each microsecond.
            Kind::Gcra { .. } => {
                let drained = u128::from(now - self.last.min(now)) * u128::from(self.n);
                self.missing = self.missing.saturating_sub(drained);
                self.last = now;
            }
            _ => {}
        }
    }

    pub fn allows(&mut self, now: Micros, hits: u64) -> bool {
        self.refill(now);
        let (n, p) = (self.n, self.period);
        if n == 0 && (hits > 0 || self.kind != Kind::Fixed) {
            return false;
        }
        match self.kind {
            Kind::Fixed => self.sum(|t| t / p == now / p) + hits <= n,
            Kind::Sliding => {
                let prev = self.sum(|t| t / p + 1 == now / p) as f64;
                let cur = self.sum(|t| t / p == now / p);
                let weighted = (prev * (p - now % p) as f64 / p as f64).min(prev);
                weighted <= n as f64 - cur as f64 - hits as f64
            }
            Kind::HitLog => self.sum(|t| t + p > now) + hits <= n,
            Kind::Bucketed { buckets } => {
                let span = p.div_ceil(buckets);
                self.sum(|t| t / span + buckets >= now / span) + hits <= n
            }
            Kind::Token { capacity, .. } => self.missing + u128::from(hits) <= capacity.into(),
            Kind::Gcra { burst } => {
                self.missing + u128::from(hits) * u128::from(p) <= u128::from(burst) * u128::from(p)
            }
        }
    }

    /// Returns the hits that are checked: a look checks one hit or, if denied hits are charged, none.
    pub fn hits_to_check(&self, hits: u64) -> u64 {
        if hits == 0 && !self.charge_denied { 1 } else { hits }
    }

    /// Checks and charges.
    pub fn take(&mut self, now: Micros, hits: u64) -> bool {
        let allowed = self.allows(now, self.hits_to_check(hits));
        if hits == 0 {
            return allowed;
        }
        let hits_of = |hits: u64, p: u64| u128::from(hits) * u128::from(p);
        let owed = if self.charge_denied { self.max_debt } else { 0 };
        let charged = allowed || self.charge_denied;
        match self.kind {
            Kind::Token { capacity, .. } if charged && self.n > 0 => {
                let most = u128::from(capacity + owed);
                self.missing = (self.missing + u128::from(hits)).min(most);
            }
            Kind::Gcra { burst } if charged && self.n > 0 => {
                let most = hits_of(burst + owed, self.period);
                self.missing = (self.missing + hits_of(hits, self.period)).min(most);
            }
            Kind::Token { .. } | Kind::Gcra { .. } => {}
            _ if charged => self.history.push((now, hits)),
            _ => {}
        }
        if let (Kind::Token { strict: true, .. }, false) = (self.kind, allowed) {
            self.last = now;
        }
        allowed
    }

    /// Takes hits, and more as far as they are allowed; returns whether, and how many.
    pub fn up_to(&mut self, now: Micros, up_to: UpTo) -> (bool, u64) {
        let (least, share) = (u64::from(up_to.least), u64::from(up_to.share.get()));
        let more = u64::from(up_to.most).saturating_sub(least);
        if least > 0 && !self.allows(now, least) {
            self.take(now, least);
            return (false, 0);
        }
        let mut left = 0;
        while left < more.max(share) * share && self.allows(now, least + left + 1) {
            left += 1;
        }
        let part = if left / share < share { 0 } else { left / share };
        let granted = least + part.min(more);
        if granted > 0 {
            assert!(self.take(now, granted));
        }
        (true, granted)
    }

    /// Charges hits, whatever the limit says.
    pub fn add(&mut self, now: Micros, hits: u64) {
        self.refill(now);
        let hits = u128::from(hits);
        match self.kind {
            Kind::Token { .. } | Kind::Gcra { .. } if self.n == 0 => {}
            Kind::Token { capacity, .. } => {
                let most = u128::from(capacity + self.max_debt);
                self.missing = (self.missing + hits).min(most);
            }
            Kind::Gcra { burst } => {
                let p = u128::from(self.period);
                self.missing = (self.missing + hits * p).min(u128::from(burst + self.max_debt) * p);
            }
            Kind::HitLog => {}
            _ => self.history.push((now, hits as u64)),
        }
    }

    /// Forgets some of the hits that were taken at a time. Only for models that decide from the history.
    pub fn undo(&mut self, taken: Micros, hits: u64, back: u64) {
        if let Some(made) = self.history.iter_mut().find(|made| **made == (taken, hits)) {
            made.1 -= back;
        }
    }

    pub fn refund(&mut self, now: Micros, mut hits: u64) {
        self.refill(now);
        let (p, k) = (self.period, self.kind);
        // Newest first, among those that still count.
        for (t, h) in self.history.iter_mut().rev() {
            let counts = match k {
                Kind::Fixed => *t / p == now / p,
                Kind::Sliding => *t / p + 1 >= now / p,
                Kind::Bucketed { buckets } => {
                    let span = p.div_ceil(buckets);
                    *t / span + buckets >= now / span
                }
                _ => *t + p > now,
            };
            if counts {
                let back = hits.min(*h);
                *h -= back;
                hits -= back;
            }
        }
        match k {
            Kind::Token { .. } => self.missing = self.missing.saturating_sub(hits.into()),
            Kind::Gcra { .. } => {
                self.missing = self.missing.saturating_sub(u128::from(hits) * u128::from(p));
            }
            _ => {}
        }
    }
}
