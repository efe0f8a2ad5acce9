//! The bounds of the denials that are known.

use super::*;
use crate::local::denials::KnownDenials;
use crate::local::table::LocalTable;

#[tokio::test]
async fn a_flood_of_denied_keys_stays_within_the_slots() {
    let ([store, _], _) = replicas(MAX);
    let plan = plan(0, Unit::Hour);
    for i in 0..5_000 {
        assert!(!take(&store, "d", &i.to_string(), &plan, 1).await.allowed);
        assert!(store.table.denials() <= 512);
    }
    assert_eq!(store.table.denials(), 512);
    assert_eq!(take(&store, "d", "4999", &plan, 1).await.source, Source::DeniedLocally);
}

#[test]
fn the_slots_are_a_power_of_two() {
    let slots = |deny_locally_for, max_denials| {
        let options = LocalOptions { deny_locally_for, max_denials, ..LocalOptions::default() };
        LocalTable::new(Box::new(ManualClock::new(DAWN)), &options).max_denials()
    };
    for (max, expected) in [(0, 512), (512, 512), (1_023, 512), (1_024, 1_024), (70_000, 65_536)] {
        assert_eq!(slots(MAX, max), expected);
    }
    assert_eq!(slots(Duration::ZERO, 70_000), 0);
}

#[test]
fn denials_are_small() {
    assert!(KnownDenials::set_bytes() <= 8 * 104, "{}", KnownDenials::set_bytes());
}
