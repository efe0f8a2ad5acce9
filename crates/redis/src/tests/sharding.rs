//! Several servers behind a proxy that shards keys: Envoy's redis_proxy with two workers, and twemproxy.

use futures_util::future::join_all;

use super::conformance::{agrees, conforms, domains};
use super::servers::cluster::Cluster;
use super::servers::sentinel::Sentinels;
use super::servers::sharding::{PATIENT, Sharding};
use super::*;
use weir_limit::{
    Algorithm, BucketedWindow, Calendar, Concurrency, FixedWindow, Gcra, ReduceBucket, SlidingLog,
    SlidingWindow, TokenBucket,
};
use weir_store::Operations;
use weir_store::conformance::{operations, reservations};

/// Starts a proxy before servers.
type StartProxy = fn(&[Server], bool, u32) -> Sharding;

const PROXIES: [StartProxy; 2] = [Sharding::envoy, Sharding::twemproxy];

fn two_servers() -> [Server; 2] {
    [Server::start(), Server::start()]
}

fn behind(proxy: &Sharding) -> Topology {
    Topology::Proxy(Endpoint::Tcp("127.0.0.1".into(), proxy.port()))
}

/// Returns why a store does not connect.
async fn refusal(topology: Topology) -> String {
    let options = options(topology);
    let target = match &options.topology {
        Topology::Single(endpoint) | Topology::Proxy(endpoint) => Target::Server(endpoint.clone()),
        topology => panic!("{topology}"),
    };
    match target.connect(&RedisContext::new(options)).await {
        Ok(_) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn conform() {
    for start in PROXIES {
        let servers = two_servers();
        let proxy = start(&servers, true, PATIENT);
        conforms(behind(&proxy));
        agrees(behind(&proxy), 40, domains());
        let keys = servers.each_ref().map(|server| server.command(&["DBSIZE"]).int());
        assert!(keys.iter().all(|keys| *keys > 100), "{keys:?}");
    }
}

#[test]
fn racing_replicas_are_granted_exactly_n() {
    for start in PROXIES {
        let servers = two_servers();
        let proxy = start(&servers, true, PATIENT);
        let stores = || connected(options(behind(&proxy)));
        operations::grants_exactly_n_of_racing(&stores);
        reservations::reserves_at_most_n_of_racing(&stores);
    }
}

const N: u32 = 20;

/// A plan of each algorithm and of each unit, which admits 20 hits at once.
fn plans() -> Vec<Arc<Plan>> {
    let day = 86_400 * SECOND;
    let limit = |algorithm| Limit { charge_denied: false, algorithm, ..one(Unit::Day) };
    let berlin = Some(Calendar::new(Unit::Month, "Europe/Berlin").unwrap().into());
    let algorithms = [
        Algorithm::FixedWindow(FixedWindow { n: N, period: day, calendar: None }),
        Algorithm::FixedWindow(FixedWindow { n: N, period: 31 * day, calendar: berlin }),
        Algorithm::SlidingWindow(SlidingWindow { n: N, period: day }),
        Algorithm::SlidingLog(SlidingLog { n: N, period: day }),
        Algorithm::BucketedWindow(BucketedWindow { n: N, period: day, buckets: 24 }),
        Algorithm::Gcra(Gcra::new(1, day, N, 0).unwrap()),
        Algorithm::Gcra(Gcra::continuing(1, day, N).unwrap()),
        Algorithm::Concurrency(Concurrency { n: N, timeout: day, hold_id: None }),
        Algorithm::TokenBucket(TokenBucket {
            capacity: N,
            amount: 1,
            interval: day,
            strict: false,
            max_debt: 0,
        }),
        Algorithm::ReduceBucket(ReduceBucket {
            max: N,
            refill: 1,
            interval: 86_400_000,
            strict: false,
            at: None,
        }),
    ];
    let lone = algorithms.map(|algorithm| Plan::new(vec![limit(algorithm)]));
    let units = Unit::ALL.map(|unit| Plan::new(vec![one(unit)]));
    let several = Plan::new(vec![one(Unit::Hour), one(Unit::Day), one(Unit::Week)]);
    lone.into_iter().chain(units).chain([several]).map(Arc::new).collect()
}

fn one(unit: Unit) -> Limit {
    Limit::fixed_window(N, unit, 1).unwrap()
}

/// Sends 30 requests at once over two stores, each with four descriptors. Returns their decisions.
async fn race(
    stores: &[RedisStore],
    plan: &Arc<Plan>,
    domain: &str,
    together: bool,
) -> Vec<Vec<Decision>> {
    let values = std::array::from_fn::<_, 4, _>(|i| format!("v{i}"));
    let entries = values.each_ref().map(|value| [("key", value.as_str())]);
    let key = |i: usize| Key { domain, entries: &entries[i] };
    let charges: [Charge<'_>; 4] = std::array::from_fn(|i| Charge {
        key: key(i),
        plan,
        op: Op::Take(1),
        hold: None,
        role: Role::Enforced,
    });
    let requests = stores.iter().cycle().take(N as usize * 3 / 2);
    join_all(requests.map(|store| charge(store, &charges, together))).await
}

/// Returns how many hits of each descriptor are admitted.
async fn admitted(stores: &[RedisStore], plan: &Arc<Plan>, domain: &str) -> [usize; 4] {
    let requests = race(stores, plan, domain, false).await;
    std::array::from_fn(|i| requests.iter().filter(|decisions| decisions[i].allowed).count())
}

#[test]
fn requests_with_four_descriptors_admit_exactly_n() {
    for start in PROXIES {
        let servers = two_servers();
        let proxy = start(&servers, true, PATIENT);
        let clock = Arc::new(ManualClock::new(DAWN));
        runtime().block_on(async {
            let stores = [manual(behind(&proxy), &clock), manual(behind(&proxy), &clock)];
            join_all(stores.iter().map(RedisStore::answered)).await;
            for (i, plan) in plans().iter().enumerate() {
                let admitted = admitted(&stores, plan, &format!("caller{i}")).await;
                assert_eq!(admitted, [N as usize; 4], "{:?}", plan.limits());
            }
            // By the clocks of the servers; shorter windows may end meanwhile.
            let stores = [
                connected(options(behind(&proxy))).await,
                connected(options(behind(&proxy))).await,
            ];
            for (i, plan) in plans().iter().enumerate() {
                let ends = |limit: &Limit| {
                    matches!(limit.unit, Some(Unit::Second | Unit::Minute | Unit::Hour))
                };
                if !plan.limits().iter().any(ends) {
                    let admitted = admitted(&stores, plan, &format!("server{i}")).await;
                    assert_eq!(admitted, [N as usize; 4], "{:?}", plan.limits());
                }
            }
            let requests = race(&stores, &plans()[0], "together", true).await;
            let all = |decisions: &&Vec<Decision>| decisions.iter().all(|it| it.allowed);
            assert!(requests.iter().filter(all).count() <= N as usize);
        });
    }
}

#[test]
fn a_failed_server_fails_its_keys_alone() {
    for start in PROXIES {
        let servers = two_servers();
        let proxy = start(&servers, true, PATIENT);
        let [mut gone, _stays] = servers;
        runtime().block_on(async {
            let store = connected(options(behind(&proxy))).await;
            let plan = plan(1_000, Unit::Day);
            let fails = async |value: &str| try_take(&store, value, &plan).await.is_err();
            let values: Vec<String> = (0..40).map(|i| format!("user{i}")).collect();
            for value in &values {
                assert!(!fails(value).await, "{value}");
            }
            let lost = gone.command(&["DBSIZE"]).int();
            gone.kill();
            let failed = async || {
                let mut failed = 0;
                for value in &values {
                    failed += i64::from(fails(value).await);
                }
                failed
            };
            until("its keys to fail", async || failed().await > 0).await;
            for _ in 0..3 {
                // Some of those keys may be of the tags that were tried at first.
                let failed = failed().await;
                assert!((1..=lost).contains(&failed), "{failed} of {lost}");
            }
            assert_eq!(store.connections_down(), (1, 0));
            // A new connection is made without it.
            let other = connected(options(behind(&proxy))).await;
            assert_eq!(other.connections_down(), (1, 0));
            gone.restart();
            until("its keys to count again", async || failed().await == 0).await;
        });
    }
}

/// The proxy answers for it before its connection counts as slow.
#[test]
fn a_server_that_hangs_fails_its_keys_alone() {
    for start in PROXIES {
        let servers = two_servers();
        let proxy = start(&servers, true, 200);
        runtime().block_on(async {
            let store = connected(options(behind(&proxy))).await;
            let plan = plan(1_000, Unit::Day);
            let values: Vec<String> = (0..20).map(|i| format!("user{i}")).collect();
            let take = |value| try_take(&store, value, &plan);
            for answer in join_all(values.iter().map(|value| take(value))).await {
                assert!(answer.is_ok(), "{answer:?}");
            }
            servers[0].stop();
            for _ in 0..3 {
                let answers = join_all(values.iter().map(|value| take(value))).await;
                let failed = answers.iter().filter(|answer| answer.is_err()).count();
                assert!((1..20).contains(&failed), "{failed}");
                assert_eq!((store.connections_down().1, store.connections_slow()), (0, 0));
            }
            // A new connection is made without it.
            connected(options(behind(&proxy))).await;
            servers[0].go_on();
            let all = async || join_all(values.iter().map(|value| take(value))).await;
            until("all to count", async || all().await.iter().all(Result::is_ok)).await;
        });
    }
}

#[test]
fn proxies_that_hash_whole_keys_are_refused() {
    for start in PROXIES {
        let servers = two_servers();
        let proxy = start(&servers, false, PATIENT);
        runtime().block_on(async {
            let refusal = refusal(behind(&proxy)).await;
            assert!(refusal.contains("enable_hashtagging: true"), "{refusal}");
            assert!(refusal.contains("hash_tag: \"{}\""), "{refusal}");
        });
    }
}

#[test]
fn a_server_of_another_topology_is_refused_with_the_setting() {
    let servers = two_servers();
    let proxies = PROXIES.map(|start| start(&servers, true, PATIENT));
    let (cluster, sentinels) = (Cluster::start(2, 0), Sentinels::start());
    runtime().block_on(async {
        for (port, wanted) in [
            (
                proxies[0].port(),
                "as that of Envoy's redis_proxy: set store.redis.topology to proxy",
            ),
            (
                proxies[1].port(),
                "a proxy such as twemproxy, set store.redis.topology to proxy (REDIS_TYPE=PROXY)",
            ),
            (
                cluster.masters[1].port(),
                "node of a Redis Cluster: set store.redis.topology to cluster",
            ),
            (sentinels.sentinels[0].port(), "Sentinel: set store.redis.topology to sentinel"),
        ] {
            let refusal = refusal(local(port)).await;
            assert!(refusal.contains(wanted), "{refusal}");
            let store = RedisStore::new(options(local(port)));
            assert!(try_take(&store, "a", &plan(5, Unit::Day)).await.is_err());
            assert_eq!(store.connections_up(), 0, "{wanted}");
        }
        let node = Endpoint::Tcp("127.0.0.1".into(), cluster.masters[0].port());
        let refusal = refusal(Topology::Proxy(node)).await;
        assert!(refusal.contains("set store.redis.topology to cluster"), "{refusal}");
    });
}

/// Neither the table of controls nor the lists of top keys can be read through a proxy.
#[test]
fn nothing_is_shared_but_charges() {
    let store = RedisStore::new(options(Topology::Proxy(Endpoint::Tcp("localhost".into(), 1))));
    assert!(store.shared_table().is_none() && store.replica_texts().is_none());
}
