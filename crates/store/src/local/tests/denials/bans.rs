//! Bans, which are repeated as denials are.

use super::*;
use weir_limit::Ban;

#[tokio::test]
async fn a_ban_is_repeated_for_all_hits_and_looks_and_no_denial_before_it() {
    let ([store, other], clock) = replicas(Duration::from_secs(3_600));
    let lengths = [60 * SECOND].into();
    let ban = Ban { after: 3, within: 600 * SECOND, lengths, forget: 0 };
    let window = Limit::fixed_window(1, Unit::Hour, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![window]).with_ban(ban));
    let take = async |replica, hits| take(replica, "d", "a", &plan, hits).await;
    assert!(take(&store, 1).await.allowed);
    for replica in [&store, &other] {
        assert!(!take(replica, 1).await.banned);
    }
    assert_eq!(store.inner().asked(), 2, "each denial is a strike");
    assert!(take(&store, 2).await.ban_begins);
    assert!(take(&other, 1).await.banned, "one state for both");
    store.inner().asked();
    other.inner().asked();
    clock.advance(59 * SECOND);
    for (replica, hits) in [(&store, 0), (&store, 1), (&store, 9), (&other, 0), (&other, 7)] {
        let denied = take(replica, hits).await;
        assert!(denied.banned && !denied.ban_begins);
        assert_eq!((denied.source, denied.retry_after), (Source::DeniedLocally, Some(SECOND)));
    }
    refund(&store, &plan, 1).await;
    assert_eq!((store.inner().asked(), other.inner().asked()), (1, 0), "the refund alone");
    assert!(take(&store, 1).await.banned);
    clock.advance(SECOND);
    assert!(!take(&store, 1).await.banned);
    let key = Key { domain: "d", entries: &[("key", "a")] };
    for _ in 0..3 {
        take(&store, 9).await;
    }
    assert!(take(&store, 1).await.banned);
    try_reset(&store, key, &plan).await.unwrap();
    assert!(take(&store, 1).await.allowed, "a reset ends it");
}
