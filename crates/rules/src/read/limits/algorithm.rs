//! Reads `algorithm` and its parameters. Limits that take too much memory or too many years to recover are rejected.

use super::fields::Fields;
use crate::model::key::Key;
use crate::model::keys::limits::{DEFAULT_BUCKETS, DEFAULT_HOLD_TIMEOUT, names, not_reservable};
use crate::read::reader::Reader;
use weir_common::suggest::nearest;
use weir_limit::{
    Algorithm, AlgorithmKind as Kind, BucketedWindow, Concurrency, FixedWindow, Gcra, GcraError,
    MAX_WAIT_YEARS, Micros, SlidingLog, SlidingWindow, TokenBucket,
};

/// A limit that may take more bytes per key than this is warned about.
const WARN_KEY_BYTES: u64 = 1 << 20;

/// Returns the names of the algorithms that accept a YAML key of limits; none if all do.
pub(super) fn takers(key: &str) -> impl Iterator<Item = &'static str> {
    let takers = Key::find(key).into_iter().flat_map(|key| key.takers);
    takers.flat_map(|kind| names(*kind)).copied()
}

/// What the limits of a rule depend on: the key of its descriptor, and whether it has `reserve` and `ban`.
#[derive(Clone, Copy)]
pub(crate) struct OfRule<'k> {
    pub key: &'k str,
    pub reserves: bool,
    pub bans: bool,
}

/// What was read of a limit before the parameters that only some algorithms have.
pub(super) struct Parameters<'k> {
    pub algorithm: Kind,
    pub n: u32,
    pub period: Micros,
    pub charge_denied: bool,
    pub hold_id: Option<String>,
    pub rule: OfRule<'k>,
}

#[derive(Clone, Copy)]
struct BucketNumbers {
    n: u32,
    period: Micros,
    burst: u32,
    max_debt: u32,
}

