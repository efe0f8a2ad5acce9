//! `CL.THROTTLE` counts hits of a key against the limit (GCRA) that the command itself describes; no rule applies.
//! Arguments and replies are those of redis-cell.

use crate::resp::command::{CommandError, DOMAIN, number};
use crate::resp::plans::{Parameters, ThrottleArguments};
use crate::resp::reply::Replies;
use crate::resp::server::Resp;
use weir_common::value;
use weir_limit::{Algorithm, Decision, Limit, Micros, Op, Plan, SECOND, Source};
use weir_store::{Key, Store};

/// `CL.THROTTLE key max_burst count period [quantity]`.
pub(super) async fn throttle<S: Store>(
    resp: &Resp<S>,
    arguments: &[&[u8]],
    replies: &mut Replies,
) -> Result<(), CommandError> {
    let (key, burst, count, period, quantity) = match arguments {
        [key, burst, count, period] => (key, burst, count, period, 1),
        [key, burst, count, period, quantity] => {
            (key, burst, count, period, number::<u32>(quantity)?)
        }
        _ => return Err(CommandError::Count("cl.throttle")),
    };
    // One hit more than the burst may come at once.
    let burst = number::<u32>(burst)?.checked_add(1).ok_or(CommandError::Integer)?;
    let throttle = ThrottleArguments { burst, count: number(count)?, seconds: number(period)? };
    let plan = resp.plans.get(Parameters::Throttle(throttle)).ok_or(CommandError::Integer)?;
    let name = value::encode(key);
    let key = Key { domain: DOMAIN, entries: &[("throttle", &name)] };
    let answer = resp.rate_limit.charge_key(key, &plan, Op::Take(quantity.into())).await;
    let decision = answer.map_err(|_| CommandError::Store)?;
    let (is_limited, retry_after) = verdict(quantity, &decision, &plan);
    let remaining = remaining(&decision, &plan).min(burst.into());
    replies.array(5);
    replies.integer(is_limited.into());
    replies.integer(burst.into());
    replies.integer(remaining.cast_signed());
    replies.integer(retry_after.map_or(-1, seconds));
    replies.integer(seconds(decision.reset_after));
    Ok(())
}

fn remaining(decision: &Decision, plan: &Plan) -> u64 {
    let [Limit { algorithm: Algorithm::Gcra(gcra), .. }] = plan.limits() else { return 0 };
    match decision.source {
        // A repeated denial does not say what remains.
        Source::DeniedLocally => gcra.remaining_at(decision.reset_after),
        // The policy `allow` charges nothing. It answers the n of the limit, which is `count` here.
        Source::Degraded if decision.allowed && decision.reset_after == 0 => gcra.burst(),
        _ => decision.remaining,
    }
}

/// Returns whether a quantity is limited, and until when; none if it is not, or forever.
fn verdict(quantity: u32, decision: &Decision, plan: &Plan) -> (bool, Option<Micros>) {
    let limit = plan.limits().first().map(|limit| &limit.algorithm);
    match limit {
        // weir's look tells whether there is room for one hit. Nothing is too much only for a key that took more
        // with a larger burst.
        Some(Algorithm::Gcra(gcra)) if quantity == 0 => {
            let excess = decision.reset_after.saturating_sub(gcra.burst_period());
            (excess > 0, (excess > 0).then_some(excess))
        }
        _ => (!decision.allowed, decision.retry_after.filter(|_| !decision.allowed)),
    }
}

/// Converts a time to seconds, rounded up.
fn seconds(time: Micros) -> i64 {
    time.div_ceil(SECOND).cast_signed()
}
