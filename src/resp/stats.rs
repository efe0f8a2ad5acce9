//! The metrics of the listener for Redis clients.

use super::command::Command;
use weir_common::metric_families;
use weir_common::metrics::{Counter, Histogram, MetricSink, MetricSource, SampleValue};

#[derive(Debug, Default)]
pub struct RespStats {
    commands: [Counter; Command::ALL.len()],
    /// The latencies of all commands but WEIR.COUNT.
    pub decisions: Histogram,
    pub(super) protocol_errors: Counter,
    pub(super) wrong_passwords: Counter,
    pub(super) memory_refusals: Counter,
}

metric_families! {
    COMMANDS: counter("resp_commands", &["command"]) = "Commands of Redis clients, by command";
    DURATION: histogram("resp_decision_duration_seconds", &[])
        = "Time from reading a command of a Redis client to its reply, except weir.count";
    PROTOCOL_ERRORS: counter("resp_protocol_errors", &[])
        = "Connections of Redis clients closed because of invalid or too large requests";
    WRONG_PASSWORDS: counter("resp_wrong_passwords", &[]) = "Wrong passwords and user names of Redis clients";
    MEMORY_REFUSALS: counter("resp_memory_refusals", &[])
        = "Connections of Redis clients closed because of clients.max_buffered";
}

impl RespStats {
    pub(super) fn count(&self, command: Command) {
        if let Some(counter) = self.commands.get(command as usize) {
            counter.inc();
        }
    }
}

impl MetricSource for RespStats {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.family(COMMANDS);
        for (command, counter) in Command::ALL.iter().zip(&self.commands) {
            sink.sample(&[("command", command.label())], SampleValue::Counter(counter.get()));
        }
        sink.histogram(DURATION, &self.decisions.snapshot());
        sink.counter(PROTOCOL_ERRORS, self.protocol_errors.get());
        sink.counter(WRONG_PASSWORDS, self.wrong_passwords.get());
        sink.counter(MEMORY_REFUSALS, self.memory_refusals.get());
    }
}
