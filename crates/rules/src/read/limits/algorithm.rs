//! Reads the algorithm of a limit: its name, and how the keys become parameters.

use super::super::Reader;
use super::OfRule;
use super::fields::Fields;
use super::parameters::BucketNumbers;
use crate::model::keys::Key;
use crate::model::keys::limits::{DEFAULT_BUCKETS, names, not_reservable};
use weir_common::suggest::nearest;
use weir_limit::{
    Algorithm, AlgorithmKind as Kind, BucketedWindow, FixedWindow, Micros, SlidingLog,
    SlidingWindow,
};

/// Returns the names of the algorithms that take a key; none if it is for all.
pub(super) fn takers(key: &str) -> impl Iterator<Item = &'static str> {
    let takers = Key::find(key).into_iter().flat_map(|key| key.takers);
    takers.flat_map(|kind| names(*kind)).copied()
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
        let burst = self.u32_or(fields, "burst", n)?;
        let max_debt = self.max_debt(fields, charge_denied, burst);
        let numbers = BucketNumbers { n, period, burst, max_debt };
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
                let buckets = self.u32_or(fields, "buckets", DEFAULT_BUCKETS)?;
                Algorithm::BucketedWindow(BucketedWindow { n, period, buckets })
            }
            Kind::TokenBucket => Algorithm::TokenBucket(self.token_bucket(fields, numbers)?),
            Kind::Gcra => Algorithm::Gcra(self.gcra(fields, numbers)?),
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
        let is_for_others = |key: &str| Key::find(key).is_some_and(|key| !key.is_for(algorithm));
        for (key, node) in fields.iter().filter(|(key, _)| is_for_others(key)) {
            let takers: Vec<&str> = takers(key).collect();
            let message = format!("config error, {text} takes no `{key}`");
            let help = format!("remove it; it is for {}", takers.join(", "));
            self.error(node.position, message, &node.shown(), &help);
        }
        Some(algorithm)
    }
}
