//! What a decision costs Redis, and this process, beside the plain pipeline of INCRBY and EXPIRE
//! that the reference sends. `cargo bench --bench redis`; with `-- quick` shorter, with `-- only gcra`
//! only for rules so called.
//!
//! Both processes are best pinned to one processor: `taskset -c 1 cargo bench --bench redis`. Every
//! figure is the median of five runs, taken in turns with the pipeline's.

#[path = "../tests/support/redis.rs"]
mod servers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use servers::Server;
use servers::cluster::Cluster;
use weir::clock::SystemClock;
use weir::limit::{Algorithm, Gcra, Limit, Op, Plan, SECOND, SlidingLog, SlidingWindow, Unit};
use weir::store::redis::{Access, Clock, Endpoint, Layout, Login, Options, RedisStore, Topology};
use weir::store::{Answers, Batch, Charge, Key, Role, Store};

/// Time on a processor, in nanoseconds, of the main thread of a process.
fn on_cpu(pid: u32) -> u64 {
    let told = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    told.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Microseconds a decision: of Redis and of this process.
#[derive(Clone, Copy, Debug)]
struct Cost {
    redis: f64,
    own: f64,
}

fn measure(pids: &[u32], decisions: impl FnOnce() -> u64) -> Cost {
    let all = || pids.iter().map(|&pid| on_cpu(pid)).sum::<u64>();
    let own = || on_cpu(std::process::id());
    let (redis_before, own_before) = (all(), own());
    let decisions = decisions() as f64;
    Cost {
        redis: (all() - redis_before) as f64 / 1e3 / decisions,
        own: (own() - own_before) as f64 / 1e3 / decisions,
    }
}

fn median(mut costs: Vec<Cost>) -> Cost {
    let mut of = |pick: fn(&Cost) -> f64| {
        costs.sort_by(|a, b| pick(a).total_cmp(&pick(b)));
        pick(&costs[costs.len() / 2])
    };
    Cost { redis: of(|cost| cost.redis), own: of(|cost| cost.own) }
}

/// The reference's commands, so many pairs at once on one connection.
fn pipeline(port: u16, keys: usize, depth: usize, time: Duration) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sent, mut at) = (0, 0);
    let start = Instant::now();
    let mut commands = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while start.elapsed() < time {
        commands.clear();
        for _ in 0..depth {
            at = next(at);
            let key = format!("bench_key_v{}_1700006400", at % keys);
            let len = key.len();
            write!(
                commands,
                "*3\r\n$6\r\nINCRBY\r\n${len}\r\n{key}\r\n$1\r\n1\r\n\
                 *3\r\n$6\r\nEXPIRE\r\n${len}\r\n{key}\r\n$2\r\n60\r\n"
            )
            .unwrap();
        }
        stream.write_all(&commands).unwrap();
        let mut lines = 0;
        while lines < depth * 2 {
            let len = stream.read(&mut buffer).unwrap();
            lines += buffer[..len].iter().filter(|&&byte| byte == b'\n').count();
        }
        sent += depth as u64;
    }
    sent
}

/// A cheap random walk over keys.
fn next(at: usize) -> usize {
    at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 1
}

fn limit(unit: Unit) -> Limit {
    Limit::fixed_window(u32::MAX, unit, 1).unwrap()
}

fn plans() -> Vec<(&'static str, Arc<Plan>)> {
    let with = |algorithm| Limit { algorithm, charge_denied: false, ..limit(Unit::Minute) };
    let n = 1_000_000;
    let four = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day].map(limit);
    let gcra = Gcra::new(n, 60 * SECOND, n, 0).unwrap();
    let window = SlidingWindow { n, period: 60 * SECOND };
    let log = SlidingLog { n: 100, period: SECOND };
    [
        ("fixed_window", vec![limit(Unit::Minute)]),
        ("gcra", vec![with(Algorithm::Gcra(gcra))]),
        ("sliding_window", vec![with(Algorithm::SlidingWindow(window))]),
        ("sliding_log of 100", vec![with(Algorithm::SlidingLog(log))]),
        ("4 fixed windows", four.to_vec()),
    ]
    .map(|(name, limits)| (name, Arc::new(Plan::new(limits))))
    .into()
}

fn store(topology: Topology) -> RedisStore {
    let timeout = Duration::from_secs(5);
    let access = Access { login: Login::default(), tls: None, db: 0, timeout };
    RedisStore::new(Options {
        topology,
        sentinel_access: access.clone(),
        access,
        prefix: "weir:".into(),
        layout: Layout::Weir,
        clock: Clock::Server,
        wall: Arc::new(SystemClock::new()),
        slow_after: timeout,
        caller_deadline_below: Duration::ZERO,
        probe_max: timeout,
        connections: 1,
    })
}

