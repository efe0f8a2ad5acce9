//! [`Controls`]: lists, puts and deletes the blocks, allows and limits that operators set at run time. And its metrics.

mod admission;
mod keep;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::control::{Control, MAX_CONTROLS};
use super::error::{ControlError, ErrorKind};
use super::file::ControlFile;
use super::set::ControlSet;
use super::share::{FirstRead, Sharing};
use super::snapshot::ActiveRules;
use weir_common::metric_families;
use weir_common::metrics::{MetricSink, MetricSource, SampleValue};
use weir_common::threads::run_blocking_or_here;
use weir_common::throttle::Throttle;
use weir_limit::Micros;
use weir_store::{SharedTable, TableError};

/// How long a change waits to be shared before it is answered.
const SHARE_TIMEOUT: Duration = Duration::from_secs(3);

/// The waits until a failed first read of the table is repeated: the first one, which doubles, and the longest.
const RETRY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// The most controls that are compiled, and rules that names are compared with, on the thread that changes controls.
const MAX_INLINE: usize = 100;

/// How controls are kept and shared.
#[derive(Clone, Debug)]
pub struct ControlsOptions {
    /// The file that keeps controls; none: they end with the process, or are kept by Redis.
    pub file: Option<PathBuf>,
    /// The interval at which changes of other replicas are read.
    pub poll: Duration,
    /// The most controls.
    pub max: usize,
    /// Whether the store has a table that all replicas share.
    pub is_shared: bool,
}

impl Default for ControlsOptions {
    fn default() -> ControlsOptions {
        let poll = Duration::from_millis(250);
        ControlsOptions { file: None, poll, max: MAX_CONTROLS, is_shared: false }
    }
}

/// How to put a control.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    /// Changes nothing, and returns what a put would do.
    pub dry_run: bool,
    /// Accepts a control that matches everything.
    pub force: bool,
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The control as it is now.
    pub control: Control,
    /// Whether all replicas apply it within a second.
    pub shared: bool,
    /// Whether the change outlives this process.
    pub kept: bool,
    /// Why the file that would keep it cannot be written.
    pub not_kept_because: Option<String>,
    /// The names of rules whose descriptors the control may match.
    pub rules: Vec<String>,
    /// What the operator may not expect.
    pub warnings: Vec<String>,
}

/// Why the file of controls lacks changes, and since when.
#[derive(Clone, Debug)]
pub struct Unkept {
    pub error: String,
    pub since: Micros,
}

/// The controls of this process.
pub struct Controls {
    active: Arc<ActiveRules>,
    options: ControlsOptions,
    set: Mutex<ControlSet>,
    /// Held while a control is checked and put.
    putting: tokio::sync::Mutex<()>,
    /// Held while a changed set is activated, so that the newest one stays.
    activating: Arc<tokio::sync::Mutex<()>>,
    sharing: Sharing,
    /// Something is to be shared.
    wake: Notify,
    /// Exchanges with the table that have started and ended.
    exchanges: watch::Sender<(u64, u64)>,
    failures: AtomicU64,
    /// The number of changes, of any replica.
    changes: watch::Sender<u64>,
    /// Forgets what was decided without the new controls.
    on_change: Box<dyn Fn() + Send + Sync>,
    /// Held while the file is written.
    file: Option<Arc<tokio::sync::Mutex<ControlFile>>>,
    file_log: Throttle,
    /// Set while the file cannot be written.
    unkept: Mutex<Option<Unkept>>,
    /// The files of controls that were damaged, as they were kept.
    damaged: Vec<PathBuf>,
}

impl fmt::Debug for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Controls { options, set, .. } = self;
        let mut shown = f.debug_struct("Controls");
        shown.field("options", options).field("set", set).finish_non_exhaustive()
    }
}

