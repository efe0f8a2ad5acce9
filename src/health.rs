//! The readiness of the service: one state, set by rules, store and listeners, that every health endpoint reads.

use std::time::Duration;

use tokio::sync::watch;

use weir_common::metric_families;
use weir_common::metrics::{MetricSink, MetricSource, SampleValue};
use weir_common::named_enum;
use weir_common::throttle::Throttle;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HealthState {
    /// Whether valid rules were loaded.
    rules: bool,
    /// Whether the first rules were loaded, or rejected.
    tried: bool,
    domain: bool,
    /// Whether the store has answered once.
    store: bool,
    /// Whether the store was reachable and is not any more.
    store_lost: bool,
    /// Whether the controls (what operators set at run time) that all replicas share were read from Redis.
    controls: bool,
    /// The number of listeners for gRPC and Redis clients that do not listen yet.
    opening: u8,
    draining: bool,
    closed: bool,
}

named_enum! {
    /// Why the service is not ready, with the texts of docs/operations.md.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NotServing, text {
        Draining = "draining",
        NoRules = "no rules are loaded",
        NoDomain = "the rules have no domain",
        StoreSilent = "redis has not answered yet",
        StoreLoading = "counters are not loaded from disk yet",
        StoreLost = "no connection to redis is up",
        ControlsUnread = "controls are not read from redis yet",
    }
}

/// The health of the service. Starts not serving.
#[derive(Debug)]
pub struct Health {
    state: watch::Sender<HealthState>,
    required: Required,
    serving_log: Throttle,
    not_serving_log: Throttle,
}

/// What health waits for before it reports serving, besides the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Required {
    /// Until rules are loaded.
    pub rules: bool,
    /// While the rules have no domain.
    pub domain: bool,
    /// Whether the store answers only once it is loaded from disk.
    pub loading: bool,
    /// Until the controls that all replicas share are known.
    pub controls: bool,
    /// Until this many listeners for requests listen.
    pub listeners: u8,
}

/// The shortest time between two log lines about the same change.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

impl Health {
    pub fn new(required: Required) -> Health {
        let state = HealthState { opening: required.listeners, ..HealthState::default() };
        Health {
            state: watch::Sender::new(state),
            required,
            serving_log: Throttle::new(LOG_INTERVAL),
            not_serving_log: Throttle::new(LOG_INTERVAL),
        }
    }

    /// Records that the controls that all replicas share are known, or not waited for.
    pub fn controls_read(&self) {
        self.update(|state| state.controls = true);
    }

    pub fn rules_loaded(&self, domains: usize) {
        self.update(|state| (state.rules, state.tried, state.domain) = (true, true, domains > 0));
    }

    pub fn rules_rejected(&self) {
        self.update(|state| state.tried = true);
    }

    /// Whether the first rules are neither loaded nor rejected yet.
    pub fn awaits_rules(&self) -> bool {
        !self.state.borrow().tried
    }

    /// Waits until the first rules are loaded or rejected, or the listeners are closed.
    pub async fn first_load(&self) {
        // The sender is `self`.
        let _ = self.state.subscribe().wait_for(|state| state.tried || state.closed).await;
    }

    pub fn store_answers(&self) {
        self.update(|state| state.store = true);
    }

    /// Records whether the store can be reached, where health follows that.
    pub fn store_connected(&self, connected: bool) {
        self.update(|state| state.store_lost = !connected);
    }

    /// Records that one of the listeners for requests listens.
    pub fn opened(&self) {
        self.update(|state| state.opening = state.opening.saturating_sub(1));
    }

    /// Records that the service is about to stop, for good.
    pub fn drain(&self) {
        self.update(|state| state.draining = true);
    }

    /// Records that the listeners are closed, which ends all watches.
    pub fn close(&self) {
        self.update(|state| state.closed = true);
    }

    pub fn is_serving(&self) -> bool {
        self.reasons().is_empty()
    }

