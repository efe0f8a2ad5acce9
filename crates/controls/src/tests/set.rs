//! Merging rows.

use super::super::set::ControlSet;
use super::*;
use weir_store::TableRow;

const HOUR: Micros = 3_600 * SECOND;

/// A block of a user, put at a time.
fn put(user: &str, at: Micros, until: Option<Micros>) -> Arc<Control> {
    let control = control(Action::Block, &[("user", user)]);
    Arc::new(Control { id: user.into(), at, until, ..control })
}

/// Returns the rows as a table has them.
fn rows(controls: impl IntoIterator<Item = Arc<Control>>) -> Vec<TableRow> {
    let mut set = ControlSet::default();
    controls.into_iter().for_each(|control| set.put(control, true));
    set.texts()
}

fn has(set: &ControlSet, id: &str) -> bool {
    set.get(id).is_some()
}

#[test]
fn a_newer_row_that_has_ended_ends_an_older_one() {
    let mut set = ControlSet::default();
    set.put(put("ann", NOW, None), true);
    let merged = set.merge(rows([put("ann", NOW + 1, Some(NOW + SECOND))]), NOW + 2 * SECOND);
    assert!(merged.changed && !has(&set, "ann"));
    assert_eq!((set.unshared(), set.changes()), (0, vec![]));
    // A minute later, when all replicas have seen it end, it is removed from the table.
    let ended = [put("ann", NOW + 1, Some(NOW + SECOND))];
    assert!(!set.merge(rows(ended), NOW + 62 * SECOND).changed);
    let changes = set.changes();
    assert_eq!((changes.len(), changes[0].at, &changes[0].text), (1, NOW + 1, &None));
}

#[test]
fn one_that_replaced_a_longer_one_leaves_a_tombstone() {
    let longer = put("ann", NOW, Some(NOW + 2 * HOUR));
    let shorter = put("ann", NOW + 1, Some(NOW + HOUR));
    let (mut set, mut away) = (ControlSet::default(), ControlSet::default());
    away.put(longer.clone(), true);
    set.put(longer, true);
    set.put(shorter.clone(), true);
    let mut third = ControlSet::default();
    let table = set.texts();
    // Long after its end, one replica still has the longer one.
    let later = NOW + HOUR + 60 * SECOND;
    assert!(set.drop_expired(later) && !has(&set, "ann"));
    assert!(!third.merge(table.clone(), later).changed);
    assert_eq!((third.texts(), third.changes()), (set.texts(), vec![]));
    assert!(away.merge(table, later).changed);
    assert_eq!((away.texts(), away.unshared()), (set.texts(), 0));
    // When that would have ended too, nothing is left.
    set.drop_expired(NOW + 2 * HOUR);
    assert_eq!(set.texts(), []);
    set.put(shorter, true);
    assert!(!set.texts()[0].text.contains("tombstone"), "it has replaced none");
}

#[test]
fn of_two_rows_of_one_time_the_one_in_the_table_wins() {
    let mut set = ControlSet::default();
    set.put(put("ann", NOW, None), true);
    assert!(set.merge(rows([put("ann", NOW, Some(NOW + HOUR))]), NOW).changed);
    assert_eq!(set.get("ann").unwrap().until, Some(NOW + HOUR));
    assert_eq!(set.unshared(), 0);
}

#[test]
fn tombstones_are_kept_for_a_week_however_short_the_control() {
    let mut set = ControlSet::default();
    set.put(put("ann", NOW, Some(NOW + SECOND)), true);
    set.delete("ann", NOW + 1, true);
    let tombstone = set.texts();
    let week = 7 * 24 * HOUR;
    let mut other = ControlSet::default();
    other.put(put("ann", NOW - 1, None), true);
    set.drop_expired(NOW + week);
    assert!(other.merge(set.texts(), NOW + week).changed && !has(&other, "ann"));
    set.drop_expired(NOW + week + 1);
    assert_eq!(set.texts(), []);
    // From the table it is removed a minute later.
    set.merge(tombstone, NOW + week + 61 * SECOND);
    assert_eq!(set.changes().len(), 1);
}

