//! `weir why`: what one replica (a weir process) knows about the key that the user asks about, and how it is printed.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::explain::print_text;
use crate::print::{counted, line};
use weir_common::duration::rounded;
use weir_limiter::explain::{Explained, LiveDescriptor};
use weir_top::{Scope, TopList};

#[derive(Debug, Serialize)]
pub(super) struct Replica {
    pub server: String,
    #[serde(flatten)]
    pub status: ReplicaStatus,
    pub explained: Explained<LiveDescriptor>,
    /// The hits denied in the last hour, by key: those that have the entries of this one, alone or with others.
    pub denied: TopList,
    /// The oldest first.
    pub denials: Vec<Value>,
    pub changes: Vec<Value>,
}

/// The members of `/v1/status` that are needed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ReplicaStatus {
    #[serde(default)]
    pub replica: String,
    pub at: String,
    pub uptime_ms: u64,
    pub problems: Vec<Value>,
}

impl Replica {
    pub fn name(&self) -> &str {
        if self.status.replica.is_empty() { &self.server } else { &self.status.replica }
    }

    pub fn print_now(&self, out: &mut dyn Write) -> io::Result<()> {
        print_text(&self.explained, out)?;
        let TopList { rows, scope, replicas, seconds, unlisted, .. } = &self.denied;
        let (most, error) =
            rows.iter().fold((0, 0), |sum, row| (sum.0 + row.count, sum.1 + row.error));
        let hits = match (rows.is_empty(), *unlisted, error) {
            (true, 0, _) => "no hit".to_owned(),
            (true, unlisted, _) => format!("at most {}", counted(unlisted, "hit")),
            (false, _, 0) => counted(most, "hit"),
            (false, _, error) => format!("{} to {}", most - error, counted(most, "hit")),
        };
        let place = match scope {
            Scope::Here => "this replica".to_owned(),
            Scope::All => counted(*replicas as u64, "replica"),
        };
        let span = rounded(seconds.saturating_mul(1_000));
        line(out, &format!("  denied: {hits} in {span} on {place}"))?;
        let problems = self.status.problems.iter().filter_map(|problem| problem["text"].as_str());
        problems.into_iter().try_for_each(|text| line(out, &format!("  problem: {text}")))
    }
}