impl Controls {
    /// Makes the handle of the controls of `active`, and reads the file, if any. Calls `on_change` after each change.
    pub fn new(
        active: Arc<ActiveRules>,
        options: ControlsOptions,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> Controls {
        let mut controls = Controls {
            active,
            options,
            set: Mutex::default(),
            putting: tokio::sync::Mutex::default(),
            activating: Arc::default(),
            sharing: Sharing::default(),
            wake: Notify::new(),
            exchanges: watch::Sender::new((0, 0)),
            failures: AtomicU64::new(0),
            changes: watch::Sender::new(0),
            on_change: Box::new(on_change),
            file: None,
            file_log: Throttle::default(),
            unkept: Mutex::default(),
            damaged: Vec::new(),
        };
        controls.read_file();
        controls
    }

    /// Notified after each change, of this replica or another.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Why the last exchange with other replicas failed; none if it did not, or there are none.
    pub fn share_error(&self) -> Option<TableError> {
        *self.sharing.failed.lock()
    }

    /// Returns how often the store was found to have lost the controls, and with them what it counted.
    pub fn table_losses(&self) -> u64 {
        self.sharing.losses.load(Ordering::Relaxed)
    }

    /// Returns the time by which controls end.
    pub fn now(&self) -> Micros {
        self.active.clock.now()
    }

    /// Returns the active controls, those that end first before others.
    pub fn list(&self) -> Vec<Arc<Control>> {
        let now = self.now();
        let set = self.set.lock();
        let mut list: Vec<_> =
            set.controls().filter(|control| !control.is_expired(now)).cloned().collect();
        drop(set);
        list.sort_by_key(|control| control.until.unwrap_or(Micros::MAX));
        list
    }

    /// Returns an active control.
    pub fn get(&self, id: &str) -> Option<Arc<Control>> {
        let control = self.set.lock().get(id).cloned()?;
        (!control.is_expired(self.now())).then_some(control)
    }

    /// Deletes a control.
    pub async fn delete(&self, id: &str) -> Result<Written, ControlError> {
        self.drop_expired().await;
        let now = self.now();
        let deleted = {
            let mut set = self.set.lock();
            let at = set.time_of(id, now);
            let deleted = set.delete(id, at, self.options.is_shared);
            deleted.inspect(|_| set.begin_change(id))
        };
        let Some(control) = deleted else {
            let help = "list the controls to see their ids; it may have ended";
            let error = format!("there is no control {id:?}");
            return Err(ControlError::new(ErrorKind::NotFound, error, help));
        };
        self.activate().await;
        let (shared, kept) = self.share_and_keep(id).await;
        let (control, not_kept_because) = ((*control).clone(), self.not_kept_because(kept));
        let (rules, warnings) = Default::default();
        Ok(Written { control, shared, kept, not_kept_because, rules, warnings })
    }

    /// Returns whether all replicas share controls, and the last exchange with them was successful.
    pub fn would_share(&self) -> bool {
        let is_connected = self.active.clock.follows_store() && self.share_error().is_none();
        self.options.is_shared && is_connected
    }

    /// Keeps and shares a change that this replica makes. Returns whether it is shared, and whether it is kept.
    async fn share_and_keep(&self, id: &str) -> (bool, bool) {
        let mut exchanges = self.exchanges.subscribe();
        let (started, _) = *exchanges.borrow();
        let share = async {
            if !self.options.is_shared {
                return false;
            }
            self.wake.notify_one();
            // One that has started already may lack the change.
            let ended = exchanges.wait_for(|(_, ended)| *ended > started);
            // A sender that is gone means that the process ends.
            let ended = matches!(timeout(SHARE_TIMEOUT, ended).await, Ok(Ok(_)));
            ended && self.set.lock().is_shared(id)
        };
        let (shared, filed) = tokio::join!(share, self.write_file());
        self.set.lock().end_change(id);
        (shared, shared || filed)
    }

    /// Makes the controls as they are now effective. Changes made at the same time are activated together.
    async fn activate(&self) {
        let activating = self.activating.clone().lock_owned().await;
        let changes = self.set.lock().take_inactive();
        if changes.is_empty() {
            return;
        }
        let active = self.active.clone();
        let activating = in_background(active.work(changes.len()), move || {
            active.change_controls(changes);
            activating
        })
        .await;
        self.activated();
        drop(activating);
    }

    fn activated(&self) {
        (self.on_change)();
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns the outcome of the first read of the other replicas' controls.
    pub fn first_read(&self) -> watch::Receiver<FirstRead> {
        self.sharing.first_read.subscribe()
    }

    /// Drops controls that have ended, and exchanges changes with other replicas. Never ends.
    pub async fn run(&self, table: Option<&dyn SharedTable>) {
        if let Some(table) = table {
            // Else the first exchange would fail only because nothing is connected yet.
            table.tried().await;
        }
        let [mut retry, longest] = RETRY;
        loop {
            self.run_once(table).await;
            let is_read = table.is_none() || *self.sharing.first_read.borrow() == FirstRead::Done;
            let wait = if is_read { self.options.poll } else { retry.min(self.options.poll) };
            retry = longest.min(retry * 2);
            tokio::select! {
                () = sleep(wait) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Does what [`run`](Self::run) does at each tick.
    pub(super) async fn run_once(&self, table: Option<&dyn SharedTable>) {
        if let Some(table) = table {
            self.exchange(table).await;
        }
        self.drop_expired().await;
        self.write_file().await;
    }

    async fn drop_expired(&self) {
        let expired = self.set.lock().drop_expired(self.now());
        if expired {
            self.activate().await;
        }
    }

    async fn exchange(&self, table: &dyn SharedTable) {
        self.exchanges.send_modify(|(started, _)| *started += 1);
        let read = self.sharing.read(table, &self.active.clock, &self.set).await;
        if read == Ok(true) {
            self.activate().await;
        }
        self.sharing.note_read(read.err());
        let exchanged = match read {
            Ok(_) => self.sharing.write(table, &self.set).await,
            Err(error) => Err(error),
        };
        self.sharing.note(exchanged);
        if exchanged.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.exchanges.send_modify(|(started, ended)| *ended = *started);
    }

    /// Returns the number of changes that other replicas do not have.
    pub(crate) fn unshared(&self) -> usize {
        if self.options.is_shared { self.set.lock().unshared() } else { 0 }
    }
}

metric_families! {
    CONTROLS: gauge("controls", &["action"]) = "Active controls, by action";
    UNSHARED: gauge("controls_unshared", &[]) = "Changes of controls that other replicas do not have yet";
    EXCHANGE_FAILURES: counter("controls_exchange_failures", &[]) = "Failed exchanges of controls with the store";
    MISSING: gauge("controls_missing", &[])
        = "Damaged files of controls that nobody has looked at: blocks may be missing";
    UNKEPT: gauge("controls_unkept", &[])
        = "Whether controls.file lacks changes because it cannot be written: a restart loses them";
}

impl MetricSource for Controls {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let controls = self.list();
        sink.family(CONTROLS);
        for action in ["block", "allow", "limit"] {
            let count = controls.iter().filter(|control| control.action.name() == action).count();
            sink.sample(&[("action", action)], SampleValue::Gauge(count as f64));
        }
        sink.gauge(UNSHARED, self.unshared() as f64);
        sink.gauge(UNKEPT, f64::from(self.unkept().is_some()));
        sink.counter(EXCHANGE_FAILURES, self.failures.load(Ordering::Relaxed));
        sink.gauge(MISSING, self.damaged_files().count() as f64);
    }
}

/// Does some work with controls or rules, on a thread for blocking work if there are many and there is one: it
/// takes up to some hundred milliseconds. Returns nothing if it panics.
async fn in_background<T: Send + 'static>(
    count: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if count <= MAX_INLINE { Some(work()) } else { run_blocking_or_here(work).await }
}
