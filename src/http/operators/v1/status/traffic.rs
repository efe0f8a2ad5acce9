//! The rules with the most traffic.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};

use weir_rules::{RuleSet, RuleTotals, totals};

const MAX_ROWS: usize = 50;

/// Ranks rules by their hits since they were ranked last.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// The rules that were ranked last, which it does not keep in memory, and the hits of each.
    rules: Weak<RuleSet>,
    hits: Vec<u64>,
}

impl Traffic {
    /// Returns the totals of the rules with the most hits since the last call, how many rules are left
    /// out, and the totals of series that belong to no known rule.
    pub fn rank(&mut self, rules: Option<Arc<RuleSet>>) -> Value {
        let rules = rules.unwrap_or_default();
        let (all, other) = totals(&rules);
        if !std::ptr::eq(self.rules.as_ptr(), Arc::as_ptr(&rules)) {
            // Other rules: once by all of their hits.
            (self.rules, self.hits) = (Arc::downgrade(&rules), Vec::new());
        }
        // Only domains whose requests bring limits have a row for them.
        let listed = all.iter().enumerate();
        let listed = listed.filter(|(_, row)| row.rule.is_some() || row.totals.hits > 0);
        let mut ranks: Vec<_> = listed
            .map(|(at, row)| {
                let hits = row.totals.hits;
                let recent = hits - self.hits.get(at).copied().unwrap_or(0).min(hits);
                (Reverse(recent), Reverse(hits), at)
            })
            .collect();
        let omitted = ranks.len().saturating_sub(MAX_ROWS);
        if omitted > 0 {
            ranks.select_nth_unstable(MAX_ROWS);
            ranks.truncate(MAX_ROWS);
        }
        ranks.sort_unstable();
        self.hits = all.iter().map(|row| row.totals.hits).collect();
        let rows: Vec<&RuleTotals<'_>> =
            ranks.iter().filter_map(|(_, _, at)| all.get(*at)).collect();
        json!({ "rows": rows, "omitted": omitted, "other": other })
    }
}
