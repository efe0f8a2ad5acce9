//! Random changes, outages and losses at several replicas, against a model: the newest write of an id
//! wins, at all replicas.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use weir_common::clock::Clock;
use weir_store::conformance::table::{FakeRows, FakeTable};
use weir_store::{
    RowChange, SharedTable, StoreError, TableError, TableRow, TableVersion, TableWritten,
};

const REPLICAS: usize = 3;
const USERS: [&str; 3] = ["ann", "bob", "cid"];

/// The greatest difference of a replica's clock from that of the table.
const MAX_SKEW: i64 = 3_600 * SECOND as i64;

/// How a replica reaches the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    /// Reads pass, and writes are made, but their answers are lost.
    LosesAnswers,
    /// Versions are read, and nothing else.
    Breaks,
    Down,
}

/// A replica's way to the table.
#[derive(Debug)]
struct Linked {
    table: Arc<FakeTable>,
    clock: Arc<ManualClock>,
    link: AtomicU8,
}

impl Linked {
    fn set(&self, link: Link) {
        self.link.store(link as u8, Ordering::Relaxed);
    }

    /// Fails unless the link is better than this.
    fn better_than(&self, link: Link) -> Result<(), TableError> {
        match self.link.load(Ordering::Relaxed) < link as u8 {
            true => Ok(()),
            false => Err(StoreError::TimedOut.into()),
        }
    }
}

impl SharedTable for Linked {
    fn tried(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>> {
        *self.table.time.lock() = self.clock.now();
        async move { self.better_than(Link::Down).and(self.table.version().await) }.boxed()
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<TableRow>, TableError>> {
        async move { self.better_than(Link::Breaks).and(self.table.rows().await) }.boxed()
    }

    fn write<'a>(
        &'a self,
        changes: &'a [RowChange],
    ) -> BoxFuture<'a, Result<TableWritten, TableError>> {
        async move {
            self.better_than(Link::Breaks)?;
            *self.table.time.lock() = self.clock.now();
            let written = self.table.write(changes).await;
            self.better_than(Link::LosesAnswers).and(written)
        }
        .boxed()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The control ends after some hours, or never.
    Put {
        replica: usize,
        user: usize,
        hours: Option<u64>,
    },
    Delete {
        replica: usize,
        user: usize,
    },
    Poll {
        replica: usize,
    },
    Link {
        replica: usize,
        link: Link,
    },
    Pass {
        millis: u64,
    },
    /// The table loses all, as by a flush or a restart without its data.
    Flush,
    /// The table is copied, as to a standby.
    Copy,
    /// The copy takes over, as in a failover that loses the last writes.
    Failover,
}

fn step() -> impl Strategy<Value = Step> {
    let (replica, user) = (0..REPLICAS, 0..USERS.len());
    let link = prop_oneof![
        3 => Just(Link::Up),
        1 => Just(Link::LosesAnswers),
        1 => Just(Link::Breaks),
        2 => Just(Link::Down),
    ];
    prop_oneof![
        6 => (replica.clone(), user.clone(), option::of(1..4_u64))
            .prop_map(|(replica, user, hours)| Step::Put { replica, user, hours }),
        3 => (replica.clone(), user).prop_map(|(replica, user)| Step::Delete { replica, user }),
        8 => replica.clone().prop_map(|replica| Step::Poll { replica }),
        4 => (replica, link).prop_map(|(replica, link)| Step::Link { replica, link }),
        2 => prop_oneof![1..5_000_u64, 1..10_000_000_u64].prop_map(|millis| Step::Pass { millis }),
        1 => Just(Step::Flush),
        1 => Just(Step::Copy),
        1 => Just(Step::Failover),
    ]
}

/// What the newest write of a user says.
#[derive(Clone, Debug)]
enum Newest {
    Deleted,
    Put { reason: String, until: Option<Micros> },
}

/// Replicas of one table, each with a clock of its own.
struct Replicas {
    clock: Arc<ManualClock>,
    table: Arc<FakeTable>,
    copy: FakeRows,
    replicas: Vec<(Process, Linked)>,
    /// The newest write of each user.
    newest: HashMap<&'static str, Newest>,
    writes: usize,
}

impl Replicas {
    fn new(skews: &[i64]) -> Replicas {
        let clock = Arc::new(ManualClock::new(NOW));
        let table = Arc::new(FakeTable::default());
        let replica = |skew: &i64| {
            let process =
                Process::new(ControlsOptions { is_shared: true, ..ControlsOptions::default() });
            process.clock.set(NOW.saturating_add_signed(*skew));
            let link = AtomicU8::new(Link::Up as u8);
            (process, Linked { table: table.clone(), clock: clock.clone(), link })
        };
        let replicas = skews.iter().map(replica).collect();
        let (copy, newest, writes) = (FakeRows::default(), HashMap::new(), 0);
        Replicas { clock, table, copy, replicas, newest, writes }
    }

