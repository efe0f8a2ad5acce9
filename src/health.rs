//! Whether the service is ready: one state that every health endpoint reads.

use tokio::sync::watch;

/// What being ready depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    rules: bool,
    store: bool,
    draining: bool,
    closed: bool,
}

/// The health of the service. Starts not serving.
#[derive(Debug)]
pub struct Health {
    state: watch::Sender<State>,
    require_rules: bool,
}

impl Health {
    /// `require_rules`: whether it serves only once rules are loaded.
    pub fn new(require_rules: bool) -> Health {
        Health { state: watch::Sender::new(State::default()), require_rules }
    }

    /// Rules are loaded.
    pub fn rules_loaded(&self) {
        self.state.send_modify(|state| state.rules = true);
    }

    /// The store has answered.
    pub fn store_answers(&self) {
        self.state.send_modify(|state| state.store = true);
    }

    /// The service is about to stop; there is no way back.
    pub fn drain(&self) {
        self.state.send_modify(|state| state.draining = true);
    }

    /// The listeners are closed: whoever watches is let go.
    pub fn close(&self) {
        self.state.send_modify(|state| state.closed = true);
    }

    pub fn is_serving(&self) -> bool {
        serves(*self.state.borrow(), self.require_rules)
    }

    /// Tells of every change of [`is_serving`](Self::is_serving), the present value first. Ends
    /// once the listeners are closed, or it would keep the process from its end.
    pub fn watch(&self) -> impl tokio_stream::Stream<Item = bool> + Send + use<> {
        use tokio_stream::StreamExt;
        let require_rules = self.require_rules;
        let mut last = None;
        tokio_stream::wrappers::WatchStream::new(self.state.subscribe())
            .take_while(|state| !state.closed)
            .filter_map(move |state| {
                let serving = serves(state, require_rules);
                (last.replace(serving) != Some(serving)).then_some(serving)
            })
    }
}

fn serves(state: State, require_rules: bool) -> bool {
    state.store && (state.rules || !require_rules) && !state.draining
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_once_rules_and_store_are_there_until_it_drains() {
        let health = Health::new(true);
        assert!(!health.is_serving());
        health.store_answers();
        assert!(!health.is_serving());
        health.rules_loaded();
        assert!(health.is_serving());
        health.drain();
        assert!(!health.is_serving());
    }

    #[test]
    fn rules_may_be_waived() {
        let health = Health::new(false);
        health.store_answers();
        assert!(health.is_serving());
    }
}
