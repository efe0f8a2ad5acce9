//! Describes compiled rules: as JSON for `/v1`, and as text for the debug page `/rlconfig` and for `weir check`.

use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::matcher::{Domain, RuleSet};
use crate::model::keys::limits::{Parameter, ParameterValue, parameters};
use crate::model::reserve::Reserve;
use crate::model::rule::{Metadata, Rule};
use crate::model::value_set::{Group, MatchKind};
use crate::rate::Rate;
use crate::syntax::position::Origin;
use weir_common::duration::exact;
use weir_common::entry::OwnedEntry;
use weir_limit::{Algorithm, AlgorithmKind, Ban, FixedWindow, Limit, Micros, SECOND};

/// A rule as `/v1` and commands show it in JSON. Members have the names of the keys of rule files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleDescription {
    /// The domain of the rule.
    pub domain: String,
    /// The path of the rule: its keys and values, such as `plan_gold.user`.
    pub rule: String,
    /// The path with hashes in place of secret values, where the rule names any; only in lists of all rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted_rule: Option<String>,
    /// The keys and the values that it names; a value is empty if it names none.
    pub entries: Vec<OwnedEntry>,
    /// The file and the position of the rule.
    #[serde(flatten)]
    pub origin: Origin,
    /// Whether it has no limits.
    pub unlimited: bool,
    /// Its limits, in order.
    pub limits: Vec<LimitDescription>,
    /// The name of the first limit.
    pub name: String,
    /// The names of rules that it replaces.
    pub replaces: Box<[Box<str>]>,
    /// Whether it only counts.
    pub shadow_mode: bool,
    /// Whether it counts as a quota.
    pub quota_mode: bool,
    /// Whether all values of a request distinguish its metrics.
    pub detailed_metric: bool,
    /// Whether values that it does not name distinguish its metrics.
    pub value_to_metric: bool,
    /// What it adds to answers.
    pub metadata: Option<Metadata>,
    /// How its hits are reserved; none if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Box<Reserve>>,
    /// When its keys are banned; none if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanDescription>,
    /// `false` if its hits are never charged early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<bool>,
    /// `network` or `list`, if the last entry names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<MatchKind>,
    /// The number of values of the rule's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<usize>,
    /// The lengths of the prefixes by which addresses are counted, unless each is by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// The places of the patches that changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<String>,
    /// What the domain of the rule adds; only in lists of all rules.
    #[serde(flatten)]
    pub of_domain: Option<RuleOfDomain>,
}

/// The key `ban` of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BanDescription {
    /// The denials with which a ban begins.
    pub after: u8,
    /// The seconds within which they count.
    pub within_seconds: f64,
    /// The seconds of bans in a row: the last is that of all further ones.
    pub for_seconds: Vec<f64>,
    /// The seconds without a ban after which lengths start over.
    pub forget_seconds: f64,
    /// All of it in words.
    pub text: String,
}

impl BanDescription {
    fn new(ban: &Ban) -> BanDescription {
        let seconds = |time: Micros| time as f64 / SECOND as f64;
        BanDescription {
            after: ban.after,
            within_seconds: seconds(ban.within),
            for_seconds: ban.lengths.iter().copied().map(seconds).collect(),
            forget_seconds: seconds(ban.forget),
            text: ban_text(ban),
        }
    }
}

/// `banned for 1m, 10m, then 1h after 10 denials in 10m`.
fn ban_text(ban: &Ban) -> String {
    let shown = |time: &Micros| exact(Duration::from_micros(*time));
    let lengths = match &*ban.lengths {
        [all @ .., last] if !all.is_empty() => {
            let all: Vec<String> = all.iter().map(shown).collect();
            format!("{}, then {}", all.join(", "), shown(last))
        }
        lengths => lengths.iter().map(shown).collect(),
    };
    let denials = if ban.after == 1 { "denial" } else { "denials" };
    let forgotten = match ban.lengths.len() > 1 && ban.forget != Ban::default_forget(&ban.lengths) {
        true => format!(", forgotten after {}", shown(&ban.forget)),
        false => String::new(),
    };
    let within = shown(&ban.within);
    format!("banned for {lengths} after {} {denials} in {within}{forgotten}", ban.after)
}

/// What the domain of a rule adds to its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleOfDomain {
    /// For each entry, whether all values of a wildcard share the limits.
    pub share_threshold: Vec<bool>,
    /// `together` or `each`.
    pub charge: String,
    /// The failure policy of the domain; none if the settings decide.
    pub on_store_failure: Option<String>,
}

/// A limit of a rule, with the names of rule files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitDescription {
    /// The number and the period in short form; none if it has no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The hits that one period allows.
    pub requests_per_unit: u32,
    /// The unit of the period; none if it has no period.
    pub unit: Option<String>,
    /// How many units a period has.
    pub unit_multiplier: u32,
    /// The algorithm.
    pub algorithm: String,
    /// Whether denied hits are charged too.
    pub charge_denied: bool,
    /// Whether the limit only counts.
    pub shadow_mode: bool,
    /// The name of the limit; empty if it has none.
    pub name: String,
    /// The other parameters of the algorithm.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

impl RuleSet {
    /// Returns all rules as JSON, one a line, in the order of the files. `redact` returns paths that are to be
    /// shown in place of those with secret values.
    pub fn to_json(&self, redact: &dyn Fn(&Rule) -> Option<String>) -> String {
        let mut out = String::from("{\"rules\":[");
        for (i, rule) in self.rules().enumerate() {
            out += if i > 0 { ",\n" } else { "\n" };
            let mut description = rule.describe();
            description.redacted_rule = redact(rule);
            description.of_domain = self.domain(rule.domain()).map(|domain| RuleOfDomain {
                share_threshold: domain.root.share_thresholds(rule.entries()),
                charge: domain.charge().to_owned(),
                on_store_failure: domain.on_store_failure.map(|policy| policy.name().to_owned()),
            });
            // Texts, numbers and lists of them are always valid.
            out += &serde_json::to_string(&description).unwrap_or_default();
        }
        out + "\n]}\n"
    }

