//! Calls whose responses cannot be delivered.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use load::frames;
use serde_json::{Value, json};

use crate::Target;
use crate::raw::Raw;

/// Calls on a connection without a flow-control window: as many as servers commonly allow.
const WITHOUT_WINDOW: u64 = 1000;
/// Calls in flight on a connection that is not read.
const BATCH: u32 = 100;

struct Slow {
    raw: Raw,
    reads: bool,
    next: u32,
}

impl Slow {
    fn open(target: &Target, reads: bool) -> Result<Self> {
        let window = if reads { 0 } else { frames::MAX_WINDOW };
        Ok(Self { raw: Raw::open(&target.addr, frames::preface(window))?, reads, next: 0 })
    }

    /// Sends what can be sent. Returns the number of calls started.
    fn turn(&mut self, target: &Target) -> std::io::Result<u64> {
        if self.reads {
            self.raw.discard()?;
        }
        let mut begun = 0;
        while self.raw.flush()? && begun < WITHOUT_WINDOW {
            if self.reads && u64::from(self.next) >= WITHOUT_WINDOW {
                break;
            }
            let from = self.next;
            self.raw.push(|out| {
                for i in from..from + BATCH {
                    target.call.append(out, i == 0, 2 * i + 1, u64::from(i) % 1000);
                }
            });
            self.next += BATCH;
            begun += u64::from(BATCH);
        }
        Ok(begun)
    }
}

pub fn run(target: &Target, count: usize) -> Result<Value> {
    let open = |i: usize| Slow::open(target, i.is_multiple_of(2));
    let mut all = (0..count).map(open).collect::<Result<Vec<_>>>()?;
    let (mut calls, mut closed) = (0, 0);
    while !target.over() {
        for slow in &mut all {
            match slow.turn(target) {
                Ok(begun) => calls += begun,
                Err(_) => {
                    closed += 1;
                    *slow = Slow::open(target, slow.reads)?;
                }
            }
        }
        sleep(Duration::from_millis(20));
    }
    Ok(json!({ "calls": calls, "closed_by_server": closed }))
}
