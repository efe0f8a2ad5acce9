//! The formats that Prometheus reads, and the choice of one by the `Accept` header of a request.

weir_common::named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TextFormat, content_type {
        /// Prometheus' text format 0.0.4.
        Prometheus = "text/plain; version=0.0.4; charset=utf-8",
        /// OpenMetrics 1.0.
        OpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8",
    }
}

/// Returns OpenMetrics only if the client accepts it with a higher weight than Prometheus' own format.
pub fn preferred_format(accept: &str) -> TextFormat {
    let mut weights = Weights::default();
    accept.split(',').for_each(|range| weights.add(range));
    if weights.open_metrics > weights.text() {
        TextFormat::OpenMetrics
    } else {
        TextFormat::Prometheus
    }
}

/// Whether an `Accept` header accepts Prometheus' text format.
pub fn accepts_text(accept: &str) -> bool {
    let mut weights = Weights::default();
    accept.split(',').for_each(|range| weights.add(range));
    accept.trim().is_empty() || weights.text() > 0
}

/// The weights in thousandths, of the media ranges that match each format.
#[derive(Debug, Default)]
struct Weights {
    open_metrics: u16,
    /// `text/plain`, `text/*` and `*/*`: the most specific one counts.
    plain: Option<u16>,
    any_text: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    fn text(&self) -> u16 {
        self.plain.or(self.any_text).or(self.any).unwrap_or(0)
    }

    /// Adds one media range, as `application/openmetrics-text;version=1.0.0;q=0.5`.
    fn add(&mut self, range: &str) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut version) = (1_000, None);
        for part in parts {
            let Some((name, value)) = part.split_once('=') else { continue };
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("q") {
                weight = parse_weight(value);
            } else if name.eq_ignore_ascii_case("version") {
                version = Some(value.to_owned());
            }
        }
        let is_version = |served: &str| version.as_deref().is_none_or(|asked| asked == served);
        let slot = match media.as_str() {
            "application/openmetrics-text" if is_version("1.0.0") => {
                self.open_metrics = self.open_metrics.max(weight);
                return;
            }
            "text/plain" if is_version("0.0.4") => &mut self.plain,
            "text/*" => &mut self.any_text,
            "*/*" => &mut self.any,
            _ => return,
        };
        *slot = Some(slot.unwrap_or(0).max(weight));
    }
}

/// Parses a weight from 0 to 1 with up to three decimals, to thousandths. An invalid one is 0.
fn parse_weight(text: &str) -> u16 {
    let weight: f32 = text.parse().unwrap_or(0.0);
    if (0.0..=1.0).contains(&weight) { (weight * 1_000.0).round() as u16 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_served_only_to_clients_that_prefer_it() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
             */*;q=0.2";
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,\
             application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,\
             */*;q=0.1";
        let text_first = "text/plain;version=0.0.4;q=0.6,\
             application/openmetrics-text; version=1.0.0; q=0.5,*/*;q=0.2";
        for (accept, format) in [
            (prometheus_3, TextFormat::OpenMetrics),
            (prometheus_2, TextFormat::OpenMetrics),
            (text_first, TextFormat::Prometheus),
            ("application/openmetrics-text", TextFormat::OpenMetrics),
            ("Application/OpenMetrics-Text;Q=0.5", TextFormat::OpenMetrics),
            ("application/openmetrics-text;version=\"1.0.0\"", TextFormat::OpenMetrics),
            ("", TextFormat::Prometheus),
            ("*/*", TextFormat::Prometheus),
            ("application/openmetrics-text,*/*", TextFormat::Prometheus),
            ("application/openmetrics-text,text/plain;q=0.9", TextFormat::OpenMetrics),
            ("application/openmetrics-text;q=0.5,text/plain;q=0,*/*", TextFormat::OpenMetrics),
            ("application/openmetrics-text;q=0", TextFormat::Prometheus),
            ("application/openmetrics-text;q=2", TextFormat::Prometheus),
            ("application/openmetrics-text;version=0.0.1", TextFormat::Prometheus),
            ("text/html,application/xhtml+xml,*/*;q=0.8", TextFormat::Prometheus),
            (";;;q=,,=", TextFormat::Prometheus),
        ] {
            assert_eq!(preferred_format(accept), format, "{accept}");
        }
        for accept in [prometheus_3, prometheus_2, text_first, "", "*/*", "text/plain"] {
            assert!(accepts_text(accept), "{accept}");
        }
        for accept in ["application/openmetrics-text", "text/html", "text/plain;q=0,*/*"] {
            assert!(!accepts_text(accept), "{accept}");
        }
    }
}