/// Decisions of one descriptor each, so many in flight.
async fn decide(
    store: &Arc<RedisStore>,
    plan: &Arc<Plan>,
    keys: usize,
    depth: usize,
    time: Duration,
) -> u64 {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..depth {
        let (store, plan) = (store.clone(), plan.clone());
        tasks.spawn(async move {
            let start = Instant::now();
            let (mut done, mut at) = (0_u64, next(task));
            while start.elapsed() < time {
                at = next(at);
                let value = format!("v{}", at % keys);
                let entries = [("key", value.as_str())];
                let key = Key { domain: "bench", entries: &entries };
                let (op, role) = (Op::Take(1), Role::Enforced);
                let charge = Charge { key, plan: &plan, op, hold: None, role };
                let batch = Batch {
                    charges: &[charge],
                    together: false,
                    quota_passes: false,
                    budget: Duration::from_secs(5),
                    on_failure: None,
                };
                let mut answers = Answers::new();
                store.charge(batch, &mut answers).await;
                answers[0].unwrap();
                done += 1;
            }
            done
        });
    }
    tasks.join_all().await.iter().sum()
}

/// How many charges shared a trip so far, as a pair to be subtracted.
fn travelled(store: &RedisStore) -> (f64, f64) {
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    (of(&store.counts().charges), of(&store.counts().trips))
}

fn share(store: &RedisStore, before: (f64, f64)) -> f64 {
    let after = travelled(store);
    (after.0 - before.0) / (after.1 - before.1)
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let quick = words.iter().any(|word| word == "quick");
    let only = words.iter().position(|word| word == "only").and_then(|at| words.get(at + 1));
    let mut plans = plans();
    plans.retain(|(name, _)| only.is_none_or(|only| only == name));
    let (rounds, time) = if quick { (3, 200) } else { (5, 1_000) };
    let time = Duration::from_millis(time);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let server = Server::start();
    let pids = [server.pid()];
    let endpoint = Endpoint::Tcp("127.0.0.1".into(), server.port());
    let store_of = |topology| {
        let store = Arc::new(store(topology));
        runtime.block_on(store.answered());
        store
    };
    let single = store_of(Topology::Single(endpoint));
    println!("µs on a processor per decision: Redis, and this process\n");
    println!(
        "| rule | keys | in flight | share a trip | Redis | plain pipeline | ratio | own | \
         pipeline's own |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (name, plan) in &plans {
        for (keys, depth) in
            [(1_000, 1), (1_000, 16), (1_000, 64), (1, 64), (1_000_000, 16), (1_000_000, 64)]
        {
            if *name == "sliding_log of 100" && keys > 1_000 {
                continue;
            }
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            let before = travelled(&single);
            for _ in 0..rounds {
                plain.push(measure(&pids, || pipeline(server.port(), keys, depth, time)));
                ours.push(measure(&pids, || {
                    runtime.block_on(decide(&single, plan, keys, depth, time))
                }));
            }
            let (ours, plain) = (median(ours), median(plain));
            println!(
                "| {name} | {keys} | {depth} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                share(&single, before),
                ours.redis,
                plain.redis,
                ours.redis / plain.redis,
                ours.own,
                plain.own,
            );
            server.command(&["FLUSHALL"]);
        }
    }

    let cluster = Cluster::start(3, 0);
    let pids: Vec<u32> = cluster.masters.iter().map(Server::pid).collect();
    let nodes = cluster.masters.iter().map(|it| Endpoint::Tcp("127.0.0.1".into(), it.port()));
    let store = store_of(Topology::Cluster(nodes.collect()));
    println!("\nOn a cluster of 3, all nodes together:\n");
    println!(
        "| rule | keys | in flight | share a trip | Redis | plain pipeline of 64, one server | ratio | \
         own |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (name, plan) in &plans {
        for depth in [16, 64] {
            // Until every node is known and up.
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            let before = travelled(&store);
            for _ in 0..rounds {
                let one = [server.pid()];
                plain.push(measure(&one, || pipeline(server.port(), 1_000, 64, time)));
                ours.push(measure(&pids, || {
                    runtime.block_on(decide(&store, plan, 1_000, depth, time))
                }));
            }
            let (ours, plain) = (median(ours), median(plain));
            println!(
                "| {name} | 1000 | {depth} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} |",
                share(&store, before),
                ours.redis,
                plain.redis,
                ours.redis / plain.redis,
                ours.own
            );
        }
    }
}
