//! The readiness of the service: one state that every health endpoint reads.

use tokio::sync::watch;

/// What readiness depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    rules: bool,
    /// Whether the rules have any domain.
    domain: bool,
    store: bool,
    draining: bool,
    closed: bool,
}

/// The health of the service. Starts not serving.
#[derive(Debug)]
pub struct Health {
    state: watch::Sender<State>,
    required: Required,
}

/// What readiness requires.
#[derive(Clone, Copy, Debug)]
struct Required {
    rules: bool,
    domain: bool,
}

impl Health {
    /// `require_rules`: not serving until rules are loaded. `require_domain`: not serving while they
    /// have no domain.
    pub fn new(require_rules: bool, require_domain: bool) -> Health {
        let required = Required { rules: require_rules, domain: require_domain };
        Health { state: watch::Sender::new(State::default()), required }
    }

    /// Records that rules with this number of domains are loaded.
    pub fn rules_loaded(&self, domains: usize) {
        self.state.send_modify(|state| (state.rules, state.domain) = (true, domains > 0));
    }

    /// Records that the store answers.
    pub fn store_answers(&self) {
        self.state.send_modify(|state| state.store = true);
    }

    /// Records that the service is about to stop, for good.
    pub fn drain(&self) {
        self.state.send_modify(|state| state.draining = true);
    }

    /// Records that the listeners are closed, which ends all watches.
    pub fn close(&self) {
        self.state.send_modify(|state| state.closed = true);
    }

    pub fn is_serving(&self) -> bool {
        serves(*self.state.borrow(), self.required)
    }

    /// Streams [`is_serving`](Self::is_serving): its value now and every change. Ends when the
    /// listeners are closed, or it would keep the process running.
    pub fn watch(&self) -> impl tokio_stream::Stream<Item = bool> + Send + use<> {
        use tokio_stream::StreamExt;
        let required = self.required;
        let mut last = None;
        tokio_stream::wrappers::WatchStream::new(self.state.subscribe())
            .take_while(|state| !state.closed)
            .filter_map(move |state| {
                let serving = serves(state, required);
                (last.replace(serving) != Some(serving)).then_some(serving)
            })
    }
}

fn serves(state: State, required: Required) -> bool {
    let rules = state.rules || !required.rules;
    let domain = state.domain || !required.domain;
    state.store && rules && domain && !state.draining
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_from_when_rules_are_loaded_and_the_store_answers_until_it_drains() {
        let health = Health::new(true, false);
        assert!(!health.is_serving());
        health.store_answers();
        assert!(!health.is_serving());
        health.rules_loaded(0);
        assert!(health.is_serving());
        health.drain();
        assert!(!health.is_serving());
    }

    #[test]
    fn rules_may_be_optional() {
        let health = Health::new(false, false);
        health.store_answers();
        assert!(health.is_serving());
    }

    #[test]
    fn a_domain_may_be_required() {
        let health = Health::new(false, true);
        health.store_answers();
        for (domains, serving) in [(0, false), (1, true), (0, false)] {
            health.rules_loaded(domains);
            assert_eq!(health.is_serving(), serving);
        }
    }
}
