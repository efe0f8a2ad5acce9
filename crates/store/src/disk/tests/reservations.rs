//! What is reserved and settled before and after a restart.
//!
//! All is settled with 0 hits, so that a key has counted exactly the hits that are reserved: a state in which it
//! has not would return hits twice, or never.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::memory::fingerprint::Fingerprints;
use weir_limit::{
    Algorithm, Decision, Limit, ReservationOp, ReservationResult, Reserve, SlidingWindow,
};

const KEYS: [&str; 3] = ["a", "b", "c"];
const IDS: usize = 40;
const TIMEOUT: u32 = 600;

/// A plan whose states are packed, or not.
fn budget(packs: bool) -> Arc<Plan> {
    let window =
        Limit { charge_denied: false, ..Limit::fixed_window(1 << 30, Unit::Year, 1).unwrap() };
    let algorithm = Algorithm::SlidingWindow(SlidingWindow { n: 1 << 30, period: 60 * SECOND });
    let sliding = Limit { algorithm, ..window.clone() };
    let plan = Plan::new(if packs { vec![window] } else { vec![window, sliding] });
    assert_eq!((plan.can_reserve(), plan.packs()), (true, packs));
    Arc::new(plan)
}

fn reserve(hits: u32) -> ReservationOp {
    ReservationOp::Reserve {
        reserve: Reserve { least: 1, most: hits, timeout: TIMEOUT },
        once: None,
    }
}

fn make(store: &Disk, plan: &Arc<Plan>, key: &str, id: &str, op: ReservationOp) -> Decision {
    let entries = [("key", key)];
    let key = Key { domain: "d", entries: &entries };
    let op = Op::Reservation(op);
    let charge = Charge { key, plan, op, hold: Some(id), role: Role::Enforced };
    charge_now(store, charge).expect("an answer now").unwrap()
}

/// The hits that ids have reserved.
fn reserved<'i>(
    store: &Disk,
    plan: &Arc<Plan>,
    key: &str,
    ids: impl IntoIterator<Item = &'i String>,
) -> u64 {
    let entries = [("key", key)];
    let key = Key { domain: "d", entries: &entries };
    let hits = ids.into_iter().filter_map(|id| {
        let op = Op::Take(0);
        let charge = Charge { key, plan, op, hold: Some(id), role: Role::Enforced };
        Some(u64::from(store.memory.reservation_now(&charge)?.hits))
    });
    hits.sum()
}

/// Opens a store that writes all the time, and snapshots only if it must.
fn logging(home: &Home) -> Disk {
    logging_every(home, SOON)
}

fn logging_every(home: &Home, sync: Duration) -> Disk {
    let schedule = Schedule { sync, compact: NEVER, min_obsolete_bytes: 1 << 30 };
    let store = wait_for("the directory is unlocked", || {
        open_with(home.clock.clone(), home.options(sync), schedule).ok()
    });
    wait_for("the store is loaded", || store.is_ready().then_some(()));
    store
}

fn ids() -> Vec<String> {
    (0..IDS).map(|id| id.to_string()).collect()
}

/// Keys that have one reservation, or nothing.
fn small_keys() -> Vec<String> {
    (0..100).map(|key| format!("small {key}")).collect()
}

/// Checks that each key has counted what is reserved. Returns that of `KEYS`.
fn check(store: &Disk, plan: &Arc<Plan>, ids: &[String]) -> Result<Vec<u64>, String> {
    let checked = |key: &str, ids: &[String]| {
        let key_of = Key { domain: "d", entries: &[("key", key)] };
        let read =
            store.memory.read_now(StateKey { key: key_of, plan, together: false, id: None }, &[]);
        let (used, reserved) = (read.limits[0].used, reserved(store, plan, key, ids));
        let error = || format!("{key}: {used} used, {reserved} reserved");
        if used == reserved { Ok(used) } else { Err(error()) }
    };
    small_keys().iter().try_for_each(|key| checked(key, &ids[..1]).map(drop))?;
    KEYS.into_iter().map(|key| checked(key, ids)).collect()
}