    /// Lists the rules, one a line, in the format of the reference's `/rlconfig`, and appends what that cannot show.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        for rule in self.rules() {
            let limit = rule.limits().first();
            let unit = limit.and_then(|limit| limit.unit).map_or("unknown", |unit| unit.name());
            let unit = unit.to_ascii_uppercase();
            let n = limit.map_or(0, |limit| limit.requests_per_unit);
            let Rule { name, shadow_mode, quota_mode, .. } = rule;
            let more = extensions(rule, self.domain(rule.domain()));
            let _ = writeln!(
                out,
                "{name}: unit={unit} requests_per_unit={n}, shadow_mode: {shadow_mode}, quota_mode: {quota_mode}{more}"
            );
        }
        out
    }
}

impl Domain {
    /// Returns how the descriptors of a request are charged, as rule files name it.
    pub fn charge(&self) -> &'static str {
        if self.together { "together" } else { "each" }
    }
}

impl Rule {
    /// Returns the limits in words, or `unlimited`.
    pub fn limits_text(&self) -> String {
        let limits: Vec<String> = self.limits().iter().map(Limit::to_string).collect();
        match self.ban() {
            _ if limits.is_empty() => "unlimited".to_owned(),
            None => limits.join(" + "),
            Some(ban) => format!("{}; {}", limits.join(" + "), ban_text(ban)),
        }
    }

    /// Describes the rule, without what its domain adds.
    pub fn describe(&self) -> RuleDescription {
        RuleDescription {
            domain: self.domain().to_owned(),
            rule: self.path().to_owned(),
            redacted_rule: None,
            entries: OwnedEntry::copied(self.entries()),
            origin: self.origin.clone(),
            unlimited: self.plan.is_none(),
            limits: self.limits().iter().map(describe_limit).collect(),
            name: self.limit_name(0).to_owned(),
            replaces: self.replaces.clone(),
            shadow_mode: self.shadow_mode,
            quota_mode: self.quota_mode,
            detailed_metric: self.detailed_metric,
            value_to_metric: self.value_to_metric,
            metadata: self.metadata.clone(),
            reserve: self.reserve.clone(),
            ban: self.ban().map(BanDescription::new),
            lease: (!self.lease).then_some(false),
            by: self.set.as_ref().map(|set| set.match_kind()),
            values: self.listed_values(),
            group: self.group(),
            patches: self.patches.iter().map(ToString::to_string).collect(),
            of_domain: None,
        }
    }
}

/// Returns a parameter as a member of a JSON object: durations are in seconds.
pub(super) fn parameter_json(parameter: Parameter<'_>) -> (String, Value) {
    let name = parameter.key.to_owned();
    match parameter.value {
        ParameterValue::Number(number) => (name, number.into()),
        ParameterValue::Duration(time) => (name + "_seconds", (time as f64 / SECOND as f64).into()),
        ParameterValue::Flag(flag) => (name, flag.into()),
        ParameterValue::Text(text) => (name, text.into()),
    }
}

fn describe_limit(limit: &Limit) -> LimitDescription {
    let is_gcra = limit.algorithm.kind() == AlgorithmKind::Gcra;
    let mut parameters = parameters(limit);
    // The debt of a gcra is not described.
    parameters.retain(|parameter| !is_gcra || parameter.key != "max_debt");
    LimitDescription {
        rate: Rate::of(limit).map(|rate| rate.to_string()),
        requests_per_unit: limit.requests_per_unit,
        unit: limit.unit.map(|unit| unit.name().to_owned()),
        unit_multiplier: limit.unit_multiplier,
        algorithm: limit.algorithm.name().to_owned(),
        charge_denied: limit.charge_denied,
        shadow_mode: limit.shadow_mode,
        name: (*limit.name).to_owned(),
        parameters: parameters.into_iter().map(parameter_json).collect(),
    }
}

/// Returns what a rule has that the reference's line about it cannot show; empty if nothing.
fn extensions(rule: &Rule, domain: Option<&Domain>) -> String {
    let mut out = String::new();
    let limits = rule.limits();
    if !matches!(limits, [] | [_]) || !limits.iter().all(is_of_the_reference) {
        let limits: Vec<String> = limits.iter().map(limit_text).collect();
        out += &format!(", limits: {}", limits.join(" + "));
    }
    if let Some(reserve) = &rule.reserve {
        out += &format!(", reserve: {reserve}");
    }
    if let Some(ban) = rule.ban() {
        out += &format!(", {}", ban_text(ban));
    }
    if !rule.lease {
        out += ", lease: false";
    }
    if let Some(domain) = domain {
        if domain.together {
            out += ", charge: together";
        }
        if let Some(policy) = domain.on_store_failure {
            out += &format!(", on_store_failure: {}", policy.name());
        }
    }
    out
}

/// Returns whether the reference knows every key of the limit.
fn is_of_the_reference(limit: &Limit) -> bool {
    limit.unit.is_some()
        && limit.unit_multiplier == 1
        && limit.charge_denied
        && !limit.shadow_mode
        && matches!(&limit.algorithm, Algorithm::FixedWindow(FixedWindow { calendar: None, .. }))
}

fn limit_text(limit: &Limit) -> String {
    let is_fixed = matches!(limit.algorithm, Algorithm::FixedWindow(_));
    match limit.charge_denied == is_fixed {
        true => limit.to_string(),
        false => format!("{limit}, charge_denied: {}", limit.charge_denied),
    }
}
