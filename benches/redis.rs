//! CPU time per decision, of Redis and of this process, compared with the pipeline of INCRBY and EXPIRE
//! that the reference sends. `-- quick` runs shorter, `-- only gcra` only the rules with that name.
//!
//! Pin both processes to one core: `taskset -c 1 cargo bench --package weir-benches --bench redis`. Each figure is the median of
//! five runs, which alternate with those of the pipeline.

#[path = "../tests/support/redis.rs"]
mod servers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use servers::Server;
use servers::cluster::Cluster;
use weir_common::clock::SystemClock;
use weir_limit::{
    Algorithm, Calendar, FixedWindow, Gcra, Limit, Op, Plan, SECOND, SlidingLog, SlidingWindow,
    Unit,
};
use weir_redis::{ClockSource, Endpoint, Login, RedisAccess, RedisOptions, RedisStore, Topology};
use weir_store::{Answers, Batch, Charge, Key, Role, Store};

/// Returns the CPU time of the main thread of a process, in nanoseconds.
fn cpu_time(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// CPU time per decision in microseconds: of Redis and of this process.
#[derive(Clone, Copy, Debug)]
struct Cost {
    redis: f64,
    own: f64,
}

fn measure(pids: &[u32], decisions: impl FnOnce() -> u64) -> Cost {
    let all = || pids.iter().map(|&pid| cpu_time(pid)).sum::<u64>();
    let own = || cpu_time(std::process::id());
    let (redis_before, own_before) = (all(), own());
    let decisions = decisions() as f64;
    Cost {
        redis: (all() - redis_before) as f64 / 1e3 / decisions,
        own: (own() - own_before) as f64 / 1e3 / decisions,
    }
}

fn median(mut costs: Vec<Cost>) -> Cost {
    let mut median_of = |pick: fn(&Cost) -> f64| {
        costs.sort_by(|a, b| pick(a).total_cmp(&pick(b)));
        pick(&costs[costs.len() / 2])
    };
    Cost { redis: median_of(|cost| cost.redis), own: median_of(|cost| cost.own) }
}

/// Sends the reference's commands, `depth` pairs at once on one connection. Returns the number of pairs.
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
    let month = |calendar: Option<Calendar>| {
        let (period, calendar) = (30 * 86_400 * SECOND, calendar.map(Arc::new));
        with(Algorithm::FixedWindow(FixedWindow { n: u32::MAX, period, calendar }))
    };
    let months = [None, Calendar::new(Unit::Month, "Europe/Berlin").ok()];
    // The same script; only the boundaries of the windows differ.
    let [epoch, calendar] = months.map(|months| vec![with(Algorithm::Gcra(gcra)), month(months)]);
    let window = SlidingWindow { n, period: 60 * SECOND };
    let log = SlidingLog { n: 100, period: SECOND };
    [
        ("fixed_window", vec![limit(Unit::Minute)]),
        ("gcra", vec![with(Algorithm::Gcra(gcra))]),
        ("sliding_window", vec![with(Algorithm::SlidingWindow(window))]),
        ("sliding_log of 100", vec![with(Algorithm::SlidingLog(log))]),
        ("4 fixed windows", four.to_vec()),
        ("gcra and a month", epoch),
        ("gcra and a calendar month", calendar),
    ]
    .map(|(name, limits)| (name, Arc::new(Plan::new(limits))))
    .into()
}

fn store(topology: Topology) -> RedisStore {
    let timeout = Duration::from_secs(5);
    let access = RedisAccess { login: Login::default(), tls: None, db: 0, timeout };
    RedisStore::new(RedisOptions {
        topology,
        sentinel_access: access.clone(),
        access,
        prefix: "weir:".into(),
        clock: ClockSource::Server,
        wall: Arc::new(SystemClock::new()),
        slow_after: timeout,
        caller_deadline_below: Duration::ZERO,
        connections: 1,
    })
}

/// Makes decisions of one descriptor each, `depth` in flight. Returns their number.
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
                let batch = Batch::new(slice::from_ref(&charge), Duration::from_secs(5));
                let mut answers = Answers::new();
                store.charge(&batch, &mut answers).await;
                answers[0].as_ref().unwrap();
                done += 1;
            }
            done
        });
    }
    tasks.join_all().await.iter().sum()
}

/// Returns the number of charges and of round trips so far.
fn totals(store: &RedisStore) -> (f64, f64) {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    (load(&store.counts().charges), load(&store.counts().trips))
}

/// Returns the charges per round trip since `before`.
fn charges_per_trip(store: &RedisStore, before: (f64, f64)) -> f64 {
    let after = totals(store);
    (after.0 - before.0) / (after.1 - before.1)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let quick = args.iter().any(|word| word == "quick");
    let only = args.iter().position(|word| word == "only").and_then(|at| args.get(at + 1));
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
    println!("CPU time per decision in µs, of Redis and of this process (client)\n");
    println!(
        "| rule | keys | in flight | charges per round trip | Redis | pipeline | ratio | client | \
         pipeline's client |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (name, plan) in &plans {
        for (keys, depth) in
            [(1_000, 1), (1_000, 16), (1_000, 64), (1, 64), (1_000_000, 16), (1_000_000, 64)]
        {
            if *name == "sliding_log of 100" && keys > 1_000 {
                continue;
            }
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            let before = totals(&single);
            for _ in 0..rounds {
                plain.push(measure(&pids, || pipeline(server.port(), keys, depth, time)));
                ours.push(measure(&pids, || {
                    runtime.block_on(decide(&single, plan, keys, depth, time))
                }));
            }
            let (ours, plain) = (median(ours), median(plain));
            println!(
                "| {name} | {keys} | {depth} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                charges_per_trip(&single, before),
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
    println!("\nCluster of three nodes, sum of all nodes:\n");
    println!(
        "| rule | keys | in flight | charges per round trip | Redis | pipeline of 64, one server | \
         ratio | client |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (name, plan) in &plans {
        for depth in [16, 64] {
            // Time to connect to all nodes.
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            let before = totals(&store);
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
                charges_per_trip(&store, before),
                ours.redis,
                plain.redis,
                ours.redis / plain.redis,
                ours.own
            );
        }
    }
}
