//! The algorithms of rule files: their names, the keys that only some of them take, and how keys become
//! parameters.

use super::super::Reader;
use super::super::values::text_of;
use super::OfRule;
use super::fields::Fields;
use super::parameters::{DEFAULT_BUCKETS, DEFAULT_HOLD_TIMEOUT};
use weir_common::suggest::nearest;
use weir_limit::{
    Algorithm, AlgorithmKind as Kind, BucketedWindow, FixedWindow, Limit, Micros, Parameter,
    SlidingLog, SlidingWindow,
};

/// Returns the keys that an algorithm takes and some others do not.
fn keys(algorithm: Kind) -> &'static [&'static str] {
    match algorithm {
        Kind::FixedWindow => {
            &["unit", "unit_multiplier", "period", "charge_denied", "align", "time_zone"]
        }
        Kind::SlidingWindow => &["unit", "unit_multiplier", "period", "charge_denied"],
        Kind::SlidingLog => &["unit", "unit_multiplier", "period"],
        Kind::BucketedWindow => &["unit", "unit_multiplier", "period", "buckets", "charge_denied"],
        Kind::TokenBucket => &[
            "unit",
            "unit_multiplier",
            "period",
            "burst",
            "refill_amount",
            "refill_interval",
            "strict",
            "charge_denied",
            "max_debt",
        ],
        Kind::Gcra => &["unit", "unit_multiplier", "period", "burst", "charge_denied", "max_debt"],
        Kind::Concurrency => &["charge_denied", "hold_id", "hold_timeout"],
        Kind::ReduceBucket => &[],
    }
}

/// Returns whether limits of an algorithm have a period.
pub(super) fn has_period(algorithm: Kind) -> bool {
    keys(algorithm).contains(&"period")
}

/// Returns the names of the algorithms that take a key; none if it is for all.
pub(super) fn takers(key: &str) -> impl Iterator<Item = &'static str> {
    let takers = Kind::ALL.into_iter().filter(move |kind| keys(*kind).contains(&key));
    takers.flat_map(names).copied()
}

/// Returns whether denied hits are charged where the rule does not say. `is_alone`: in a `rate_limit` without
/// `charge: together`, as in rule files of the reference.
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
fn not_reservable(algorithm: Kind) -> Option<&'static str> {
    match algorithm {
        Kind::SlidingLog => Some("it keeps admitted hits alone"),
        Kind::Concurrency => Some("its hits end with their request"),
        Kind::TokenBucket | Kind::Gcra | Kind::ReduceBucket => {
            Some("it does not know which of its hits have drained")
        }
        Kind::FixedWindow | Kind::SlidingWindow | Kind::BucketedWindow => None,
    }
}

