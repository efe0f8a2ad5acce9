//! A rate-limit request and its descriptors, independent of the encoding: gRPC, JSON or the Redis protocol.

use std::sync::Arc;

use tracing::Span;

use weir_limit::{Algorithm, Calendar, Limit, Plan, Unit};
use weir_store::Entry;

/// The question whether something may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The domain whose rules apply.
    pub domain: &'a str,
    /// What is limited: the request is over its limit if one of them is.
    pub descriptors: &'a [Descriptor<'a>],
    /// The number of descriptors sent beyond those read; any is too many.
    pub beyond: usize,
    /// The hits of each descriptor without its own; 0 means 1.
    pub hits_addend: u32,
    /// The span of the request, if it is recorded.
    pub span: Option<&'a Span>,
    /// Why descriptors must not settle what is reserved, for the client; none if they may.
    pub no_settling: Option<&'static str>,
}

/// One subject of a request; each is looked up and decided separately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    /// Pairs of a key and a value, which rules match in order.
    pub entries: &'a [Entry<'a>],
    /// A limit that the client sent, used instead of the rules'.
    pub limit: Option<Override>,
    /// Its hits; none for those of the request.
    pub hits_addend: Option<u64>,
    /// Whether hits are refunded, not charged.
    pub is_negative_hits: bool,
    /// What to do about a reservation (hits reserved under an id), in place of hits.
    pub budget: Option<&'a Budget<'a>>,
}

/// What to do about what an id has reserved of the keys of a request, whatever `reserve` of their rules says. A
/// descriptor is invalid if its rule does not count by windows, or is unlimited, and if no rule applies.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// Names the reservation.
    pub id: &'a str,
    /// What to do about it.
    pub step: ReservationStep,
}

/// A step of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationStep {
    /// Reserves hits, 0 for the rule's estimate, up to its `at_most`: half of the limit, unless it is written. The same
    /// request, made again, changes nothing.
    Reserve(u32),
    /// Settles what the id has reserved with the hits that were used.
    Settle(u32),
    /// Returns what the id has reserved.
    Cancel,
}

/// A limit that the client sent with a descriptor, in fixed windows. Another `unit`, a multiplier of 0 and a period of
/// over 100 years make the descriptor invalid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Override {
    /// The hits that are allowed in each period.
    pub requests_per_unit: u32,
    /// The number of `envoy.type.v3.RateLimitUnit`: 1 second, 2 minute, 3 hour, 4 day, 5 month, 6 year, 7 week.
    pub unit: i32,
    /// How many units a period has; none for one.
    pub unit_multiplier: Option<u32>,
}

impl Override {
    /// A fixed window that shares counters with rules of its period. A month is that of `calendar`, if there is one.
    pub(super) fn plan(&self, calendar: Option<&Arc<Calendar>>) -> Result<Arc<Plan>, &'static str> {
        let unknown = "limit.unit is unknown: use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR";
        let unit = match self.unit {
            1 => Unit::Second,
            2 => Unit::Minute,
            3 => Unit::Hour,
            4 => Unit::Day,
            5 => Unit::Month,
            6 => Unit::Year,
            7 => Unit::Week,
            _ => return Err(unknown),
        };
        let multiplier = self.unit_multiplier.unwrap_or(1);
        if multiplier == 0 {
            return Err("limit.unit_multiplier is 0: leave it out, or say 1 or more");
        }
        let mut limit = Limit::fixed_window(self.requests_per_unit, unit, multiplier)
            .ok_or("limit.unit_multiplier makes a period of over 100 years")?;
        if (unit, multiplier) == (Unit::Month, 1)
            && let Algorithm::FixedWindow(window) = &mut limit.algorithm
        {
            window.calendar = calendar.cloned();
        }
        Ok(Arc::new(Plan::new(vec![limit]).without_leases()))
    }
}
