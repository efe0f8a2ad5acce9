//! The log, written to standard error.

mod format;
mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, registry};

pub use self::queue::Queue;
use crate::escape::escape;
use crate::trace::TARGET;

/// The maximum size of the queue: about 10 000 lines.
const QUEUE_BYTES: usize = 1 << 20;

/// How long the process waits at its end until the last lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A layer that records spans.
pub type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The running log. Flushes the queue when dropped.
#[derive(Debug)]
pub struct Log(Queue);

/// Starts logging at `level`, as `text` or `json` lines, and installs a panic hook. Call it once.
/// `spans` records the spans of requests, whatever is logged.
///
/// # Errors
///
/// If the writing thread cannot be started, or a log is already running.
pub fn start(level: &str, format: &str, spans: Option<SpanLayer>) -> io::Result<Log> {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    // Libraries log warnings about clients without throttling them.
    let others = if level < LevelFilter::DEBUG { level.min(LevelFilter::ERROR) } else { level };
    let filter = EnvFilter::new(format!("{others},weir={level}"));
    // An error, because lines of any level may be missing.
    let report = |lines| tracing::error!(lines, "log lines dropped because the log was not read");
    let queue = Queue::start(QUEUE_BYTES, io::stderr(), report)?;
    let events = match format {
        "json" => format::json(queue.clone()).boxed(),
        _ => format::text(queue.clone(), io::stderr().is_terminal()).boxed(),
    };
    let filter = filter.and(filter_fn(|metadata| metadata.target() != TARGET));
    let subscriber = registry().with(spans).with(events.with_filter(filter));
    set_global_default(subscriber).map_err(io::Error::other)?;
    let log = queue.clone();
    panic::set_hook(Box::new(move |panic| report_panic(&log, panic)));
    Ok(Log(queue))
}

impl Log {
    /// Logs why the process ends, even if logging is off.
    pub fn report_end(&self, message: &'static str, error: &str) {
        report(&self.0, format_args!("{message}"), error);
    }

    /// The queue of lines to be written.
    pub fn queue(&self) -> &Queue {
        &self.0
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        flush(&self.0);
    }
}

/// Waits for a short time until the queued lines are written.
pub fn flush(queue: &Queue) {
    queue.flush(FLUSH_TIMEOUT);
}

fn report(queue: &Queue, message: fmt::Arguments<'_>, error: &str) {
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!(%error, "{message}");
    } else {
        queue.push(format!("{message}: {}\n", escape(error)).as_bytes());
    }
}

/// Logs a panic. Replaces the hook of the standard library, which writes to standard error directly and
/// blocks if nobody reads it.
fn report_panic(queue: &Queue, panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let text = panic.payload().downcast_ref::<&str>().copied();
    let owned = || panic.payload().downcast_ref::<String>().map(String::as_str);
    let payload = text.or_else(owned).unwrap_or("no message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}"),
        _ => String::new(),
    };
    let error = format!("thread '{thread}' at {location}: {payload}");
    report(queue, format_args!("panic{backtrace}"), &error);
}
