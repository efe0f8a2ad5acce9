//! What a request asks, free of how it came.

use std::sync::Arc;

use crate::limit::{Limit, Plan, Unit};
use crate::store::Entry;

/// What is asked: may this happen?
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub domain: &'a str,
    pub descriptors: &'a [Descriptor<'a>],
    /// How many more descriptors were sent: so many that it is refused.
    pub beyond: usize,
    /// Hits of each descriptor that does not say its own; 0 means 1.
    pub hits_addend: u32,
}

/// What a request is about; each is looked up and decided on its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    pub entries: &'a [Entry<'a>],
    /// A limit sent along, used in place of the rules'.
    pub limit: Option<Override>,
    pub hits_addend: Option<u64>,
    pub is_negative_hits: bool,
}

/// A limit sent along with a descriptor, as it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Override {
    pub requests_per_unit: u32,
    /// The number of `envoy.type.v3.RateLimitUnit`.
    pub unit: i32,
    pub unit_multiplier: Option<u32>,
}

impl Override {
    /// The plan of the limit: a fixed window that shares its counters with a rule of the same period.
    ///
    /// # Errors
    ///
    /// What is wrong with the limit, for the client.
    pub(super) fn plan(&self) -> Result<Arc<Plan>, &'static str> {
        let unit = match self.unit {
            1 => Unit::Second,
            2 => Unit::Minute,
            3 => Unit::Hour,
            4 => Unit::Day,
            5 => Unit::Month,
            6 => Unit::Year,
            7 => Unit::Week,
            _ => {
                return Err(
                    "limit.unit is unknown: use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR",
                );
            }
        };
        let multiplier = self.unit_multiplier.unwrap_or(1);
        if multiplier == 0 {
            return Err("limit.unit_multiplier is 0: leave it out, or say 1 or more");
        }
        let limit = Limit::fixed_window(self.requests_per_unit, unit, multiplier)
            .ok_or("limit.unit_multiplier makes a period of over 100 years")?;
        Ok(Arc::new(Plan::new(vec![limit])))
    }
}