    fn pass(&self, time: Micros) {
        self.clock.advance(time);
        self.replicas.iter().for_each(|(process, _)| process.clock.advance(time));
    }

    async fn poll(&self, replica: usize) {
        let (process, linked) = &self.replicas[replica];
        process.controls.run_once(Some(linked)).await;
    }

    async fn run(&mut self, step: &Step) {
        // No two writes are at the same time.
        self.pass(10);
        match *step {
            Step::Put { replica, user, hours } => {
                self.writes += 1;
                let (user, reason) = (USERS[user], format!("write {}", self.writes));
                let lasts = hours.map_or("forever".to_owned(), |hours| format!("{hours}h"));
                let draft = Draft { duration: Some(lasts), reason: reason.clone(), ..block(user) };
                let (process, _) = &self.replicas[replica];
                // Nobody polls meanwhile: it ends when it has waited for long enough.
                let put = process.controls.put(Some(user), draft, PutOptions::default());
                assert!(!put.await.unwrap().shared);
                let until = hours.map(|hours| self.clock.now() + hours * 3_600 * SECOND);
                self.newest.insert(user, Newest::Put { reason, until });
            }
            Step::Delete { replica, user } => {
                let (process, _) = &self.replicas[replica];
                if process.controls.delete(USERS[user]).await.is_ok() {
                    self.newest.insert(USERS[user], Newest::Deleted);
                }
            }
            Step::Poll { replica } => self.poll(replica).await,
            Step::Link { replica, link } => self.replicas[replica].1.set(link),
            Step::Pass { millis } => self.pass(1_000 * millis),
            Step::Flush => *self.table.rows.lock() = FakeRows::default(),
            Step::Copy => self.copy = self.table.rows.lock().clone(),
            Step::Failover => *self.table.rows.lock() = self.copy.clone(),
        }
    }

    /// Connects all until they have exchanged what they have.
    async fn connect(&self) {
        self.replicas.iter().for_each(|(_, linked)| linked.set(Link::Up));
        // Rows that could not be read are asked for again.
        tokio::time::advance(Duration::from_secs(11)).await;
        for _ in 0..3 {
            for replica in 0..REPLICAS {
                self.pass(10);
                self.poll(replica).await;
            }
        }
    }

    /// Returns the reason of each user's control at a replica, and the users that are blocked.
    fn seen(&self, replica: usize) -> (HashMap<&'static str, String>, Vec<&'static str>) {
        let (process, _) = &self.replicas[replica];
        let reason = |user: &&'static str| {
            process.controls.get(user).map(|control| (*user, control.reason.clone()))
        };
        (USERS.iter().filter_map(reason).collect(), process.blocked(&USERS))
    }
}

proptest! {
    #[test]
    fn the_newest_write_wins_at_all_replicas(
        steps in vec(step(), 1..60),
        skews in vec(-MAX_SKEW..MAX_SKEW, REPLICAS),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut replicas = Replicas::new(&skews);
            // Until a replica has read the time of the table, it writes by its own.
            for replica in 0..REPLICAS {
                replicas.poll(replica).await;
            }
            for step in &steps {
                replicas.run(step).await;
            }
            replicas.connect().await;
            let (expected, mut blocked) = replicas.seen(0);
            for replica in 0..REPLICAS {
                prop_assert_eq!(replicas.seen(replica), (expected.clone(), blocked.clone()));
                let (process, _) = &replicas.replicas[replica];
                prop_assert_eq!(process.controls.unshared(), 0, "nothing is left to share");
            }
            for (user, newest) in &replicas.newest {
                match newest {
                    Newest::Deleted => prop_assert_eq!(expected.get(user), None),
                    Newest::Put { reason, until } => {
                        // One that has expired may have replaced others that have not.
                        if until.is_none_or(|until| replicas.clock.now() < until) {
                            prop_assert_eq!(expected.get(user), Some(reason));
                        }
                    }
                }
            }
            blocked.sort_unstable();
            let mut users: Vec<_> = expected.into_keys().collect();
            users.sort_unstable();
            prop_assert_eq!(blocked, users);
            Ok(())
        })?;
    }
}
