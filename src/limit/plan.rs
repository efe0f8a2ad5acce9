//! All limits of a rule, decided and charged together.
//!
//! All must allow, else nothing is charged but the limits that count denied hits. The answer is that
//! of the binding limit: of those that deny the one with the longest wait, else the one with the
//! least remaining.

use smallvec::SmallVec;

use super::concurrency::hash;
use super::part::Part;
use super::sliding_log::{Log, Shared};
use super::{Algorithm, Limit, Micros, Unit, Verdict};

/// What one charge asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// So many hits; 0 only looks, and never charges or creates state.
    Take(u64),
    /// So many hits back, newest first, never below zero; always allowed.
    GiveBack(u64),
}

/// How far a key's state is filled: what the memory store goes by when it must drop one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fill {
    /// Below half of its limit.
    Low,
    /// Half of it or more.
    High,
    /// At its limit or over.
    Full,
}

/// Who gave an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The store, from the key's state.
    #[default]
    Store,
    /// This replica, which repeats a denial that it knows to hold still.
    DeniedLocally,
    /// The policy for when the store fails.
    Degraded,
}

/// The answer for one descriptor: that of its binding limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Which of the plan's limits binds.
    pub limit: u8,
    /// Limits in shadow mode that would have denied, one bit each.
    pub would_deny: u16,
    /// Hits the binding limit had counted before these.
    pub used_before: u64,
    /// The largest number of hits the binding limit allows now, after these.
    pub remaining: u64,
    /// Until the binding limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// The smallest wait after which the same hits are allowed if nothing else happens. None where
    /// they are allowed now, or never will be.
    pub retry_after: Option<Micros>,
    pub source: Source,
}

/// The outcome of a charge: the answer, and what a store must know of the new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeOutcome {
    pub decision: Decision,
    /// When the state says no more than its absence would; not after now: it need not be kept.
    pub expires: Micros,
    pub fill: Fill,
}

/// The limits of a rule, ready to be charged.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) limits: Box<[Limit]>,
    shape: Box<str>,
    /// Of the sliding_log limits, where there are any.
    shared: Option<Shared>,
    /// Which limit is a concurrency limit, if any.
    concurrency: Option<u8>,
}

/// The state of all limits of a plan for one key. The default is that of a key never seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub(super) parts: Box<[Part]>,
    pub(super) log: Log,
}

/// A state of at most 12 bytes, as the memory store keeps it in place. All zeros is the default.
pub type Packed = [u32; 3];

impl PartialEq for Plan {
    /// Of the same limits, whose numbers are the same.
    fn eq(&self, other: &Plan) -> bool {
        self.limits == other.limits
    }
}

impl Eq for Plan {}

impl Plan {
    /// Takes 1 to 16 limits.
    pub fn new(limits: Vec<Limit>) -> Plan {
        let logs = || {
            limits.iter().filter_map(|limit| match &limit.algorithm {
                Algorithm::SlidingLog(log) => Some(log),
                _ => None,
            })
        };
        let shared = logs().next().map(|_| Shared {
            longest: logs().map(|log| log.period).max().unwrap_or(0),
            shortest: logs().map(|log| log.period).min().unwrap_or(0),
            stamps: logs().map(|log| log.n).max().unwrap_or(0) as usize,
        });
        let mut shape = String::new();
        for limit in &limits {
            if !shape.is_empty() {
                shape.push('+');
            }
            limit.algorithm.shape(&mut shape);
        }
        let is_concurrency = |limit: &Limit| matches!(limit.algorithm, Algorithm::Concurrency(_));
        let concurrency = limits.iter().position(is_concurrency).map(|at| at as u8);
        Plan { limits: limits.into(), shape: shape.into(), shared, concurrency }
    }

    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The algorithms, periods and alignments in order, and whatever else an old state would be
    /// misread without: part of every key, so that a rule of another shape starts afresh. `n` is
    /// not in it, so that changing it keeps the counts.
    pub fn shape(&self) -> &str {
        &self.shape
    }

    /// Whether a state of this plan always fits [`Packed`].
    pub fn packs(&self) -> bool {
        matches!(&*self.limits, [limit] if limit.algorithm.packs())
    }

