#[cfg(feature = "otlp")]
mod metrics_docs;
