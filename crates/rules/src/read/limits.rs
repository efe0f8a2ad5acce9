//! Reads the limits of a rule: `rate_limit` or `rate_limits`, and `lease` (may hits be charged ahead of requests).

pub(super) mod algorithm;
pub(super) mod fields;
mod period;

use super::reader::{Reader, ReplacedName};
use super::rule_memory::{LIMIT_BYTES, REPLACED_BYTES};
use crate::model::key::{Key, Section};
use crate::model::keys::limits::charges_denied_by_default;
use crate::rate::Rate;
use crate::syntax::position::Position;
use crate::syntax::tree::{Content, Node};
use algorithm::{OfRule, Parameters};
use fields::{Fields, MAX_LIMITS};
use weir_limit::{AlgorithmKind, Limit, Plan, Unit};

/// The content of `rate_limit` or `rate_limits`.
#[derive(Default)]
pub(super) struct LimitFields {
    pub name: String,
    /// Empty for an unlimited rule.
    pub limits: Vec<Limit>,
    /// Where each of the limits is, also of those that are invalid.
    pub places: Vec<LimitPlace>,
    pub replaces: Vec<ReplacedName>,
}

impl LimitFields {
    /// The size of the limits, for the memory bound of a file: [`RuleMemory`](super::rule_memory::RuleMemory).
    pub fn bytes(&self) -> usize {
        let replaces = self.replaces.iter().map(|item| REPLACED_BYTES + item.name.len());
        let limits = self.limits.iter().map(|limit| LIMIT_BYTES + limit.name.len());
        replaces.chain(limits).sum()
    }
}

/// Where a limit is written.
pub(super) struct LimitPlace {
    pub position: Position,
    /// Whether the limit has `requests_per_unit`.
    pub has_number: bool,
}

