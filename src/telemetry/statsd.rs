//! Sends the reference's statistics to StatsD or DogStatsD.
//!
//! A thread of its own collects and sends, so that neither a slow server nor none delays a request.
//! What could not be sent is not kept: the next report contains the difference to what was sent
//! last, however long that is ago.

mod mogrifier;
mod report;
mod send;
mod totals;

use std::io;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::metrics::MetricSink;
use crate::telemetry::reference::{self, ReferenceSink};
use crate::threads;
pub use mogrifier::{Mogrifier, MogrifierError};
use report::Report;
use send::Sender;
use totals::Totals;

/// Where and how to send.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port`.
    pub address: String,
    pub protocol: Protocol,
    pub dialect: Dialect,
    /// The time between reports.
    pub interval: Duration,
    pub statistics: reference::Options,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

#[derive(Clone, Debug)]
pub enum Dialect {
    StatsD,
    /// Tags are separate from names, and the first of these that matches a name replaces it.
    DogStatsD(Vec<Mogrifier>),
}

/// A running exporter. If it is dropped, it sends its last report without anyone waiting for that.
#[derive(Debug)]
pub struct Exporter {
    finish: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

/// Starts to send what `collect` lists.
///
/// # Errors
///
/// The system cannot create a thread.
pub fn start(
    options: Options,
    collect: impl Fn(&mut dyn MetricSink) + Send + 'static,
) -> io::Result<Exporter> {
    let (finish, ending) = watch::channel(false);
    let name = match options.dialect {
        Dialect::StatsD => "weir-statsd",
        Dialect::DogStatsD(_) => "weir-dogstatsd",
    };
    let ended = threads::start(name, move || {
        threads::lower_priority();
        run(options, collect, ending)
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
    options: Options,
    collect: impl Fn(&mut dyn MetricSink),
    mut ending: watch::Receiver<bool>,
) {
    let mut ticks = interval_at(Instant::now() + options.interval, options.interval);
    // After a send that took longer than an interval.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sender = Sender::new(&options.address, options.protocol, ending.clone());
    let mut report = Report::new(options.dialect);
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
