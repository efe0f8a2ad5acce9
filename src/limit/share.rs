//! A replica's part of a limit, for when replicas cannot count together.
//!
//! What may come at once (`n` of a window, the capacity of a bucket) is divided by the number of
//! replicas and rounded up, so that no part is zero where the whole is not: all parts together
//! allow the whole, and at most one hit for each replica more.
//!
//! What comes back over time is not rounded: where a refill cannot be divided evenly the buckets
//! wait longer for it, and gcra spaces hits over a longer period. One token a minute among ten
//! replicas is one in ten minutes for each, not one a minute.

use super::{
    Algorithm, Gcra, GcraError, Limit, MAX_PERIOD_SECONDS, Micros, Plan, SECOND, TokenBucket,
};

/// The longest a part may take to come back.
const LONGEST: Micros = MAX_PERIOD_SECONDS * SECOND;

impl Plan {
    /// The part of one of `replicas` replicas: the same limits in the same order, each with its
    /// share of the numbers. Its shape may differ, so its states are no states of the whole plan.
    pub fn share(&self, replicas: u32) -> Plan {
        Plan::new(self.limits().iter().map(|limit| limit.share(replicas.max(1))).collect())
    }
}

impl Limit {
    fn share(&self, replicas: u32) -> Limit {
        let mut share = self.clone();
        let n = self.requests_per_unit.div_ceil(replicas);
        share.requests_per_unit = n;
        match &mut share.algorithm {
            Algorithm::FixedWindow(window) => window.n = n,
            Algorithm::SlidingWindow(window) => window.n = n,
            Algorithm::SlidingLog(log) => log.n = n,
            Algorithm::BucketedWindow(window) => window.n = n,
            Algorithm::Concurrency(concurrency) => concurrency.n = n,
            Algorithm::TokenBucket(bucket) => *bucket = bucket.share(replicas),
            Algorithm::Gcra(gcra) => *gcra = gcra.share(self.requests_per_unit, replicas),
        }
        share
    }
}

impl TokenBucket {
    fn share(&self, replicas: u32) -> TokenBucket {
        // What a refill brings beyond a full bucket is not shared out either.
        let most = self.capacity.saturating_add(self.max_debt);
        let whole = self.amount.min(most).max(1);
        let amount = whole.div_ceil(replicas);
        // As many times longer as the rounded amount is too much.
        let parts = u128::from(amount) * u128::from(replicas);
        let interval = (u128::from(self.interval) * parts).div_ceil(u128::from(whole));
        TokenBucket {
            capacity: self.capacity.div_ceil(replicas),
            amount,
            interval: Micros::try_from(interval).unwrap_or(LONGEST).min(LONGEST),
            strict: self.strict,
            max_debt: self.max_debt.div_ceil(replicas),
        }
    }
}

impl Gcra {
    /// Of `n` hits a period. Numbers that do not fit into exact arithmetic stay whole.
    fn share(&self, n: u32, replicas: u32) -> Gcra {
        let period = self.period().saturating_mul(replicas.into()).min(LONGEST);
        let part = |whole: u64| u32::try_from(whole).unwrap_or(u32::MAX).div_ceil(replicas);
        let (burst, max_debt) = (part(self.burst()), part(self.max_debt()));
        let share = match Gcra::new(n, period, burst, max_debt) {
            // Rounded up, it takes longer to come back than the whole may.
            Err(GcraError::TooSlow(most)) => {
                let most = u32::try_from(most).unwrap_or(u32::MAX);
                let burst = burst.min(most);
                Gcra::new(n, period, burst, max_debt.min(most - burst))
            }
            share => share,
        };
        share.unwrap_or(*self)
    }
}