impl Reader<'_> {
    /// Reads `rate_limit` and `rate_limits`. Later keys of a repeated `rate_limit` override earlier ones.
    pub(super) fn rate_limit<'n>(
        &mut self,
        rate_limit: &[&'n Node<'n>],
        rate_limits: Option<&'n Node<'n>>,
        rule: OfRule<'_>,
    ) -> Option<LimitFields> {
        let mut result = LimitFields::default();
        if let Some(list) = rate_limits {
            if !rate_limit.is_empty() {
                let message = "config error, both `rate_limit` and `rate_limits`";
                let help = "move the limit of `rate_limit` into the list";
                self.error(list.position, message, "", help);
            }
            let count = if list.is_null() { Some(0) } else { list.items().map(<[_]>::len) };
            if let Some(count) = count.filter(|count| !(1..=MAX_LIMITS).contains(count)) {
                let message = format!("config error, {count} items in `rate_limits`");
                let help = format!("write 1 to {MAX_LIMITS} limits, each as `- rate: 10/s`");
                self.error(list.position, message, "", &help);
                // A million items would be read, and compared with each other, for nothing.
                return Some(result);
            }
            for item in &self.maps(list, "rate_limits") {
                let fields = self.limit_fields(&[item], item.position, Section::ListedLimit);
                self.add_limit(&mut result, &fields, rule);
            }
        } else {
            let last = rate_limit.last()?;
            let is_map = |node: &Node<'_>| matches!(node.content(), Content::Map(_));
            if let Some(other) = rate_limit.iter().find(|node| !is_map(node) && !node.is_null()) {
                let message =
                    format!("error loading config file: cannot use {} as a map", other.described());
                self.error(other.position, message, &other.shown(), &map_of_limit(other));
                // That it has no unit and no number follows from it.
                return Some(result);
            }
            let fields = self.limit_fields(rate_limit, last.position, Section::Limit);
            self.add_limit(&mut result, &fields, rule);
        }
        Some(result)
    }

    /// Adds the limit of one map, unless it is unlimited, and its name and replacements.
    fn add_limit(&mut self, result: &mut LimitFields, fields: &Fields<'_>, rule: OfRule<'_>) {
        let mut string =
            |key| fields.get(key).map(|node| self.string(node, key)).unwrap_or_default();
        let name = string("name");
        let unit = string("unit");
        self.lint_limit_name(&name, fields.position("name"));
        let unlimited = fields.get("unlimited").is_some_and(|node| self.bool(node, "unlimited"));
        if unlimited {
            self.unlimited(fields, &unit, rule);
        } else if !fields.has_invalid_rate {
            let number = fields.get("requests_per_unit");
            let has_number = fields.has_unknown || number.is_some_and(|node| !node.is_null());
            result.places.push(LimitPlace { position: fields.position, has_number });
            result.limits.extend(self.limit(fields, &name, &unit, rule));
        }
        let replaces = fields.get("replaces").map(|node| self.maps(node, "replaces"));
        for node in replaces.unwrap_or_default() {
            let replaced = self.replaced_name(node, &name).into();
            result.replaces.push(ReplacedName { name: replaced, position: node.position });
        }
        result.name = name;
    }

    /// Checks what is written beside `unlimited: true`.
    fn unlimited(&mut self, fields: &Fields<'_>, unit: &str, rule: OfRule<'_>) {
        if rule.reserves {
            let message = "config error, `unlimited` beside `reserve`";
            let help = "remove one of the two: without a limit, nothing is reserved";
            self.error(fields.position("unlimited"), message, "true", help);
        }
        if Unit::from_name(unit).is_some() {
            let message = "should not specify rate limit unit when unlimited";
            let help = "remove `unit` or `unlimited`";
            self.error(fields.position("unit"), message, unit, help);
        }
        // It has no effect, but the reference requires a number all the same.
        if let Some(node) = fields.get("requests_per_unit") {
            self.u32(node, "requests_per_unit");
        }
        for (key, node) in fields.iter().filter(|(key, _)| *key != "unit") {
            if algorithm::takers(key).next().is_some() {
                let message = format!("config error, `{key}` beside `unlimited`");
                self.error(node.position, message, &node.shown(), "remove one of the two");
            }
        }
    }

    /// Reads the name in an item of `replaces`. `own` is the name of the limit that the item belongs to.
    fn replaced_name(&mut self, node: &Node<'_>, own: &str) -> String {
        let mut replaced = String::new();
        for (field, value) in self.fields(node, Section::Replacement) {
            if field == "name" {
                replaced = self.string(value, field);
            }
        }
        if replaced.is_empty() {
            let help = "write `- name: NAME`, the `name` of another rule's rate_limit";
            self.error(node.position, "should not have an empty replaces entry", "", help);
        } else if replaced == own {
            let message = "replaces should not contain name of same descriptor";
            self.error(node.position, message, "", "name another rule, or remove the item");
        }
        replaced
    }

    fn limit(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        unit: &str,
        rule: OfRule<'_>,
    ) -> Option<Limit> {
        let algorithm = self.algorithm_name(fields)?;
        if rule.reserves {
            self.check_reservable(fields, algorithm);
        }
        let n = self.u32_or(fields, "requests_per_unit", 0)?;
        let hold_id = fields.get("hold_id").map(|node| self.string(node, "hold_id"));
        let charge_denied = self.charge_denied(fields, algorithm, hold_id.is_some(), rule);
        let (unit, multiplier, period) =
            match Key::find("period").is_some_and(|period| period.is_for(algorithm)) {
                false => (None, 1, 0),
                true => {
                    let (unit, multiplier) = self.unit(fields, unit)?;
                    (Some(unit), multiplier, unit.period(multiplier)?)
                }
            };
        let parameters = Parameters { algorithm, n, period, charge_denied, hold_id, rule };
        let algorithm = self.algorithm(fields, parameters)?;
        Some(Limit {
            name: name.into(),
            requests_per_unit: n,
            unit,
            unit_multiplier: multiplier,
            in_days: matches!(unit, Some(Unit::Month | Unit::Year))
                && fields.get("period").is_some(),
            charge_denied,
            shadow_mode: fields.listed
                && fields.get("shadow_mode").is_some_and(|node| self.bool(node, "shadow_mode")),
            algorithm,
        })
    }

    /// Returns whether denied hits are charged: as written, or the default of the algorithm.
    fn charge_denied(
        &mut self,
        fields: &Fields<'_>,
        algorithm: AlgorithmKind,
        has_hold_id: bool,
        rule: OfRule<'_>,
    ) -> bool {
        let is_alone = !fields.listed && !self.together && !rule.reserves;
        let default = charges_denied_by_default(algorithm, is_alone, has_hold_id);
        let written = fields.get("charge_denied").map(|node| self.bool(node, "charge_denied"));
        let charge_denied = written.unwrap_or(default);
        if rule.reserves && written == Some(true) {
            let message = "config error, `charge_denied` beside `reserve`";
            let help =
                "remove it: what is denied reserves nothing, and settling charges what was used";
            self.error(fields.position("charge_denied"), message, "true", help);
        }
        if self.together && charge_denied {
            let (message, help) = match written {
                // Under `together`, only this default charges.
                None => (
                    "config error, concurrency without `hold_id` under `charge: together`",
                    "set `hold_id` to the key that identifies a hold, so that the end of a denied \
                     request returns nothing",
                ),
                Some(_) => (
                    "config error, `charge_denied` under `charge: together`",
                    "remove one of the two (`charge` may be in an overlay): under `together`, denied hits are \
                     not charged",
                ),
            };
            self.error(fields.position("charge_denied"), message, "", help);
        }
        charge_denied
    }

    /// Reads the `lease` of a rule with these limits: whether their hits may be leased.
    pub(super) fn lease(
        &mut self,
        node: &Node<'_>,
        rule: OfRule<'_>,
        limits: Option<&LimitFields>,
    ) -> bool {
        let lease = self.bool(node, "lease");
        let Some(LimitFields { limits, .. }) = limits else {
            let help = "write it beside the `rate_limit` or `rate_limits` that it is for";
            let text = node.shown();
            self.error(node.position, "config error, `lease` without a limit", &text, help);
            return lease;
        };
        let causes = if lease { lease_errors(limits, rule, self.together) } else { Vec::new() };
        for (cause, help) in causes {
            let message = format!("config error, `lease` {cause}");
            let help = format!("write `lease: false` or remove it: {help}");
            self.error(node.position, message, "true", &help);
        }
        lease
    }
}

