//! A bounded queue of log lines, between the threads that log and the thread that writes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

use weir_common::metrics::{Counter, MetricSink, MetricSource};
use weir_common::threads::Failures;

/// The most bytes of a write: pipes write up to so many atomically, so the lines of several processes do not mix.
const ATOMIC_WRITE_BYTES: usize = 4096;

/// How long to wait when a non-blocking file descriptor is full.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Lines that a thread of the queue writes: adding a line never blocks, even if the log is not read.
///
/// **Bounded.** The queue holds at most `limit` bytes. A line that does not fit is dropped and counted, and so are all
/// further lines until half of the queue is free. So a stall leaves one gap, and its length is reported once.
#[derive(Clone, Debug)]
pub struct Queue(Arc<QueueState>);

#[derive(Debug)]
struct QueueState {
    limit: usize,
    dropped: Counter,
    state: Mutex<State>,
    added: Condvar,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<u8>,
    /// Lines that were dropped and not reported yet.
    dropped: u64,
    /// Whether lines have left the queue and are being written.
    writing: bool,
}

impl Queue {
    /// Starts a thread that writes to `out`, and passes the number of dropped lines to `report`, which may add one.
    pub fn start(
        limit: usize,
        mut out: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
        failures: &Failures,
    ) -> io::Result<Queue> {
        let queue = Queue(Arc::new(QueueState {
            limit,
            dropped: Counter::default(),
            state: Mutex::default(),
            added: Condvar::new(),
            idle: Condvar::new(),
        }));
        let shared = queue.0.clone();
        let failures = failures.clone();
        let drain = move || failures.restart("log", || shared.drain(&mut out, &report));
        std::thread::Builder::new().name("log".into()).spawn(drain)?;
        Ok(queue)
    }

    /// Adds a line, including its newline.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        if state.dropped > 0 || state.lines.len() + line.len() > self.0.limit {
            state.dropped += 1;
            self.0.dropped.inc();
        } else {
            state.lines.extend(line);
        }
        drop(state);
        self.0.added.notify_one();
    }

    /// Waits until all lines are written, for at most `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let is_busy = |state: &mut State| !state.is_idle();
        self.0.idle.wait_while_for(&mut self.0.state.lock(), is_busy, timeout);
    }
}

weir_common::metric_families! {
    LOG_LINES_DROPPED: counter("log_lines_dropped", &[]) = "Log lines dropped because standard error was not read in time";
}

impl MetricSource for Queue {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(LOG_LINES_DROPPED, self.0.dropped.get());
    }
}

impl QueueState {
    fn drain(&self, out: &mut impl Write, report: &impl Fn(u64)) {
        let mut chunk = Vec::with_capacity(ATOMIC_WRITE_BYTES);
        loop {
            let mut state = self.state.lock();
            state.writing = false;
            while state.is_idle() {
                self.idle.notify_all();
                self.added.wait(&mut state);
            }
            if state.dropped > 0 && state.lines.len() <= self.limit / 2 {
                let dropped = std::mem::take(&mut state.dropped);
                state.writing = true;
                drop(state);
                report(dropped);
                continue;
            }
            state.take_lines(&mut chunk);
            drop(state);
            write(out, &chunk);
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0 && !self.writing
    }

    /// Moves whole lines to `chunk`, up to the size of an atomic write, or a part of a longer line.
    fn take_lines(&mut self, chunk: &mut Vec<u8>) {
        let len = self.lines.len().min(ATOMIC_WRITE_BYTES);
        let end = self.lines.iter().take(len).rposition(|byte| *byte == b'\n');
        chunk.clear();
        chunk.extend(self.lines.drain(..end.map_or(len, |end| end + 1)));
        self.writing = true;
    }
}

/// Writes all bytes. Ignores errors, because the service continues without a reader of its log.
#[expect(clippy::disallowed_methods, reason = "the thread has no other task")]
fn write(out: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(RETRY_DELAY),
            Err(_) => return,
        }
    }
}

impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Each event is a single write of a whole line.
impl<'a> MakeWriter<'a> for Queue {
    type Writer = &'a Queue;