    /// Returns why health reports not serving; empty while it reports serving.
    pub fn reasons(&self) -> Vec<NotServing> {
        reasons(*self.state.borrow(), self.required)
    }

    /// Streams [`is_serving`](Self::is_serving): its value now and every change. When the listeners
    /// are closed, it yields `false` unless it did before, and ends: it would keep the process running.
    pub fn watch(&self) -> impl tokio_stream::Stream<Item = bool> + Send + use<> {
        use tokio_stream::StreamExt;
        let required = self.required;
        let mut last = None;
        tokio_stream::wrappers::WatchStream::new(self.state.subscribe())
            .take_while(|state| !state.closed)
            .map(move |state| reasons(state, required).is_empty())
            .chain(tokio_stream::once(false))
            .filter(move |serving| last.replace(*serving) != Some(*serving))
    }

    fn update(&self, change: impl FnOnce(&mut HealthState)) {
        let mut log = None;
        self.state.send_if_modified(|state| {
            let before = *state;
            change(state);
            let now = reasons(*state, self.required);
            if reasons(before, self.required).is_empty() != now.is_empty() {
                log = Some(now);
            }
            *state != before
        });
        if let Some(reasons) = log {
            self.log_change(&reasons);
        }
    }

    fn log_change(&self, reasons: &[NotServing]) {
        let throttle = if reasons.is_empty() { &self.serving_log } else { &self.not_serving_log };
        let Some(suppressed) = throttle.pass() else { return };
        let texts: Vec<&str> = reasons.iter().map(|reason| reason.text()).collect();
        let reason = texts.join(", ");
        if reasons.is_empty() {
            tracing::info!(suppressed, "health reports serving");
        } else if reasons.contains(&NotServing::Draining) {
            tracing::info!(reason, suppressed, "health reports not serving");
        } else {
            tracing::warn!(reason, suppressed, "health reports not serving");
        }
    }
}

fn reasons(state: HealthState, required: Required) -> Vec<NotServing> {
    // They are loaded or rejected just before it listens.
    let no_rules = required.rules && !state.rules || state.opening > 0;
    let reasons = [
        (state.draining, NotServing::Draining),
        (no_rules, NotServing::NoRules),
        (required.domain && !state.domain && !no_rules, NotServing::NoDomain),
        (!state.store && !required.loading, NotServing::StoreSilent),
        (!state.store && required.loading, NotServing::StoreLoading),
        (state.store && state.store_lost, NotServing::StoreLost),
        (required.controls && state.store && !state.controls, NotServing::ControlsUnread),
    ];
    // Allocates only if there is a reason.
    reasons.into_iter().filter_map(|(applies, reason)| applies.then_some(reason)).collect()
}

metric_families! {
    READY: gauge("ready", &[]) = "Whether health reports serving (1) or not (0)";
    NOT_READY: gauge("not_ready", &["reason"])
        = "Whether a reason keeps health from reporting serving (1) or not (0), by reason";
}

