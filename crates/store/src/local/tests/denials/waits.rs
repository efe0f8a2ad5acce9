//! The waits of repeated denials, where the store is some time away.

use super::*;

/// The store decides between sending and answer: what a client is told is never shorter than what the store would
/// say, and nothing is denied that the store would allow.
#[tokio::test]
async fn the_wait_counts_from_the_answer_and_the_denial_from_when_it_was_sent() {
    const WAY: Micros = 40_000;
    let clock = Arc::new(ManualClock::new(DAWN));
    let far = Far { store: MemoryStore::new(clock.clone(), 100), clock: clock.clone(), way: WAY };
    let deny_locally_for = Duration::from_secs(3_600);
    let options = LocalOptions { deny_locally_for, ..LocalOptions::default() };
    let store = Local::new(far, clock.clone(), options);
    let plan = quiet(1, Unit::Minute);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
    let first = take(&store, "d", "a", &plan, 1).await;
    let sent = clock.monotonic() - 2 * WAY;
    let wait = first.retry_after.unwrap();
    for passed in [0, 1, 30 * SECOND - 1, wait - 30 * SECOND - 2 * WAY - 1] {
        clock.advance(passed);
        let exact = take(&store.inner().store, "d", "a", &plan, 1).await;
        let again = take(&store, "d", "a", &plan, 1).await;
        assert_eq!(again.source, Source::DeniedLocally);
        let late = |shown: Micros, exact: Micros| shown.checked_sub(exact);
        assert_eq!(late(again.retry_after.unwrap(), exact.retry_after.unwrap()), Some(WAY));
        assert_eq!(late(again.reset_after, exact.reset_after), Some(WAY));
    }
    assert_eq!(clock.monotonic(), sent + wait - 1);
    clock.advance(1);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed, "asked once the wait may be over");
}

/// A store that is some time away, each way.
#[derive(Debug)]
struct Far {
    store: MemoryStore<Clocks>,
    clock: Clocks,
    way: Micros,
}

impl Store for Far {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        self.clock.advance(self.way);
        let waiting = self.store.start(batch, answers);
        self.clock.advance(self.way);
        waiting
    }
}
