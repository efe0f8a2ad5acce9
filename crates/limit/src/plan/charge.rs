//! Charges the limits of a plan together, and finds the one that binds.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{Op, Plan};
use crate::hit_log::HitLog;
use crate::{
    ChargeOutcome, Decision, Fill, Hits, Levels, Limit, LimitState, Micros, NearLimit, NearLimits,
    ReservationResult, Source, Verdict,
};

impl Plan {
    /// Charges states that were advanced to `now`.
    pub(super) fn charge_states(
        &self,
        states: &mut [LimitState],
        log: &mut HitLog,
        now: Micros,
        op: Op,
        hold: u64,
    ) -> ChargeOutcome {
        match op {
            Op::Take(_) => self.take::<true>(states, log, now, op.hits(hold)),
            Op::UpTo(_) | Op::Add { .. } | Op::Refund(_) | Op::Undo(_) | Op::Reservation(_) => {
                self.charge_otherwise(states, log, now, op, hold)
            }
        }
    }

    /// Makes any operation but `Take`.
    #[cold]
    fn charge_otherwise(
        &self,
        states: &mut [LimitState],
        log: &mut HitLog,
        now: Micros,
        op: Op,
        hold: u64,
    ) -> ChargeOutcome {
        let hits = op.hits(hold);
        // Nothing is known of a reservation here.
        let (op, reserves) = match op {
            Op::Reservation(op) => (op.charge(None), true),
            op => (op, false),
        };
        match op {
            Op::UpTo(up_to) if reserves => {
                return self.up_to::<false>(states, log, now, up_to, hold);
            }
            Op::UpTo(up_to) => return self.up_to::<true>(states, log, now, up_to, hold),
            Op::Add { limits, .. } => return self.add(states, log, now, hits, limits),
            Op::Refund(_) => self.refund(states, log, now, hits),
            Op::Undo(undo) => self.undo(states, &undo),
            Op::Take(_) | Op::Reservation(_) => {
                return self.take::<true>(states, log, now, hits);
            }
        }
        let used: Used = self.used(states, log, now);
        self.conclude(states, log, now, &[Verdict::ALLOWED; 16], &used)
    }

    /// Takes hits. What a limit denies is charged to it if that charges denied hits, unless
    /// `CHARGES_DENIED` is false.
    pub(super) fn take<const CHARGES_DENIED: bool>(
        &self,
        states: &mut [LimitState],
        log: &mut HitLog,
        now: Micros,
        hits: Hits,
    ) -> ChargeOutcome {
        let used = self.used(states, log, now);
        let mut verdicts = [Verdict::ALLOWED; 16];
        let mut allowed = true;
        for ((limit, state), verdict) in self.limits.iter().zip(&*states).zip(&mut verdicts) {
            *verdict = limit.verdict(state, log, now, hits);
            allowed &= verdict.allowed || limit.shadow_mode;
        }
        if hits.count > 0 {
            for ((limit, state), verdict) in self.limits.iter().zip(&mut *states).zip(&verdicts) {
                // A limit in shadow mode charges what it would have admitted, so that it would deny
                // what it will deny once it is enforced.
                if allowed && verdict.allowed || CHARGES_DENIED && limit.charge_denied {
                    limit.charge(state, now, hits);
                }
                if !verdict.allowed {
                    limit.algorithm.deny(state, now);
                }
            }
            if let (true, Some(bounds)) = (allowed, &self.log_bounds) {
                log.charge(bounds, now, hits.count);
            }
        }
        if !allowed {
            // Charged denials and the restarted wait of a strict bucket make the wait longer.
            for ((limit, state), verdict) in self.limits.iter().zip(&*states).zip(&mut verdicts) {
                if !verdict.allowed {
                    verdict.retry_after = limit.verdict(state, log, now, hits).retry_after;
                }
            }
        }
        let mut outcome = self.conclude(states, log, now, &verdicts, &used);
        if allowed && hits.count > 0 && !self.near_from.is_empty() {
            let count = u64::from(hits.count);
            self.add_near(states, log, now, (count, &used, u16::MAX), &mut outcome.decision);
        }
        outcome
    }

    /// Charges hits to limits, one bit each, whatever they say.
    #[cold]
    fn add(
        &self,
        states: &mut [LimitState],
        log: &HitLog,
        now: Micros,
        hits: Hits,
        limits: u16,
    ) -> ChargeOutcome {
        let used = self.used(states, log, now);
        if hits.count > 0 {
            for (i, (limit, state)) in self.limits.iter().zip(&mut *states).enumerate() {
                if limits >> i & 1 > 0 {
                    limit.add(state, now, hits);
                }
            }
        }
        let mut outcome = self.conclude(states, log, now, &[Verdict::ALLOWED; 16], &used);
        if hits.count > 0 && !self.near_from.is_empty() {
            let count = u64::from(hits.count);
            self.add_near(states, log, now, (count, &used, limits), &mut outcome.decision);
        }
        outcome
    }

