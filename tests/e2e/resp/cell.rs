//! CL.THROTTLE beside redis-cell, which `scripts/build-redis-cell` builds as a module for Redis.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{setup, start};
use crate::support::redis::{Client, Reply, Server};
use crate::support::tools::tool;

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of(&mut self, numbers: &[i64]) -> i64 {
        numbers[usize::try_from(self.below(numbers.len() as u64)).unwrap()]
    }
}

/// Returns a command of a few keys. Hits come back after a minute at the earliest, so that the time between the commands
/// to both servers does not matter. redis-cell fails where they come back within a second, and ends Redis where they
/// take centuries.
fn command(numbers: &mut Numbers, schedule: u64) -> Vec<String> {
    let key = format!("key-{schedule}-{}", numbers.below(3));
    let burst = numbers.one_of(&[0, 1, 2, 7, 14, 100]);
    let (count, period) = match numbers.below(6) {
        0 => (1, 60),
        1 => (7, 1_000),
        2 => (30, 86_400),
        3 => (59, 3_600),
        4 => (1, 86_400),
        _ => (3, 100_000),
    };
    let quantity = numbers.one_of(&[0, 1, 1, 1, 2, 3, 8, 101, 1_000]);
    let mut words = vec!["CL.THROTTLE".to_owned(), key];
    words.extend([burst, count, period].map(|number| number.to_string()));
    if quantity != 1 || numbers.below(2) == 0 {
        words.push(quantity.to_string());
    }
    words
}

/// Returns how long it takes until redis-cell's limit has its full allowance again, in seconds, exactly: it keeps the
/// time of that in nanoseconds, and replies with its seconds cut off.
fn exact_reset(cell: &mut Client, key: &str) -> f64 {
    let Reply::Text(full_at) = cell.send(&["GET", key]).unwrap() else { return 0.0 };
    let full_at = String::from_utf8(full_at).unwrap();
    let full_at = Duration::from_nanos(full_at.parse().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    full_at.saturating_sub(now).as_secs_f64()
}

#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn throttles_are_those_of_redis_cell() {
    let Some(module) = tool("redis-cell/redis_cell.so", "WEIR_REDIS_CELL") else { return };
    let cell = Server::configured(&[&format!("loadmodule {}", module.display())]);
    let redis = Server::start();
    for (redis, seed) in [(None, 0), (Some(&redis), 1_000)] {
        let (_weir, address) = start(setup(redis));
        let mut clients = [address.port(), cell.port()].map(|port| Client::connect(port).unwrap());
        for schedule in seed..seed + 200 {
            let mut numbers = Numbers(schedule);
            let mut sent = Vec::new();
            let started = Instant::now();
            for _ in 0..20 {
                sent.push(command(&mut numbers, schedule));
                let words: Vec<&str> = sent[sent.len() - 1].iter().map(String::as_str).collect();
                let [ours, theirs] = clients.each_mut().map(|client| client.send(&words).unwrap());
                let [ours, theirs] =
                    [ours, theirs].map(|it| it.list().iter().map(Reply::int).collect::<Vec<_>>());
                let number = |i: usize| words.get(i).map_or(1.0, |word| word.parse().unwrap());
                let (limit, interval) = (number(2) + 1.0, number(4) / number(3));
                let reset = exact_reset(&mut clients[1], words[1]);
                let retry = reset + (number(5) - limit) * interval;
                // Neither server gets a command at the very time of the other.
                let apart = started.elapsed().as_secs_f64() + 1e-5;
                // weir rounds up.
                let is_close = |i: usize, exact: f64| match (ours[i], theirs[i]) {
                    (-1, theirs) => theirs == -1,
                    (_, -1) => false,
                    (ours, _) => (-apart..1.0 + apart).contains(&(ours as f64 - exact)),
                };
                assert!(
                    ours[..3] == theirs[..3] && is_close(3, retry) && is_close(4, reset),
                    "weir: {ours:?}, redis-cell: {theirs:?}, exactly {retry} and {reset}, \
                     {apart} s apart, after {sent:#?}"
                );
            }
        }
    }
}
