//! Charges all limits of a rule (a plan) with the hits of a request. Finds the binding limit, whose numbers are the
//! answer. The memory store passes the state that it keeps, the Redis store the one that Redis returned.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::op::{Op, ReservationOp, Undo, UpTo};
use super::{Plan, State};
use crate::algorithm::{Hits, Packed, Verdict};
use crate::algorithms::LimitState;
use crate::algorithms::concurrency::hash_hold_id;
use crate::ban::{Ban, BanState};
use crate::decision::{Decision, NearLimit};
use crate::hit_log::HitLog;
use crate::limit::{ChargeOutcome, Fill, Limit};
use crate::time::Micros;

/// The states of a plan's limits and their log, advanced to an instant.
struct Advanced<'a> {
    plan: &'a Plan,
    states: &'a mut [LimitState],
    log: &'a mut HitLog,
    now: Micros,
}

impl Plan {
    /// Checks `op` at `now` and charges. `hold` is the id of the request for a concurrency limit.
    pub fn charge(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
        hold: Option<&str>,
    ) -> ChargeOutcome {
        self.charge_hashed(state, now, op, hold.map_or(0, hash_hold_id))
    }

    /// Charges as [`charge`](Self::charge) does, with the hash of the hold id.
    pub fn charge_hashed(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
        hold: u64,
    ) -> ChargeOutcome {
        self.advance(state, now);
        if let Some(ban) = &self.ban {
            return self.charge_banning(ban, state, now, (op, hold));
        }
        let (states, log) = (&mut *state.limits, &mut state.log);
        Advanced { plan: self, states, log, now }.charge(op, hold)
    }

    /// Charges an advanced state of a plan with bans: counts a strike, or is denied by a ban.
    #[cold]
    fn charge_banning(
        &self,
        ban: &Ban,
        state: &mut State,
        now: Micros,
        (op, hold): (Op, u64),
    ) -> ChargeOutcome {
        let mut ban_state = state.ban_state();
        ban_state.advance(now);
        let (states, log) = (&mut *state.limits, &mut state.log);
        let mut advanced = Advanced { plan: self, states, log, now };
        let is_banned = ban_state.is_banned(now);
        let op = match op {
            // Never denied: nothing is granted.
            Op::UpTo(up_to) if is_banned && up_to.least == 0 => Op::UpTo(UpTo { most: 0, ..up_to }),
            op => op,
        };
        let asks = op.asks();
        let mut outcome = if is_banned && asks.is_some() {
            let mut outcome = advanced.charge(Op::Add { hits: 0, limits: 0 }, 0);
            let limits = self.limits.iter();
            let first = limits.clone().position(|limit| !limit.shadow_mode).unwrap_or(0);
            outcome.decision.limit = first as u8;
            outcome.decision.used_before = advanced.used().get(first).copied().unwrap_or(0);
            outcome
        } else {
            let hits = Hits { count: op.hits(), hold };
            let is_strike = self.counts_strikes() && asks > Some(0) && advanced.strikes(hits);
            let outcome = advanced.charge(op, hold);
            if is_strike {
                ban_state.strike(ban, now);
            }
            outcome
        };
        if asks.is_some() && ban_state.is_banned(now) {
            let ends_in = ban_state.until - now;
            outcome.decision = Decision {
                allowed: false,
                banned: true,
                ban_begins: !is_banned,
                remaining: 0,
                reset_after: ends_in,
                retry_after: Some(ends_in),
                ..outcome.decision
            };
        }
        let fill = match (ban_state.is_banned(now), ban_state.expires(ban) > now) {
            (true, _) => Fill::Full,
            (false, true) => Fill::High,
            (false, false) => Fill::Low,
        };
        outcome.fill = outcome.fill.max(fill);
        outcome.expires = outcome.expires.max(ban_state.expires(ban));
        match &mut state.ban {
            Some(kept) => **kept = ban_state,
            None if ban_state != BanState::default() => state.ban = Some(Box::new(ban_state)),
            None => {}
        }
        outcome
    }

    // The rare callers must not turn it into a call where `charge_hashed` has it inlined.
    #[inline(always)]
    fn advance(&self, state: &mut State, now: Micros) {
        if state.limits.len() != self.limits.len() {
            state.limits = self.limits.iter().map(|limit| limit.algorithm.new_state()).collect();
        }
        if let Some(bounds) = &self.log_bounds {
            state.log.advance(bounds, now);
        }
        for (limit, state) in self.limits.iter().zip(&mut state.limits) {
            limit.algorithm.advance(state, now);
        }
    }

    #[cold]
    pub(super) fn charge_unpacked(
        &self,
        packed: &mut Packed,
        now: Micros,
        op: Op,
        hold: Option<&str>,
    ) -> ChargeOutcome {
        let limit = match &*self.limits {
            [limit] if self.packs => limit,
            _ => return self.charge(&mut State::default(), now, op, hold),
        };
        let (mut states, mut log) = ([limit.algorithm.unpack(*packed, now)], HitLog::default());
        limit.algorithm.advance(&mut states[0], now);
        let mut advanced = Advanced { plan: self, states: &mut states, log: &mut log, now };
        let outcome = advanced.charge(op, hold.map_or(0, hash_hold_id));
        *packed = states[0].pack();
        outcome
    }

