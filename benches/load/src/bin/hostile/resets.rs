//! Calls that are reset immediately.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use load::frames::{self, RST_STREAM};
use serde_json::{Value, json};

use crate::Target;
use crate::raw::Raw;

const CANCEL: u32 = 8;
/// Calls and resets in one write.
const BATCH: u32 = 50;

pub fn run(target: &Target, count: usize, rate: f64) -> Result<Value> {
    let open = || -> Result<(Raw, u32)> {
        Ok((Raw::open(&target.addr, frames::preface(frames::MAX_WINDOW))?, 0))
    };
    let mut connections = (0..count).map(|_| open()).collect::<Result<Vec<_>>>()?;
    // Calls that the server did not accept in time are not made up for.
    let (mut resets, mut missed, mut closed, mut turn) = (0, 0, 0, 0);
    while !target.over() {
        while resets + missed < target.due(rate) {
            turn = (turn + 1) % count;
            let (raw, next) = &mut connections[turn];
            match raw.discard().and_then(|()| raw.flush()) {
                Ok(true) => {
                    let from = *next;
                    raw.push(|out| {
                        for i in from..from + BATCH {
                            let stream = 2 * i + 1;
                            target.call.append(out, i == 0, stream, u64::from(i) % 1000);
                            frames::frame(out, RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
                        }
                    });
                    *next += BATCH;
                    resets += u64::from(BATCH);
                }
                Ok(false) => missed += u64::from(BATCH),
                Err(_) => {
                    closed += 1;
                    missed += u64::from(BATCH);
                    connections[turn] = open()?;
                }
            }
        }
        for (raw, _) in &mut connections {
            let _ = raw.flush();
        }
        sleep(Duration::from_millis(1));
    }
    let per_second = resets as f64 / target.start.elapsed().as_secs_f64();
    Ok(json!({ "resets": resets, "resets_per_second": per_second, "closed_by_server": closed }))
}
