//! Reads limits: `rate_limit`, and the items of `rate_limits`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::keys::At;
use super::super::yaml::{self, Node, Place};
use super::Reader;
use super::values::text_of;
use crate::duration::read_duration;
use crate::limit::{
    Algorithm, BucketedWindow, Calendar, Concurrency, FixedWindow, Gcra, GcraError, Limit,
    MAX_WAIT_YEARS, Micros, SECOND, SlidingLog, SlidingWindow, TokenBucket, Unit,
};

/// The most limits a rule may have.
const MAX_LIMITS: usize = 16;

/// From how many bytes a key on a limit is worth a warning.
const MANY_BYTES: u64 = 1 << 20;

/// The algorithms by name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    BucketedWindow,
    TokenBucket,
    LeakyBucket,
    Gcra,
    Concurrency,
}

use Kind::{
    BucketedWindow as Bucketed, Concurrency as Held, FixedWindow as Fixed, Gcra as Cells,
    LeakyBucket as Leaky, SlidingLog as Log, SlidingWindow as Sliding, TokenBucket as Tokens,
};

const KINDS: [(&str, Kind); 8] = [
    ("fixed_window", Fixed),
    ("sliding_window", Sliding),
    ("sliding_log", Log),
    ("bucketed_window", Bucketed),
    ("token_bucket", Tokens),
    ("leaky_bucket", Leaky),
    ("gcra", Cells),
    ("concurrency", Held),
];

/// Keys that not every algorithm takes, and which do.
const TAKEN_BY: &[(&str, &[Kind])] = &[
    ("unit", &[Fixed, Sliding, Log, Bucketed, Tokens, Leaky, Cells]),
    ("unit_multiplier", &[Fixed, Sliding, Log, Bucketed, Tokens, Leaky, Cells]),
    ("period", &[Fixed, Sliding, Log, Bucketed, Tokens, Leaky, Cells]),
    ("burst", &[Tokens, Leaky, Cells]),
    ("refill_amount", &[Tokens]),
    ("refill_interval", &[Tokens]),
    ("strict", &[Tokens]),
    ("buckets", &[Bucketed]),
    ("charge_denied", &[Fixed, Sliding, Bucketed, Tokens, Leaky, Cells, Held]),
    ("max_debt", &[Tokens, Leaky, Cells]),
    ("hold_id", &[Held]),
    ("hold_timeout", &[Held]),
    ("align", &[Fixed]),
    ("time_zone", &[Fixed]),
];

/// What `rate_limit` or `rate_limits` say.
#[derive(Default)]
pub(super) struct RateLimit {
    pub name: String,
    /// Empty: unlimited.
    pub limits: Vec<Limit>,
    pub replaces: Vec<Box<str>>,
}

/// The keys of one limit.
struct Fields<'n> {
    place: Place,
    nodes: BTreeMap<&'static str, &'n Node<'n>>,
    listed: bool,
}

impl<'n> Fields<'n> {
    fn get(&self, key: &str) -> Option<&'n Node<'n>> {
        self.nodes.get(key).copied()
    }

    /// Where a key stands, or the limit where it is not there.
    fn place(&self, key: &str) -> Place {
        self.get(key).map_or(self.place, |node| node.place)
    }

    fn text(&self, key: &str) -> String {
        self.get(key).map(text_of).unwrap_or_default()
    }
}