/// Returns the names of an algorithm in rule files; none if no rule has it.
fn names(algorithm: Kind) -> &'static [&'static str] {
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

/// Passes the keys of a limit's parameters to `add`, each with its value and its default.
pub(crate) fn each_parameter(
    limit: &Limit,
    add: &mut dyn FnMut(&'static str, Parameter<'_>, Parameter<'_>),
) {
    const NONE: Parameter<'_> = Parameter::Text(None);
    let number = |number: u32| Parameter::Number(number.into());
    let n = limit.requests_per_unit;
    let default_debt = |burst: u64| match limit.charge_denied {
        true => Parameter::Number(burst),
        false => Parameter::Number(0),
    };
    match &limit.algorithm {
        Algorithm::FixedWindow(window) => {
            if let Some(calendar) = &window.calendar {
                add("align", Parameter::Text(Some("calendar")), NONE);
                add("time_zone", Parameter::Text(Some(calendar.zone())), NONE);
            }
        }
        Algorithm::BucketedWindow(window) => {
            add("buckets", number(window.buckets), number(DEFAULT_BUCKETS));
        }
        Algorithm::TokenBucket(bucket) => {
            let period = limit.unit.and_then(|unit| unit.period(limit.unit_multiplier));
            let interval = Parameter::Duration(bucket.interval);
            add("burst", number(bucket.capacity), number(n));
            // At least one token comes back, also where a limit of 0 denies all.
            add("refill_amount", number(bucket.amount), number(n.max(1)));
            add("refill_interval", interval, period.map_or(NONE, Parameter::Duration));
            add("strict", Parameter::Flag(bucket.strict), Parameter::Flag(false));
            add("max_debt", number(bucket.max_debt), default_debt(bucket.capacity.into()));
        }
        Algorithm::Gcra(gcra) => {
            add("burst", Parameter::Number(gcra.burst()), number(n));
            add("max_debt", Parameter::Number(gcra.max_debt()), default_debt(gcra.burst()));
        }
        Algorithm::Concurrency(holds) => {
            let timeout = Parameter::Duration(holds.timeout);
            add("hold_id", Parameter::Text(holds.hold_id.as_deref()), NONE);
            add("hold_timeout", timeout, Parameter::Duration(DEFAULT_HOLD_TIMEOUT));
        }
        Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::ReduceBucket(_) => {}
    }
}

/// What the parameters of all algorithms depend on.
pub(super) struct Parameters<'k> {
    pub algorithm: Kind,
    pub n: u32,
    pub period: Micros,
    pub charge_denied: bool,
    pub hold_id: Option<String>,
    pub rule: OfRule<'k>,
}

impl Reader<'_> {
    pub(super) fn algorithm(
        &mut self,
        fields: &Fields<'_>,
        parameters: Parameters<'_>,
    ) -> Option<Algorithm> {
        let Parameters { algorithm, n, period, charge_denied, hold_id, rule } = parameters;
        let burst = self.u32_or(fields, "burst", n);
        let max_debt = self.max_debt(fields, charge_denied, burst);
        Some(match algorithm {
            Kind::ReduceBucket => return None,
            Kind::FixedWindow => {
                let calendar = self.calendar(fields)?;
                Algorithm::FixedWindow(FixedWindow { n, period, calendar })
            }
            Kind::SlidingWindow => Algorithm::SlidingWindow(SlidingWindow { n, period }),
            Kind::SlidingLog => {
                let bytes = SlidingLog::STAMP_BYTES * u64::from(n);
                self.check_key_bytes(fields, bytes, "a timestamp for each hit");
                Algorithm::SlidingLog(SlidingLog { n, period })
            }
            Kind::BucketedWindow => {
                let buckets = self.buckets(fields)?;
                Algorithm::BucketedWindow(BucketedWindow { n, period, buckets })
            }
            Kind::TokenBucket => {
                Algorithm::TokenBucket(self.token_bucket(fields, n, period, burst, max_debt)?)
            }
            Kind::Gcra => Algorithm::Gcra(self.gcra(fields, n, period, burst, max_debt)?),
            Kind::Concurrency => {
                Algorithm::Concurrency(self.concurrency(fields, n, hold_id, rule.key)?)
            }
        })
    }

    /// Reports a limit beside `reserve` whose hits cannot be reserved.
    pub(super) fn check_reservable(
        &mut self,
        fields: &Fields<'_>,
        algorithm: Kind,
        rule: OfRule<'_>,
    ) {
        if rule.reserves
            && let Some(why) = not_reservable(algorithm)
        {
            let name = fields.text("algorithm");
            let message = format!("config error, {name} beside `reserve`: {why}");
            let help = "use sliding_window for minutes, fixed_window for days and months";
            self.error(fields.position("algorithm"), message, &name, help);
        }
    }

    /// Reads `algorithm`. Keys that it does not take are errors.
    pub(super) fn algorithm_name(&mut self, fields: &Fields<'_>) -> Option<Kind> {
        let text = match fields.get("algorithm") {
            Some(node) => self.string(node, "algorithm"),
            None => "fixed_window".to_owned(),
        };
        let Some(algorithm) = Kind::ALL.into_iter().find(|kind| names(*kind).contains(&&*text))
        else {
            let names: Vec<&str> = Kind::ALL.into_iter().flat_map(names).copied().collect();
            let help = match nearest(&text, names.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("write one of {}", names.join(", ")),
            };
            let message = format!("config error, there is no algorithm '{text}'");
            self.error(fields.position("algorithm"), message, &text, &help);
            return None;
        };
        for (key, node) in fields.iter().filter(|(key, _)| !keys(algorithm).contains(key)) {
            let takers: Vec<&str> = takers(key).collect();
            if !takers.is_empty() {
                let message = format!("config error, {text} takes no `{key}`");
                let help = format!("remove it; it is for {}", takers.join(", "));
                self.error(node.position, message, &text_of(node), &help);
            }
        }
        Some(algorithm)
    }
}
