//! Limits of one second in a Redis of their own.

use super::*;
use weir_limit::Source;
use weir_store::conformance::{self, try_read, try_reset};
use weir_store::local::{Local, LocalOptions};
use weir_store::{Operations, StateKey, States};

/// Returns a store whose limits of one second are on another server, on a clock that the test sets.
pub(super) fn two_servers(main: &Server, second: &Server, clock: &Arc<ManualClock>) -> RedisStore {
    let options = |server| {
        let topology = single(server);
        RedisOptions { clock: ClockSource::Caller, wall: clock.clone(), ..options(topology) }
    };
    RedisStore::new(options(main)).with_per_second(Some(options(second)))
}

/// Returns how many charges each of the two has been sent.
fn charged(store: &RedisStore) -> [u64; 2] {
    let second = store.per_second.as_deref().unwrap();
    [store, second].map(|redis| redis.counts().charges.load(Ordering::Relaxed))
}

fn take_of<'a>(entries: &'a [Entry<'a>], plan: &'a Arc<Plan>) -> Charge<'a> {
    charge_of(entries, plan, Op::Take(1))
}

#[test]
fn a_plan_is_per_second_where_each_of_its_limits_is() {
    let is_per_second = |limits: &[(Unit, u32)]| {
        let limit = |&(unit, multiplier)| Limit::fixed_window(1, unit, multiplier).unwrap();
        Plan::new(limits.iter().map(limit).collect()).per_second()
    };
    assert!(is_per_second(&[(Unit::Second, 1)]));
    assert!(is_per_second(&[(Unit::Second, 1), (Unit::Second, 1)]));
    assert!(!is_per_second(&[(Unit::Second, 2)]));
    assert!(!is_per_second(&[(Unit::Minute, 1)]));
    assert!(!is_per_second(&[(Unit::Second, 1), (Unit::Minute, 1)]));
}

#[test]
fn two_servers_conform() {
    let (main, second) = (Server::start(), Server::start());
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = two_servers(&main, &second, &clock);
        store.connect().await;
        conformance::admits_n_in_each_window(&store, &clock).await;
        conformance::counts_each_key_separately(&store).await;
        conformance::looks_and_refunds(&store).await;
        conformance::charges_all_or_none(&store).await;
        conformance::reservations::conforms(&store, &clock).await;
        conformance::states::conforms(&store, &clock).await;
    });
}

#[test]
fn states_are_read_and_reset_where_they_are() {
    let (main, second) = (Server::start(), Server::start());
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = two_servers(&main, &second, &clock);
        let key = Key { domain: "d", entries: &[("key", "a")] };
        let (per_second, per_minute) = (plan(9, Unit::Second), plan(9, Unit::Minute));
        for (plan, keeps, key_text) in
            [(&per_second, &second, "weir:{d|key=a}f1"), (&per_minute, &main, "weir:{d|key=a}f60")]
        {
            let other = if std::ptr::eq(keeps, &main) { &second } else { &main };
            take(&store, "d", "a", plan, 2).await;
            let exists = |server: &Server| server.command(&["EXISTS", key_text]).int();
            assert_eq!((exists(keeps), exists(other)), (1, 0));
            assert_eq!(try_read(&store, key, plan, &[]).await.unwrap().limits[0].used, 2);
            other.command(&["SET", key_text, "no number"]);
            try_reset(&store, key, plan).await.unwrap();
            assert_eq!((exists(keeps), exists(other)), (0, 1), "the other one is left alone");
        }
    });
}

#[test]
fn each_charge_goes_to_its_server_and_answers_keep_their_order() {
    let (main, second) = (Server::start(), Server::start());
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = two_servers(&main, &second, &clock);
        let (second, minute) = (plan(1, Unit::Second), plan(5, Unit::Minute));
        let (a, b) = ([("key", "a")], [("key", "b")]);
        take(&store, "test", "a", &second, 1).await;
        assert_eq!(charged(&store), [0, 1]);
        take(&store, "test", "a", &minute, 1).await;
        assert_eq!(charged(&store), [1, 1]);

        let charges = [
            take_of(&a, &minute),
            take_of(&a, &second),
            take_of(&b, &minute),
            take_of(&b, &second),
            take_of(&a, &minute),
        ];
        let decision = charge(&store, &charges, false).await;
        let actual: Vec<_> =
            decision.iter().map(|decision| (decision.allowed, decision.used_before)).collect();
        assert_eq!(actual, [(true, 1), (false, 1), (true, 0), (true, 0), (true, 2)]);
        assert_eq!(charged(&store), [4, 3]);
    });
}

