//! Rules with `reserve`: hits are reserved under an id before their number is known, and settled with it later. Finds
//! out which of these a descriptor asks for, and counts the outcomes.

use std::num::NonZeroU16;

use crate::lookup::{Match, Matched};
use crate::request::{Budget, Descriptor, Request, ReservationStep};
use weir_controls::Effect;
use weir_limit::{
    Decision, Op, Otherwise, Plan, Reservation, ReservationOp, ReservationResult, Reserve, Source,
};
use weir_rules::{ReserveStats, ReserveStep, Rule};
use weir_store::Answer;

/// The seconds within which hits can be settled where a rule does not say.
const TIMEOUT: u32 = 3_600;

/// Changes nothing, and is always allowed.
const NOTHING: Op = Op::Add { hits: 0, limits: 0 };

impl Matched<'_, '_> {
    /// Sets the operation of a descriptor whose entries or whose request may name a reservation.
    #[cold]
    pub(super) fn reserve(&mut self, request: &Request<'_>) -> Result<(), &'static str> {
        self.op = match (self.descriptor.budget, self.applies.rule()) {
            (Some(budget), _) => budget_op(budget, reservable(&self.applies)?),
            (None, Some(rule)) => rule_op(request, self.descriptor, rule)?,
            (None, None) => NOTHING,
        };
        Ok(())
    }

    /// Whether the descriptor only settles what an id has reserved, so that its failure is no error: what was
    /// reserved stays charged.
    #[inline]
    pub(super) fn settles(&self) -> bool {
        match self.op {
            Op::Reservation(op) => op.reserve().is_none(),
            Op::Take(_) | Op::Refund(_) | Op::Undo(_) | Op::UpTo(_) | Op::Add { .. } => false,
        }
    }

    /// Changes the operation on a rule with `reserve` by the control of the descriptor. Nothing is reserved where
    /// it decides; what has been reserved is settled, and returned if an allowance does not count.
    #[cold]
    pub(super) fn control_reservation(&mut self) {
        let (Some(effect), Op::Reservation(op)) = (&self.effect, self.op) else { return };
        self.op = match (effect, op) {
            (Effect::Limit { plan, .. }, _) => {
                Op::Reservation(op.with_reserve(|reserve| within(reserve, plan)))
            }
            (Effect::Allow { count: false, .. }, op) if op.used().is_some() => {
                Op::Reservation(ReservationOp::Cancel(u32::MAX))
            }
            (Effect::Block { .. } | Effect::Allow { .. }, _) => return self.only_look(),
        };
    }

    /// Charges nothing but what was reserved before.
    #[cold]
    pub(super) fn only_look(&mut self) {
        self.op = match self.op {
            Op::Reservation(op) => op.without_reserve().map_or(Op::Take(0), Op::Reservation),
            _ => Op::Take(0),
        };
    }
}

/// Returns a rule that can reserve, and its plan.
fn reservable<'s>(applies: &Match<'s>) -> Result<(&'s Rule, &'s Plan), &'static str> {
    match applies {
        Match::Rule(found) => match found.rule.plan.as_deref() {
            Some(plan) if plan.can_reserve() => Ok((found.rule, plan)),
            Some(_) => Err("its rule cannot reserve, since it does not count by windows: use \
                            sliding_window for minutes, fixed_window for days and months"),
            None => Err("its rule is unlimited: there is nothing to reserve"),
        },
        Match::Override(_) => Err("a limit of its own cannot reserve: leave it out"),
        Match::Nothing => Err("no rule applies to it: there is nothing to reserve"),
    }
}

/// Returns the operation that a descriptor requests of a rule with `reserve`. Refunds do nothing: what was reserved is
/// settled. To settle without permission is an error. Where the rule has no `settle`, only the store knows if a call
/// without hits settles: it reserves, unless the id has a reservation.
fn rule_op(
    request: &Request<'_>,
    descriptor: &Descriptor<'_>,
    rule: &Rule,
) -> Result<Op, &'static str> {
    let Some(reserve) = &rule.reserve else { return Ok(NOTHING) };
    if descriptor.is_negative_hits {
        return Ok(NOTHING);
    }
    let sent = descriptor.hits_addend.map(|hits| u32::try_from(hits).unwrap_or(u32::MAX));
    let sent = sent.or_else(|| Some(request.hits_addend).filter(|hits| *hits > 0));
    let estimate = reserve.estimate.unwrap_or(reserve.at_least);
    let up_to = |hits: Option<u32>| {
        let up_to = self::up_to(reserve, hits);
        rule.plan.as_ref().map_or(up_to, |plan| within(up_to, plan))
    };
    Ok(match (rule.reserve_step(descriptor.entries.len()), request.no_settling) {
        (Some(ReserveStep::Reserve), _) if reserve.settle.is_some() => {
            Op::Reservation(ReservationOp::Reserve { reserve: up_to(sent), once: None })
        }
        (Some(ReserveStep::Reserve), None) => Op::Reservation(match sent.unwrap_or(0) {
            0 => ReservationOp::Settle { used: 0, otherwise: Otherwise::Reserve(up_to(None)) },
            used => ReservationOp::settle(used),
        }),
        (Some(ReserveStep::Reserve), Some(_)) if sent.unwrap_or(0) == 0 => {
            Op::Reservation(ReservationOp::Reserve { reserve: up_to(None), once: Some(tag(0)) })
        }
        (Some(ReserveStep::Settle), None) => {
            Op::Reservation(ReservationOp::settle(sent.unwrap_or(estimate)))
        }
        (Some(ReserveStep::Reserve | ReserveStep::Settle), Some(why)) => return Err(why),
        (Some(ReserveStep::NoId) | None, _) => match sent {
            None => Op::Take(1),
            Some(0) => Op::Take(0),
            // They have been used: a client that omits the id is charged nevertheless.
            Some(hits) => Op::Add { hits, limits: u16::MAX },
        },
    })
}

