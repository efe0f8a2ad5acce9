//! What windows have admitted.
//!
//! The backend counts a request when it arrives there, up to [`LATE`] after Envoy has admitted it. One that arrives
//! within that time of the start of a window is *surely* of neither window, and *may* be of both. A call is of the time
//! from its request to its answer, give or take the same. Clients, backend and Redis have one clock.

use super::*;

pub const SECOND: Micros = 1_000_000;

/// How long after its admission a request arrives at the backend, at most.
pub const LATE: Micros = 50_000;

/// A request that was admitted between two instants.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub earliest: Micros,
    pub latest: Micros,
}

impl Admission {
    /// Returns whether the request was surely admitted in a span of time.
    pub fn is_in(&self, span: &Range<Micros>) -> bool {
        span.contains(&self.earliest) && span.contains(&self.latest)
    }
}

/// The requests of a window.
#[derive(Clone, Debug)]
pub struct Window {
    pub span: Range<Micros>,
    /// Surely admitted in it.
    pub sure: u64,
    /// Perhaps admitted in it.
    pub may: u64,
    /// Whether there was load from its start to its end.
    pub is_whole: bool,
}

/// The time.
pub fn now() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as Micros
}

/// Counts the requests of all windows of this length in which there was load.
pub fn count(admissions: &[Admission], load: Range<Micros>, length: Micros) -> Vec<Window> {
    let window = |number: Micros| {
        let span = number * length..(number + 1) * length;
        let sure = admissions.iter().filter(|admission| admission.is_in(&span)).count() as u64;
        let may = |a: &&Admission| a.latest >= span.start && a.earliest < span.end;
        let may = admissions.iter().filter(may).count() as u64;
        let is_whole = load.start <= span.start && load.end >= span.end;
        Window { span, sure, may, is_whole }
    };
    (load.start / length..=load.end / length).map(window).collect()
}

impl Window {
    pub fn print(&self, n: u64) {
        let Window { span, sure, may, is_whole } = self;
        let number = span.start / (span.end - span.start);
        let part = *may as f64 * 100.0 / n as f64;
        println!("  {number}: {sure} to {may} of {n} ({part:.1} %), whole: {is_whole}");
    }
}

#[test]
fn windows_count_what_is_surely_or_perhaps_in_them() {
    let admission = |earliest, latest| Admission { earliest, latest };
    let admissions = [admission(51, 52), admission(59, 60), admission(61, 61)];
    let windows = count(&admissions, 50..70, 10);
    let counted = |window: &Window| (window.sure, window.may, window.is_whole);
    let counted: Vec<_> = windows.iter().map(counted).collect();
    assert_eq!(counted, [(1, 2, true), (1, 2, true), (0, 0, false)]);
}
