//! Formats log events as text. Values may come from clients and files: control characters are escaped, so that none can
//! forge a line or control a terminal.

use std::fmt::{self, Debug, Write};

use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, MakeWriter, layer};
use tracing_subscriber::registry::LookupSpan;

use weir_common::escape::Escaping;
use weir_common::spans::{self, TraceIds};

/// Further lines of a message are indented, so that each unindented line starts an event.
const NEXT_LINE: &str = "\n    ";

pub(super) fn text<S, W>(out: W, has_colors: bool) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let style = Style { has_colors };
    let fields = debug_fn(move |out, field, value| style.write_field(out, field, value));
    layer()
        .log_internal_errors(false)
        .event_format(style)
        .fmt_fields(fields.delimited(" "))
        .with_writer(out)
}

/// Writes the time and the level before the fields, and after them the ids of the recorded request that the event
/// belongs to.
#[derive(Clone, Copy)]
struct Style {
    has_colors: bool,
}

impl<S, N> FormatEvent<S, N> for Style
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        let (dimmed, color, reset) = match self.has_colors {
            true => ("\x1b[2m", color(level), "\x1b[0m"),
            false => ("", "", ""),
        };
        out.write_str(dimmed)?;
        SystemTime.format_time(&mut out)?;
        write!(out, "{reset} {color}{level:>5}{reset} ")?;
        context.format_fields(out.by_ref(), event)?;
        for (name, id) in spans::current().iter().flat_map(TraceIds::fields) {
            out.write_char(' ')?;
            self.write_name(&mut out, name)?;
            out.write_str(&id)?;
        }
        writeln!(out)
    }
}

fn color(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

impl Style {
    fn write_field(self, out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
        match field.name() {
            "message" => write!(Escaping::new(out, NEXT_LINE), "{value:?}"),
            // The errors of rules are lines of text; the field comes last.
            "problems" => write!(Escaping::new(out, NEXT_LINE), "\n{value:?}"),
            "backtrace" => write!(Escaping::new(out, NEXT_LINE), "backtrace=\n{value:?}"),
            name => {
                self.write_name(out, name)?;
                write!(Escaping::new(out, r"\n"), "{value:?}")
            }
        }
    }

    fn write_name(self, out: &mut Writer<'_>, name: &str) -> fmt::Result {
        match self.has_colors {
            true => write!(out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m"),
            false => write!(out, "{name}="),
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_types, reason = "tracing writes to this kind of lock")]
mod tests;