    /// Charges as [`charge`](Plan::charge) does, and returns what undoes it in limits with windows. Several parts are to
    /// be undone last to first, like several charges of a key.
    pub fn charge_undoable(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
    ) -> (ChargeOutcome, Vec<Undo>) {
        match op {
            Op::Take(1..) | Op::UpTo(_) => {}
            // What was reserved is cancelled by its id.
            Op::Take(0) | Op::Refund(_) | Op::Undo(_) | Op::Add { .. } | Op::Reservation(_) => {
                return (self.charge_hashed(state, now, op, 0), Vec::new());
            }
        }
        self.advance(state, now);
        let before = state.clone();
        let outcome = self.charge_hashed(state, now, op, 0);
        let mut undos: Vec<Undo> = Vec::new();
        let states = before.limits.iter().zip(&state.limits);
        for (i, (limit, (before, after))) in self.limits.iter().zip(states).enumerate() {
            let Some(undo) = limit.algorithm.undo_of(before, after, now) else { continue };
            match undos.iter_mut().find(|other| Undo { limits: 0, ..**other } == undo) {
                Some(same) => same.limits |= 1 << i,
                None => undos.push(Undo { limits: 1 << i, ..undo }),
            }
        }
        (outcome, undos)
    }
}

impl Advanced<'_> {
    /// `hold` is the hash of the hold id.
    fn charge(&mut self, op: Op, hold: u64) -> ChargeOutcome {
        match op {
            Op::Take(_) => self.take::<true>(Hits { count: op.hits(), hold }),
            _ => self.charge_otherwise(op, hold),
        }
    }

    #[cold]
    fn charge_otherwise(&mut self, op: Op, hold: u64) -> ChargeOutcome {
        let hits = Hits { count: op.hits(), hold };
        match op {
            Op::Take(_) => return self.take::<true>(hits),
            Op::UpTo(up_to) => return self.up_to::<true>(up_to, hold),
            Op::Add { limits, .. } => return self.add(hits, limits),
            // Nothing is known of a reservation here.
            Op::Reservation(op) => return self.charge_unreserved(op, hits),
            Op::Refund(_) => self.refund(hits),
            Op::Undo(undo) => self.undo(&undo),
        }
        let used = self.used();
        self.conclude(&[Verdict::ALLOWED; 16], &used)
    }

    /// Returns whether limits that enforce deny hits, and not only those of hits in flight.
    fn strikes(&self, hits: Hits) -> bool {
        self.plan.limits.iter().zip(&*self.states).any(|(limit, state)| {
            !limit.shadow_mode
                && !limit.algorithm.counts_in_flight()
                && !limit.verdict(state, self.log, self.now, hits).allowed
        })
    }

    /// Takes hits. What a limit with `charge_denied` denies is charged to it, unless `CHARGES_DENIED` is false.
    fn take<const CHARGES_DENIED: bool>(&mut self, hits: Hits) -> ChargeOutcome {
        let used = self.used();
        let Advanced { plan, states, log, now } = self;
        let now = *now;
        let mut verdicts = [Verdict::ALLOWED; 16];
        let mut allowed = true;
        for ((limit, state), verdict) in plan.limits.iter().zip(&**states).zip(&mut verdicts) {
            *verdict = limit.verdict(state, log, now, hits);
            allowed &= verdict.allowed || limit.shadow_mode;
        }
        if hits.count > 0 {
            for ((limit, state), verdict) in plan.limits.iter().zip(&mut **states).zip(&verdicts) {
                // A limit in shadow mode charges what it would have admitted, so that it would deny
                // what it will deny once it is enforced.
                if allowed && verdict.allowed || CHARGES_DENIED && limit.charge_denied {
                    limit.charge(state, now, hits);
                }
                if !verdict.allowed {
                    limit.algorithm.deny(state, now);
                }
            }
            if let (true, Some(bounds)) = (allowed, &plan.log_bounds) {
                log.charge(bounds, now, hits.count);
            }
        }
        if !allowed {
            // Charged denials and the restarted wait of a strict bucket make the wait longer.
            for ((limit, state), verdict) in plan.limits.iter().zip(&**states).zip(&mut verdicts) {
                if !verdict.allowed {
                    verdict.retry_after = limit.verdict(state, log, now, hits).retry_after;
                }
            }
        }
        let mut outcome = self.conclude(&verdicts, &used);
        if allowed {
            self.add_near(hits, &used, u16::MAX, &mut outcome.decision);
        }
        outcome
    }

    /// [Takes](Self::take) the hits that are granted, as if no more had been asked for.
    #[cold]
    fn up_to<const CHARGES_DENIED: bool>(&mut self, up_to: UpTo, hold: u64) -> ChargeOutcome {
        let limits = self.plan.limits.iter().zip(&*self.states);
        let enforced = limits.filter(|(limit, _)| !limit.shadow_mode);
        let rooms = enforced.map(|(limit, state)| limit.room(state, self.log, self.now, hold));
        let granted = up_to.granted(rooms);
        if granted == Some(0) {
            let used = self.used();
            return self.conclude(&[Verdict::ALLOWED; 16], &used);
        }
        let count = granted.unwrap_or(up_to.least);
        let mut outcome = self.take::<CHARGES_DENIED>(Hits { count, hold });
        outcome.decision.granted = granted.unwrap_or(0);
        outcome
    }

    /// Does what an operation on a reservation does if the id has none. What limits deny is not charged.
    fn charge_unreserved(&mut self, op: ReservationOp, hits: Hits) -> ChargeOutcome {
        match op.charge(None) {
            Op::UpTo(up_to) => self.up_to::<false>(up_to, hits.hold),
            Op::Add { limits, .. } => self.add(hits, limits),
            _ => self.take::<true>(hits),
        }
    }

    /// Charges hits to limits, one bit each, whatever they say.
    #[cold]
    fn add(&mut self, hits: Hits, limits: u16) -> ChargeOutcome {
        let used = self.used();
        if hits.count > 0 {
            for (i, (limit, state)) in self.plan.limits.iter().zip(&mut *self.states).enumerate() {
                if limits >> i & 1 > 0 {
                    limit.add(state, self.now, hits);
                }
            }
        }
        let mut outcome = self.conclude(&[Verdict::ALLOWED; 16], &used);
        self.add_near(hits, &used, limits, &mut outcome.decision);
        outcome
    }

    /// Refunds hits to every limit; in a rule with a concurrency limit, to that alone.
    fn refund(&mut self, hits: Hits) {
        let in_flight_only = self.plan.concurrency.is_some();
        for (limit, state) in self.plan.limits.iter().zip(&mut *self.states) {
            if !in_flight_only || limit.algorithm.counts_in_flight() {
                limit.algorithm.refund(state, self.now, hits);
            }
        }
        if !in_flight_only {
            self.log.refund(hits.count);
        }
    }

    fn undo(&mut self, undo: &Undo) {
        for (i, (limit, state)) in self.plan.limits.iter().zip(&mut *self.states).enumerate() {
            if undo.limits >> i & 1 > 0 {
                limit.algorithm.undo(state, undo);
            }
        }
    }

    /// Adds the limits that are near their n after hits: of those that may bind, and whose bit is set in
    /// `limits`, all but the binding one.
    #[inline(always)]
    fn add_near(&self, hits: Hits, used: &Used, limits: u16, decision: &mut Decision) {
        if hits.count > 0 && !self.plan.near_from.is_empty() {
            self.find_near(hits, used, limits, decision);
        }
    }

    fn find_near(&self, hits: Hits, used: &Used, limits: u16, decision: &mut Decision) {
        let Plan { limits: all, near_from, .. } = self.plan;
        let all_shadow = all.iter().all(|limit| limit.shadow_mode);
        for (i, (limit, near_from)) in all.iter().zip(near_from).enumerate() {
            let used = used[i].saturating_add(hits.count.into());
            let may_bind = (!limit.shadow_mode || all_shadow) && limits >> i & 1 > 0;
            if used >= *near_from && i != usize::from(decision.limit) && may_bind {
                let reset_after = limit.levels(&self.states[i], self.log, self.now).reset_after;
                let near = NearLimit { limit: i as u8, used, reset_after };
                decision.near.get_or_insert_default().push(near);
            }
        }
    }

    fn used(&self) -> Used {
        let used =
            |(limit, state): (&Limit, &LimitState)| limit.levels(state, self.log, self.now).used;
        self.plan.limits.iter().zip(&*self.states).map(used).collect()
    }

    /// Finds the binding limit and builds the outcome.
    fn conclude(&self, verdicts: &[Verdict; 16], used: &Used) -> ChargeOutcome {
        let Advanced { plan, states, log, now } = self;
        let all_shadow = plan.limits.iter().all(|limit| limit.shadow_mode);
        let mut best: Option<(Binding, Decision)> = None;
        let (mut would_deny, mut expires, mut fill) = (0, 0, Fill::Low);
        for (i, (limit, state)) in plan.limits.iter().zip(&**states).enumerate() {
            let levels = limit.levels(state, log, *now);
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
            fill = fill.max(limit.fill(&levels));
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
                        used_before: used[i],
                        remaining: levels.remaining,
                        reset_after: levels.reset_after,
                        retry_after: if allowed { None } else { retry_after },
                        ..Decision::ALLOWED
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

/// The hits each limit had counted before a charge.
type Used = SmallVec<[u64; 4]>;

/// The order that selects the binding limit: the greatest binds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    /// The least remaining; of equals, the longest reset.
    Allows(Reverse<u64>, Micros),
    /// The longest wait; no wait at all is the longest.
    Denies(Micros),
}
