//! What operators wrote: a line of the log for each write, and the last ones to look at.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{ControlClock, time};

/// The writes that are kept.
const MAX_RECORDS: usize = 1_000;

/// A write by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When, in RFC 3339.
    pub at: String,
    /// Who wrote, as the caller says; empty if not.
    pub who: String,
    /// The address of the caller.
    pub from: String,
    /// What was done: `put control`, `delete control`, `reset state`, `set log level`.
    pub action: String,
    /// What was changed, in words.
    pub subject: String,
}

/// The most recent operator changes.
#[derive(Debug)]
pub struct AuditLog {
    clock: ControlClock,
    records: Mutex<VecDeque<AuditRecord>>,
}

impl AuditLog {
    pub(super) fn new(clock: ControlClock) -> AuditLog {
        AuditLog { clock, records: Mutex::default() }
    }

    /// Logs a write and keeps it.
    pub fn record(&self, who: &str, from: &str, action: &str, subject: &str) {
        tracing::info!(who, from, action, subject, "operator change");
        let record = AuditRecord {
            at: time::text(self.clock.now()),
            who: who.to_owned(),
            from: from.to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
        };
        let mut records = self.records.lock();
        if records.len() >= MAX_RECORDS {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Returns the kept writes, the newest first.
    pub fn records(&self) -> Vec<AuditRecord> {
        self.records.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_writes_are_kept() {
        let log = AuditLog::new(ControlClock::default());
        for i in 0..=MAX_RECORDS {
            log.record("ann", "127.0.0.1:5", "put control", &i.to_string());
        }
        let records = log.records();
        assert_eq!(records.len(), MAX_RECORDS);
        assert_eq!(records[0].subject, MAX_RECORDS.to_string());
        assert_eq!(records[MAX_RECORDS - 1].subject, "1");
    }
}
