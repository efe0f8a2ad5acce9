//! Sends metrics at an interval.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::client::{Client, Signal};
use weir_common::clock::Clock;
use weir_common::metrics::{MetricFamily, MetricSink, MetricType, SampleValue};

/// Data points in one request: some 200 bytes each, and collectors accept 4 MiB by default.
const MAX_POINTS: usize = 5_000;

/// Lists all metrics.
pub(super) type Collect = Arc<dyn Fn(&mut dyn MetricSink) + Send + Sync>;

/// Sends all metrics at an interval.
#[derive(Clone)]
pub(super) struct MetricsExporter {
    client: Client,
    collect: Collect,
    interval: Duration,
    clock: Arc<dyn Clock>,
    /// When counting started.
    started: u64,
    resource: Arc<ResourceAttributesWithSchema>,
    stop: watch::Receiver<Option<Instant>>,
}

struct Metrics;

impl Signal for Metrics {
    const NAME: &'static str = "metrics";
    const METHOD: &'static str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    type Request = ExportMetricsServiceRequest;
    type Response = ExportMetricsServiceResponse;

    fn rejected(response: ExportMetricsServiceResponse) -> Option<(i64, String)> {
        let partial = response.partial_success?;
        let rejected = partial.rejected_data_points;
        (rejected > 0).then_some((rejected, partial.error_message))
    }
}

impl MetricsExporter {
    pub fn new(
        client: Client,
        collect: Collect,
        interval: Duration,
        clock: Arc<dyn Clock>,
        resource: Arc<ResourceAttributesWithSchema>,
        stop: watch::Receiver<Option<Instant>>,
    ) -> MetricsExporter {
        let started = nanos(&*clock);
        MetricsExporter { client, collect, interval, clock, started, resource, stop }
    }

    /// Sends the metrics at each interval, and once more when the exporter is stopped.
    pub async fn run(self) {
        let MetricsExporter { client, collect, interval, clock, started, resource, mut stop } =
            self;
        let mut client = client.connect();
        let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let stopped = tokio::select! {
                _ = ticks.tick() => false,
                _ = stop.wait_for(Option::is_some) => true,
            };
            let mut points = PointList::new(started, nanos(&*clock));
            collect(&mut points);
            for metrics in points.requests {
                let request = request(metrics, &resource);
                // The next export has the same counts and more: there is no point in retrying longer.
                if !client.send::<Metrics>(&request, interval, &mut stop).await {
                    break;
                }
            }
            if stopped {
                return;
            }
        }
    }
}

fn nanos(clock: &dyn Clock) -> u64 {
    clock.now().saturating_mul(1_000)
}

fn request(
    metrics: Vec<Metric>,
    resource: &ResourceAttributesWithSchema,
) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: "weir".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = ScopeMetrics { scope: Some(scope), metrics, schema_url: String::new() };
    let attributes = resource.attributes.0.clone();
    let schema_url = resource.schema_url.clone().unwrap_or_default();
    let resource = Resource { attributes, ..Resource::default() };
    let resource_metrics = vec![ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope_metrics],
        schema_url,
    }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// The metrics of one export, as messages.
struct PointList {
    /// The metrics of each request.
    requests: Vec<Vec<Metric>>,
    /// The points of the last request.
    points: usize,
    family: Option<MetricFamily>,
    started: u64,
    now: u64,
}

impl PointList {
    fn new(started: u64, now: u64) -> PointList {
        PointList { requests: Vec::new(), points: MAX_POINTS, family: None, started, now }
    }

    /// Returns the metric to add a point to: a new one at the start of a family or of a request.
    fn metric(&mut self) -> Option<&mut Metric> {
        if self.points >= MAX_POINTS {
            self.requests.push(Vec::new());
            self.points = 0;
        }
        self.points += 1;
        let family = self.family.as_ref()?;
        let metrics = self.requests.last_mut()?;
        let name = match family.is_standard {
            true => family.name.to_owned(),
            false => format!("weir_{}", family.name),
        };
        if metrics.last().is_none_or(|metric| metric.name != name) {
            metrics.push(metric(family, name));
        }
        metrics.last_mut()
    }
}

