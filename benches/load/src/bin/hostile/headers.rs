//! Calls with headers larger than a server should accept.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use load::frames::{self, CONTINUATION, END_HEADERS, HEADERS};
use serde_json::{Value, json};

use crate::Target;
use crate::raw::Raw;

/// How long a server may take to refuse a call.
const PATIENCE: Duration = Duration::from_secs(1);
const FRAME: usize = 16 * 1024;

/// A call with `size` bytes of headers, in as many frames as necessary.
fn giant(size: usize) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    while block.len() < size {
        // A literal that is not indexed: the name "x", and a value of 127 + 873 bytes.
        block.extend_from_slice(&[0x00, 1, b'x', 0x7f, 0xe9, 0x06]);
        block.resize(block.len() + 1000, b'y');
    }
    let mut out = frames::preface(frames::MAX_WINDOW);
    let last = block.len().div_ceil(FRAME) - 1;
    for (i, part) in block.chunks(FRAME).enumerate() {
        let kind = if i == 0 { HEADERS } else { CONTINUATION };
        let flags = if i == last { END_HEADERS } else { 0 };
        frames::frame(&mut out, kind, flags, 1, part);
    }
    out
}

pub fn run(target: &Target, size: usize, rate: f64) -> Result<Value> {
    let call = giant(size);
    let (mut calls, mut closed, mut kept) = (0, 0, 0);
    let mut open: Vec<(Raw, Instant)> = Vec::new();
    while !target.over() {
        while calls < target.due(rate) {
            open.push((Raw::open(&target.addr, call.clone())?, Instant::now()));
            calls += 1;
        }
        open.retain_mut(|(raw, since)| {
            let alive = raw.discard().and_then(|()| raw.flush()).is_ok();
            let patient = since.elapsed() < PATIENCE;
            closed += u64::from(!alive);
            kept += u64::from(alive && !patient);
            alive && patient
        });
        sleep(Duration::from_millis(2));
    }
    Ok(json!({ "calls": calls, "closed_by_server": closed, "closed_here": kept }))
}