#[test]
fn what_is_charged_together_is_in_the_main_one() {
    let (main, second) = (Server::start(), Server::start());
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = two_servers(&main, &second, &clock);
        let (second, minute) = (plan(1, Unit::Second), plan(10, Unit::Minute));
        let entries = [("key", "a")];
        let both = [take_of(&entries, &second), take_of(&entries, &minute)];
        for (decisions, used) in [([true, true], [0, 0]), ([false, true], [1, 1])] {
            let decided = charge(&store, &both, true).await;
            assert_eq!([decided[0].allowed, decided[1].allowed], decisions);
            assert_eq!([decided[0].used_before, decided[1].used_before], used);
        }
        let looks = both.map(|charge| Charge { op: Op::Take(0), ..charge });
        assert!(charge(&store, &looks, true).await.iter().all(|look| look.used_before == 1));
        assert_eq!(charged(&store), [6, 0]);
        let key = StateKey { key: both[0].key, plan: &second, together: true, id: None };
        let timeout = Duration::from_secs(10);
        assert_eq!(store.read(key, &[], timeout).await.unwrap().limits[0].used, 1);
        store.reset(key, timeout).await.unwrap();
        assert_eq!(charge(&store, &looks, true).await[0].used_before, 0);
    });
}

#[test]
fn hits_are_leased_where_the_states_of_their_plan_are() {
    let (main, second) = (Server::start(), Server::start());
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = two_servers(&main, &second, &clock);
        let leases_for = Duration::from_millis(100);
        let options = LocalOptions { leases_for, ..LocalOptions::default() };
        let leases = Local::new(store, clock.clone(), options);
        let plan = plan(10_000, Unit::Second);
        let mut leased = 0;
        for _ in 0..200 {
            let decision = charge(&leases, &[take_of(&[("key", "a")], &plan)], false).await;
            leased += u32::from(decision[0].source == Source::Leased);
        }
        assert!(leased > 0);
        assert_eq!(charged(leases.inner())[0], 0);
        assert_eq!(main.command(&["DBSIZE"]).int(), 0);
    });
}

#[test]
fn per_second_limits_may_use_a_separate_server() {
    let (main, other) = (Server::start(), Server::start());
    runtime().block_on(async {
        let store = RedisStore::new(options(single(&main)));
        let store = store.with_per_second(Some(options(single(&other))));
        store.connect().await;
        let (second, minute) = (plan(5, Unit::Second), plan(5, Unit::Minute));
        let entries = [("key", "a")];
        let key = Key { domain: "test", entries: &entries };
        let take_of =
            |plan| Charge { key, plan, op: Op::Take(1), hold: None, role: Role::Enforced };
        let decision = charge(&store, &[take_of(&second), take_of(&minute)], false).await;
        assert!(decision.iter().all(|decision| decision.allowed));
        let count = |server: &Server, key| server.command(&["EXISTS", key]).int();
        assert_eq!(count(&main, "weir:{test|key=a}f60"), 1);
        assert_eq!(count(&main, "weir:{test|key=a}f1"), 0);
        assert_eq!(count(&other, "weir:{test|key=a}f60"), 0);
        // One call charges a domain with `charge: together`.
        let take_of = |plan, op| Charge { op, ..take_of(plan) };
        let none = plan(0, Unit::Minute);
        let denied =
            charge(&store, &[take_of(&second, Op::Take(1)), take_of(&none, Op::Take(1))], true)
                .await;
        assert!(denied[0].allowed && !denied[1].allowed);
        let both = [take_of(&second, Op::Take(1)), take_of(&minute, Op::Take(1))];
        assert!(charge(&store, &both, true).await.iter().all(|decision| decision.used_before == 0));
        assert_eq!(count(&main, "weir:{test}|key=a|f60"), 1);
        assert_eq!(count(&other, "weir:{test}|key=a|f1"), 0);
        let key = StateKey { key, plan: &second, together: true, id: None };
        let timeout = Duration::from_secs(10);
        assert!(store.read(key, &[], timeout).await.is_ok_and(|state| state.limits[0].used <= 1));
    });
}
