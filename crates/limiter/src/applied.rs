//! Finds what applies to the descriptors of a request, without charging anything: `explain` and `inspect` show it to
//! operators. A control is a block, an allow or another limit that an operator has set at run time.

use std::sync::Arc;

use crate::decision::key;
use crate::lookup::{KeyValues, Lookup, Match, Matched};
use crate::options::LimiterOptions;
use crate::request::Request;
use weir_controls::{ActiveView, Effect};
use weir_limit::Plan;
use weir_rules::Rule;
use weir_store::{StateKey, key_text};

/// What applies to one descriptor.
#[derive(Debug, Default)]
pub struct Applied<'s> {
    /// The rule, unless another rule of the request replaces it, or a limit was sent.
    pub rule: Option<&'s Rule>,
    /// What a control does to the descriptor.
    pub effect: Option<Effect<'s>>,
    /// The limits of the key, with the numbers of a control that changes them; as they are if one blocks or allows.
    pub plan: Option<Arc<Plan>>,
    /// The key in Redis.
    pub key: Option<String>,
    /// The path in metrics, without the domain; none without a rule or a limit that was sent.
    pub metric_path: Option<String>,
    /// Whether the descriptor counts as a quota.
    pub is_quota: bool,
}

/// Returns what applies to each descriptor of a request, in order; or the index of an invalid one, and why.
pub(super) fn applied<'s>(
    active: impl Into<ActiveView<'s>>,
    request: &Request<'_>,
    key_prefix: &str,
) -> Result<Vec<Applied<'s>>, (usize, &'static str)> {
    let mut key_values: KeyValues<'_> = None;
    let lookup = look_up(active.into(), request, &mut key_values)?;
    let applied = |matched| Applied::new(request, &lookup, matched, key_prefix);
    Ok(lookup.matched.iter().map(applied).collect())
}

/// Looks up the descriptors of a request as decisions do.
pub(super) fn look_up<'s: 'r, 'r>(
    active: ActiveView<'s>,
    request: &Request<'r>,
    key_values: &'r mut KeyValues<'s>,
) -> Result<Lookup<'s, 'r>, (usize, &'static str)> {
    let domain = active.rules.domain(request.domain);
    let mut lookup = Lookup::default();
    lookup.start(domain, request.descriptors.len());
    lookup.add_all(request, active.rules)?;
    let options = LimiterOptions::default();
    lookup.complete(&options, key_values);
    if let Some(controls) = active.controls {
        lookup.control(request, controls, &options);
    }
    Ok(lookup)
}

impl<'s> Applied<'s> {
    pub(super) fn new(
        request: &Request<'_>,
        lookup: &Lookup<'s, '_>,
        matched: &Matched<'s, '_>,
        key_prefix: &str,
    ) -> Applied<'s> {
        let (rule, entries) = (matched.applies.rule(), matched.descriptor.entries);
        let key = state_key(request.domain, lookup, matched);
        Applied {
            rule,
            effect: matched.effect,
            plan: key.as_ref().map(|counted| counted.plan.clone()),
            key: key
                .map(|counted| key_text(key_prefix, &counted.key, counted.plan, counted.together)),
            metric_path: match (&matched.applies, lookup.domain) {
                (Match::Rule(found), Some(domain)) if found.rule.series.is_some() => {
                    Some(domain.metric_path(found.rule, entries))
                }
                (Match::Rule(found), _) => Some(found.rule.path().to_owned()),
                (Match::Override(_), Some(domain)) => Some(domain.override_path(entries)),
                (Match::Override(_), None) | (Match::Nothing, _) => None,
            },
            is_quota: matched.is_quota,
        }
    }
}

/// Returns the key that a request of this descriptor alone charges, if any.
pub(super) fn state_key<'a>(
    domain: &'a str,
    lookup: &Lookup<'_, '_>,
    matched: &'a Matched<'_, '_>,
) -> Option<StateKey<'a>> {
    let plan = matched.counted_plan()?;
    let (key, id) = key(domain, matched, plan);
    let id = id.filter(|_| matched.reserves);
    Some(StateKey { key, plan, together: lookup.is_together(), id })
}
