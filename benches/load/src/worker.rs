//! The share of one thread in the load, and its counts.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use rand::Rng;
use rand::rngs::SmallRng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connection::{Connection, Outcome};
use crate::frames::Call;
use crate::message::Decision;

/// How long an open loop waits for responses after its last call was due.
const GRACE: Duration = Duration::from_secs(10);

/// Counts of the measured part of a run.
pub struct Tally {
    pub latency_ns: Histogram<u64>,
    pub ok: u64,
    pub over_limit: u64,
    /// Calls that failed, including those of the warm-up.
    pub errors: u64,
    pub first_error: Option<String>,
    /// Open loop: calls that were due but never sent.
    pub unsent: u64,
}

impl Tally {
    pub fn new() -> Result<Self> {
        Ok(Self {
            latency_ns: Histogram::new_with_bounds(100, 60_000_000_000, 3)?,
            ok: 0,
            over_limit: 0,
            errors: 0,
            first_error: None,
            unsent: 0,
        })
    }

    pub fn count(&mut self, outcome: &Outcome, now: Instant) {
        let waited = now.saturating_duration_since(outcome.started);
        self.latency_ns.saturating_record(waited.as_nanos() as u64);
        match outcome.decision {
            Some(Decision::Ok) => self.ok += 1,
            Some(Decision::OverLimit) => self.over_limit += 1,
            None => self.errors += 1,
        }
    }

    pub fn add(&mut self, other: Self) -> Result<()> {
        self.latency_ns.add(other.latency_ns)?;
        self.ok += other.ok;
        self.over_limit += other.over_limit;
        self.errors += other.errors;
        self.unsent += other.unsent;
        self.first_error = self.first_error.take().or(other.first_error);
        Ok(())
    }

    pub fn calls(&self) -> u64 {
        self.ok + self.over_limit + self.errors
    }
}

pub enum Keys {
    Random {
        keys: u64,
        rng: SmallRng,
    },
    /// Keys in order; each thread has its own.
    Sequential {
        keys: u64,
        next: u64,
        step: u64,
    },
}

impl Keys {
    pub fn choose(&mut self) -> u64 {
        match self {
            Self::Random { keys: 1, .. } => 0,
            Self::Random { keys, rng } => rng.random_range(0..*keys),
            Self::Sequential { keys, next, step } => {
                let key = *next % *keys;
                *next += *step;
                key
            }
        }
    }
}

/// When the run starts, when the measurement starts, and when the run stops.
#[derive(Clone, Copy)]
pub struct Schedule {
    pub start: Instant,
    pub measure: Instant,
    pub stop: Instant,
}

pub struct Worker {
    pub connections: Vec<Connection>,
    pub call: Call,
    pub keys: Keys,
    pub schedule: Schedule,
    /// Open loop: when the thread's first call is due after the start, and the time between calls.
    pub pace: Option<(Duration, Duration)>,
    pub max_calls: u64,
}

impl Worker {
    pub fn run(mut self) -> Result<Tally> {
        // The default of 50 µs would show in the latencies of an open loop.
        let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
        std::thread::sleep(self.schedule.start.saturating_duration_since(Instant::now()));
        let mut tally = Tally::new()?;
        match self.pace {
            None => self.closed_loop(&mut tally)?,
            Some((offset, interval)) => self.open_loop(offset, interval, &mut tally)?,
        }
        Ok(tally)
    }

    /// Keeps the maximum number of calls in flight on every connection.
    fn closed_loop(&mut self, tally: &mut Tally) -> Result<()> {
        let Schedule { measure, stop, .. } = self.schedule;
        loop {
            let now = Instant::now();
            if now >= stop || tally.calls() >= self.max_calls {
                return Ok(());
            }
            for connection in &mut self.connections {
                while connection.has_room(&self.call) {
                    connection.start(&self.call, self.keys.choose(), now);
                }
            }
            self.exchange(stop, tally, |_, now| now >= measure)?;
        }
    }

    /// Starts calls when they are due, then waits for their responses, so that a stall at the end
    /// counts too.
    fn open_loop(&mut self, offset: Duration, interval: Duration, tally: &mut Tally) -> Result<()> {
        let Schedule { start, measure, stop } = self.schedule;
        let mut due = start + offset;
        let mut turn = 0;
        loop {
            let now = Instant::now();
            let waiting: usize = self.connections.iter().map(Connection::in_flight).sum();
            let sent_all = due >= stop || tally.calls() >= self.max_calls;
            if sent_all && waiting == 0 || now >= stop + GRACE {
                let late = stop.saturating_duration_since(due).as_secs_f64();
                if !sent_all {
                    tally.unsent = (late / interval.as_secs_f64()).ceil() as u64;
                }
                tally.errors += waiting as u64;
                return Ok(());
            }
            if !sent_all {
                self.start_due(&mut due, interval, now.min(stop), &mut turn);
            }
            let wake = if due < stop { due.max(now) } else { stop + GRACE };
            let wake = if self.has_room() { wake } else { stop + GRACE };
            self.exchange(wake, tally, |started, _| started >= measure)?;
        }
    }

    fn has_room(&self) -> bool {
        self.connections.iter().any(|connection| connection.has_room(&self.call))
    }

    /// Starts the calls that are due, on the connections in rotation.
    fn start_due(&mut self, due: &mut Instant, interval: Duration, now: Instant, turn: &mut usize) {
        while *due <= now {
            let n = self.connections.len();
            let with_room = |i: &usize| self.connections[*i].has_room(&self.call);
            let Some(i) = (0..n).map(|i| (*turn + i) % n).find(with_room) else {
                return;
            };
            self.connections[i].start(&self.call, self.keys.choose(), *due);
            *turn = (i + 1) % n;
            *due += interval;
        }
    }

    /// Writes what is buffered, waits until `wake` at most, and reads what has arrived.
    fn exchange(
        &mut self,
        wake: Instant,
        tally: &mut Tally,
        counts: impl Fn(Instant, Instant) -> bool,
    ) -> Result<()> {
        for connection in &mut self.connections {
            if connection.wants_write() {
                connection.flush()?;
            }
        }
        let ready = self.ready(wake)?;
        let now = Instant::now();
        for (connection, ready) in self.connections.iter_mut().zip(ready) {
            if !ready {
                continue;
            }
            let mut failed = false;
            connection.receive(&mut |outcome| {
                failed |= outcome.decision.is_none();
                if outcome.decision.is_none() || counts(outcome.started, now) {
                    tally.count(&outcome, now);
                }
            })?;
            if failed && tally.first_error.is_none() {
                tally.first_error = connection.last_headers().map(str::to_owned);
            }
        }
        Ok(())
    }

    /// The connections that have something to read.
    fn ready(&self, wake: Instant) -> Result<Vec<bool>> {
        let timeout = Timespec::try_from(wake.saturating_duration_since(Instant::now()))?;
        let interest = |c: &Connection| match c.wants_write() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let mut fds: Vec<PollFd<'_>> =
            self.connections.iter().map(|c| PollFd::new(c, interest(c))).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => Ok(fds
                .iter()
                .map(|fd| fd.revents().intersects(!PollFlags::OUT & PollFlags::all()))
                .collect()),
            Err(rustix::io::Errno::INTR) => Ok(vec![false; fds.len()]),
            Err(e) => Err(e.into()),
        }
    }
}
