//! Random messages, mostly with the keys and values of the rules.

use arbitrary::{Result, Unstructured};
use prost_types::value::Kind;
use prost_types::{Duration, ListValue, Struct, Value};
use weir::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor,
    rate_limit_descriptor::{Entry, RateLimitOverride},
};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_rules::proto as config;

use crate::wire::number_at_an_edge;

/// Chooses one of some texts, or an arbitrary one.
fn text(u: &mut Unstructured<'_>, some: &[&str]) -> Result<String> {
    match u.ratio(7, 8)? {
        true => Ok((*u.choose(some)?).to_owned()),
        false => u.arbitrary(),
    }
}

fn several<T>(
    u: &mut Unstructured<'_>,
    most: usize,
    one: impl Fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=most)?;
    (0..count).map(|_| one(u)).collect()
}

fn perhaps<T>(
    u: &mut Unstructured<'_>,
    one: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    if u.ratio(1, 3)? { one(u).map(Some) } else { Ok(None) }
}

fn small(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(number_at_an_edge(u)? as u32)
}

/// A request to a service whose rules have keys `a` to `n`.
pub fn request(u: &mut Unstructured<'_>) -> Result<RateLimitRequest> {
    Ok(RateLimitRequest {
        domain: text(u, &["each", "together", "none", ""])?,
        hits_addend: small(u)?,
        descriptors: several(u, 6, descriptor)?,
    })
}

fn descriptor(u: &mut Unstructured<'_>) -> Result<RateLimitDescriptor> {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"];
    Ok(RateLimitDescriptor {
        entries: several(u, 3, |u| {
            let value = text(u, &["", "1", "2", "x", "x1z", "held"])?;
            Ok(Entry { key: text(u, &keys)?, value })
        })?,
        limit: perhaps(u, |u| {
            Ok(RateLimitOverride {
                requests_per_unit: small(u)?,
                unit: u.int_in_range(-1..=9)?,
                unit_multiplier: perhaps(u, small)?,
            })
        })?,
        hits_addend: perhaps(u, number_at_an_edge)?,
        is_negative_hits: u.ratio(1, 8)?,
    })
}

/// A rule file in the form that a management server sends.
pub fn config(u: &mut Unstructured<'_>) -> Result<config::RateLimitConfig> {
    Ok(config::RateLimitConfig {
        name: text(u, &["", "a"])?,
        domain: text(u, &["d", ""])?,
        charge: text(u, &["", "each", "together"])?,
        on_store_failure: text(u, &["", "error", "allow", "deny", "local"])?,
        descriptors: several(u, 4, |u| rule(u, 3))?,
    })
}

fn rule(u: &mut Unstructured<'_>, levels: usize) -> Result<config::RateLimitDescriptor> {
    let value = text(u, &["", "", "1", "2", "x*", "*", "\u{85}\u{feff}", "\"\\\n: #"])?;
    let networks = ["10.0.0.0/8", "10.1.0.0/16", "10.0.0.1", "2001:db8::/32", "10.0.0.1/8"];
    let network = match value.is_empty() && u.ratio(1, 4)? {
        true => several(u, 2, |u| text(u, &networks))?,
        false => vec![],
    };
    let values = match value.is_empty() && network.is_empty() && u.ratio(1, 4)? {
        true => several(u, 3, |u| text(u, &["1", "3", "x*", "y*", "10.2.0.0/16", "10.0.0.1", ""]))?,
        false => vec![],
    };
    let group = match network.is_empty() && values.is_empty() {
        true => None,
        false => perhaps(u, |u| {
            let (v4, v6) = (Some(u.int_in_range(0..=33)?), Some(u.int_in_range(0..=129)?));
            Ok(config::RateLimitGroup { v4, v6 })
        })?,
    };
    let reserve = match u.ratio(1, 4)? {
        true => Some(reserve(u)?),
        false => None,
    };
    Ok(config::RateLimitDescriptor {
        key: text(u, &["a", "b", "a_b", "c*"])?,
        value,
        rate_limit: perhaps(u, policy)?,
        descriptors: if levels > 0 { several(u, 2, |u| rule(u, levels - 1))? } else { vec![] },
        shadow_mode: u.ratio(1, 8)?,
        detailed_metric: u.ratio(1, 8)?,
        quota_mode: u.ratio(1, 8)?,
        metadata: perhaps(u, |u| fields(u, 3))?,
        rate_limits: if u.ratio(1, 4)? { several(u, 3, policy)? } else { vec![] },
        value_to_metric: u.ratio(1, 8)?,
        share_threshold: u.ratio(1, 8)?,
        reserve,
        network,
        values,
        values_file: String::new(),
        group,
        lease: if u.ratio(1, 8)? { Some(u.arbitrary()?) } else { None },
        ban: if u.ratio(1, 8)? { Some(ban(u)?) } else { None },
    })
}