fn sums(store: &Disk, plan: &Arc<Plan>) -> Vec<u64> {
    check(store, plan, &ids()).unwrap()
}

/// Copies what is on disk, as if the process had been killed.
fn crashed(home: &Home) -> Home {
    let copy = Home { clock: home.clock.clone(), ..Home::new() };
    fs::create_dir(copy.path()).unwrap();
    let copy_to = |name: &str| fs::copy(home.path().join(name), copy.path().join(name));
    wait_for("no file is added or removed meanwhile", || {
        let before = home.files();
        copy.files().iter().for_each(|name| fs::remove_file(copy.path().join(name)).unwrap());
        // The logs go on. So they come last, the newest at the very end.
        let (mut logs, snapshots): (Vec<_>, Vec<_>) =
            before.iter().partition(|name| name.starts_with("log"));
        logs.sort_by_key(|name| (name.len(), (*name).clone()));
        let copied = snapshots.iter().chain(&logs).all(|name| copy_to(name).is_ok());
        (copied && copy_to("meta").is_ok() && home.files() == before).then_some(())
    });
    copy
}

#[test]
fn what_is_reserved_before_a_crash_is_settled_once_after_it() {
    for packs in [true, false] {
        let (home, plan) = (Home::new(), budget(packs));
        let store = logging(&home);
        assert_eq!(make(&store, &plan, "a", "r", reserve(7)).granted, 7);
        make(&store, &plan, "a", "other", reserve(2));
        wait_for_sync(&store);
        drop(store);
        let store = logging(&home);
        let settle = ReservationOp::settle(3);
        let settled = make(&store, &plan, "a", "r", settle);
        assert_eq!((settled.reserved, settled.used_before), (7, 5));
        wait_for_sync(&store);
        drop(store);
        let store = home.open();
        let again = make(&store, &plan, "a", "r", settle);
        assert_eq!((again.reservation, again.used_before), (ReservationResult::Unknown, 5));
        assert_eq!(make(&store, &plan, "a", "other", settle).reserved, 2);
        // What was not written is forgotten as a whole.
        drop(store);
        assert_eq!(make(&home.open(), &plan, "a", "other", settle).reserved, 2);
    }
}