    /// The key of the descriptor's last entry where that names a hold and is not part of the key.
    pub fn hold_id(&self) -> Option<&str> {
        self.limits.iter().find_map(|limit| match &limit.algorithm {
            Algorithm::Concurrency(concurrency) => concurrency.hold_id.as_deref(),
            _ => None,
        })
    }

    /// Returns which of the limits is a concurrency limit, if any.
    pub fn concurrency(&self) -> Option<u8> {
        self.concurrency
    }

    /// Whether every limit has a period of one second: what the reference can keep in a Redis of
    /// its own.
    pub fn per_second(&self) -> bool {
        let second = |limit: &Limit| (limit.unit, limit.unit_multiplier) == (Some(Unit::Second), 1);
        self.limits.iter().all(second)
    }

    /// Whether a denial may be repeated until its wait is over without charging again: charging
    /// would only find the same, change nothing that decides, and show nothing that is watched.
    ///
    /// So no limit is strict, a concurrency limit or in shadow mode, and none charges denied hits;
    /// a lone fixed window that does is let pass, as its window stays over its limit all the same.
    pub fn repeats_denials(&self) -> bool {
        let quiet = |limit: &Limit| match &limit.algorithm {
            _ if limit.shadow_mode => false,
            Algorithm::Concurrency(_) => false,
            Algorithm::FixedWindow(_) => !limit.charge_denied || self.limits.len() == 1,
            Algorithm::TokenBucket(bucket) => !limit.charge_denied && !bucket.strict,
            _ => !limit.charge_denied,
        };
        self.limits.iter().all(quiet)
    }

    /// Whether more hits than were denied wait for as long: those of a lone fixed window do, until it
    /// ends. Elsewhere they may wait for longer, and by another limit.
    pub fn denies_more_alike(&self) -> bool {
        matches!(&*self.limits, [limit] if matches!(limit.algorithm, Algorithm::FixedWindow(_)))
    }

    /// Judges `op` at `now` and charges what is to be charged. `hold` names the hold of a
    /// concurrency limit.
    pub fn charge(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
        hold: Option<&str>,
    ) -> ChargeOutcome {
        self.charge_hashed(state, now, op, hold.map_or(0, hash))
    }

    /// As [`charge`](Self::charge), with what stands for the hold's id.
    pub(crate) fn charge_hashed(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
        hold: u64,
    ) -> ChargeOutcome {
        if state.parts.len() != self.limits.len() {
            state.parts = self.limits.iter().map(|limit| limit.algorithm.part()).collect();
        }
        self.charge_parts(&mut state.parts, &mut state.log, now, op, hold)
    }

    /// As [`charge`](Self::charge), on a packed state; only for a plan that
    /// [`packs`](Self::packs), else the state is taken for that of a key never seen.
    pub fn charge_packed(
        &self,
        packed: &mut Packed,
        now: Micros,
        op: Op,
        hold: Option<&str>,
    ) -> ChargeOutcome {
        let mut part: SmallVec<[Part; 1]> =
            self.limits.iter().map(|limit| limit.algorithm.unpack(*packed, now)).collect();
        let charged =
            self.charge_parts(&mut part, &mut Log::default(), now, op, hold.map_or(0, hash));
        *packed = part.first().map_or([0; 3], Part::pack);
        charged
    }

    fn charge_parts(
        &self,
        parts: &mut [Part],
        log: &mut Log,
        now: Micros,
        op: Op,
        hold: u64,
    ) -> ChargeOutcome {
        if let Some(shared) = &self.shared {
            log.settle(shared, now);
        }
        for (limit, part) in self.limits.iter().zip(&mut *parts) {
            part.settle(&limit.algorithm, now);
        }
        match op {
            Op::Take(hits) => {
                let hits = u32::try_from(hits).unwrap_or(u32::MAX);
                self.take(parts, log, now, hits, hold)
            }
            Op::GiveBack(hits) => {
                let hits = u32::try_from(hits).unwrap_or(u32::MAX);
                self.give_back(parts, log, now, hits, hold);
                let used: Used = self.used(parts, log, now);
                self.conclude(parts, log, now, &[Verdict::ALLOWED; 16], &used)
            }
        }
    }

