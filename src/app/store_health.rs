//! Reports to `Health` what depends on the store, such as Redis: whether it is connected, if a setting asks so, and
//! whether the controls (blocks, allows and limits that operators set at run time) were read from it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::health::Health;
use weir_controls::FirstRead;
use weir_store::Operations;

const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Failed checks in a row after which health fails: one slow round trip takes a connection down too.
const FAILED_CHECKS: u32 = 10;

/// Reports to `health` whether the store can be reached. Never ends.
pub(super) async fn follow_store(store: &impl Operations, health: &Health) {
    let mut ticks = interval(CHECK_INTERVAL);
    // After a pause of the machine, connections that it took down have time to recover.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = 0;
    loop {
        ticks.tick().await;
        failed = if store.is_connected() { 0 } else { FAILED_CHECKS.min(failed + 1) };
        match failed {
            0 => health.store_connected(true),
            FAILED_CHECKS => health.store_connected(false),
            _ => {}
        }
    }
}

/// Reports to `health` once the controls that all replicas share are read. Unless `are_needed`, a failed read is
/// enough.
pub(super) async fn report_controls(
    mut first_read: watch::Receiver<FirstRead>,
    health: Arc<Health>,
    are_needed: bool,
) {
    let is_known = |read: &FirstRead| match read {
        FirstRead::Waiting => false,
        FirstRead::Failed => !are_needed,
        FirstRead::Done => true,
    };
    if first_read.wait_for(is_known).await.is_ok() {
        health.controls_read();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use std::future::{Future, Pending};

    use tokio::time::sleep;

    use super::*;
    use weir_store::{Answers, Batch, Store};

    #[derive(Default)]
    struct FakeStore {
        connected: AtomicBool,
    }

    impl Store for FakeStore {
        fn start<'a>(
            &'a self,
            _: Batch<'a>,
            _: &mut Answers,
        ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
            None::<Pending<Answers>>
        }
    }

    impl Operations for FakeStore {
        fn is_connected(&self) -> bool {
            self.connected.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn health_fails_when_the_store_is_gone_for_a_second_and_recovers_at_once() {
        let (store, health) = (FakeStore::default(), Health::new(Default::default()));
        health.store_answers();
        let set = |connected| store.connected.store(connected, Ordering::Relaxed);
        let check = async {
            set(true);
            // Between two checks, as all that follows.
            sleep(CHECK_INTERVAL * 3 / 2).await;
            for _ in 0..3 {
                set(false);
                sleep(CHECK_INTERVAL * (FAILED_CHECKS - 1)).await;
                assert!(health.is_serving(), "a short interruption fails health");
                sleep(CHECK_INTERVAL).await;
                assert!(!health.is_serving());
                set(true);
                sleep(CHECK_INTERVAL).await;
                assert!(health.is_serving());
            }
        };
        tokio::select! {
            () = check => {}
            () = follow_store(&store, &health) => {}
        }
    }
}