impl Reader<'_> {
    pub(super) fn algorithm(
        &mut self,
        fields: &Fields<'_>,
        parameters: Parameters<'_>,
    ) -> Option<Algorithm> {
        let Parameters { algorithm, n, period, charge_denied, hold_id, rule } = parameters;
        let burst = self.u32_or(fields, "burst", n)?;
        if let Some(node) = fields.get("burst").filter(|_| burst == 0 && n > 0) {
            let message = "`burst: 0` leaves no room for any hit: this limit denies everything";
            let help = "write `burst: 1` for no hits beyond an even rate, or `requests_per_unit: 0` to deny everything";
            self.warn(node.position, message.to_owned(), "0", help);
        }
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
    pub(super) fn check_reservable(&mut self, fields: &Fields<'_>, algorithm: Kind) {
        let Some(why) = not_reservable(algorithm) else { return };
        let name = fields.text("algorithm");
        let message = format!("config error, {name} beside `reserve`: {why}");
        let help = "use sliding_window for minutes, fixed_window for days and months";
        self.error(fields.position("algorithm"), message, &name, help);
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
            let fix = match key {
                "burst" if fields.get("algorithm").is_none() => "add `algorithm: gcra`",
                _ => "remove it",
            };
            let help = format!("{fix}; it is for {}", takers.join(", "));
            self.error(node.position, message, &node.shown(), &help);
        }
        Some(algorithm)
    }

    fn max_debt(&mut self, fields: &Fields<'_>, charge_denied: bool, burst: u32) -> u32 {
        let Some(node) = fields.get("max_debt") else {
            return if charge_denied { burst } else { 0 };
        };
        if !charge_denied {
            let message = "config error, `max_debt` without `charge_denied`";
            let help = "add `charge_denied: true`, or remove `max_debt`";
            self.error(node.position, message, &fields.text("max_debt"), help);
        }
        self.u32(node, "max_debt")
    }

    fn token_bucket(&mut self, fields: &Fields<'_>, numbers: BucketNumbers) -> Option<TokenBucket> {
        let BucketNumbers { n, period, burst, max_debt } = numbers;
        let amount = self.u32_or(fields, "refill_amount", n)?;
        if amount == 0 && n > 0 {
            let message = "config error, `refill_amount` is 0";
            self.error(fields.position("refill_amount"), message, "0", "write 1 or more");
            return None;
        }
        let bucket = TokenBucket {
            capacity: burst,
            amount: amount.max(1),
            interval: self.duration_or(fields, "refill_interval", period)?,
            strict: fields.get("strict").is_some_and(|node| self.bool(node, "strict")),
            max_debt,
        };
        let recoverable = bucket.max_capacity_and_debt();
        if n > 0 && u64::from(burst) + u64::from(max_debt) > recoverable {
            self.too_slow(fields, numbers, recoverable);
            return None;
        }
        Some(bucket)
    }

    fn gcra(&mut self, fields: &Fields<'_>, numbers: BucketNumbers) -> Option<Gcra> {
        let BucketNumbers { n, period, burst, max_debt } = numbers;
        let gcra = Gcra::new(n, period, burst, max_debt);
        match gcra {
            Ok(_) => {}
            Err(GcraError::TooSlow(recoverable)) => self.too_slow(fields, numbers, recoverable),
            Err(error @ GcraError::TooLarge) => {
                let message = format!("config error, this limit cannot be counted: {error}");
                let help = "reduce the burst or the period, or use token_bucket";
                self.error(fields.position("burst"), message, "", help);
            }
        }
        gcra.ok()
    }

    fn concurrency(
        &mut self,
        fields: &Fields<'_>,
        n: u32,
        hold_id: Option<String>,
        key: &str,
    ) -> Option<Concurrency> {
        if let Some(id) = hold_id.as_deref().filter(|id| *id != key) {
            let message = format!("config error, `hold_id` is '{id}', not this key");
            let help = format!(
                "the last entry identifies the hold: write `hold_id: {key}`, or move the limit to \
                 the descriptor with the key {id}"
            );
            self.error(fields.position("hold_id"), message, id, &help);
        }
        if hold_id.is_some() {
            let bytes = Concurrency::HOLD_BYTES * u64::from(n);
            self.check_key_bytes(fields, bytes, "an entry for each hold");
        }
        let timeout = self.duration_or(fields, "hold_timeout", DEFAULT_HOLD_TIMEOUT)?;
        Some(Concurrency { n, timeout, hold_id: hold_id.map(Into::into) })
    }

    /// Rejects a burst and a debt of which only `recoverable` hits come back within the maximum wait.
    fn too_slow(&mut self, fields: &Fields<'_>, numbers: BucketNumbers, recoverable: u64) {
        let BucketNumbers { burst, max_debt, .. } = numbers;
        let (key, what, max) = match recoverable.checked_sub(burst.into()) {
            None => ("burst", format!("a burst of {burst} takes"), recoverable),
            Some(max) => {
                ("max_debt", format!("a burst of {burst} and a debt of {max_debt} take"), max)
            }
        };
        let message = format!("config error, {what} more than {MAX_WAIT_YEARS} years to come back");
        let help = format!("write `{key}: {max}` or less, or raise the rate");
        self.error(fields.position(key), message, &fields.text(key), &help);
    }

    /// Rejects a limit whose state of one key may exceed `rules.max_log_bytes`, and warns about large ones.
    fn check_key_bytes(&mut self, fields: &Fields<'_>, bytes: u64, what: &str) {
        if bytes <= WARN_KEY_BYTES.min(self.options.max_log_bytes) {
            return;
        }
        let help = "use sliding_window, bucketed_window or gcra, which keep a few numbers, or \
                    lower requests_per_unit";
        let message = format!("this limit may take {bytes} bytes per key: it keeps {what}");
        let (position, text) =
            (fields.position("requests_per_unit"), fields.text("requests_per_unit"));
        if bytes > self.options.max_log_bytes {
            let message = format!(
                "config error, {message}; the maximum is {} (setting rules.max_log_bytes)",
                self.options.max_log_bytes
            );
            self.error(position, message, &text, help);
        } else {
            self.warn(position, message, &text, help);
        }
    }
}