/// Returns why a descriptor is invalid by its decision: it would have settled, and must not.
pub(super) fn not_permitted(
    request: &Request<'_>,
    matched: &Matched<'_, '_>,
    result: ReservationResult,
) -> Option<&'static str> {
    let is_open = matches!(result, ReservationResult::Repeated | ReservationResult::Conflict);
    request.no_settling.filter(|_| is_open && matched.descriptor.budget.is_none())
}

/// Returns the operation of a step of a reservation. Without `reserve`, a rule has its defaults.
fn budget_op(budget: &Budget<'_>, (rule, plan): (&Rule, &Plan)) -> Op {
    Op::Reservation(match budget.step {
        ReservationStep::Settle(used) => {
            ReservationOp::Settle { used, otherwise: Otherwise::Nothing }
        }
        ReservationStep::Cancel => ReservationOp::Cancel(u32::MAX),
        ReservationStep::Reserve(amount) => {
            let at_most = u32::try_from(plan.capacity() / 2).unwrap_or(u32::MAX).max(1);
            let up_to = match &rule.reserve {
                Some(reserve) => up_to(reserve, Some(amount)),
                None => Reserve { least: 1, most: amount.clamp(1, at_most), timeout: TIMEOUT },
            };
            ReservationOp::Reserve { reserve: within(up_to, plan), once: Some(tag(amount)) }
        }
    })
}

/// Returns what a request is known by when it is made again: amounts that are near each other differ.
fn tag(amount: u32) -> NonZeroU16 {
    let folded = amount ^ amount >> 12 ^ amount >> 24;
    NonZeroU16::MIN.saturating_add((folded % u32::from(Reservation::MAX_TAG)) as u16)
}

/// Returns what to reserve: the hits that the caller sent, or else estimates.
fn up_to(reserve: &weir_rules::Reserve, hits: Option<u32>) -> Reserve {
    let estimate = reserve.estimate.unwrap_or(reserve.at_least);
    let most = hits.filter(|hits| *hits > 0).unwrap_or(estimate);
    let most = most.clamp(reserve.at_least, reserve.at_most.max(reserve.at_least));
    Reserve { least: reserve.at_least, most, timeout: reserve.timeout }
}

/// Returns what to reserve where a limit allows fewer hits than the rule's least.
fn within(reserve: Reserve, plan: &Plan) -> Reserve {
    let capacity = u32::try_from(plan.capacity()).unwrap_or(u32::MAX);
    let least = reserve.least.min(capacity).max(1);
    Reserve { least, most: reserve.most.max(least), ..reserve }
}

/// Counts the outcome of a descriptor of a rule with `reserve`; `overdraft` are its hits beyond the limit that decided.
pub(super) fn count(stats: &ReserveStats, op: Op, decision: &Decision, overdraft: u64) {
    match (op, decision.reservation) {
        (Op::Reservation(op), ReservationResult::None) => match op.reserve() {
            Some(_) if decision.allowed => {}
            Some(_) => stats.denied(),
            // The store did not take it.
            None => stats.lost(),
        },
        (_, ReservationResult::Reserved) => stats.allowed(decision.granted),
        (Op::Reservation(op), ReservationResult::Settled) => match op.used() {
            Some(used) => stats.settled(decision.reserved, used, overdraft),
            None => stats.cancelled(),
        },
        (Op::Reservation(ReservationOp::Cancel(_)), ReservationResult::Unknown) => {}
        (_, ReservationResult::Unknown) => stats.unknown(overdraft),
        // Hits without an id.
        (Op::Take(1..) | Op::Add { hits: 1.., .. }, _) if decision.allowed => {
            stats.unknown(overdraft)
        }
        (_, _) => {}
    }
}

/// Returns whether it is not known if a charge has reserved hits.
pub(super) fn is_unknown(op: Op, answer: &Answer) -> bool {
    let reserves = matches!(op, Op::Reservation(op) if op.reserve().is_some());
    reserves
        && match answer {
            Ok(decision) => {
                let is_reserved = decision.reservation == ReservationResult::Reserved;
                decision.source == Source::Degraded && !is_reserved
            }
            Err(failed) => !failed.is_refusal(),
        }
}