fn ban(u: &mut Unstructured<'_>) -> Result<config::RateLimitBan> {
    Ok(config::RateLimitBan {
        after: small(u)?,
        within: perhaps(u, duration)?,
        r#for: several(u, 3, duration)?,
        forget: perhaps(u, duration)?,
    })
}

fn reserve(u: &mut Unstructured<'_>) -> Result<config::RateLimitReserve> {
    Ok(config::RateLimitReserve {
        id: text(u, &["r", "a", "b", "a_b", ""])?,
        settle: text(u, &["s", "", "b", "r"])?,
        estimate: perhaps(u, small)?,
        at_least: perhaps(u, small)?,
        at_most: perhaps(u, small)?,
        timeout: perhaps(u, duration)?,
    })
}

fn policy(u: &mut Unstructured<'_>) -> Result<config::RateLimitPolicy> {
    let algorithms = [
        "",
        "",
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "bucketed_window",
        "token_bucket",
        "gcra",
        "leaky_bucket",
        "concurrency",
    ];
    Ok(config::RateLimitPolicy {
        unit: u.int_in_range(-1..=8)?,
        requests_per_unit: small(u)?,
        unlimited: u.ratio(1, 8)?,
        name: text(u, &["", "one", "two"])?,
        replaces: several(u, 1, |u| {
            Ok(config::RateLimitReplace { name: text(u, &["one", "two"])? })
        })?,
        algorithm: text(u, &algorithms)?,
        unit_multiplier: perhaps(u, small)?,
        period: perhaps(u, duration)?,
        burst: perhaps(u, small)?,
        refill_amount: perhaps(u, small)?,
        refill_interval: perhaps(u, duration)?,
        strict: u.ratio(1, 8)?,
        buckets: perhaps(u, small)?,
        charge_denied: perhaps(u, |u| u.arbitrary())?,
        hold_timeout: perhaps(u, duration)?,
        align: text(u, &["", "", "calendar"])?,
        time_zone: text(u, &["", "", "UTC", "Europe/Berlin"])?,
        max_debt: perhaps(u, small)?,
        hold_id: text(u, &["", "", "a", "b"])?,
        shadow_mode: u.ratio(1, 8)?,
        rate: text(u, &["", "", "", "10/s", "0/m", "4294967295/month", "3/15m", "1/x"])?,
        starts: text(u, &["", "", "15", "monday", "06:00"])?,
    })
}

fn duration(u: &mut Unstructured<'_>) -> Result<Duration> {
    let edges = [0, 1, 60, 86_400, 3_153_600_000, 3_153_600_001, i64::MAX, -1, i64::MIN];
    let nanos = [0, 0, 999, 1_000, 999_999_999, 1_000_000_000, i32::MAX, -1, i32::MIN];
    Ok(Duration { seconds: *u.choose(&edges)?, nanos: *u.choose(&nanos)? })
}

fn fields(u: &mut Unstructured<'_>, levels: usize) -> Result<Struct> {
    let fields = several(u, 3, |u| {
        Ok((text(u, &["a", "b", "yes", "", "\u{85}: "])?, value(u, levels - 1)?))
    })?;
    Ok(Struct { fields: fields.into_iter().collect() })
}

fn value(u: &mut Unstructured<'_>, levels: usize) -> Result<Value> {
    let kind = match u.int_in_range(0..=if levels > 0 { 6 } else { 4 })? {
        0 => return Ok(Value { kind: None }),
        1 => Kind::NullValue(u.int_in_range(-1..=1)?),
        2 => Kind::BoolValue(u.arbitrary()?),
        3 => Kind::NumberValue(match u.ratio(1, 2)? {
            true => *u.choose(&[0.0, -0.0, 1.5, 1e15, 1e300, f64::NAN, f64::INFINITY])?,
            false => u.arbitrary()?,
        }),
        4 => Kind::StringValue(text(u, &["", "yes", "1", "\u{feff}\n"])?),
        5 => Kind::ListValue(ListValue { values: several(u, 3, |u| value(u, levels - 1))? }),
        _ => Kind::StructValue(fields(u, levels)?),
    };
    Ok(Value { kind: Some(kind) })
}
