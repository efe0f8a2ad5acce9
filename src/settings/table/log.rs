//! `log`: the log.

use super::group;
use crate::settings::format::Choice;

/// A log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Choice for LogLevel {
    const CHOICES: &'static [(&'static str, LogLevel)] = &[
        ("off", LogLevel::Off),
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
}

/// A log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl Choice for LogFormat {
    const CHOICES: &'static [(&'static str, LogFormat)] =
        &[("text", LogFormat::Text), ("json", LogFormat::Json)];
}

group! {
    /// The log.
    LogSettings "log" {
        /// The least severe level that is logged.
        level: LogLevel = "info", reference ["LOG_LEVEL"];
        /// The format of log lines.
        format: LogFormat = "text", reference ["LOG_FORMAT"];
    }
}