impl MetricSource for Health {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let reasons = self.reasons();
        let gauge = |value: bool| f64::from(u8::from(value));
        sink.gauge(READY, gauge(reasons.is_empty()));
        sink.family(NOT_READY);
        for reason in NotServing::ALL {
            let value = SampleValue::Gauge(gauge(reasons.contains(&reason)));
            sink.sample(&[("reason", reason.text())], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;
    use weir_common::metrics::MetricFamily;

    use super::*;

    fn texts(health: &Health) -> Vec<String> {
        assert_eq!(health.is_serving(), health.reasons().is_empty());
        health.reasons().iter().map(|reason| reason.text().to_owned()).collect()
    }

    #[test]
    fn serves_from_when_rules_are_loaded_and_the_store_answers_until_it_drains() {
        let health = Health::new(Required { rules: true, ..Required::default() });
        assert_eq!(texts(&health), ["no rules are loaded", "redis has not answered yet"]);
        health.store_answers();
        assert_eq!(texts(&health), ["no rules are loaded"]);
        health.rules_loaded(0);
        assert!(health.is_serving());
        health.drain();
        assert_eq!(texts(&health), ["draining"]);
    }

    #[test]
    fn a_store_on_disk_is_loaded_first() {
        let health = Health::new(Required { loading: true, ..Required::default() });
        assert_eq!(texts(&health), ["counters are not loaded from disk yet"]);
        health.store_answers();
        assert!(health.is_serving());
    }

    #[test]
    fn shared_controls_are_read_first() {
        let health = Health::new(Required { controls: true, ..Required::default() });
        health.store_answers();
        assert_eq!(texts(&health), ["controls are not read from redis yet"]);
        health.controls_read();
        assert!(health.is_serving());
    }

    #[tokio::test]
    async fn serves_once_its_listeners_listen() {
        let health = Health::new(Required { listeners: 2, ..Required::default() });
        health.store_answers();
        health.rules_loaded(1);
        health.first_load().await;
        health.opened();
        assert_eq!(texts(&health), ["no rules are loaded"]);
        health.opened();
        assert!(health.is_serving());
    }

    #[test]
    fn rules_may_be_optional() {
        let health = Health::new(Required::default());
        health.store_answers();
        assert!(health.is_serving());
    }

    #[test]
    fn a_domain_may_be_required() {
        let health = Health::new(Required { domain: true, ..Required::default() });
        health.store_answers();
        for (domains, reasons) in [(0, &["the rules have no domain"][..]), (1, &[])] {
            health.rules_loaded(domains);
            assert_eq!(texts(&health), reasons);
        }
    }

    #[test]
    fn a_store_that_is_lost_fails_health_until_it_is_back() {
        let health = Health::new(Required::default());
        health.store_connected(false);
        assert_eq!(texts(&health), ["redis has not answered yet"]);
        health.store_answers();
        assert_eq!(texts(&health), ["no connection to redis is up"]);
        health.store_connected(true);
        assert!(health.is_serving());
    }

    #[tokio::test]
    async fn watchers_see_each_change_and_at_last_that_nothing_is_served() {
        let health = Health::new(Required::default());
        let mut watched = std::pin::pin!(health.watch());
        assert_eq!(watched.next().await, Some(false));
        health.store_answers();
        assert_eq!(watched.next().await, Some(true));
        for connected in [false, true] {
            health.store_connected(connected);
            // What changes nothing is not reported.
            health.store_connected(connected);
            assert_eq!(watched.next().await, Some(connected));
        }
        health.drain();
        health.close();
        assert_eq!(watched.next().await, Some(false));
        assert_eq!(watched.next().await, None);
    }

    /// The samples that are not 0: name and reason.
    #[derive(Default)]
    struct Samples {
        family: &'static str,
        set: Vec<(&'static str, String)>,
    }

    impl MetricSink for Samples {
        fn family(&mut self, family: MetricFamily) {
            self.family = family.name;
        }

        fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
            if matches!(value, SampleValue::Gauge(value) if value != 0.0) {
                let reason = labels.first().map(|(_, reason)| (*reason).to_owned());
                self.set.push((self.family, reason.unwrap_or_default()));
            }
        }
    }

    #[test]
    fn the_reasons_are_those_of_the_page_and_of_readyz() {
        let health = Health::new(Required { rules: true, ..Required::default() });
        let set = || {
            let mut samples = Samples::default();
            health.collect(&mut samples);
            samples.set
        };
        let reasons = ["no rules are loaded", "redis has not answered yet"];
        assert_eq!(set(), reasons.map(|reason| ("not_ready", reason.to_owned())));
        health.store_answers();
        health.rules_loaded(1);
        assert_eq!(set(), [("ready", String::new())]);
        let page = include_str!("../docs/operations.md");
        for reason in NotServing::ALL {
            assert!(page.contains(&format!("| `{}` |", reason.text())), "{reason:?}");
        }
    }
}
