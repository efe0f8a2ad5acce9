//! Logs, to standard error.

use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt;

/// Starts logging at `level`, as text or JSON lines. A second call does nothing.
pub fn start(level: &str, format: &str) {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    // Libraries warn of what clients do, as often as they do it.
    let others = if level < LevelFilter::DEBUG { level.min(LevelFilter::ERROR) } else { level };
    // Who reads the log may go away; that is no reason to end.
    let logs = fmt()
        .log_internal_errors(false)
        .with_env_filter(EnvFilter::new(format!("{others},weir={level}")))
        .with_writer(std::io::stderr)
        .with_target(false);
    let color = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A second start is a test's; the first one's level stands.
    let _ = match format {
        "json" => logs.json().flatten_event(true).try_init(),
        _ => logs.with_ansi(color).try_init(),
    };
}
