//! `RL.REDUCE`, `RL.PREDUCE`, `RL.GET` and `RL.PGET` take tokens from the bucket of a key, or read it. The command has
//! the size and refill of the bucket; no rule applies. Arguments and replies are those of Smyte's rate limiter.

use std::borrow::Cow;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::resp::command::{CommandError, DOMAIN, number};
use crate::resp::plans::Parameters;
use crate::resp::reply::Replies;
use crate::resp::server::Resp;
use weir_common::value;
use weir_limit::{Op, Plan, ReduceBucket};
use weir_store::{Key, Store};

/// A command of the family `RL.REDUCE`: its name and how it differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduce {
    /// The name in lower case, for errors.
    name: &'static str,
    /// The unit of its times, in milliseconds.
    unit: u64,
    /// Whether the command takes tokens, or only reads their number.
    takes: bool,
}

impl Reduce {
    pub const REDUCE: Reduce = Reduce { name: "rl.reduce", unit: 1_000, takes: true };
    pub const PREDUCE: Reduce = Reduce { name: "rl.preduce", unit: 1, takes: true };
    pub const GET: Reduce = Reduce { name: "rl.get", unit: 1_000, takes: false };
    pub const PGET: Reduce = Reduce { name: "rl.pget", unit: 1, takes: false };

    /// `RL.REDUCE key max refilltime [REFILL n] [TAKE n] [AT ts] [STRICT]`.
    pub(super) async fn run<S: Store>(
        self,
        resp: &Resp<S>,
        arguments: &[&[u8]],
        replies: &mut Replies,
    ) -> Result<(), CommandError> {
        let (key, bucket, take) = self.read(arguments)?;
        if bucket.at.is_some() && !resp.accepts_at {
            return Err(CommandError::At);
        }
        let plan = plan(resp, bucket);
        let key = Key { domain: DOMAIN, entries: &[("reduce", &key)] };
        let answer = resp.rate_limit.charge_key(key, &plan, Op::Take(take)).await;
        let decision = answer.map_err(|_| CommandError::Store)?;
        replies.integer(bucket.tokens_before(take, &decision).cast_signed());
        Ok(())
    }

    fn read<'a>(
        self,
        arguments: &[&'a [u8]],
    ) -> Result<(Cow<'a, str>, ReduceBucket, u64), CommandError> {
        let [key, max, time, options @ ..] = arguments else {
            return Err(CommandError::Count(self.name));
        };
        let key = value::encode(key);
        let (max, time) = (number::<i64>(max)?, number::<i64>(time)?);
        let (mut refill, mut take, mut at) = (max, i64::from(self.takes), None);
        let (mut strict, mut options) = (false, options);
        // The last of equal options wins, so ranges are checked at the end.
        while let [option, rest @ ..] = options {
            if option.eq_ignore_ascii_case(b"STRICT") {
                (strict, options) = (true, rest);
                continue;
            }
            let [value, rest @ ..] = rest else { return Err(CommandError::Syntax) };
            match &*option.to_ascii_uppercase() {
                b"REFILL" => refill = number(value)?,
                b"TAKE" if self.takes => take = number(value)?,
                b"AT" => at = Some(number(value)?),
                _ => return Err(CommandError::Syntax),
            }
            options = rest;
        }
        let at = at.map(|at| self.milliseconds(at, ..ReduceBucket::END)).transpose()?;
        let bucket = ReduceBucket {
            max: tokens(max)?,
            refill: tokens(refill)?,
            interval: self.milliseconds(time, 1..)?,
            strict,
            at,
        };
        let take = u64::try_from(take).map_err(|_| CommandError::Integer)?;
        Ok((key, bucket, take))
    }

    /// Converts a time of the command to milliseconds, which must be in `range`.
    fn milliseconds(self, time: i64, range: impl RangeBounds<u64>) -> Result<u64, CommandError> {
        let time = u64::try_from(time).ok().and_then(|time| time.checked_mul(self.unit));
        time.filter(|time| range.contains(time)).ok_or(CommandError::Integer)
    }
}

/// Returns the plan of a bucket. One for a certain time is used once.
fn plan<S>(resp: &Resp<S>, bucket: ReduceBucket) -> Arc<Plan> {
    let is_kept = bucket.at.is_none();
    let kept = if is_kept { resp.plans.get(Parameters::Bucket(bucket)) } else { None };
    kept.unwrap_or_else(|| Arc::new(bucket.plan()))
}

/// Returns a number of tokens that a bucket can hold, at least 1.
fn tokens(count: i64) -> Result<u32, CommandError> {
    u32::try_from(count).ok().filter(|&tokens| tokens > 0).ok_or(CommandError::Integer)
}
