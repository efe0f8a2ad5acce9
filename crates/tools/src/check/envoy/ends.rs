//! Finds the rules that entries may match, where requests decide some of the values.

use std::collections::HashSet;

use super::actions::{SentEntry, Values};
use super::findings::Findings;
use weir_rules::{Candidate, Level, MatchKind, Position};

/// The descriptors of the rule file that the last entry may match; none if that takes too long.
pub(super) fn ends<'s>(
    level: Level<'s>,
    entries: &[SentEntry],
    position: Position,
    findings: &mut Findings,
) -> Option<Vec<Candidate<'s>>> {
    let mut levels = vec![level];
    let mut ends: Vec<Candidate<'s>> = Vec::new();
    // Candidates whose rules reserve, with the number of entries after their own.
    let mut reserving: Vec<(Candidate<'s>, usize)> = Vec::new();
    for entry in entries {
        if !findings.spend(position, reserving.len()) {
            return None;
        }
        ends = next(&levels, entry, position, findings)?;
        levels = ends.iter().map(|end| end.below).collect();
        let reserve = |end: &Candidate<'s>| end.rule.and_then(|rule| rule.reserve.as_deref());
        reserving.retain_mut(|(end, further)| {
            let is_next = reserve(end)
                .is_some_and(|reserve| reserve.next_key(*further) == Some(entry.0.as_str()));
            *further += 1;
            is_next
        });
        ends.extend(reserving.iter().map(|(end, _)| *end));
        let new = ends.iter().take(levels.len()).filter(|end| reserve(end).is_some());
        reserving.extend(new.map(|end| (*end, 0)));
    }
    Some(ends)
}

/// The descriptors of these levels that the entry may match; none if that takes too long.
fn next<'s>(
    levels: &[Level<'s>],
    (key, values): &SentEntry,
    position: Position,
    findings: &mut Findings,
) -> Option<Vec<Candidate<'s>>> {
    let effort = |level: &Level<'_>| match values {
        Values::Any | Values::Path => level.size(),
        Values::OneOf(values) => values.len().saturating_mul(1 + level.wildcards()),
    };
    if !findings.spend(position, levels.iter().map(effort).fold(1, usize::saturating_add)) {
        return None;
    }
    let matches = |level: &Level<'s>| match values {
        Values::Any | Values::Path => level.reachable(key),
        Values::OneOf(values) => values
            .iter()
            .filter_map(|value| level.matches((key, value)).into_iter().next())
            .collect(),
    };
    let mut ends: Vec<Candidate<'s>> = levels.iter().flat_map(matches).collect();
    // Several values may match one descriptor.
    let mut seen = HashSet::new();
    ends.retain(|end| seen.insert(std::ptr::from_ref(end.origin)));
    if *values == Values::Path {
        for end in ends.iter().filter(|end| end.kind == MatchKind::Value) {
            findings.add_exact_path(end.origin, end.text);
        }
    }
    Some(ends)
}

/// For each order of the entries in which they may match rules: the descriptors with these rules. None if that takes too
/// long.
pub(super) fn orders<'s>(
    levels: &[Level<'s>],
    entries: &[&SentEntry],
    position: Position,
    findings: &mut Findings,
) -> Option<Vec<Vec<Candidate<'s>>>> {
    let mut found = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let mut ends = next(levels, entry, position, findings)?;
        let others = [&entries[..i], &entries[i + 1..]].concat();
        if others.is_empty() {
            ends.retain(|end| end.rule.is_some());
            found.extend((!ends.is_empty()).then_some(ends));
        } else if !ends.is_empty() {
            let below: Vec<Level<'s>> = ends.iter().map(|end| end.below).collect();
            found.extend(orders(&below, &others, position, findings)?);
        }
    }
    Some(found)
}
