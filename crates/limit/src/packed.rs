//! Charges a plan of one limit on its packed state, without the lists that several limits need.

use super::hit_log::HitLog;
use super::plan::fill;
use super::{
    ChargeOutcome, Decision, Hits, Limit, LimitAlgorithm, Micros, NearLimits, Op, Packed,
    ReservationResult, Source, UpTo, Verdict,
};

/// Charges a limit as [`Plan::charge`](super::Plan::charge) does if it is the only one of its plan. `algorithm` is
/// that of the limit, and [packs](LimitAlgorithm::PACKS).
#[inline]
pub(super) fn charge<A: LimitAlgorithm>(
    limit: &Limit,
    algorithm: &A,
    packed: &mut Packed,
    now: Micros,
    (op, hits): (Op, Hits),
) -> ChargeOutcome {
    // No algorithm that packs reads it.
    let log = HitLog::default();
    let mut state = algorithm.unpack(*packed, now);
    algorithm.advance(&mut state, now);
    let (used_before, verdict, granted) = match op {
        Op::Take(_) => {
            let used_before = algorithm.levels(&state, &log, now).used;
            let charges_denied = limit.charge_denied;
            (used_before, take(limit, algorithm, &mut state, now, (hits, charges_denied)), 0)
        }
        Op::UpTo(_) | Op::Add { .. } | Op::Refund(_) | Op::Undo(_) | Op::Reservation(_) => {
            charge_otherwise(limit, algorithm, &mut state, now, (op, hits))
        }
    };
    let levels = limit.bound(algorithm.levels(&state, &log, now));
    *packed = A::pack(&state);
    let allowed = verdict.allowed || limit.shadow_mode;
    let decision = Decision {
        allowed,
        limit: 0,
        would_deny: u16::from(!verdict.allowed && limit.shadow_mode),
        used_before,
        remaining: levels.remaining,
        reset_after: levels.reset_after,
        retry_after: if allowed { None } else { verdict.retry_after },
        source: Source::Store,
        granted,
        reserved: 0,
        reservation: ReservationResult::None,
        near: NearLimits::default(),
    };
    let expires = if levels.empty { 0 } else { now.saturating_add(levels.reset_after) };
    ChargeOutcome { decision, expires, fill: fill(limit, &levels) }
}

/// Makes any operation but `Take`. Returns the hits used before, the verdict, and the hits granted.
// A function of its own, so that the frequent operation is as short as if it were the only one.
#[cold]
fn charge_otherwise<A: LimitAlgorithm>(
    limit: &Limit,
    algorithm: &A,
    state: &mut A::State,
    now: Micros,
    (op, hits): (Op, Hits),
) -> (u64, Verdict, u32) {
    // Nothing is known of a reservation here.
    let (op, charges_denied) = match op {
        Op::Reservation(op) => (op.charge(None), false),
        op => (op, limit.charge_denied),
    };
    let mut granted = None;
    match op {
        Op::Take(_) | Op::Add { .. } | Op::Reservation(_) => {}
        Op::UpTo(up_to) => granted = self::granted(limit, algorithm, state, now, up_to),
        Op::Refund(_) => algorithm.refund(state, now, hits),
        Op::Undo(undo) if undo.limits & 1 > 0 => algorithm.undo(state, &undo),
        Op::Undo(_) => {}
    }
    let used_before = algorithm.levels(state, &HitLog::default(), now).used;
    let hits = granted.map_or(hits, |count| Hits { count, ..hits });
    let verdict = match op {
        Op::UpTo(_) if granted == Some(0) => Verdict::ALLOWED,
        Op::Take(_) | Op::UpTo(_) => take(limit, algorithm, state, now, (hits, charges_denied)),
        Op::Add { limits, .. } if limits & 1 > 0 && hits.count > 0 => {
            if limit.is_charged(A::COUNTS_AT_ZERO) {
                algorithm.charge(state, now, hits, true);
            }
            Verdict::ALLOWED
        }
        Op::Add { .. } | Op::Refund(_) | Op::Undo(_) | Op::Reservation(_) => Verdict::ALLOWED,
    };
    (used_before, verdict, granted.unwrap_or(0))
}

/// Returns the hits that an `UpTo` takes; none if its least are denied.
fn granted<A: LimitAlgorithm>(
    limit: &Limit,
    algorithm: &A,
    state: &A::State,
    now: Micros,
    up_to: UpTo,
) -> Option<u32> {
    // No algorithm that packs has holds.
    let room = match limit.requests_per_unit {
        0 => 0,
        _ => algorithm.room(state, &HitLog::default(), now, 0),
    };
    up_to.granted((!limit.shadow_mode).then_some(room).into_iter())
}

#[inline(always)]
fn take<A: LimitAlgorithm>(
    limit: &Limit,
    algorithm: &A,
    state: &mut A::State,
    now: Micros,
    (hits, charges_denied): (Hits, bool),
) -> Verdict {
    let log = HitLog::default();
    let checked = limit.hits_to_check(hits, A::ANSWERS_LOOKS_IF_N_IS_ZERO);
    let verdict_of = |state: &A::State| {
        checked.map_or(Verdict::NEVER, |hits| algorithm.verdict(state, &log, now, hits))
    };
    let mut verdict = verdict_of(state);
    if hits.count > 0 {
        if (verdict.allowed || charges_denied) && limit.is_charged(A::COUNTS_AT_ZERO) {
            algorithm.charge(state, now, hits, limit.charge_denied);
        }
        if !verdict.allowed {
            algorithm.deny(state, now);
        }
    }
    if !verdict.allowed && !limit.shadow_mode {
        // Charged denials and the restarted wait of a strict bucket make the wait longer.
        verdict.retry_after = verdict_of(state).retry_after;
    }
    verdict
}
