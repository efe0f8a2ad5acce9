//! Sends the statistics of envoyproxy/ratelimit (the reference), as weir counts them, to StatsD or DogStatsD.
//!
//! A thread of its own collects and sends, so that neither a slow server nor none delays a request. What could not be
//! sent is not kept: the next report contains the difference to what was sent last, however long that is ago.

mod mogrifier;
mod report;
mod send;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::reference::{self, ReferenceSink};
pub use mogrifier::{Dialect, Mogrifier, MogrifierError};
use report::{StatsdReport, Totals};
use send::Sender;
pub use send::StatsdProtocol;
use weir_common::metrics::MetricSink;
use weir_common::threads::{self, Failures};

#[derive(Clone, Debug)]
pub struct StatsdOptions {
    /// `host:port`.
    pub address: String,
    pub protocol: StatsdProtocol,
    pub dialect: Dialect,
    /// The time between reports.
    pub interval: Duration,
    pub statistics: reference::ReferenceOptions,
    /// Whether characters in names that start tags at some servers become `_`.
    pub replaces_tag_characters: bool,
}

/// A running exporter. If it is dropped, it sends its last report without anyone waiting for that.
#[derive(Debug)]
pub struct Exporter {
    finish: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

/// Starts to send what `collect` lists.
pub fn start(
    options: StatsdOptions,
    collect: impl Fn(&mut dyn MetricSink) + Send + Sync + 'static,
    failures: &Failures,
) -> io::Result<Exporter> {
    let (finish, ending) = watch::channel(false);
    let name = match options.dialect {
        Dialect::StatsD => "weir-statsd",
        Dialect::DogStatsD(_) => "weir-dogstatsd",
    };
    let collect = Arc::new(collect);
    // Kept if the thread fails: it has what was sent already.
    let report =
        Arc::new(Mutex::new(StatsdReport::new(&options.dialect, options.replaces_tag_characters)));
    let ended = threads::start_background(name, failures, move || {
        run(options.clone(), collect.clone(), report.clone(), ending.clone())
    })?;
    Ok(Exporter { finish, ended })
}

impl Exporter {
    /// Sends a last report, and waits until it is sent.
    pub async fn finish(self) {
        self.finish.send_replace(true);
        // The thread may have failed.
        let _ = self.ended.await;
    }
}

async fn run(
    options: StatsdOptions,
    collect: Arc<impl Fn(&mut dyn MetricSink)>,
    report: Arc<Mutex<StatsdReport>>,
    mut ending: watch::Receiver<bool>,
) {
    let mut report = report.lock().await;
    let mut ticks = interval_at(Instant::now() + options.interval, options.interval);
    // After a send that took longer than an interval.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sender = Sender::new(&options.address, options.protocol, ending.clone());
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            // Also if the exporter was dropped.
            _ = ending.wait_for(|ending| *ending) => true,
        };
        let mut totals = Totals::default();
        collect(&mut ReferenceSink::new(&options.statistics, &mut totals));
        let batch = report.compose(&totals);
        let sent = sender.send(&batch).await;
        report.confirm(&batch, sent);
        if last {
            return sender.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::net::UdpSocket;
    use tokio::time::timeout;

    use super::*;
    use weir_common::metrics::MetricFamily;

    fn options(dialect: Dialect) -> StatsdOptions {
        StatsdOptions {
            address: String::new(),
            protocol: StatsdProtocol::Udp,
            dialect,
            interval: Duration::from_millis(10),
            statistics: reference::ReferenceOptions::default(),
            replaces_tag_characters: false,
        }
    }

    #[tokio::test]
    async fn reports_go_on_after_a_panic() {
        const KEYS: MetricFamily = MetricFamily::gauge("keys", "Keys", &[]);
        let failures = Failures::default();
        let (tries, counted) = (Arc::new(AtomicU64::new(0)), Arc::new(tokio::sync::Notify::new()));
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let options = StatsdOptions { address, ..options(Dialect::StatsD) };
        let collect = {
            let (tries, counted) = (tries.clone(), counted.clone());
            move |sink: &mut dyn MetricSink| {
                let tries = tries.fetch_add(1, Ordering::Relaxed);
                counted.notify_one();
                assert!(tries != 1, "this panic is a part of the test");
                sink.gauge(KEYS, 1.0);
            }
        };
        let exporter = start(options, collect, &failures).unwrap();
        let reported = async {
            while tries.load(Ordering::Relaxed) < 4 {
                counted.notified().await;
            }
        };
        timeout(Duration::from_secs(60), reported).await.unwrap();
        assert_eq!(failures.of("weir-statsd"), Some(1));
        exporter.finish().await;
    }
}
