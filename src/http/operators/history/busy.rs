//! Which rules have series: up to [`SLOTS`], those with the most hits lately.

use std::collections::HashMap;
use std::iter::zip;

use super::ring::{SLOTS, grown};
use super::{Counts, OVER, WOULD_BE_OVER, delta};
use weir_limiter::rule_id;
use weir_rules::RuleTotals;

/// The most rules that are ranked: those that are first in the set.
pub(super) const MAX_RULES: usize = 32_768;

/// The longest domain and path, together, of a rule that has series.
pub(super) const MAX_NAME_BYTES: usize = 1 << 10;

/// By how much hits of another second lose weight: after an hour, to 1/e.
const DECAY: f32 = 1.0 - 1.0 / 3_600.0;

/// How many times the hits of the least busy rule another one needs to take its slot: the series of the
/// former is lost, so two rules must not take turns.
const MARGIN: f32 = 1.25;

/// A rule of the active set, by its position.
#[derive(Debug)]
pub(super) struct Row {
    id: u64,
    /// The hits of the rule at the last sample.
    hits: u64,
    /// The hits of the rule in about the last hour: recent seconds have more weight.
    recent: f32,
    slot: Option<u8>,
}

/// A rule that has series.
#[derive(Debug)]
pub(super) struct Slot {
    row: usize,
    /// The first sample of the series.
    pub since: u64,
    /// The counters of the rule at the last sample.
    counts: Counts,
    pub domain: Box<str>,
    pub rule: Box<str>,
}

/// The rules that are ranked, and those of them that have series.
#[derive(Debug)]
pub(super) struct BusyRules {
    rows: Vec<Row>,
    slots: Box<[Option<Slot>]>,
}

/// Returns the counters of a rule. Hits over the limit include those that a shadow mode lets pass: with
/// `is_shadow`, that of the settings, all of them.
fn counts(rule: &RuleTotals<'_>, is_shadow: bool) -> Counts {
    let totals = rule.totals;
    let would_be_over = if is_shadow { totals.over_limit } else { totals.shadow_mode };
    [totals.within_limit, totals.over_limit, would_be_over, totals.store_errors]
}

impl BusyRules {
    pub const BYTES: usize =
        MAX_RULES * size_of::<Row>() + SLOTS * (size_of::<Option<Slot>>() + MAX_NAME_BYTES);

    pub fn new() -> BusyRules {
        let slots = std::iter::repeat_with(|| None).take(SLOTS).collect();
        BusyRules { rows: Vec::new(), slots }
    }

    /// Follows another set of rules, before it is sampled for the first time. Rules of the same name keep
    /// their series.
    pub fn replace(&mut self, rules: &[RuleTotals<'_>], sample: u64, is_shadow: bool) {
        let mut known: HashMap<u64, Row> =
            std::mem::take(&mut self.rows).into_iter().map(|row| (row.id, row)).collect();
        let rows = rules.iter().take(MAX_RULES).map(|rule| {
            // Those of limits that requests bring have no path, and no series.
            let id = rule_id(rule.domain, rule.rule.unwrap_or_default());
            // A new rule starts from 0, also in its counters.
            known.remove(&id).unwrap_or(Row { id, hits: 0, recent: 0.0, slot: None })
        });
        self.rows = rows.collect();
        for slot in known.values().filter_map(|row| row.slot) {
            self.slots[usize::from(slot)] = None;
        }
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(slot) = row.slot.and_then(|slot| self.slots[usize::from(slot)].as_mut()) {
                slot.row = at;
            }
        }
        self.assign(rules, sample, is_shadow);
    }

    /// Counts what has changed since the last sample of the same set, `seconds` ago. Calls `add` for each
    /// slot.
    pub fn count(
        &mut self,
        rules: &[RuleTotals<'_>],
        seconds: u64,
        is_shadow: bool,
        mut add: impl FnMut(usize, Counts),
    ) {
        let decay = DECAY.powi(i32::try_from(seconds).unwrap_or(i32::MAX));
        for (row, rule) in zip(&mut self.rows, rules) {
            let hits = delta(row.hits, rule.totals.hits);
            row.hits = rule.totals.hits;
            row.recent = row.recent * decay + hits as f32;
            let Some(number) = row.slot.map(usize::from) else { continue };
            if let Some(slot) = &mut self.slots[number] {
                let mut grown = grown(&mut slot.counts, counts(rule, is_shadow));
                // Of what has grown: the counters are not read at the same time.
                grown[OVER] = grown[OVER].saturating_sub(grown[WOULD_BE_OVER]);
                add(number, grown);
            }
        }
    }

    /// Gives free slots, and those of the least busy rules, to the busiest rules without one. `sample` is the
    /// one that comes next, or for rules with hits the one that was taken last.
    pub fn assign(&mut self, rules: &[RuleTotals<'_>], sample: u64, is_shadow: bool) {
        let mut free = Vec::new();
        let mut taken = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            match slot {
                Some(slot) => taken.push((self.rows[slot.row].recent, number)),
                None => free.push(number),
            }
        }
        taken.sort_by(|a, b| a.0.total_cmp(&b.0));
        let least = if free.is_empty() { taken.first().map(|(recent, _)| *recent) } else { None };
        let is_busier = |row: &Row| least.is_none_or(|least| row.recent > least * MARGIN);
        let rows = self.rows.iter().enumerate();
        let rows = rows.filter(|(_, row)| row.slot.is_none() && is_busier(row));
        let mut busiest: Vec<(f32, usize)> = rows.map(|(at, row)| (row.recent, at)).collect();
        busiest.sort_by(|a, b| b.0.total_cmp(&a.0));
        let named = busiest.into_iter().filter_map(|(recent, at)| {
            let rule = rules.get(at)?;
            let path = rule.rule.filter(|path| path.len() + rule.domain.len() <= MAX_NAME_BYTES)?;
            Some((recent, at, rule, path))
        });
        let free = free.into_iter().map(|number| (None, number));
        let mut places = free.chain(taken.into_iter().map(|(least, number)| (Some(least), number)));
        for (recent, at, rule, path) in named {
            let Some((least, number)) = places.next() else { break };
            if least.is_some_and(|least| recent <= least * MARGIN) {
                break;
            }
            let is_new = self.rows[at].hits == 0;
            let slot = Slot {
                row: at,
                since: if is_new { sample } else { sample + 1 },
                counts: if is_new { [0; 4] } else { counts(rule, is_shadow) },
                domain: rule.domain.into(),
                rule: path.into(),
            };
            if let Some(former) = self.slots[number].replace(slot) {
                self.rows[former.row].slot = None;
            }
            self.rows[at].slot = u8::try_from(number).ok();
        }
    }

    /// Returns the rules that have series, each with the number of its slot.
    pub fn slots(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}
