//! Events as the JSON that the reference writes, for pipelines that parse its log.

use std::fmt::{self, Debug};
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter, layer};
use tracing_subscriber::registry::LookupSpan;

use super::format::EscapedJson;

const TIMESTAMP: &str = "@timestamp";
const MESSAGE: &str = "@message";
const LEVEL: &str = "level";

/// Returns a layer that writes events as lines of JSON with `@timestamp`, `@message`, `level`, and the
/// fields of the event.
pub(super) fn json<S, W>(out: W) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    layer()
        .log_internal_errors(false)
        .with_ansi(false)
        .event_format(EscapedJson(ReferenceJson))
        .with_writer(out)
}

struct ReferenceJson;

impl<S, N> FormatEvent<S, N> for ReferenceJson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        #[expect(clippy::disallowed_methods, reason = "log lines have the time of the system")]
        let now = Timestamp::try_from(SystemTime::now()).unwrap_or_default();
        fields.0.insert(TIMESTAMP.to_owned(), format!("{now:.9}").into());
        fields.0.insert(LEVEL.to_owned(), level(*event.metadata().level()).into());
        event.record(&mut fields);
        writeln!(out, "{}", Value::Object(fields.0))
    }
}

/// The names of logrus.
fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The fields of an event by their names.
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        let name = match field.name() {
            "message" => MESSAGE.to_owned(),
            // As logrus does.
            LEVEL => format!("fields.{LEVEL}"),
            name => name.to_owned(),
        };
        self.0.insert(name, value.into());
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
