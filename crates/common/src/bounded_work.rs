//! Does work that may block for ever, such as reading files on a mount whose server is gone, on a few separate
//! threads. Work that blocks delays no other. The caller waits a while, and gets later results when it asks again.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::threads::lower_priority;

/// The most threads: one that works, and others that are blocked.
const MAX_THREADS: usize = 8;

/// Does one kind of work for many keys. What is not done in time goes on, and its result is returned later.
pub struct BoundedWork<K, R> {
    shared: Arc<Shared<K, R>>,
}

struct Shared<K, R> {
    work: Box<dyn Fn(&K) -> R + Send + Sync>,
    state: Mutex<State<K, R>>,
    progress: Condvar,
}

struct State<K, R> {
    queue: VecDeque<K>,
    items: HashMap<K, Item<R>>,
    threads: usize,
}

/// What is known of the work for a key.
#[derive(Debug)]
pub struct Worked<R> {
    pub result: Option<R>,
    /// Since when the caller waits for a newer result; none if the work began after the caller asked. An older result
    /// may lack a change: ask again soon.
    pub waiting: Option<Instant>,
}

struct Item<R> {
    since: Instant,
    result: Option<R>,
}

impl<K, R> fmt::Debug for BoundedWork<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedWork").finish_non_exhaustive()
    }
}

impl<K, R> BoundedWork<K, R>
where
    K: Clone + Eq + Hash + Send + 'static,
    R: Send + 'static,
{
    pub fn new(work: impl Fn(&K) -> R + Send + Sync + 'static) -> BoundedWork<K, R> {
        let state = State { queue: VecDeque::new(), items: HashMap::new(), threads: 0 };
        let (work, progress) = (Box::new(work), Condvar::new());
        BoundedWork { shared: Arc::new(Shared { work, state: Mutex::new(state), progress }) }
    }

    /// Does the work for each key, and waits until it is done or nothing is done for `wait`. Returns what is known
    /// for each key, in their order. Work that goes on has its result in a later call.
    pub fn run(&self, keys: &[K], wait: Duration) -> Vec<Worked<R>> {
        let started = Instant::now();
        let mut state = self.shared.state.lock();
        for key in keys {
            if !state.items.contains_key(key) {
                state.items.insert(key.clone(), Item { since: Instant::now(), result: None });
                state.queue.push_back(key.clone());
            }
        }
        let mut is_waited_for =
            state.queue.is_empty() || self.start(&mut state) || state.threads > 0;
        for key in keys {
            let is_done =
                |state: &State<K, R>| state.items.get(key).is_none_or(|item| item.result.is_some());
            while is_waited_for && !is_done(&state) {
                let is_blocked = self.shared.progress.wait_for(&mut state, wait).timed_out();
                if is_blocked && !is_done(&state) {
                    is_waited_for = !state.queue.is_empty() && self.start(&mut state);
                }
            }
        }
        let mut take = |key| match state.items.remove(key) {
            Some(Item { result: Some(result), since }) => {
                Worked { result: Some(result), waiting: (since < started).then_some(started) }
            }
            Some(item) => {
                let since = item.since;
                state.items.insert(key.clone(), item);
                Worked { result: None, waiting: Some(since) }
            }
            // The keys have it twice.
            None => Worked { result: None, waiting: Some(started) },
        };
        let results = keys.iter().map(&mut take).collect();
        // What nobody asks for any more is dropped once it is done.
        state.items.retain(|_, item| item.result.is_none());
        results
    }

    /// Starts a thread, and returns whether there was room for it.
    fn start(&self, state: &mut State<K, R>) -> bool {
        if state.threads >= MAX_THREADS {
            return false;
        }
        let shared = self.shared.clone();
        let started = Builder::new().name("weir-files".to_owned()).spawn(move || {
            lower_priority();
            shared.work_off();
        });
        state.threads += usize::from(started.is_ok());
        started.is_ok()
    }
}

impl<K: Eq + Hash, R> Shared<K, R> {
    fn work_off(&self) {
        let mut state = self.state.lock();
        while let Some(key) = state.queue.pop_front() {
            let result = MutexGuard::unlocked(&mut state, || (self.work)(&key));
            if let Some(item) = state.items.get_mut(&key) {
                item.result = Some(result);
            }
            self.progress.notify_all();
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than other load keeps a thread from work that does not block.
    const WAIT: Duration = Duration::from_millis(200);

    #[test]
    fn what_blocks_delays_nothing_else_and_is_returned_once_it_is_done() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock();
        let of_work = gate.clone();
        let work = BoundedWork::new(move |key: &u32| {
            if key.is_multiple_of(10) {
                drop(of_work.lock());
            }
            key * 2
        });
        let keys: Vec<u32> = (0..25).collect();
        for _ in 0..3 {
            let done = work.run(&keys, WAIT);
            for (key, done) in keys.iter().zip(done) {
                assert_eq!(done.result, (key % 10 > 0).then_some(key * 2), "{key}");
                assert_eq!(done.waiting.is_some(), key.is_multiple_of(10), "{key}");
            }
            // One for each that blocks; the work for it is not started again. Others end when nothing is left.
            let deadline = Instant::now() + Duration::from_secs(30);
            while work.shared.state.lock().threads != 3 {
                assert!(Instant::now() < deadline, "{}", work.shared.state.lock().threads);
                std::thread::yield_now();
            }
        }
        drop(closed);
        for is_newer in [false, true] {
            for (key, done) in keys.iter().zip(work.run(&keys, Duration::from_secs(60))) {
                assert_eq!(done.result, Some(key * 2), "{key}");
                // What was blocked began before it was asked for again.
                assert_eq!(done.waiting.is_none(), is_newer || key % 10 > 0, "{key}");
            }
        }
    }

    #[test]
    fn threads_that_block_are_bounded() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock();
        let of_work = gate.clone();
        let work = BoundedWork::new(move |_: &usize| drop(of_work.lock()));
        let keys: Vec<usize> = (0..MAX_THREADS * 3).collect();
        assert!(work.run(&keys, WAIT).iter().all(|worked| worked.result.is_none()));
        assert_eq!(work.shared.state.lock().threads, MAX_THREADS);
        drop(closed);
        let worked = work.run(&keys, Duration::from_secs(60));
        assert!(worked.iter().all(|worked| worked.result.is_some()));
    }
}
