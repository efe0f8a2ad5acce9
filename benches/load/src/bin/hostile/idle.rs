//! Connections that were begun properly, answer pings, and ask for nothing.

use std::time::Duration;

use anyhow::{Context, Result};
use load::connection::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::Target;

pub fn run(target: &Target, count: usize) -> Result<Value> {
    let mut connections = Vec::new();
    for i in 0..count {
        let opened = Connection::open(&target.addr, 1, false);
        connections.push(opened.with_context(|| format!("connection {}", i + 1))?);
    }
    let opened_in = target.start.elapsed();
    let mut lost = 0;
    while !target.over() {
        let timeout = Timespec::try_from(Duration::from_millis(200))?;
        let mut fds: Vec<PollFd<'_>> =
            connections.iter().map(|c| PollFd::new(c, PollFlags::IN)).collect();
        poll(&mut fds, Some(&timeout))?;
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
        let mut ready = ready.drain(..);
        let before = connections.len();
        connections.retain_mut(|connection| {
            let alive = |c: &mut Connection| c.receive(&mut |_| ()).and_then(|()| c.flush());
            !ready.next().unwrap_or(false) || alive(connection).is_ok()
        });
        lost += before - connections.len();
    }
    Ok(json!({
        "opened": count, "opened_in_seconds": opened_in.as_secs_f64(), "lost": lost,
    }))
}
