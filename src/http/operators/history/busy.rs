//! Chooses the rules that have time series in the history: up to [`SLOTS`], those with the most hits lately.

use super::ring::{Counts, OVER, SLOTS, WOULD_BE_OVER, delta, grown};
use weir_limiter::rule_id;
use weir_rules::{HitTotals, RuleSet};

/// The most rules that are ranked: those that are first in the set.
pub(super) const MAX_RULES: usize = 30_000;

/// The longest domain and path, together, of a rule that has series.
pub(super) const MAX_NAME_BYTES: usize = 1 << 10;

/// The weight that hits keep each second: after an hour, 1/e is left.
const DECAY: f32 = 1.0 - 1.0 / 3_600.0;

/// How many times the hits of the least busy rule another one needs to take its slot: the series of the
/// former is lost, so two rules must not take turns.
const MARGIN: f32 = 1.25;

/// The position of a rule that the new rule set does not have.
const GONE: u32 = u32::MAX;

/// Rules and their counters, by the position in their set.
pub(super) trait Counters {
    fn rule_count(&self) -> usize;

    /// Returns the domain and the path of a rule.
    fn name(&self, at: usize) -> (&str, &str);

    /// Returns what rules of one name have counted.
    fn totals(&self, at: &mut dyn Iterator<Item = usize>) -> HitTotals;
}

impl Counters for RuleSet {
    fn rule_count(&self) -> usize {
        self.rules().len()
    }

    fn name(&self, at: usize) -> (&str, &str) {
        self.rule(at).map_or(("", ""), |rule| (rule.domain(), rule.path()))
    }

    fn totals(&self, at: &mut dyn Iterator<Item = usize>) -> HitTotals {
        HitTotals::of_name(at.filter_map(|at| self.rule(at)))
    }
}

/// A rule of the active set.
#[derive(Debug)]
pub(super) struct Row {
    id: u64,
    /// The hits of the rule at the last sample.
    hits: u64,
    /// The hits of the rule in about the last hour: recent seconds have more weight.
    recent: f32,
    /// Its position.
    at: u32,
    slot: Option<u8>,
}

/// A rule that has series.
#[derive(Debug)]
pub(super) struct RuleSlot {
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
    /// Sorted by their ids and positions. Of rules of one name, the first row stands for all. Never longer than
    /// what was allocated at the start.
    pub rows: Vec<Row>,
    slots: Box<[Option<RuleSlot>]>,
}

/// Returns the counters of a rule. Hits over the limit include those that a shadow mode lets pass: with
/// `is_shadow`, that of the settings, all of them.
fn counts(totals: &HitTotals, is_shadow: bool) -> Counts {
    let would_be_over = if is_shadow { totals.over_limit } else { totals.shadow_mode };
    [totals.within_limit, totals.over_limit, would_be_over, totals.store_errors]
}

impl BusyRules {
    pub const BYTES: usize =
        MAX_RULES * size_of::<Row>() + SLOTS * (size_of::<Option<RuleSlot>>() + MAX_NAME_BYTES);

    pub fn new() -> BusyRules {
        let slots = std::iter::repeat_with(|| None).take(SLOTS).collect();
        BusyRules { rows: Vec::with_capacity(MAX_RULES), slots }
    }

    /// Follows another set of rules, before it is sampled for the first time. Rules of the same name keep
    /// their series.
    pub fn replace(&mut self, rules: &impl Counters, sample: u64, is_shadow: bool) {
        let positions =
            || (0..rules.rule_count().min(MAX_RULES)).map(|at| (at as u32, id(rules, at)));
        self.rows.dedup_by_key(|row| row.id);
        self.rows.iter_mut().for_each(|row| row.at = GONE);
        for (at, id) in positions() {
            if let Ok(found) = self.rows.binary_search_by_key(&id, |row| row.id) {
                let row = &mut self.rows[found];
                row.at = row.at.min(at);
            }
        }
        for slot in self.rows.iter().filter(|row| row.at == GONE).filter_map(|row| row.slot) {
            self.slots[usize::from(slot)] = None;
        }
        self.rows.retain(|row| row.at != GONE);
        let kept = self.rows.len();
        for (at, id) in positions() {
            let found = self.rows[..kept].binary_search_by_key(&id, |row| row.id);
            if !found.is_ok_and(|found| self.rows[found].at == at) {
                // A new rule starts from 0, also in its counters.
                self.rows.push(Row { id, hits: 0, recent: 0.0, at, slot: None });
            }
        }
        self.rows.sort_unstable_by_key(|row| (row.id, row.at));
        for (number, row) in self.rows.iter().enumerate() {
            if let Some(slot) = row.slot.and_then(|slot| self.slots[usize::from(slot)].as_mut()) {
                slot.row = number;
            }
        }
        self.assign(rules, sample, is_shadow);
    }