/// Returns why the hits of a rule cannot be leased, each cause with what to know about it; none if they can.
fn lease_errors(limits: &[Limit], rule: OfRule<'_>, together: bool) -> Vec<(String, &'static str)> {
    let mut causes = Vec::new();
    for limit in limits.iter().filter(|limit| !is_window(limit)) {
        let name = limit.algorithm.name();
        let help = "only fixed_window, sliding_window and bucketed_window can be leased";
        causes.push((format!("with {name}"), help));
    }
    let of_limits = [
        (
            limits.iter().any(|limit| limit.shadow_mode),
            "with a limit in `shadow_mode`",
            "what such a limit would deny is counted hit by hit",
        ),
        (
            limits.len() > 1 && limits.iter().any(|limit| limit.charge_denied),
            "with `charge_denied` in `rate_limits`",
            "such a limit also counts what the others deny",
        ),
        (rule.reserves, "beside `reserve`", "what is reserved is charged when it is asked for"),
        (rule.bans, "beside `ban`", "each denial is counted when it happens"),
        (together, "under `charge: together`", "all descriptors of a request are charged at once"),
    ];
    let found = of_limits.into_iter().filter(|(applies, ..)| *applies);
    causes.extend(found.map(|(_, cause, help)| (cause.to_owned(), help)));
    causes
}

fn is_window(limit: &Limit) -> bool {
    Plan::new(vec![Limit { shadow_mode: false, ..limit.clone() }]).can_lease()
}

/// Returns what to write instead of a `rate_limit` that is no map: the short form, with its rate if it is one.
fn map_of_limit(node: &Node<'_>) -> String {
    match node.text().and_then(|text| text.parse::<Rate>().ok()) {
        Some(rate) => format!("write `rate: {rate}`"),
        None => {
            "write `rate: 5/m` instead, or a map such as `rate_limit: { rate: 5/m }`".to_owned()
        }
    }
}
