//! The metrics of the listener for Redis clients.

use super::commands::Command;
use crate::metrics::{Counter, MetricFamily, MetricSink, MetricSource, SampleValue};

/// Counts of commands and of what clients do wrong.
#[derive(Debug, Default)]
pub struct RespStats {
    commands: [Counter; Command::ALL.len()],
    pub(super) protocol_errors: Counter,
}

const COMMANDS: MetricFamily =
    MetricFamily::counter("resp_commands", "Commands of Redis clients, by command", &["command"]);
const PROTOCOL_ERRORS: MetricFamily = MetricFamily::counter(
    "resp_protocol_errors",
    "Connections of Redis clients closed because of invalid or too large requests",
    &[],
);

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
        sink.counter(PROTOCOL_ERRORS, self.protocol_errors.get());
    }
}