    /// Counts what has changed since the last sample of the same set, `seconds` ago. Calls `add` for each
    /// slot.
    pub fn count(
        &mut self,
        rules: &impl Counters,
        seconds: u64,
        is_shadow: bool,
        mut add: impl FnMut(usize, Counts),
    ) {
        let decay = DECAY.powi(i32::try_from(seconds).unwrap_or(i32::MAX));
        for group in self.rows.chunk_by_mut(|a, b| a.id == b.id) {
            let totals = rules.totals(&mut group.iter().map(|row| row.at as usize));
            let Some(row) = group.first_mut() else { continue };
            let hits = delta(row.hits, totals.hits);
            row.hits = totals.hits;
            row.recent = row.recent * decay + hits as f32;
            let Some(number) = row.slot.map(usize::from) else { continue };
            if let Some(slot) = &mut self.slots[number] {
                let mut grown = grown(&mut slot.counts, counts(&totals, is_shadow));
                // Of what has grown: the counters are not read at the same time.
                grown[OVER] = grown[OVER].saturating_sub(grown[WOULD_BE_OVER]);
                add(number, grown);
            }
        }
    }

    /// Gives free slots, and those of the least busy rules, to the busiest rules without one. `sample` is the
    /// one that comes next, or for rules with hits the one that was taken last.
    pub fn assign(&mut self, rules: &impl Counters, sample: u64, is_shadow: bool) {
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
        let busiest = self.busiest(rules, least);
        let free = free.into_iter().map(|number| (None, number));
        let mut places = free.chain(taken.into_iter().map(|(least, number)| (Some(least), number)));
        for (recent, _, row) in busiest {
            let Some((least, number)) = places.next() else { break };
            if least.is_some_and(|least| recent <= least * MARGIN) {
                break;
            }
            let id = self.rows[row].id;
            let group = self.rows[row..].iter().take_while(|row| row.id == id);
            let (domain, path) = rules.name(self.rows[row].at as usize);
            let is_new = self.rows[row].hits == 0;
            let totals = || rules.totals(&mut group.map(|row| row.at as usize));
            let slot = RuleSlot {
                row,
                since: if is_new { sample } else { sample + 1 },
                counts: if is_new { [0; 4] } else { counts(&totals(), is_shadow) },
                domain: domain.into(),
                rule: path.into(),
            };
            if let Some(former) = self.slots[number].replace(slot) {
                self.rows[former.row].slot = None;
            }
            self.rows[row].slot = u8::try_from(number).ok();
        }
    }

    /// Returns the busiest rules without a slot, as many as there are slots: recent hits, position and row of each.
    /// With `least`, only rules that are busier.
    fn busiest(&self, rules: &impl Counters, least: Option<f32>) -> Vec<(f32, u32, usize)> {
        let order = |a: &(f32, u32, _), b: &(f32, u32, _)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let mut busiest: Vec<(f32, u32, usize)> = Vec::with_capacity(2 * SLOTS);
        let mut before = None;
        for (number, row) in self.rows.iter().enumerate() {
            let is_first = before.replace(row.id) != Some(row.id);
            let is_busier = least.is_none_or(|least| row.recent > least * MARGIN);
            if !is_first || row.slot.is_some() || !is_busier {
                continue;
            }
            let (domain, path) = rules.name(row.at as usize);
            if domain.len() + path.len() > MAX_NAME_BYTES {
                continue;
            }
            busiest.push((row.recent, row.at, number));
            if busiest.len() == 2 * SLOTS {
                busiest.select_nth_unstable_by(SLOTS, order);
                busiest.truncate(SLOTS);
            }
        }
        busiest.sort_unstable_by(order);
        busiest.truncate(SLOTS);
        busiest
    }

    /// Returns the rules that have series, each with the number of its slot.
    pub fn slots(&self) -> impl Iterator<Item = (usize, &RuleSlot)> {
        self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}

fn id(rules: &impl Counters, at: usize) -> u64 {
    let (domain, path) = rules.name(at);
    rule_id(domain, path)
}
