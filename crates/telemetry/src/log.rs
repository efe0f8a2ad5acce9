//! Starts the log: events of `tracing` as text or JSON, which a thread writes to standard error.

mod format;
mod json;
mod levels;
mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic::{self, PanicHookInfo};
use std::time::Duration;

use tracing::subscriber::set_global_default;
use tracing_subscriber::filter::{FilterExt, FilterFn, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, registry};

use self::json::Names;
pub use self::levels::{ActiveLevels, LevelsError, LogLevels};
pub use self::queue::Queue;
use weir_common::escape::{escape, has_colors};
use weir_common::named_enum;
use weir_common::spans::TARGET;
use weir_common::threads::Failures;

/// The maximum size of the queue: about 10 000 lines.
const QUEUE_BYTES: usize = 1 << 20;

/// How long the process waits at its end until the last lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LogFormat, name {
        Text = "text",
        Json = "json",
        /// JSON with the field names and levels of envoyproxy/ratelimit.
        ReferenceJson = "reference-json",
    }
}

/// A layer that records the spans of requests.
pub type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The running log. Flushes the queue when dropped.
#[derive(Debug)]
pub struct Log {
    pub queue: Queue,
    pub levels: ActiveLevels,
}

/// Starts logging, and installs a panic hook. Call it once. `spans` records spans, whatever is logged.
pub fn start(
    levels: LogLevels,
    format: LogFormat,
    spans: Option<SpanLayer>,
    failures: &Failures,
) -> io::Result<Log> {
    // An error, because lines of any level may be missing.
    let report = |lines| tracing::error!(lines, "log lines dropped because the log was not read");
    let queue = Queue::start(QUEUE_BYTES, io::stderr(), report, failures)?;
    let levels = ActiveLevels::new(levels);
    let out = queue.clone();
    let events = match format {
        LogFormat::Text => format::text(out, has_colors(&io::stderr())).boxed(),
        LogFormat::Json => json::json(Names::Own, out).boxed(),
        LogFormat::ReferenceJson => json::json(Names::Reference, out).boxed(),
    };
    // A filter for each layer; with a hint, so that what is less severe than all levels keeps costing one comparison.
    let no_spans = FilterFn::new(|metadata| metadata.target() != TARGET);
    let logged = levels.clone().and(no_spans.with_max_level_hint(LevelFilter::TRACE));
    let subscriber = registry().with(spans).with(events.with_filter(logged));
    set_global_default(subscriber).map_err(io::Error::other)?;
    let log = queue.clone();
    panic::set_hook(Box::new(move |panic| report_panic(&log, panic)));
    Ok(Log { queue, levels })
}

impl Log {
    /// Logs why the process ends, even if logging is off.
    pub fn report_end(&self, message: &'static str, error: &str) {
        match tracing::enabled!(tracing::Level::ERROR) {
            true => tracing::error!(%error, "{message}"),
            false => self.queue.push(format!("{message}: {}\n", escape(error)).as_bytes()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        flush(&self.queue);
    }
}

/// Waits for a short time until the queued lines are written.
pub fn flush(queue: &Queue) {
    queue.flush(FLUSH_TIMEOUT);
}

/// Logs a panic, even if logging is off. The hook of std writes to standard error itself, and blocks if nobody reads.
fn report_panic(queue: &Queue, panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let payload = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let error = format!("thread '{thread}' at {location}: {payload}");
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    let backtrace = is_captured.then(|| backtrace.to_string());
    if tracing::enabled!(tracing::Level::ERROR) {
        let backtrace = backtrace.as_ref().map(tracing::field::display);
        tracing::error!(%error, backtrace, "panic");
    } else {
        let backtrace = backtrace.map(|trace| format!("\n{}", indented(&trace)));
        let line = format!("panic: {}{}\n", escape(&error), backtrace.unwrap_or_default());
        queue.push(line.as_bytes());
    }
}

/// Indents all lines, as further lines of an event are.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {}", escape(line))).collect::<Vec<_>>().join("\n")
}
