//! The summary of many requests.

use std::fmt;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::time::Duration;

use super::latencies::Latencies;
use crate::cli::OVER_LIMIT;

/// Counts of requests and their latencies.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub ok: u64,
    pub over_limit: u64,
    pub errors: u64,
    pub retries: u64,
    pub elapsed: Duration,
    /// The latencies of requests and retries.
    pub latencies: Latencies,
}

impl Summary {
    fn requests(&self) -> u64 {
        self.ok + self.over_limit + self.errors
    }

    /// Whether all requests have their result.
    pub fn is_complete(&self, repeat: NonZeroU64) -> bool {
        self.requests() == repeat.get()
    }

    /// Returns 1 if a request failed, or none has a result; 3 if one stayed over its limit.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Summary { errors: 0, over_limit: 0, ok: 1.., .. } => ExitCode::SUCCESS,
            Summary { errors: 0, over_limit: 1.., .. } => ExitCode::from(OVER_LIMIT),
            _ => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { ok, over_limit, errors, retries, elapsed, latencies } = self;
        let requests = self.requests();
        let noun = if requests == 1 { "request" } else { "requests" };
        let elapsed = elapsed.as_secs_f64();
        write!(f, "{requests} {noun} in {elapsed:.1}s: {ok} OK, {over_limit} over limit, ")?;
        writeln!(f, "{errors} errors, {retries} retries")?;
        if latencies.is_empty() {
            return Ok(());
        }
        let [p50, p90, p99] = [50, 90, 99].map(|percent| millis(latencies.percentile(percent)));
        writeln!(f, "latency: p50 {p50}, p90 {p90}, p99 {p99}, max {}", millis(latencies.max()))
    }
}

/// Returns a latency in milliseconds.
pub(super) fn millis(latency: Duration) -> String {
    format!("{:.2}ms", latency.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_outweigh_denials() {
        let code = |ok, over_limit, errors| {
            let summary = Summary { ok, over_limit, errors, ..Summary::default() };
            format!("{:?}", summary.exit_code())
        };
        let exit = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(2, 0, 0), exit(0));
        assert_eq!(code(2, 1, 0), exit(3));
        assert_eq!(code(2, 1, 1), exit(1));
        assert_eq!(code(0, 0, 0), exit(1));
    }

    #[test]
    fn it_has_counts_and_percentiles() {
        let elapsed = Duration::from_millis(2_510);
        let mut summary =
            Summary { ok: 2, over_limit: 1, retries: 4, elapsed, ..Summary::default() };
        assert!(!summary.is_complete(NonZeroU64::new(4).unwrap()));
        summary.latencies.record(Duration::from_micros(500));
        assert_eq!(
            summary.to_string(),
            "3 requests in 2.5s: 2 OK, 1 over limit, 0 errors, 4 retries\n\
             latency: p50 0.50ms, p90 0.50ms, p99 0.50ms, max 0.50ms\n"
        );
    }
}
