//! The bounds of the denials that are known.

use super::*;

#[tokio::test]
async fn a_flood_of_denied_keys_stays_within_the_slots() {
    let ([store, _], _) = replicas(MAX);
    let plan = plan(0, Unit::Hour);
    for i in 0..5_000 {
        assert!(!take(&store, "d", &i.to_string(), &plan, 1).await.allowed);
        assert!(store.denials.len() <= 64);
    }
    assert_eq!(store.denials.len(), 64);
    assert_eq!(take(&store, "d", "4999", &plan, 1).await.source, Source::DeniedLocally);
}

#[test]
fn the_slots_are_a_power_of_two() {
    for (slots, expected) in [(0, 8), (8, 8), (63, 32), (64, 64), (100, 64)] {
        let known = DenialCache::new(slots);
        assert!(format!("{known:?}").contains(&format!("slots: {expected}")), "{known:?}");
    }
}

#[test]
fn denials_are_small() {
    assert!(DenialCache::set_bytes() <= 8 * 104, "{}", DenialCache::set_bytes());
}