impl Reader<'_> {
    /// Reads `rate_limit` (where it stands twice, the later one's keys over the earlier one's) and
    /// `rate_limits`. `key` is that of the descriptor.
    pub(super) fn rate_limit<'n>(
        &mut self,
        one: &[&'n Node<'n>],
        several: Option<&'n Node<'n>>,
        key: &str,
    ) -> Option<RateLimit> {
        let mut made = RateLimit::default();
        if let Some(several) = several {
            if !one.is_empty() {
                let message = "config error, both `rate_limit` and `rate_limits`";
                let help = "move the limit of `rate_limit` into the list";
                self.error(several.place, message, "", help);
            }
            let items = self.maps(several, "rate_limits");
            let is_list = matches!(several.kind(), yaml::Kind::List(_));
            if is_list && !(1..=MAX_LIMITS).contains(&items.len()) {
                let message = format!("config error, {} items in `rate_limits`", items.len());
                let help = format!("write 1 to {MAX_LIMITS} limits, each as `- unit: …`");
                self.error(several.place, message, "", &help);
            }
            for item in items {
                let fields = self.limit_fields(&[item], At::Listed);
                self.add(&mut made, &fields, key);
            }
        } else {
            one.last()?;
            let fields = self.limit_fields(one, At::Limit);
            self.add(&mut made, &fields, key);
        }
        Some(made)
    }

    fn limit_fields<'n>(&mut self, nodes: &[&'n Node<'n>], at: At) -> Fields<'n> {
        let place = nodes.last().map(|node| node.place).unwrap_or_default();
        let mut fields = BTreeMap::new();
        for node in nodes {
            fields.extend(self.fields(node, at));
        }
        Fields { place, nodes: fields, listed: at == At::Listed }
    }

    /// Adds one limit, or what it says instead of one.
    fn add(&mut self, made: &mut RateLimit, fields: &Fields<'_>, key: &str) {
        let mut string =
            |key| fields.get(key).map(|node| self.string(node, key)).unwrap_or_default();
        let name = string("name");
        let unit_text = string("unit");
        let unit = Unit::from_name(&unit_text);
        let unlimited = fields.get("unlimited").is_some_and(|node| self.bool(node, "unlimited"));
        if unlimited {
            if unit.is_some() {
                let message = "should not specify rate limit unit when unlimited";
                let help = "leave out `unit` or `unlimited`";
                self.error(fields.place("unit"), message, &unit_text, help);
            }
            // It has no effect, but must be a number all the same.
            if let Some(node) = fields.get("requests_per_unit") {
                self.u32(node, "requests_per_unit");
            }
            for (key, _) in TAKEN_BY.iter().filter(|(key, _)| *key != "unit") {
                if let Some(node) = fields.get(key) {
                    let message = format!("config error, `{key}` beside `unlimited`");
                    self.error(node.place, message, &text_of(node), "leave out one of the two");
                }
            }
        } else if let Some(limit) = self.limit(fields, &name, &unit_text, key) {
            made.limits.push(limit);
        }
        let replaces = fields.get("replaces").map(|node| self.maps(node, "replaces"));
        for node in replaces.unwrap_or_default() {
            let mut replaced = String::new();
            for (field, at) in self.fields(node, At::Replace) {
                if field == "name" {
                    replaced = self.string(at, field);
                }
            }
            if replaced.is_empty() {
                let help = "write `- name: NAME`, the `name` of another rule's rate_limit";
                self.error(node.place, "should not have an empty replaces entry", "", help);
            } else if replaced == name {
                let message = "replaces should not contain name of same descriptor";
                self.error(node.place, message, "", "name another rule, or leave it out");
            }
            made.replaces.push(replaced.into());
        }
        made.name = name;
    }

    fn limit(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        unit_text: &str,
        key: &str,
    ) -> Option<Limit> {
        let kind = self.kind(fields)?;
        let n =
            fields.get("requests_per_unit").map_or(0, |node| self.u32(node, "requests_per_unit"));
        let hold_id = fields.get("hold_id").map(|node| self.string(node, "hold_id"));
        let (unit, multiplier, period) = match kind {
            Held => (None, 1, 0),
            _ => {
                let (unit, multiplier) = self.unit(fields, unit_text)?;
                (Some(unit), multiplier, unit.period(multiplier)?)
            }
        };
        let by_default = match kind {
            Fixed => !fields.listed && !self.together,
            Held => hold_id.is_none(),
            _ => false,
        };
        let asked = fields.get("charge_denied").map(|node| self.bool(node, "charge_denied"));
        let charge_denied = asked.unwrap_or(by_default);
        if self.together && charge_denied {
            let (message, help) = match kind {
                Held if asked.is_none() => (
                    "config error, concurrency without `hold_id` under `charge: together`",
                    "name the entry that tells holds apart in `hold_id`, so that the end of a \
                     denied request gives nothing back",
                ),
                _ => (
                    "config error, `charge_denied` under `charge: together`",
                    "leave one of the two out: together, what is denied is not charged",
                ),
            };
            self.error(fields.place("charge_denied"), message, "", help);
        }
        let algorithm = self.algorithm(kind, fields, n, period, charge_denied, hold_id, key)?;
        Some(Limit {
            name: name.into(),
            requests_per_unit: n,
            unit,
            unit_multiplier: multiplier,
            charge_denied,
            shadow_mode: fields.listed
                && fields.get("shadow_mode").is_some_and(|node| self.bool(node, "shadow_mode")),
            algorithm,
        })
    }

    /// The algorithm by its name; keys that it does not take are errors.
    fn kind(&mut self, fields: &Fields<'_>) -> Option<Kind> {
        let text = match fields.get("algorithm") {
            Some(node) => self.string(node, "algorithm"),
            None => "fixed_window".to_owned(),
        };
        let Some(&(name, kind)) = KINDS.iter().find(|(name, _)| *name == text) else {
            let names = KINDS.map(|(name, _)| name);
            let help = match crate::suggest::nearest(&text, names.into_iter()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("write one of {}", names.join(", ")),
            };
            let message = format!("config error, there is no algorithm '{text}'");
            self.error(fields.place("algorithm"), message, &text, &help);
            return None;
        };
        for (key, takers) in TAKEN_BY.iter().filter(|(_, takers)| !takers.contains(&kind)) {
            if let Some(node) = fields.get(key) {
                let takers: Vec<&str> = KINDS
                    .iter()
                    .filter(|(_, kind)| takers.contains(kind))
                    .map(|(name, _)| *name)
                    .collect();
                let message = format!("config error, {name} takes no `{key}`");
                let help = format!("leave it out; it is for {}", takers.join(", "));
                self.error(node.place, message, &text_of(node), &help);
            }
        }
        Some(kind)
    }

    /// The unit and how many of it make the period.
    fn unit(&mut self, fields: &Fields<'_>, text: &str) -> Option<(Unit, u32)> {
        let multiplier =
            fields.get("unit_multiplier").map(|node| (node, self.u32(node, "unit_multiplier")));
        if let Some(node) = fields.get("period") {
            if fields.get("unit").is_some() || multiplier.is_some() {
                let message = "config error, both `period` and `unit`";
                self.error(node.place, message, &text_of(node), "leave one of them out");
            }
            return self.period(node);
        }
        let Some(unit) = Unit::from_name(text) else {
            let help = "write one of second, minute, hour, day, week, month, year";
            let message = format!("invalid rate limit unit '{text}'");
            self.error(fields.place("unit"), message, text, help);
            return None;
        };
        let (node, multiplier) = multiplier.unzip();
        let multiplier = multiplier.unwrap_or(1);
        if unit.period(multiplier).is_none() {
            let message = format!(
                "unit_multiplier {multiplier} makes a period that is not between one second and \
                 100 years"
            );
            let help = "write a number of at least 1, and a period of at most 100 years";
            let place = node.map_or(fields.place, |node| node.place);
            self.error(place, message, &multiplier.to_string(), help);
            return None;
        }
        Some((unit, multiplier))
    }

    /// A period as the largest unit it is a whole number of.
    fn period(&mut self, node: &Node<'_>) -> Option<(Unit, u32)> {
        let text = self.string(node, "period");
        let seconds = read_duration(&text).filter(|time| time.subsec_nanos() == 0);
        let found = seconds.and_then(|time| {
            let mut units = Unit::ALL;
            units.sort_by_key(|unit| std::cmp::Reverse(unit.seconds()));
            let unit = units.into_iter().find(|unit| time.as_secs() % unit.seconds() == 0)?;
            let multiplier = u32::try_from(time.as_secs() / unit.seconds()).ok()?;
            unit.period(multiplier).map(|_| (unit, multiplier))
        });
        if found.is_none() {
            let message = format!("config error, `period` is '{text}'");
            let help = "write whole seconds from 1s to 100 years, such as 15m, 36h or 7d";
            self.error(node.place, message, &text, help);
        }
        found
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one limit")]
    fn algorithm(
        &mut self,
        kind: Kind,
        fields: &Fields<'_>,
        n: u32,
        period: Micros,
        charge_denied: bool,
        hold_id: Option<String>,
        key: &str,
    ) -> Option<Algorithm> {
        let burst = fields.get("burst").map_or(n, |node| self.u32(node, "burst"));
        if fields.get("max_debt").is_some() && !charge_denied {
            let message = "config error, `max_debt` without `charge_denied`";
            let help = "add `charge_denied: true`, or leave `max_debt` out";
            self.error(fields.place("max_debt"), message, &fields.text("max_debt"), help);
        }
        let max_debt = match fields.get("max_debt") {
            Some(node) => self.u32(node, "max_debt"),
            None if charge_denied => burst,
            None => 0,
        };
        Some(match kind {
            Fixed => {
                let calendar = self.calendar(fields)?;
                Algorithm::FixedWindow(FixedWindow { n, period, calendar })
            }
            Sliding => Algorithm::SlidingWindow(SlidingWindow { n, period }),
            Log => {
                self.check_bytes(fields, 8 * u64::from(n), "a stamp for each of its hits");
                Algorithm::SlidingLog(SlidingLog { n, period })
            }
            Bucketed => {
                let buckets = fields.get("buckets").map_or(60, |node| self.u32(node, "buckets"));
                if !(2..=3_600).contains(&buckets) {
                    let message = format!("config error, `buckets` is {buckets}");
                    let place = fields.place("buckets");
                    self.error(place, message, &buckets.to_string(), "write 2 to 3600");
                    return None;
                }
                Algorithm::BucketedWindow(BucketedWindow { n, period, buckets })
            }
            Tokens => {
                let amount =
                    fields.get("refill_amount").map_or(n, |node| self.u32(node, "refill_amount"));
                if amount == 0 && n > 0 {
                    let message = "config error, `refill_amount` is 0";
                    self.error(fields.place("refill_amount"), message, "0", "write 1 or more");
                    return None;
                }
                let bucket = TokenBucket {
                    capacity: burst,
                    amount: amount.max(1),
                    interval: self.time(fields, "refill_interval", period)?,
                    strict: fields.get("strict").is_some_and(|node| self.bool(node, "strict")),
                    max_debt,
                };
                let in_time = bucket.comes_in_time();
                if n > 0 && u64::from(burst) + u64::from(max_debt) > in_time {
                    self.too_slow(fields, burst, max_debt, in_time);
                    return None;
                }
                Algorithm::TokenBucket(bucket)
            }
            Leaky | Cells => match Gcra::new(n, period, burst, max_debt) {
                Ok(gcra) => Algorithm::Gcra(gcra),
                Err(GcraError::TooSlow(in_time)) => {
                    self.too_slow(fields, burst, max_debt, in_time);
                    return None;
                }
                Err(error @ GcraError::TooLarge) => {
                    let message = format!("config error, this limit cannot be counted: {error}");
                    let help = "make the burst or the period smaller, or use token_bucket";
                    self.error(fields.place("burst"), message, "", help);
                    return None;
                }
            },
            Held => {
                if let Some(id) = hold_id.as_deref().filter(|id| *id != key) {
                    let message = format!("config error, `hold_id` is '{id}', not this key");
                    let help = format!(
                        "the last entry names the hold: write `hold_id: {key}`, or move the limit \
                         to the descriptor of the key {id}"
                    );
                    self.error(fields.place("hold_id"), message, id, &help);
                }
                if hold_id.is_some() {
                    self.check_bytes(fields, 24 * u64::from(n), "an entry for each hold");
                }
                Algorithm::Concurrency(Concurrency {
                    n,
                    timeout: self.time(fields, "hold_timeout", 60 * SECOND)?,
                    hold_id: hold_id.map(Into::into),
                })
            }
        })
    }

    /// Refuses a burst and a debt of which only `in_time` are back within the longest wait.
    fn too_slow(&mut self, fields: &Fields<'_>, burst: u32, max_debt: u32, in_time: u64) {
        let (key, what, most) = match in_time.checked_sub(burst.into()) {
            None => ("burst", format!("a burst of {burst} takes"), in_time),
            Some(most) => {
                ("max_debt", format!("a burst of {burst} and a debt of {max_debt} take"), most)
            }
        };
        let message = format!("config error, {what} more than {MAX_WAIT_YEARS} years to come back");
        let help = format!("write `{key}: {most}` or less, or raise the rate");
        self.error(fields.place(key), message, &fields.text(key), &help);
    }

    /// A length of time from a microsecond to 100 years.
    fn time(&mut self, fields: &Fields<'_>, key: &'static str, default: Micros) -> Option<Micros> {
        let Some(node) = fields.get(key) else { return Some(default) };
        let text = self.string(node, key);
        let most = u128::from(crate::limit::MAX_PERIOD_SECONDS * SECOND);
        let found = read_duration(&text).map(|time| time.as_micros());
        let Some(micros) = found.filter(|micros| (1..=most).contains(micros)) else {
            let message = format!("config error, `{key}` is '{text}'");
            let help = "write a duration up to 100 years, such as 100ms, 30s or 1h";
            self.error(node.place, message, &text, help);
            return None;
        };
        Some(micros as Micros)
    }

    /// The calendar that windows follow, where one is asked for; none of the outer where what is
    /// asked for cannot be.
    fn calendar(&mut self, fields: &Fields<'_>) -> Option<Option<Arc<Calendar>>> {
        let align = match fields.get("align") {
            Some(node) => self.string(node, "align"),
            None => "epoch".to_owned(),
        };
        let zone = fields.get("time_zone").map(|node| self.string(node, "time_zone"));
        match align.as_str() {
            "epoch" => {
                if let Some(zone) = zone {
                    let message = "config error, `time_zone` without `align: calendar`";
                    let help = "add `align: calendar`, or leave `time_zone` out";
                    self.error(fields.place("time_zone"), message, &zone, help);
                }
                return Some(None);
            }
            "calendar" => {}
            _ => {
                let message = format!("config error, `align` is '{align}'");
                self.error(fields.place("align"), message, &align, "write epoch or calendar");
                return None;
            }
        }
        let unit = Unit::from_name(&fields.text("unit"));
        let multiplied = fields.get("unit_multiplier").is_some_and(|node| text_of(node) != "1");
        let zone = zone.unwrap_or_else(|| "UTC".to_owned());
        let made = match unit {
            Some(unit) if !multiplied => {
                Calendar::new(unit, &zone).map_err(|error| error.to_string())
            }
            _ => Err("only one day, week, month or year follows the calendar".to_owned()),
        };
        match made {
            Ok(calendar) => Some(Some(Arc::new(calendar))),
            Err(error) => {
                let wrong = if error.contains("zone") { "time_zone" } else { "align" };
                let help = "calendar windows are `unit: day`, week, month or year, and a \
                            `time_zone` is an IANA name such as Europe/Berlin";
                let message = format!("config error, {error}");
                self.error(fields.place(wrong), message, &fields.text(wrong), help);
                None
            }
        }
    }

    /// Refuses a limit whose state may grow beyond what a key may weigh, and warns of a heavy one.
    fn check_bytes(&mut self, fields: &Fields<'_>, bytes: u64, what: &str) {
        if bytes <= MANY_BYTES.min(self.max_log_bytes) {
            return;
        }
        let help = "use sliding_window, bucketed_window or gcra, which keep a few numbers, or \
                    lower requests_per_unit";
        let message = format!("this limit may take {bytes} bytes a key: it keeps {what}");
        let (place, text) = (fields.place("requests_per_unit"), fields.text("requests_per_unit"));
        if bytes > self.max_log_bytes {
            let message = format!(
                "config error, {message}; {} are allowed (setting rules.max_log_bytes)",
                self.max_log_bytes
            );
            self.error(place, message, &text, help);
        } else {
            self.warn(place, message, &text, help);
        }
    }
}