    fn take(
        &self,
        parts: &mut [Part],
        log: &mut Log,
        now: Micros,
        hits: u32,
        hold: u64,
    ) -> ChargeOutcome {
        let used = self.used(parts, log, now);
        let mut asked = [Verdict::ALLOWED; 16];
        let mut allowed = true;
        for ((limit, part), asked) in self.limits.iter().zip(&*parts).zip(&mut asked) {
            *asked = part.judge(limit, log, now, hits, hold);
            allowed &= asked.allowed || limit.shadow_mode;
        }
        if hits > 0 {
            for ((limit, part), asked) in self.limits.iter().zip(&mut *parts).zip(&asked) {
                // A limit in shadow mode takes what it would have admitted, so that it would deny
                // what it will deny once it is enforced.
                if allowed && asked.allowed || limit.charge_denied {
                    part.charge(limit, now, hits, hold);
                }
                if !asked.allowed {
                    part.deny(&limit.algorithm, now);
                }
            }
            if let (true, Some(shared)) = (allowed, &self.shared) {
                log.charge(shared, now, hits);
            }
        }
        if !allowed {
            // What a denial charged, and a strict bucket that begins anew, lengthen the wait.
            for ((limit, part), asked) in self.limits.iter().zip(&*parts).zip(&mut asked) {
                if !asked.allowed {
                    asked.retry_after = part.judge(limit, log, now, hits, hold).retry_after;
                }
            }
        }
        self.conclude(parts, log, now, &asked, &used)
    }

    /// Gives hits back to every limit; in a rule with a concurrency limit, to that alone.
    fn give_back(&self, parts: &mut [Part], log: &mut Log, now: Micros, hits: u32, hold: u64) {
        let is_concurrency = |limit: &Limit| matches!(limit.algorithm, Algorithm::Concurrency(_));
        let only = self.limits.iter().any(is_concurrency);
        for (limit, part) in self.limits.iter().zip(parts) {
            if !only || is_concurrency(limit) {
                part.give_back(&limit.algorithm, now, hits, hold);
            }
        }
        if !only {
            log.give_back(hits);
        }
    }

    fn used(&self, parts: &[Part], log: &Log, now: Micros) -> Used {
        let levels = |(limit, part): (&Limit, &Part)| part.levels(limit, log, now).used;
        self.limits.iter().zip(parts).map(levels).collect()
    }

    /// Finds the binding limit and puts the answer together.
    fn conclude(
        &self,
        parts: &[Part],
        log: &Log,
        now: Micros,
        asked: &[Verdict; 16],
        used: &Used,
    ) -> ChargeOutcome {
        let all_shadow = self.limits.iter().all(|limit| limit.shadow_mode);
        let mut best: Option<(Binding, Decision)> = None;
        let (mut would_deny, mut expires, mut fill) = (0, 0, Fill::Low);
        for (i, (limit, part)) in self.limits.iter().zip(parts).enumerate() {
            let levels = part.levels(limit, log, now);
            if !levels.empty {
                expires = expires.max(now.saturating_add(levels.reset_after));
            }
            let Verdict { allowed, retry_after } = asked[i];
            if limit.shadow_mode {
                would_deny |= u16::from(!allowed) << i;
                if !all_shadow {
                    continue;
                }
            }
            fill = fill.max(match levels.remaining {
                // Denies with or without a state: nothing is lost with it.
                _ if limit.requests_per_unit == 0 => Fill::Low,
                0 => Fill::Full,
                remaining if levels.used >= remaining => Fill::High,
                _ => Fill::Low,
            });
            let allowed = allowed || limit.shadow_mode;
            let binding = match allowed {
                false => Binding::Denies(retry_after.unwrap_or(Micros::MAX)),
                true => Binding::Allows(std::cmp::Reverse(levels.remaining), levels.reset_after),
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

/// What each limit had counted before a charge.
type Used = SmallVec<[u64; 4]>;

/// What makes one limit bind rather than another: the greater does.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    /// The least remaining; of equals the longest reset.
    Allows(std::cmp::Reverse<u64>, Micros),
    /// The longest wait; none is longest.
    Denies(Micros),
}

#[cfg(test)]
impl State {
    pub(super) fn log_len(&self) -> usize {
        self.log.stamps()
    }
}

impl Decision {
    const ALLOWED: Decision = Decision {
        allowed: true,
        limit: 0,
        would_deny: 0,
        used_before: 0,
        remaining: u64::MAX,
        reset_after: 0,
        retry_after: None,
        source: Source::Store,
    };
}
