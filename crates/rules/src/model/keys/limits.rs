//! The table of the YAML keys of limits (`rate_limit`, `rate_limits`), each with the algorithms that accept it. Also
//! returns the parameters of a compiled limit by these keys, to write, describe or compare it.

use crate::model::key::Section::{Descriptor, ListedLimit, Replacement};
use crate::model::key::ValueType::{Duration, Flag, Number, Other, Text};
use crate::model::key::{Key, Section, ValueType, key};
use crate::model::proto::{FieldValue, RateLimitPolicy};
use weir_limit::AlgorithmKind::{
    self as Kind, BucketedWindow, Concurrency, FixedWindow, Gcra, SlidingLog, SlidingWindow,
    TokenBucket,
};
use weir_limit::{Algorithm, Limit, Micros, SECOND};

const NUMBER: ValueType = Number(0, u32::MAX);
const LIMITS: &[Section] = &[Section::Limit, ListedLimit];
/// The sections of keys that may also be in a descriptor, beside the short form `rate`.
const SHORT: &[Section] = &[Descriptor, Section::Limit, ListedLimit];

const PERIODIC: &[Kind] =
    &[FixedWindow, SlidingWindow, SlidingLog, BucketedWindow, TokenBucket, Gcra];

/// The algorithms that can charge hits that they deny.
const CHARGING: &[Kind] =
    &[FixedWindow, SlidingWindow, BucketedWindow, TokenBucket, Gcra, Concurrency];

const BUCKETS: &[Kind] = &[TokenBucket, Gcra];

/// The keys of limits, in the order in which errors list them.
pub(crate) const KEYS: &[Key] = &[
    parameter("rate", PERIODIC, Other, |limit| limit.rate.clone().into()).beside_rate(),
    key("requests_per_unit", LIMITS, NUMBER).of_reference(),
    Key { takers: PERIODIC, ..key("unit", LIMITS, Other).of_reference() },
    key("unlimited", &[Section::Limit], Flag).of_reference(),
    key("name", &[Section::Limit, ListedLimit, Replacement], Text).of_reference(),
    key("replaces", LIMITS, Other).of_reference(),
    parameter("unit_multiplier", PERIODIC, NUMBER, |limit| limit.unit_multiplier.into()),
    parameter("period", PERIODIC, Other, |limit| limit.period.into()),
    key("algorithm", SHORT, Other),
    parameter("burst", BUCKETS, NUMBER, |limit| limit.burst.into()).in_text().beside_rate(),
    parameter("refill_amount", &[TokenBucket], NUMBER, |limit| limit.refill_amount.into()),
    parameter("refill_interval", &[TokenBucket], Duration, |limit| limit.refill_interval.into()),
    parameter("strict", &[TokenBucket], Flag, |limit| limit.strict.into()).in_text(),
    parameter("buckets", &[BucketedWindow], Number(2, 3_600), |limit| limit.buckets.into()),
    parameter("charge_denied", CHARGING, Flag, |limit| limit.charge_denied.into()),
    parameter("max_debt", BUCKETS, NUMBER, |limit| limit.max_debt.into()),
    parameter("hold_id", &[Concurrency], Text, |limit| limit.hold_id.clone().into()),
    parameter("hold_timeout", &[Concurrency], Duration, |limit| limit.hold_timeout.into()),
    of_calendar("align", |limit| limit.align.clone().into()),
    of_calendar("time_zone", |limit| limit.time_zone.clone().into()),
    of_calendar("starts", |limit| limit.starts.clone().into()),
];

const fn of_calendar(name: &'static str, field: fn(&RateLimitPolicy) -> FieldValue) -> Key {
    parameter(name, &[FixedWindow], Other, field).in_text().beside_rate()
}

const fn parameter(
    name: &'static str,
    takers: &'static [Kind],
    value: ValueType,
    field: fn(&RateLimitPolicy) -> FieldValue,
) -> Key {
    Key { takers, field: Some(field), ..key(name, LIMITS, value) }
}

impl Key {
    const fn in_text(self) -> Key {
        Key { in_text: true, ..self }
    }

    /// Lets the key stand in a descriptor that has `rate`.
    const fn beside_rate(self) -> Key {
        Key { sections: SHORT, ..self }
    }
}

pub(crate) const DEFAULT_BUCKETS: u32 = 60;
pub(crate) const DEFAULT_HOLD_TIMEOUT: Micros = 60 * SECOND;

