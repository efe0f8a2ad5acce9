#!/usr/bin/env bash
# Behavior: in a current-thread runtime, the first poll of a `tokio::time::Sleep` that ends before the timers that were
#   armed when the driver last parked writes to the eventfd of the very runtime that polls it. 64 sleeps polled in one
#   turn cost 64 `write` system calls, also if they all end at the same time: the first does not spare the others
#   theirs. Beside an earlier timer, armed before the last park, they cost none.
# Version: tokio 1.54.1 (crates.io), Linux.
# Source: src/runtime/time/mod.rs, `Handle::reregister`: it unparks the driver if the deadline is before `next_wake`,
#   which only parking sets.
# Why a guess goes wrong: the thread that polls is the one that would be woken, and it computes its time-out before it
#   parks, so nothing needs a wake-up. A task that arms one timer a request looks free in a benchmark with one request
#   in flight, and pays a system call for each of a batch.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir src
cat >Cargo.toml <<'T'
[package]
name = "example"
version = "0.1.0"
edition = "2021"

[dependencies]
tokio = { version = "=1.54.1", features = ["rt", "time", "net"] }
T
cat >src/main.rs <<'R'
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// The `write` system calls of this process so far.
fn writes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap().parse().unwrap()
}

/// Polls sleeps once each in one turn, and returns the writes that this made.
async fn poll_all(millis: impl Iterator<Item = u64>) -> u64 {
    let mut sleeps: Vec<Pin<Box<Sleep>>> = millis.map(|millis| Box::pin(sleep(Duration::from_millis(millis)))).collect();
    let before = writes();
    poll_fn(|context| {
        for sleep in &mut sleeps {
            assert!(sleep.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    })
    .await;
    writes() - before
}

fn main() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!("each earlier than the last: {}", runtime().block_on(poll_all((0..64).map(|i| 2_000 - i))));
    println!("all the same: {}", runtime().block_on(poll_all((0..64).map(|_| 2_000))));
    let beside = runtime().block_on(async {
        let mut earlier = Box::pin(sleep(Duration::from_millis(1_000)));
        poll_fn(|context| Poll::Ready(earlier.as_mut().poll(context).is_pending())).await;
        // The driver parks once, so that it knows its next wake-up.
        tokio::task::yield_now().await;
        poll_all((0..64).map(|i| 2_000 - i)).await
    });
    println!("beside an earlier timer: {beside}");
}
R
CARGO_TARGET_DIR=$work/target CARGO_BUILD_BUILD_DIR=$work/target cargo run -q 2>cargo.log | tee out || { cat cargo.log; exit 1; }
cmp -s out - <<'X' || { echo "the behavior has changed"; exit 1; }
each earlier than the last: 64
all the same: 64
beside an earlier timer: 0
X
