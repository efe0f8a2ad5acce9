//! Readiness, maintenance, status and metrics of the disk store, which counts in memory and saves to disk.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;

use super::DiskStore;
use super::recovery::Recovery;
use crate::operations::{BackendStatus, Operations, SavedStatus, StoreStatus};
use weir_common::clock::Clock;
use weir_common::metric_families;
use weir_common::metrics::{MetricSink, SampleValue};

metric_families! {
    SYNC_AGE: gauge("disk_sync_age_seconds", &[])
        = "Time since the start of the last completed sync: what a crash loses at most";
    SYNC_INTERVAL: gauge("disk_sync_interval_seconds", &[]) = "The setting store.disk.sync";
    BYTES: gauge("disk_bytes", &["file"]) = "Bytes of the files of the durable store";
    WRITTEN_BYTES: counter("disk_written_bytes", &[]) = "Bytes written to logs and snapshots";
    WRITTEN_RECORDS: counter("disk_written_records", &[]) = "Records written to logs and snapshots";
    SNAPSHOTS: counter("disk_snapshots", &[]) = "Snapshots that replaced older files";
    WRITE_ERRORS: counter("disk_write_errors", &[])
        = "Failed attempts to write, after which everything is written again";
    FILES_LOST: counter("disk_files_lost", &[])
        = "Times that another program removed or replaced files of the durable store";
    DAMAGE: gauge("disk_damaged", &["part"]) = "Frames, records and files found damaged at the start";
    TORN_LOGS: gauge("disk_torn_logs", &[]) = "Logs found at the start that end within a frame, as after a crash";
    LOADED_RECORDS: gauge("disk_loaded_records", &[]) = "Records read at the start";
    LOAD_SECONDS: gauge("disk_load_seconds", &[]) = "Time to read all files at the start";
}

impl<C: Clock> Operations for DiskStore<C> {
    fn connect(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.status.wait_until_loaded())
    }

    fn is_ready(&self) -> bool {
        self.status.is_loaded()
    }

    /// Maintains the memory. What is written is so on a thread of its own.
    fn maintain(&self) -> BoxFuture<'_, ()> {
        self.memory.maintain()
    }

    fn status(&self, status: &mut StoreStatus) {
        status.backends.push(BackendStatus {
            instance: "main",
            kind: "disk",
            address: Some(self.path.display().to_string()),
            keys: Some(self.memory.stats().keys),
            saved: Some(SavedStatus {
                sync_age: self.status.sync_age(),
                not_saved_because: self.status.not_saved_because.lock().clone(),
                files_lost: self.status.files_lost.load(Ordering::Relaxed),
            }),
            ..BackendStatus::default()
        });
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        self.memory.collect(sink);
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let status = &self.status;
        sink.gauge(SYNC_AGE, status.sync_age().as_secs_f64());
        sink.gauge(SYNC_INTERVAL, self.sync.as_secs_f64());
        sink.family(BYTES);
        for (file, bytes) in [("log", &status.log_bytes), ("snapshot", &status.snapshot_bytes)] {
            sink.sample(&[("file", file)], SampleValue::Gauge(get(bytes) as f64));
        }
        sink.counter(WRITTEN_BYTES, get(&status.written_bytes));
        sink.counter(WRITTEN_RECORDS, get(&status.written_records));
        sink.counter(SNAPSHOTS, get(&status.snapshots));
        sink.counter(WRITE_ERRORS, get(&status.write_errors));
        sink.counter(FILES_LOST, get(&status.files_lost));
        sink.family(DAMAGE);
        let (Recovery { damage, torn_logs, records, .. }, took) = status.recovery();
        for (part, count) in
            [("file", damage.files), ("frame", damage.frames), ("record", damage.records)]
        {
            sink.sample(&[("part", part)], SampleValue::Gauge(count as f64));
        }
        sink.gauge(TORN_LOGS, torn_logs as f64);
        sink.gauge(LOADED_RECORDS, records as f64);
        sink.gauge(LOAD_SECONDS, took.as_secs_f64());
    }
}