pub(crate) struct Parameter<'l> {
    pub key: &'static str,
    pub value: ParameterValue<'l>,
    /// The value of limits without the key.
    pub default: ParameterValue<'l>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterValue<'l> {
    Number(u64),
    Duration(Micros),
    Flag(bool),
    Text(Option<&'l str>),
}

/// Returns the names of an algorithm in rule files; none if no rule has it.
pub(crate) fn names(algorithm: Kind) -> &'static [&'static str] {
    match algorithm {
        Kind::FixedWindow => &["fixed_window"],
        Kind::SlidingWindow => &["sliding_window"],
        Kind::SlidingLog => &["sliding_log"],
        Kind::BucketedWindow => &["bucketed_window"],
        Kind::TokenBucket => &["token_bucket"],
        Kind::Gcra => &["leaky_bucket", "gcra"],
        Kind::Concurrency => &["concurrency"],
        Kind::ReduceBucket => &[],
    }
}

/// Returns whether denied hits are charged by default. `is_alone`: in a `rate_limit` without `charge: together`.
pub(crate) fn charges_denied_by_default(
    algorithm: Kind,
    is_alone: bool,
    has_hold_id: bool,
) -> bool {
    match algorithm {
        Kind::FixedWindow => is_alone,
        // Without an id, the end of a denied request returns a hit too.
        Kind::Concurrency => !has_hold_id,
        Kind::SlidingWindow
        | Kind::SlidingLog
        | Kind::BucketedWindow
        | Kind::TokenBucket
        | Kind::Gcra
        | Kind::ReduceBucket => false,
    }
}

/// Returns why hits of an algorithm cannot be reserved and settled; none if they can.
pub(crate) fn not_reservable(algorithm: Kind) -> Option<&'static str> {
    match algorithm {
        Kind::SlidingLog => Some("it keeps admitted hits alone"),
        Kind::Concurrency => Some("its hits end with their request"),
        Kind::TokenBucket | Kind::Gcra | Kind::ReduceBucket => {
            Some("it does not know which of its hits have drained")
        }
        Kind::FixedWindow | Kind::SlidingWindow | Kind::BucketedWindow => None,
    }
}

/// Returns the parameters of a limit, besides its number, its period and `charge_denied`.
pub(crate) fn parameters(limit: &Limit) -> Vec<Parameter<'_>> {
    use ParameterValue::{Duration, Flag, Number, Text};
    let parameter = |key, value, default| Parameter { key, value, default };
    let n = Number(limit.requests_per_unit.into());
    let default_debt = |burst: u64| Number(if limit.charge_denied { burst } else { 0 });
    match &limit.algorithm {
        Algorithm::FixedWindow(window) => window.calendar.as_ref().map_or(Vec::new(), |calendar| {
            let starts = (!calendar.starts().is_empty()).then_some(calendar.starts());
            vec![
                parameter("align", Text(Some("calendar")), Text(None)),
                parameter("time_zone", Text(Some(calendar.zone())), Text(None)),
                parameter("starts", Text(starts), Text(None)),
            ]
        }),
        Algorithm::BucketedWindow(window) => {
            let default = Number(DEFAULT_BUCKETS.into());
            vec![parameter("buckets", Number(window.buckets.into()), default)]
        }
        Algorithm::TokenBucket(bucket) => {
            let period = limit.unit.and_then(|unit| unit.period(limit.unit_multiplier));
            // At least one token comes back, also where a limit of 0 denies all.
            let amount = Number(limit.requests_per_unit.max(1).into());
            let capacity = bucket.capacity.into();
            vec![
                parameter("burst", Number(capacity), n),
                parameter("refill_amount", Number(bucket.amount.into()), amount),
                parameter(
                    "refill_interval",
                    Duration(bucket.interval),
                    period.map_or(Text(None), Duration),
                ),
                parameter("strict", Flag(bucket.strict), Flag(false)),
                parameter("max_debt", Number(bucket.max_debt.into()), default_debt(capacity)),
            ]
        }
        Algorithm::Gcra(gcra) => vec![
            parameter("burst", Number(gcra.burst()), n),
            parameter("max_debt", Number(gcra.max_debt()), default_debt(gcra.burst())),
        ],
        Algorithm::Concurrency(holds) => vec![
            parameter("hold_id", Text(holds.hold_id.as_deref()), Text(None)),
            parameter("hold_timeout", Duration(holds.timeout), Duration(DEFAULT_HOLD_TIMEOUT)),
        ],
        Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::ReduceBucket(_) => {
            Vec::new()
        }
    }
}