    /// Refunds hits to every limit; in a rule with a concurrency limit, to that alone.
    fn refund(&self, states: &mut [LimitState], log: &mut HitLog, now: Micros, hits: Hits) {
        let in_flight_only = self.concurrency.is_some();
        for (limit, state) in self.limits.iter().zip(states) {
            if !in_flight_only || limit.algorithm.counts_in_flight() {
                limit.algorithm.refund(state, now, hits);
            }
        }
        if !in_flight_only {
            log.refund(hits.count);
        }
    }

    /// Adds the limits that are near their n after hits: of those that may bind, and whose bit is set in
    /// `limits`, all but the binding one.
    fn add_near(
        &self,
        states: &[LimitState],
        log: &HitLog,
        now: Micros,
        (hits, used, limits): (u64, &Used, u16),
        decision: &mut Decision,
    ) {
        let all_shadow = self.limits.iter().all(|limit| limit.shadow_mode);
        for (i, (limit, near_from)) in self.limits.iter().zip(&self.near_from).enumerate() {
            let used = used[i].saturating_add(hits);
            let may_bind = (!limit.shadow_mode || all_shadow) && limits >> i & 1 > 0;
            if used >= *near_from && i != usize::from(decision.limit) && may_bind {
                let reset_after = limit.levels(&states[i], log, now).reset_after;
                decision.near.push(NearLimit { limit: i as u8, used, reset_after });
            }
        }
    }

    pub(super) fn used(&self, states: &[LimitState], log: &HitLog, now: Micros) -> Used {
        let used = |(limit, state): (&Limit, &LimitState)| limit.levels(state, log, now).used;
        self.limits.iter().zip(states).map(used).collect()
    }

    /// Finds the binding limit and builds the outcome.
    pub(super) fn conclude(
        &self,
        states: &[LimitState],
        log: &HitLog,
        now: Micros,
        verdicts: &[Verdict; 16],
        used: &Used,
    ) -> ChargeOutcome {
        let all_shadow = self.limits.iter().all(|limit| limit.shadow_mode);
        let mut best: Option<(Binding, Decision)> = None;
        let (mut would_deny, mut expires, mut fill) = (0, 0, Fill::Low);
        for (i, (limit, state)) in self.limits.iter().zip(states).enumerate() {
            let levels = limit.levels(state, log, now);
            if !levels.empty {
                expires = expires.max(now.saturating_add(levels.reset_after));
            }
            let Verdict { allowed, retry_after } = verdicts[i];
            if limit.shadow_mode {
                would_deny |= u16::from(!allowed) << i;
                if !all_shadow {
                    continue;
                }
            }
            fill = fill.max(self::fill(limit, &levels));
            let allowed = allowed || limit.shadow_mode;
            let binding = match allowed {
                false => Binding::Denies(retry_after.unwrap_or(Micros::MAX)),
                true => Binding::Allows(Reverse(levels.remaining), levels.reset_after),
            };
            if best.as_ref().is_none_or(|(most, _)| binding > *most) {
                best = Some((
                    binding,
                    Decision {
                        allowed,
                        limit: i as u8,
                        would_deny: 0,
                        used_before: used[i],
                        remaining: levels.remaining,
                        reset_after: levels.reset_after,
                        retry_after: if allowed { None } else { retry_after },
                        source: Source::Store,
                        granted: 0,
                        reserved: 0,
                        reservation: ReservationResult::None,
                        near: NearLimits::default(),
                    },
                ));
            }
        }
        // A plan without limits allows everything.
        let mut decision = best.map_or(Decision::ALLOWED, |(_, decision)| decision);
        decision.would_deny = would_deny;
        ChargeOutcome { decision, expires, fill }
    }
}

/// How full the state of a limit is.
pub(crate) fn fill(limit: &Limit, levels: &Levels) -> Fill {
    match levels.remaining {
        // Denies with or without a state, so nothing is lost with it.
        _ if limit.requests_per_unit == 0 => Fill::Low,
        0 => Fill::Full,
        remaining if levels.used >= remaining => Fill::High,
        _ => Fill::Low,
    }
}

/// The hits each limit had counted before a charge.
pub(super) type Used = SmallVec<[u64; 4]>;

/// The order that selects the binding limit: the greatest binds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    /// The least remaining; of equals, the longest reset.
    Allows(Reverse<u64>, Micros),
    /// The longest wait; no wait at all is the longest.
    Denies(Micros),
}
