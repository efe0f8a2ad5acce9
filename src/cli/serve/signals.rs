//! The signals that stop the service.

use crate::app::Stop;
use weir_telemetry::log::{self, Queue};

/// Returns a future that resolves when a signal stops the process: graceful on SIGTERM or SIGHUP,
/// immediate on SIGINT. A second signal ends the process once `log` is written, or its reader has stalled.
///
/// # Errors
///
/// If a signal handler cannot be installed.
pub(super) fn stop_signal(log: Queue) -> std::io::Result<impl Future<Output = Stop>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let stop = tokio::select! {
            _ = terminate.recv() => Stop::Drain,
            _ = hang_up.recv() => Stop::Drain,
            _ = interrupt.recv() => Stop::Now,
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("second stop signal: exiting without draining");
            log::flush(&log);
            #[expect(clippy::disallowed_methods, reason = "a second signal asks for this")]
            std::process::exit(1);
        });
        stop
    })
}
