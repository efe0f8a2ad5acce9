//! Reads the parameters of algorithms, and rejects limits that take too much or never recover.

use super::super::Reader;
use super::fields::Fields;
use crate::model::keys::limits::DEFAULT_HOLD_TIMEOUT;
use weir_limit::{Concurrency, Gcra, GcraError, MAX_WAIT_YEARS, Micros, TokenBucket};

/// A limit that may take more bytes per key than this is a warning.
const WARN_KEY_BYTES: u64 = 1 << 20;

/// The numbers of a limit that a bucket is made of.
#[derive(Clone, Copy)]
pub(super) struct BucketNumbers {
    pub n: u32,
    pub period: Micros,
    pub burst: u32,
    pub max_debt: u32,
}

impl Reader<'_> {
    /// Reads `max_debt`: the debt of denied hits that are charged.
    pub(super) fn max_debt(&mut self, fields: &Fields<'_>, charge_denied: bool, burst: u32) -> u32 {
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

    pub(super) fn token_bucket(
        &mut self,
        fields: &Fields<'_>,
        numbers: BucketNumbers,
    ) -> Option<TokenBucket> {
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

    pub(super) fn gcra(&mut self, fields: &Fields<'_>, numbers: BucketNumbers) -> Option<Gcra> {
        let BucketNumbers { n, period, burst, max_debt } = numbers;
        match Gcra::new(n, period, burst, max_debt) {
            Ok(gcra) => Some(gcra),
            Err(GcraError::TooSlow(recoverable)) => {
                self.too_slow(fields, numbers, recoverable);
                None
            }
            Err(error @ GcraError::TooLarge) => {
                let message = format!("config error, this limit cannot be counted: {error}");
                let help = "reduce the burst or the period, or use token_bucket";
                self.error(fields.position("burst"), message, "", help);
                None
            }
        }
    }

    pub(super) fn concurrency(
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
            self.check_key_bytes(
                fields,
                Concurrency::HOLD_BYTES * u64::from(n),
                "an entry for each hold",
            );
        }
        let timeout = self.duration_or(fields, "hold_timeout", DEFAULT_HOLD_TIMEOUT)?;
        Some(Concurrency { n, timeout, hold_id: hold_id.map(Into::into) })
    }

    /// Rejects a burst and a debt that take longer than the maximum wait to recover; `recoverable`
    /// is the number of hits that recover in time.
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

    /// Rejects a limit whose state of one key may exceed `rules.max_log_bytes`, and warns about large
    /// ones.
    pub(super) fn check_key_bytes(&mut self, fields: &Fields<'_>, bytes: u64, what: &str) {
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