    fn make_writer(&'a self) -> &'a Queue {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// A reader that accepts one write for each permit.
    struct Reader {
        permits: mpsc::Receiver<()>,
        read: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once the sender is dropped, it reads everything.
            let _ = self.permits.recv();
            self.read.lock().push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Stalled {
        queue: Queue,
        permits: Option<mpsc::Sender<()>>,
        read: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    #[expect(clippy::disallowed_methods, reason = "the test sends a few messages")]
    /// Returns a queue whose reader stalls on the line `first`.
    fn stalled(limit: usize) -> Stalled {
        let (permits, waits) = mpsc::channel();
        let read = Arc::new(Mutex::default());
        let reader = Reader { permits: waits, read: read.clone() };
        let (sender, receiver) = mpsc::channel::<Queue>();
        let report = move |lines| {
            let queue = receiver.recv().unwrap();
            queue.push(format!("dropped {lines}\n").as_bytes());
        };
        let queue = Queue::start(limit, reader, report, &Failures::default()).unwrap();
        sender.send(queue.clone()).unwrap();
        queue.push(b"first\n");
        while !queue.0.state.lock().writing {
            std::thread::yield_now();
        }
        Stalled { queue, permits: Some(permits), read }
    }

    impl Stalled {
        /// Lets the reader continue. Returns everything it has read.
        fn resume(&mut self) -> String {
            self.permits = None;
            self.queue.flush(TIMEOUT);
            String::from_utf8(self.read.lock().concat()).unwrap()
        }
    }

    #[test]
    fn lines_that_do_not_fit_are_dropped_counted_and_reported_once() {
        let mut stalled = stalled(20);
        for line in ["0123456789\n", "too long\n\n", "fits\n"] {
            stalled.queue.push(line.as_bytes());
        }
        assert_eq!(stalled.queue.0.dropped.get(), 2, "one gap");
        assert_eq!(stalled.resume(), "first\n0123456789\ndropped 2\n");
        stalled.queue.push(b"after\n");
        assert!(stalled.resume().ends_with("dropped 2\nafter\n"));
        assert_eq!(stalled.queue.0.dropped.get(), 2);
    }

    #[test]
    fn a_line_longer_than_the_queue_is_reported() {
        let mut stalled = stalled(20);
        stalled.queue.push(&[b'x'; 21]);
        assert_eq!(stalled.resume(), "first\ndropped 1\n");
    }

    #[test]
    fn lines_up_to_the_atomic_size_are_written_whole() {
        let mut stalled = stalled(1 << 20);
        let line = |len: usize| [vec![b'x'; len - 1], vec![b'\n']].concat();
        for len in [3000, 1096, 1, 4096, 4097, 10] {
            stalled.queue.push(&line(len));
        }
        stalled.resume();
        let lengths: Vec<usize> = stalled.read.lock().iter().map(Vec::len).collect();
        assert_eq!(lengths, [6, 4096, 1, 4096, 4096, 11]);
    }

    #[test]
    fn flushing_a_stalled_queue_ends() {
        let mut stalled = stalled(1 << 20);
        stalled.queue.push(b"second\n");
        stalled.queue.flush(Duration::from_millis(10));
        assert!(stalled.read.lock().is_empty());
        assert_eq!(stalled.resume(), "first\nsecond\n");
    }

    /// Fails every other write, like a non-blocking file descriptor, and accepts two bytes at a time.
    struct Reluctant(Arc<Mutex<Vec<u8>>>, bool);

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.0.lock().extend(&bytes[..bytes.len().min(2)]);
            Ok(bytes.len().min(2))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn partial_writes_and_full_pipes_lose_nothing() {
        let read = Arc::new(Mutex::default());
        let queue = Queue::start(100, Reluctant(read.clone(), false), |_| {}, &Failures::default());
        let queue = queue.unwrap();
        queue.push(b"line\n");
        queue.flush(TIMEOUT);
        assert_eq!(*read.lock(), b"line\n");
    }

    /// Panics at the first write.
    struct Faulty(Arc<Mutex<Vec<u8>>>, bool);

    impl Write for Faulty {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(std::mem::replace(&mut self.1, true), "this panic is a part of the test");
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_after_a_panic() {
        let (read, failures) = (Arc::new(Mutex::default()), Failures::default());
        let queue = Queue::start(100, Faulty(read.clone(), false), |_| {}, &failures).unwrap();
        queue.push(b"lost\n");
        while failures.of("log") != Some(1) {
            std::thread::yield_now();
        }
        queue.push(b"kept\n");
        queue.flush(TIMEOUT);
        assert_eq!(read.lock().as_slice(), b"kept\n");
    }
}