#[test]
fn tombstones_are_bounded_and_the_oldest_go_first() {
    let mut set = ControlSet::default();
    let ids: Vec<String> = (0..=MAX_TOMBSTONES).map(|number| format!("{number:05}")).collect();
    for (id, at) in ids.iter().zip(NOW..) {
        set.put(put(id, at, None), true);
        set.delete(id, at, true);
    }
    let changes = set.changes();
    assert_eq!(changes.len(), MAX_TOMBSTONES + 1);
    let removed: Vec<_> = changes.iter().filter(|change| change.text.is_none()).collect();
    assert_eq!((removed.len(), &removed[0].name, removed[0].at), (1, &ids[0], NOW));
    assert_eq!(set.texts().len(), MAX_TOMBSTONES);
}

#[test]
fn replicas_drop_the_same_controls_of_too_many() {
    let all: Vec<_> =
        (0..MAX_CONTROLS as u64 + 2).map(|i| put(&format!("{i:05}"), NOW + i, None)).collect();
    let (mine, theirs) = all.split_at(MAX_CONTROLS / 2);
    for (mine, theirs) in [(mine, theirs), (theirs, mine)] {
        let mut set = ControlSet::default();
        mine.iter().for_each(|control| set.put(control.clone(), true));
        let merged = set.merge(rows(theirs.to_vec()), NOW);
        assert_eq!((merged.omitted, set.controls().count()), (2, MAX_CONTROLS));
        assert!(!has(&set, "10000") && !has(&set, "10001"));
    }
}

#[test]
fn replicas_drop_the_same_controls_of_too_many_to_compare() {
    let all: Vec<_> = (0..MAX_COMPARED as u64 + 20)
        .map(|i| {
            let control = control(Action::Block, &[("user", &format!("{i}*"))]);
            Arc::new(Control { id: format!("{i:03}"), at: NOW + i, ..control })
        })
        .collect();
    let (mine, theirs) = all.split_at(60);
    for (mine, theirs) in [(mine, theirs), (theirs, mine)] {
        let mut set = ControlSet::default();
        mine.iter().for_each(|control| set.put(control.clone(), true));
        // Those with an exact value do not count.
        set.put(put("ann", NOW + 1_000, None), true);
        let merged = set.merge(rows(theirs.to_vec()), NOW);
        assert_eq!((merged.omitted, set.controls().count()), (20, MAX_COMPARED + 1));
        assert!(has(&set, "099") && !has(&set, "100") && has(&set, "ann"));
    }
}

#[test]
fn a_row_is_shared_when_the_table_has_it() {
    let mut set = ControlSet::default();
    set.put(put("ann", NOW, None), true);
    assert!(!set.is_shared("ann") && !set.is_shared("bob"));
    let changes = set.changes();
    set.shared(&changes);
    assert!(set.is_shared("ann"));
}

#[test]
fn a_change_that_is_being_made_wins_over_a_later_row_once() {
    let mut set = ControlSet::default();
    set.begin_change("ann");
    set.put(put("ann", NOW, Some(NOW + HOUR)), true);
    let later = || rows([put("ann", NOW + 1, None)]);
    assert!(!set.merge(later(), NOW).changed);
    let is_new = |set: &mut ControlSet| set.changes().iter().map(|row| row.is_new).next();
    // Its answer was lost.
    assert_eq!([is_new(&mut set), is_new(&mut set)], [Some(true), Some(false)]);
    assert!(set.merge(later(), NOW).changed);
    assert_eq!(set.get("ann").unwrap().until, None);
    // The time of the table, which is later than that in the text.
    let mut moved = later();
    moved[0].at += 5;
    set.merge(moved, NOW);
    assert_eq!(set.get("ann").unwrap().at, NOW + 6);
}

#[test]
fn what_ends_is_found_without_looking_at_all() {
    let mut set = ControlSet::default();
    for i in 0..100 {
        set.put(put(&format!("{i:02}"), NOW, Some(NOW + 1 + i)), false);
    }
    assert_eq!(set.take_inactive().len(), 100);
    for i in 0..100 {
        assert_eq!(set.count_but("99"), 99 - i.min(99) as usize);
        assert!(set.drop_expired(NOW + 1 + i) && !set.drop_expired(NOW + 1 + i));
        let id = format!("{i:02}");
        assert_eq!(set.take_inactive(), [(id, None)]);
    }
}
