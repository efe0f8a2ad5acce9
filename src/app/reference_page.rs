//! Makes the Prometheus page with metrics by the names of envoyproxy/ratelimit, here "the reference". A setting
//! can name a mapping file in the format of statsd_exporter, which changes these names.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::settings::Settings;
use weir_telemetry::mapper::{self, Mapper};
use weir_telemetry::reference::page::ReferencePage;

const MAX_FILE_BYTES: u64 = 1 << 20;

/// Returns the page, if settings ask for it. Without a usable mapping file it has the default names, as the reference
/// has without any: an error in metrics must not stop the service.
pub(super) fn make(settings: &Settings) -> Option<ReferencePage> {
    let prometheus = &settings.metrics.prometheus;
    if !*prometheus.reference_names {
        return None;
    }
    let options = settings.statistic_options();
    Some(match prometheus.mapper.as_deref().and_then(load) {
        Some(mapper) => ReferencePage::new(options, mapper),
        None => ReferencePage::with_builtin(options, *prometheus.response_time_as_milliseconds),
    })
}

/// Reads a mapping file, and logs what has no effect in it. Returns none if it is not usable, and logs why.
fn load(path: &Path) -> Option<Mapper> {
    let file = path.display();
    let failed = |error: &dyn Display| {
        tracing::warn!(%file, %error, "cannot use the mapping of metrics: using the default");
    };
    let text = read(path).inspect_err(|error| match error.kind() {
        // Deployments set the variable whether or not the file exists.
        io::ErrorKind::NotFound => {
            tracing::info!(%file, "no mapping of metrics: using the default");
        }
        _ => failed(error),
    });
    let (mapper, warnings) = mapper::read(&text.ok()?).inspect_err(|error| failed(error)).ok()?;
    for detail in warnings {
        tracing::warn!(%file, detail, "mapping of metrics");
    }
    Some(mapper)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
