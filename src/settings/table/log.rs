//! `log`: the log.

use super::group;
use crate::settings::format::{Choice, Format, FormatKind, Int};
use weir_telemetry::log::{LogFormat, LogLevels};

impl Format for LogLevels {
    type Value = LogLevels;
    const KIND: FormatKind = FormatKind::LogLevels;

    fn parse(text: &str) -> Option<LogLevels> {
        text.parse().ok()
    }
}

impl Choice for LogFormat {
    const CHOICES: &'static [(&'static str, LogFormat)] = &[
        ("text", LogFormat::Text),
        ("json", LogFormat::Json),
        ("reference-json", LogFormat::ReferenceJson),
    ];
}

group! {
    /// The log.
    LogSettings {
        /// The least severe level that is logged: off, error, warn, info, debug or trace. At debug
        /// every decision is logged. Libraries only log errors, unless they are named: info,h2=debug.
        level: LogLevels = "info";
        /// The format of log lines; reference-json has the field names and levels of
        /// envoyproxy/ratelimit.
        format: LogFormat = "text";
        /// Log up to this many denied requests per second, at level info; 0: none.
        denials: Int<u32, 0, 1_000> = "0";
    }
}
