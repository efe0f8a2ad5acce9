//! The algorithms of rule files: their names, the keys that only some of them take, and how keys become
//! parameters.

use super::super::Reader;
use super::super::values::text_of;
use super::fields::Fields;
use weir_common::suggest::nearest;
use weir_limit::{
    Algorithm, AlgorithmKind as Kind, BucketedWindow, FixedWindow, Micros, SlidingLog,
    SlidingWindow,
};

const WITH_PERIOD: &[Kind] = &[
    Kind::FixedWindow,
    Kind::SlidingWindow,
    Kind::SlidingLog,
    Kind::BucketedWindow,
    Kind::TokenBucket,
    Kind::Gcra,
];

/// Keys that only some algorithms take, with those algorithms.
pub(super) const RESTRICTED: &[(&str, &[Kind])] = &[
    ("unit", WITH_PERIOD),
    ("unit_multiplier", WITH_PERIOD),
    ("period", WITH_PERIOD),
    ("burst", &[Kind::TokenBucket, Kind::Gcra]),
    ("refill_amount", &[Kind::TokenBucket]),
    ("refill_interval", &[Kind::TokenBucket]),
    ("strict", &[Kind::TokenBucket]),
    ("buckets", &[Kind::BucketedWindow]),
    (
        "charge_denied",
        &[
            Kind::FixedWindow,
            Kind::SlidingWindow,
            Kind::BucketedWindow,
            Kind::TokenBucket,
            Kind::Gcra,
            Kind::Concurrency,
        ],
    ),
    ("max_debt", &[Kind::TokenBucket, Kind::Gcra]),
    ("hold_id", &[Kind::Concurrency]),
    ("hold_timeout", &[Kind::Concurrency]),
    ("align", &[Kind::FixedWindow]),
    ("time_zone", &[Kind::FixedWindow]),
];

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

fn names_of(algorithms: &[Kind]) -> impl Iterator<Item = &'static str> {
    algorithms.iter().flat_map(|kind| names(*kind)).copied()
}

/// What the parameters of all algorithms depend on.
pub(super) struct Parameters<'k> {
    pub algorithm: Kind,
    pub n: u32,
    pub period: Micros,
    pub charge_denied: bool,
    pub hold_id: Option<String>,
    /// The key of the descriptor.
    pub key: &'k str,
}

impl Reader<'_> {
    pub(super) fn algorithm(
        &mut self,
        fields: &Fields<'_>,
        parameters: Parameters<'_>,
    ) -> Option<Algorithm> {
        let Parameters { algorithm, n, period, charge_denied, hold_id, key } = parameters;
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
            Kind::Concurrency => Algorithm::Concurrency(self.concurrency(fields, n, hold_id, key)?),
        })
    }

    /// Reads `algorithm`. Keys that it does not take are errors.
    pub(super) fn algorithm_name(&mut self, fields: &Fields<'_>) -> Option<Kind> {
        let text = match fields.get("algorithm") {
            Some(node) => self.string(node, "algorithm"),
            None => "fixed_window".to_owned(),
        };
        let Some(algorithm) = Kind::ALL.into_iter().find(|kind| names(*kind).contains(&&*text))
        else {
            let names: Vec<&str> = names_of(&Kind::ALL).collect();
            let help = match nearest(&text, names.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("write one of {}", names.join(", ")),
            };
            let message = format!("config error, there is no algorithm '{text}'");
            self.error(fields.position("algorithm"), message, &text, &help);
            return None;
        };
        let rejected = RESTRICTED.iter().filter(|(_, takers)| !takers.contains(&algorithm));
        for (key, takers) in rejected {
            if let Some(node) = fields.get(key) {
                let takers: Vec<&str> = names_of(takers).collect();
                let message = format!("config error, {text} takes no `{key}`");
                let help = format!("remove it; it is for {}", takers.join(", "));
                self.error(node.position, message, &text_of(node), &help);
            }
        }
        Some(algorithm)
    }
}