#[test]
fn settling_with_what_was_reserved_lasts_too() {
    let (home, plan) = (Home::new(), budget(true));
    let store = logging(&home);
    make(&store, &plan, "a", "r", reserve(7));
    wait_for_sync(&store);
    // The count does not change.
    make(&store, &plan, "a", "r", ReservationOp::settle(7));
    wait_for_sync(&store);
    drop(store);
    let again = make(&home.open(), &plan, "a", "r", ReservationOp::settle(0));
    assert_eq!(again.reservation, ReservationResult::Unknown);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(usize, usize, u32),
    Settle(usize, usize),
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key_and_id = || (0..KEYS.len(), 0_usize..6);
    let step = prop_oneof![
        4 => (key_and_id(), 1_u32..9).prop_map(|((key, id), hits)| Step::Reserve(key, id, hits)),
        4 => key_and_id().prop_map(|(key, id)| Step::Settle(key, id)),
        1 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_log_that_ends_anywhere_has_reservations_with_their_charges(
        steps in steps(),
        packs in any::<bool>(),
    ) {
        let (home, plan) = (Home::new(), budget(packs));
        let store = logging(&home);
        let mut synced = vec![vec![0; KEYS.len()]];
        for step in steps {
            match step {
                Step::Reserve(key, id, hits) => {
                    make(&store, &plan, KEYS[key], &id.to_string(), reserve(hits));
                }
                Step::Settle(key, id) => {
                    make(&store, &plan, KEYS[key], &id.to_string(), ReservationOp::settle(0));
                }
                Step::Sync => {
                    wait_for_sync(&store);
                    synced.push(sums(&store, &plan));
                }
            }
        }
        wait_for_sync(&store);
        synced.push(sums(&store, &plan));
        drop(store);
        let length = home.bytes();
        let mut found = Vec::new();
        for end in (0..length).step_by(41).chain([length.saturating_sub(1), length]) {
            let copy = crashed(&home);
            let log = fs::OpenOptions::new().write(true).open(copy.path().join("log.1")).unwrap();
            log.set_len(end).unwrap();
            let store = copy.open();
            let sums = check(&store, &plan, &ids());
            prop_assert!(sums.is_ok(), "{sums:?} at {end} of {length}");
            found.extend(sums);
        }
        prop_assert_eq!(found.first(), synced.first());
        prop_assert_eq!(found.last(), synced.last());
    }
}

/// Sets a flag when it is dropped, also by a panic.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reserves and settles on two threads, meanwhile.
fn under_load(store: &Arc<Disk>, plan: &Arc<Plan>, meanwhile: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, plan, stop) = (store.clone(), plan.clone(), &stop);
            scope.spawn(move || {
                let (ids, small, mut random) = (ids(), small_keys(), random(thread));
                while !stop.load(Ordering::Relaxed) {
                    let op = if random() % 2 == 0 { reserve(5) } else { ReservationOp::settle(0) };
                    make(&store, &plan, KEYS[random() % KEYS.len()], &ids[random() % IDS], op);
                    make(&store, &plan, &small[random() % small.len()], &ids[0], op);
                    std::thread::park_timeout(Duration::from_micros(20));
                }
            });
        }
        let _stop = SetOnDrop(&stop);
        meanwhile();
    });
}

/// Numbers that look random.
fn random(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize
    }
}

