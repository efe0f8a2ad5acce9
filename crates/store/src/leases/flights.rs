//! What a lease has sent and has no answer to yet, and the requests that wait for that.

use tokio::sync::oneshot;

use weir_limit::Micros;

/// The charges of a lease that are in flight.
#[derive(Debug, Default)]
pub(super) struct Flights {
    count: u32,
    /// When the first of them was due.
    since: Micros,
    /// Requests are freed when this is dropped.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Flights {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Counts a charge that is sent.
    pub fn start(&mut self, now: Micros) {
        if self.is_empty() {
            self.since = now;
        }
        self.count += 1;
    }

    /// Counts an answer, or that there will be none. Frees the requests that wait, once there is nothing to wait for.
    pub fn end(&mut self, now: Micros, length: Micros) {
        self.count = self.count.saturating_sub(1);
        if !self.are_awaited(now, length) {
            self.waiting.clear();
        }
    }

    /// Returns what completes once all have an answer; none if there is nothing to wait for.
    pub fn wait(&mut self, now: Micros, length: Micros) -> Option<oneshot::Receiver<()>> {
        self.are_awaited(now, length).then(|| {
            let (sender, receiver) = oneshot::channel();
            self.waiting.push(sender);
            receiver
        })
    }

    /// Whether there is an answer to wait for: a grant that takes longer than a lease is returned.
    fn are_awaited(&self, now: Micros, length: Micros) -> bool {
        !self.is_empty() && now < self.since.saturating_add(length)
    }
}
