//! Formats log events as lines of JSON, also with the names of envoyproxy/ratelimit (the reference), for pipelines that
//! parse its log.

use std::fmt::{self, Debug, Write};
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter, layer};
use tracing_subscriber::registry::LookupSpan;

use weir_common::escape::Escaping;
use weir_common::spans::{self, TraceIds};

/// The names of the fields that each event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// `timestamp`, `level` and `message`.
    Own,
    /// `@timestamp`, `@message` and `level`, with the levels of logrus, and sorted as logrus does.
    Reference,
}

pub(super) fn json<S, W>(names: Names, out: W) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    layer().log_internal_errors(false).event_format(Json(names)).with_writer(out)
}

struct Json(Names);

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields { names: self.0, list: Vec::new() };
        #[expect(clippy::disallowed_methods, reason = "log lines have the time of the system")]
        let now = Timestamp::try_from(SystemTime::now()).unwrap_or_default();
        let level = event.metadata().level();
        let (time, level) = match self.0 {
            Names::Own => (("timestamp", format!("{now:.6}")), level.to_string()),
            Names::Reference => {
                // The levels of logrus.
                let level = level.to_string().to_lowercase().replace("warn", "warning");
                (("@timestamp", format!("{now:.9}")), level)
            }
        };
        fields.list.extend([time, ("level", level)].map(|(name, text)| (name, Value::from(text))));
        event.record(&mut fields);
        if self.0 == Names::Reference {
            fields.list.sort_by_key(|(name, _)| *name);
        }
        // The ids of the recorded request that the event belongs to come last.
        for (name, id) in spans::current().iter().flat_map(TraceIds::fields) {
            fields.list.push((name, id.into()));
        }
        // JSON escapes no control characters outside ASCII. The only newline is the one that ends the line.
        let mut out = Escaping::new(out, "\n");
        let mut separator = '{';
        for (name, value) in fields.list {
            write!(out, "{separator}{}:{value}", Value::from(name))?;
            separator = ',';
        }
        out.write_str("}\n")
    }
}

struct Fields {
    names: Names,
    list: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        let name = match (self.names, field.name()) {
            (Names::Reference, "message") => "@message",
            // As logrus does.
            (Names::Reference, "level") => "fields.level",
            (_, name) => name,
        };
        self.list.push((name, value.into()));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}"));
    }
}
