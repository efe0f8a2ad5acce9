//! Connections that are set up properly, answer pings, and send no requests.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use load::connection::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::Target;

/// The number of connections polled at a time.
const AT_ONCE: usize = 100;

pub fn run(target: &Target, count: usize) -> Result<Value> {
    let mut connections = Vec::new();
    for i in 0..count {
        let opened = Connection::open(&target.addr, None, 1, false);
        connections.push(opened.with_context(|| format!("connection {}", i + 1))?);
    }
    let opened_in = target.start.elapsed();
    let mut lost = 0;
    // Opening ten thousand at once would keep the kernel busy for milliseconds, during which other
    // clients on the same core wait.
    while !target.over() {
        let mut rest = connections.split_off(0);
        while !rest.is_empty() {
            let mut some = rest.split_off(rest.len().saturating_sub(AT_ONCE));
            let mut fds: Vec<PollFd<'_>> =
                some.iter().map(|c| PollFd::new(c, PollFlags::IN)).collect();
            poll(&mut fds, Some(&Timespec::default()))?;
            let mut ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
            let mut ready = ready.drain(..);
            let before = some.len();
            some.retain_mut(|connection| {
                let alive = |c: &mut Connection| c.receive(&mut |_| ()).and_then(|()| c.flush());
                !ready.next().unwrap_or(false) || alive(connection).is_ok()
            });
            lost += before - some.len();
            connections.append(&mut some);
            sleep(Duration::from_millis(2));
        }
    }
    Ok(json!({
        "opened": count, "opened_in_seconds": opened_in.as_secs_f64(), "lost": lost,
    }))
}
