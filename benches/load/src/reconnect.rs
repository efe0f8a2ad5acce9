//! A connection for each call, one after the other: what it costs to connect.

use std::time::Instant;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, poll};

use crate::connection::Connection;
use crate::frames::Call;
use crate::socket::TlsClient;
use crate::worker::{Keys, Tally};

/// Makes calls until there were `max_calls` of them, or until `stop`. Latency counts from the connect.
pub fn run(
    addr: &str,
    tls: Option<&TlsClient>,
    call: &Call,
    mut keys: Keys,
    max_calls: u64,
    stop: Instant,
) -> Result<Tally> {
    let mut tally = Tally::new()?;
    while tally.calls() < max_calls && Instant::now() < stop {
        let started = Instant::now();
        let mut connection = Connection::open(addr, tls, 1, false)?;
        connection.start(call, keys.choose(), started);
        while connection.in_flight() > 0 {
            connection.flush()?;
            let interest = match connection.wants_write() {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            poll(&mut [PollFd::new(&connection, interest)], None)?;
            connection.receive(&mut |outcome| tally.count(&outcome, Instant::now()))?;
        }
    }
    Ok(tally)
}