fn metric(family: &MetricFamily, name: String) -> Metric {
    let unit = match family.name {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    };
    let temporality = AggregationTemporality::Cumulative as i32;
    let data = match family.metric_type {
        MetricType::Counter => Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        MetricType::Gauge => Data::Gauge(Gauge::default()),
        MetricType::Histogram => Data::Histogram(Histogram {
            data_points: Vec::new(),
            aggregation_temporality: temporality,
        }),
    };
    Metric {
        name,
        description: family.help.to_owned(),
        unit: unit.to_owned(),
        metadata: Vec::new(),
        data: Some(data),
    }
}

fn attributes(labels: &[(&str, &str)]) -> Vec<KeyValue> {
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(Value::StringValue((*value).to_owned())) }),
        ..KeyValue::default()
    };
    labels.iter().map(attribute).collect()
}

impl MetricSink for PointList {
    fn family(&mut self, family: MetricFamily) {
        self.family = Some(family);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
        let (started, now) = (self.started, self.now);
        let Some(data) = self.metric().and_then(|metric| metric.data.as_mut()) else { return };
        let point = |value| NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: started,
            time_unix_nano: now,
            value: Some(value),
            ..NumberDataPoint::default()
        };
        match (data, value) {
            (Data::Sum(sum), SampleValue::Counter(count)) => {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                sum.data_points.push(point(Number::AsInt(count)));
            }
            (Data::Sum(sum), SampleValue::FloatCounter(count)) => {
                sum.data_points.push(point(Number::AsDouble(count)));
            }
            (Data::Gauge(gauge), SampleValue::Gauge(value)) => {
                gauge.data_points.push(point(Number::AsDouble(value)));
            }
            (Data::Histogram(histogram), SampleValue::Histogram(snapshot)) => {
                histogram.data_points.push(HistogramDataPoint {
                    attributes: attributes(labels),
                    start_time_unix_nano: started,
                    time_unix_nano: now,
                    count: snapshot.count(),
                    sum: Some(snapshot.sum),
                    bucket_counts: snapshot.counts.clone(),
                    explicit_bounds: snapshot.bounds.clone(),
                    ..HistogramDataPoint::default()
                });
            }
            // A sample is of its family's type.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_common::metrics::HistogramSnapshot;

    #[test]
    fn metrics_become_cumulative_points_with_their_start() {
        let mut points = PointList::new(1, 9);
        points.family(MetricFamily::counter("hits", "Hits", &["rule"]));
        points.sample(&[("rule", "a")], SampleValue::Counter(3));
        points.sample(&[("rule", "b")], SampleValue::Counter(u64::MAX));
        points.family(MetricFamily::counter("empty", "Nothing", &[]));
        points.family(MetricFamily::gauge("size_bytes", "A size", &[]).standard());
        points.sample(&[], SampleValue::Gauge(0.5));
        points.family(MetricFamily::histogram("wait_seconds", "A wait", &[]));
        let snapshot = HistogramSnapshot {
            bounds: vec![0.1],
            counts: vec![2, 1],
            sum: 1.5,
            exemplars: Vec::new(),
        };
        points.sample(&[], SampleValue::Histogram(&snapshot));

        let [metrics] = &points.requests[..] else { panic!("one request") };
        let [hits, size, wait] = &metrics[..] else {
            panic!("a family without samples is omitted")
        };
        assert_eq!((hits.name.as_str(), hits.unit.as_str()), ("weir_hits", ""));
        let Some(Data::Sum(sum)) = &hits.data else { panic!("a sum") };
        assert!(sum.is_monotonic);
        let [a, b] = &sum.data_points[..] else { panic!("two points") };
        assert_eq!((a.start_time_unix_nano, a.time_unix_nano), (1, 9));
        assert_eq!(a.attributes[0].key, "rule");
        assert_eq!((a.value, b.value), (Some(Number::AsInt(3)), Some(Number::AsInt(i64::MAX))));
        assert_eq!((size.name.as_str(), size.unit.as_str()), ("size_bytes", "By"));
        let Some(Data::Histogram(histogram)) = &wait.data else { panic!("a histogram") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (3, Some(1.5)));
        assert_eq!(
            (&point.bucket_counts[..], &point.explicit_bounds[..]),
            (&[2, 1][..], &[0.1][..])
        );
    }

    #[test]
    fn many_points_are_split_into_requests() {
        let mut points = PointList::new(0, 0);
        points.family(MetricFamily::counter("hits", "Hits", &[]));
        for _ in 0..MAX_POINTS + 1 {
            points.sample(&[], SampleValue::Counter(1));
        }
        assert_eq!(points.requests.len(), 2);
        assert!(points.requests.iter().all(|metrics| metrics.len() == 1));
    }
}
