//! All limits of a rule, judged and charged together.

use super::{Algorithm, Limit, Micros, Verdict, fixed_window};

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

/// The answer for one descriptor: that of its binding limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    pub allowed: bool,
    /// Which of the plan's limits binds.
    pub limit: u8,
    /// Limits in shadow mode that would have denied, one bit each.
    pub would_deny: u16,
    /// Hits the binding limit had counted before these.
    pub used_before: u64,
    /// The largest number of hits the binding limit allows now, after these.
    pub remaining: u64,
    pub reset_after: Micros,
    /// None where the hits are allowed, or never will be.
    pub retry_after: Option<Micros>,
}

/// The outcome of a charge: the answer, and what a store must know of the new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    pub judged: Judged,
    /// When the state says no more than its absence would; not after now: it need not be kept.
    pub expires: Micros,
    pub fill: Fill,
}

/// The limits of a rule, ready to be charged.
#[derive(Clone, Debug)]
pub struct Plan {
    limits: Box<[Limit]>,
    shape: Box<[u8]>,
}

/// The state of all limits of a plan for one key. The default is that of a key never seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    part: fixed_window::State,
}

/// A state of at most 12 bytes, as the memory store keeps it in place. All zeros is the default.
pub type Packed = [u32; 3];

impl Plan {
    /// Takes 1 to 16 limits.
    pub fn new(limits: Vec<Limit>) -> Plan {
        let mut shape = Vec::new();
        for limit in &limits {
            let Algorithm::FixedWindow(window) = &limit.algorithm;
            shape.push(0);
            shape.extend_from_slice(&window.period.to_le_bytes());
        }
        Plan { limits: limits.into(), shape: shape.into() }
    }

    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The algorithms, periods and alignments in order: part of every key, so that a rule of
    /// another shape starts afresh. `n` is not in it, so that changing it keeps the counts.
    pub fn shape(&self) -> &[u8] {
        &self.shape
    }

    /// Whether a state of this plan always fits [`Packed`].
    pub fn packs(&self) -> bool {
        true
    }

    /// Judges `op` at `now` and charges what is to be charged. `hold` names the hold of a
    /// concurrency limit.
    pub fn charge(&self, state: &mut State, now: Micros, op: Op, _hold: Option<&str>) -> Charged {
        let Algorithm::FixedWindow(window) = &self.limits[0].algorithm;
        window.settle(&mut state.part, now);
        let hits = match op {
            Op::Take(hits) => hits.min(u64::from(u32::MAX)),
            Op::GiveBack(hits) => {
                state.part.count =
                    state.part.count.saturating_sub(u32::try_from(hits).unwrap_or(u32::MAX));
                0
            }
        };
        let mut verdict: Verdict = window.judge(&state.part, now, hits);
        if let Op::GiveBack(_) = op {
            verdict.allowed = true;
            verdict.retry_after = None;
        }
        if verdict.allowed || self.limits[0].charge_denied {
            window.charge(&mut state.part, hits);
            verdict.remaining = u64::from(window.n).saturating_sub(u64::from(state.part.count));
        }
        let (n, count) = (u64::from(window.n), u64::from(state.part.count));
        Charged {
            judged: Judged {
                allowed: verdict.allowed,
                limit: 0,
                would_deny: 0,
                used_before: verdict.used_before,
                remaining: verdict.remaining,
                reset_after: verdict.reset_after,
                retry_after: verdict.retry_after,
            },
            expires: if count == 0 { 0 } else { state.part.window + window.period },
            fill: match count {
                _ if count >= n => Fill::Full,
                _ if count * 2 >= n => Fill::High,
                _ => Fill::Low,
            },
        }
    }

    /// As [`charge`](Self::charge), on a packed state; only for a plan that [`packs`](Self::packs).
    pub fn charge_packed(
        &self,
        packed: &mut Packed,
        now: Micros,
        op: Op,
        hold: Option<&str>,
    ) -> Charged {
        let [low, high, count] = *packed;
        let window = u64::from(low) | u64::from(high) << 32;
        let mut state = State { part: fixed_window::State { window, count } };
        let charged = self.charge(&mut state, now, op, hold);
        let fixed_window::State { window, count } = state.part;
        *packed = [window as u32, (window >> 32) as u32, count];
        charged
    }
}