#[test]
fn a_crash_at_any_time_of_a_snapshot_leaves_reservations_with_their_charges() {
    for packs in [true, false] {
        let (home, plan) = (Home { max_keys: 30_000, ..Home::new() }, budget(packs));
        let store = Arc::new(home.try_open(SOON, Duration::ZERO).unwrap());
        // A snapshot of them takes some time.
        for i in 0..4_000 {
            take_now(&store, &i.to_string(), &plan, 1);
        }
        under_load(&store, &plan, || {
            let mut crashes = 0;
            wait_for("there were some snapshots", || {
                let copy = Home { max_keys: 30_000, ..crashed(&home) };
                let found = check(&copy.open(), &plan, &ids());
                assert!(found.is_ok(), "{found:?} at crash {crashes}: {:?}", copy.files());
                crashes += 1;
                let snapshots = store.status.snapshots.load(Ordering::Relaxed);
                (crashes >= 40 && snapshots > 5).then_some(())
            });
        });
        assert_eq!(store.status.write_errors.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_snapshot_of_everything_has_reservations_with_their_charges() {
    let (home, plan) = (Home { max_keys: 30_000, ..Home::new() }, budget(true));
    // The next sync comes some time after the snapshot.
    let store = Arc::new(logging_every(&home, Duration::from_millis(200)));
    for i in 0..4_000 {
        take_now(&store, &i.to_string(), &plan, 1);
    }
    under_load(&store, &plan, || {
        for _ in 0..5 {
            wait_for_sync(&store);
            let newest = home.files().into_iter().rfind(|name| name.starts_with("log")).unwrap();
            let snapshots = store.status.snapshots.load(Ordering::Relaxed);
            // Its log is lost.
            fs::remove_file(home.path().join(newest)).unwrap();
            wait_for("all is saved again", || {
                (store.status.snapshots.load(Ordering::Relaxed) > snapshots).then_some(())
            });
            for _ in 0..3 {
                let copy = Home { max_keys: 30_000, ..crashed(&home) };
                let found = check(&copy.open(), &plan, &ids());
                assert!(found.is_ok(), "{found:?}: {:?}", copy.files());
            }
        }
    });
}

#[test]
fn more_changes_than_are_listed_are_saved_as_a_snapshot() {
    let (home, plan) = (Home { max_keys: 40_000, ..Home::new() }, budget(true));
    let store = home.open();
    let ids: Vec<String> = (0..4_000).map(|id| id.to_string()).collect();
    for i in 0..20 {
        for id in &ids {
            make(
                &store,
                &plan,
                "a",
                id,
                if i % 2 == 0 { reserve(3) } else { ReservationOp::settle(0) },
            );
        }
    }
    for id in &ids[..2_000] {
        make(&store, &plan, "a", id, reserve(3));
    }
    store_finish(store);
    assert!(home.files().iter().any(|name| name.starts_with("snap")), "{:?}", home.files());
    assert_eq!(check(&home.open(), &plan, &ids), Ok(vec![6_000, 0, 0]));
}

/// Saves all.
fn store_finish(store: Disk) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.finish());
}

#[test]
fn a_key_with_more_changes_than_a_frame_holds_is_saved_as_a_whole() {
    let (home, plan) = (Home { max_keys: 160_000, ..Home::new() }, budget(true));
    let store = home.open();
    let ids: Vec<String> = (0..17_000).map(|id| id.to_string()).collect();
    for id in &ids {
        make(&store, &plan, "a", id, reserve(1));
    }
    store_finish(store);
    assert_eq!(home.files(), ["log.1"]);
    let length = home.bytes();
    assert!(length > 17_000 * 33, "{length}");
    for (end, expected) in [(length / 3, 0), (length / 3 * 2, 0), (length - 1, 0), (length, 17_000)]
    {
        let copy = Home { max_keys: 160_000, ..crashed(&home) };
        let log = fs::OpenOptions::new().write(true).open(copy.path().join("log.1")).unwrap();
        log.set_len(end).unwrap();
        assert_eq!(check(&copy.open(), &plan, &ids), Ok(vec![expected, 0, 0]), "{end}");
    }
}

#[test]
fn damage_ends_all_reservations_and_their_hits_stay_charged() {
    let (home, plan) = (Home::new(), budget(true));
    let store = logging(&home);
    make(&store, &plan, "a", "r", reserve(7));
    wait_for_sync(&store);
    make(&store, &plan, "a", "r", ReservationOp::settle(0));
    make(&store, &plan, "b", "r", reserve(2));
    wait_for_sync(&store);
    let settled = home.bytes();
    make(&store, &plan, "c", "r", reserve(4));
    wait_for_sync(&store);
    drop(store);
    // What the settlement has written is damaged: the reservation of `a` would be back.
    let path = home.path().join("log.1");
    let mut bytes = fs::read(&path).unwrap();
    bytes[settled as usize - 1] ^= 1;
    fs::write(&path, bytes).unwrap();
    let store = home.open();
    for (key, used) in [("a", 7), ("b", 0), ("c", 4)] {
        let found = make(&store, &plan, key, "r", ReservationOp::settle(0));
        assert_eq!((found.reservation, found.used_before), (ReservationResult::Unknown, used));
    }
}

#[test]
fn what_has_lapsed_is_not_loaded() {
    let (home, plan) = (Home::new(), budget(true));
    let store = home.open();
    for id in ids() {
        make(&store, &plan, "a", &id, reserve(1));
    }
    store_finish(store);
    home.clock.advance(u64::from(TIMEOUT) * SECOND);
    let store = home.open();
    assert_eq!(store.memory.stats().reservations, 0);
    let found = make(&store, &plan, "a", "1", ReservationOp::settle(0));
    assert_eq!((found.reservation, found.used_before), (ReservationResult::Unknown, IDS as u64));
}

#[test]
fn a_reset_is_known_after_a_restart() {
    for packs in [true, false] {
        let (home, plan) = (Home::new(), budget(packs));
        let store = home.open();
        let key = Key { domain: "d", entries: &[("key", "a")] };
        make(&store, &plan, "a", "before", reserve(100));
        make(&store, &plan, "b", "before", reserve(100));
        home.clock.advance(SECOND);
        store.memory.reset_now(StateKey { key, plan: &plan, together: false, id: None });
        home.clock.advance(SECOND);
        make(&store, &plan, "a", "after", reserve(30));
        store_finish(store);
        let store = home.open();
        for (key, id, left) in [("a", "before", 30), ("a", "after", 0), ("b", "before", 0)] {
            let settled = make(&store, &plan, key, id, ReservationOp::settle(0));
            assert_eq!(settled.reservation, ReservationResult::Settled, "{key} {id}");
            let look = make(&store, &plan, key, "none", ReservationOp::settle(0));
            assert_eq!(look.used_before, left, "{key} {id}");
        }
    }
}

#[test]
fn the_maximum_can_change_between_two_runs() {
    let plan = budget(true);
    let ids: Vec<String> = (0..3_000).map(|id| id.to_string()).collect();
    let mut home = Home { max_keys: 32_000, ..Home::new() };
    let store = home.open();
    for id in &ids {
        make(&store, &plan, "a", id, reserve(1));
    }
    store_finish(store);
    for max_keys in [160_000, 40_000, 200_000] {
        home.max_keys = max_keys;
        let store = home.open();
        assert_eq!(check(&store, &plan, &ids), Ok(vec![3_000, 0, 0]));
        store_finish(store);
    }
    home.max_keys = 800;
    let store = home.open();
    let stats = store.memory.stats();
    assert!((50..=100).contains(&stats.reservations), "{stats:?}");
    // What was evicted stays charged.
    assert_eq!(store.memory.stats().reservations_evicted as usize + stats.reservations, 3_000);
    let found = make(&store, &plan, "a", "none", ReservationOp::settle(0));
    assert_eq!(found.used_before, 3_000);
}

#[test]
fn a_directory_of_reservations_is_not_written_again_and_again() {
    let (home, plan) = (Home::new(), budget(true));
    let store = home.try_open(SOON, Duration::ZERO).unwrap();
    let ids: Vec<String> = (0..900).map(|id| id.to_string()).collect();
    for id in &ids {
        make(&store, &plan, "a", id, reserve(1));
    }
    // Whether there is a snapshot depends on when it was begun.
    for _ in 0..4 {
        wait_for_sync(&store);
    }
    let (files, snapshots) = (home.files(), store.status.snapshots.load(Ordering::Relaxed));
    for _ in 0..10 {
        wait_for_sync(&store);
    }
    assert_eq!((home.files(), store.status.snapshots.load(Ordering::Relaxed)), (files, snapshots));
    drop(store);
    assert_eq!(check(&home.open(), &plan, &ids), Ok(vec![900, 0, 0]));
}

/// Another fingerprint needs another number: of reservations in records, of keys in `meta`.
#[test]
fn fingerprints_are_those_of_their_formats() {
    let plan = Arc::new(Plan::new(vec![Limit::fixed_window(5, Unit::Minute, 1).unwrap()]));
    let key = Key { domain: "d", entries: &[("key", "a"), ("path", "")] };
    let op = Op::Take(1);
    let charge = Charge { key, plan: &plan, op, hold: Some("id"), role: Role::Enforced };
    let prints = Fingerprints::of_secret([1, 2]);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let of_key = prints.of(&charge);
    let found = (meta::VERSION, of_key.shard, hex(&of_key.print));
    assert_eq!(found, (1, 2_821_709_264, "6c4c962f4aba3e85f799cc".to_owned()));
    let [id, reset] = prints.of_reservation(&charge);
    let found = (record::RESERVATION, hex(&id), hex(&reset));
    let expected = ["2cc02d194aba3e4b1516f5", "598205a3f79c3d9871f08e"].map(str::to_owned);
    assert_eq!(found, (5, expected[0].clone(), expected[1].clone()));
}
