//! Traces and metrics by OTLP, if this build has them.

#[cfg(feature = "otlp")]
pub(super) use enabled::Otlp;

#[cfg(not(feature = "otlp"))]
pub(super) use disabled::Otlp;

#[cfg(feature = "otlp")]
mod enabled {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::app::App;
    use crate::settings::Settings;
    use weir_common::client_tls::ClientCertificates;
    use weir_common::metrics::MetricSink;
    use weir_common::setup_error::SetupError;
    use weir_common::threads::Failures;
    use weir_telemetry::log::SpanLayer;
    use weir_telemetry::otlp;

    /// How long the process waits at its end until the last spans and metrics are sent.
    const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

    /// Prepared before the log, which shares its subscriber with spans.
    pub struct Otlp {
        otlp: otlp::Otlp,
        certificates: Arc<ClientCertificates>,
    }

    impl Otlp {
        /// # Errors
        ///
        /// A certificate or key cannot be used.
        pub fn new(settings: &Settings) -> Result<Otlp, SetupError> {
            let options = settings.otlp_options();
            let certificates = options.certificates.clone();
            Ok(Otlp { otlp: otlp::Otlp::new(options)?, certificates })
        }

        pub fn span_layer(&self) -> Option<SpanLayer> {
            self.otlp.span_layer()
        }

        /// Starts to send, if there is anything to send. `app` sends what is left at its end.
        ///
        /// # Errors
        ///
        /// The system cannot start a thread.
        pub fn start(self, app: &mut App, failures: &Failures) -> anyhow::Result<()> {
            let metrics = app.metrics();
            let Some(counts) = self.otlp.counts() else { return Ok(()) };
            app.add_presented("otlp", self.certificates);
            metrics.add(Arc::new(counts));
            let collect = move |sink: &mut dyn MetricSink| metrics.collect(sink);
            let exporter = self.otlp.start(collect, app.clock(), failures)?;
            app.flush_at_end("otlp", async move { exporter.flush(FLUSH_TIMEOUT).await });
            Ok(())
        }
    }
}

#[cfg(not(feature = "otlp"))]
mod disabled {
    use crate::app::App;
    use crate::settings::Settings;
    use weir_common::setup_error::SetupError;
    use weir_common::threads::Failures;
    use weir_telemetry::log::SpanLayer;

    /// Nothing: settings that ask for it are errors.
    pub struct Otlp;

    impl Otlp {
        pub fn new(_: &Settings) -> Result<Otlp, SetupError> {
            Ok(Otlp)
        }

        pub fn span_layer(&self) -> Option<SpanLayer> {
            None
        }

        pub fn start(self, _: &mut App, _: &Failures) -> anyhow::Result<()> {
            Ok(())
        }
    }
}
