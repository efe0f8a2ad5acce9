//! The problems of this moment, in one list: for `/status`, the events and the page.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::Sources;
use super::store_state::StoreState;
use crate::net::tls::CertificateProblem;
use crate::rule_sources::loader::Rejected;
use weir_common::settled_files::Unsettled;
use weir_limit::{Micros, SECOND};
use weir_store::Store;

/// The kinds whose text ends with an error of a store or a disk: the next one is the same problem. The page has
/// them too.
pub(super) const VARYING_KINDS: [&str; 3] = ["store", "controls", "disk"];

/// Something that operators should do something about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    /// `rules`, `file`, `store`, `controls`, `certificate` or `disk`.
    kind: &'static str,
    /// The problem in one sentence.
    text: String,
    /// The file, and the place in it, if that is a reason.
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    /// The number of errors of rules that are rejected.
    count: Option<usize>,
    /// When the problem began, as RFC 3339 writes it.
    since: String,
}

impl Problem {
    fn new(kind: &'static str, text: String, since: Option<Timestamp>) -> Problem {
        let since = since.unwrap_or(Timestamp::UNIX_EPOCH).to_string();
        Problem { kind, text, file: None, line: None, column: None, count: None, since }
    }

    /// Returns whether it is the same problem, although its times, numbers in its text and the errors of a
    /// store or a disk vary.
    pub fn is_like(&self, other: &Problem) -> bool {
        let place = |problem: &Problem| (problem.file.clone(), problem.line, problem.column);
        let words = |text: &str| text.replace(|char: char| char.is_ascii_digit(), "");
        let varies = VARYING_KINDS.contains(&self.kind);
        (self.kind, self.count) == (other.kind, other.count)
            && place(self) == place(other)
            && (varies || words(&self.text) == words(&other.text))
    }
}

/// Returns all problems, with the store in this state.
pub(super) fn problems<S: Store>(sources: &Sources<S>, store: &StoreState) -> Vec<Problem> {
    let Sources { loader, controls, identities, .. } = sources;
    let now = controls.now();
    let ago = |ago: Duration| {
        let then = now.saturating_sub(Micros::try_from(ago.as_micros()).unwrap_or(Micros::MAX));
        Timestamp::from_second(i64::try_from(then / SECOND).ok()?).ok()
    };
    let mut problems: Vec<Problem> = loader.rejected().map(Problem::from).collect();
    for Unsettled { path, reason, since } in loader.unsettled() {
        let text =
            format!("{}: its last whole version stays in use, if there is one", reason.text());
        let file = Some(path.display().to_string());
        problems.push(Problem { file, ..Problem::new("file", text, ago(since.elapsed())) });
    }
    problems.extend(store_problem(store, ago));
    if let (Some(error), Some(lasts)) = (controls.share_error(), controls.unshared_for()) {
        let text = format!("controls are not shared: changes apply to this replica only: {error}");
        problems.push(Problem::new("controls", text, ago(lasts)));
    }
    for file in controls.damaged_files() {
        let text = "controls may be missing: controls.file was damaged at a start: put what is missing and \
                    delete what was kept of it";
        let file = Some(file.display().to_string());
        problems.push(Problem { file, ..Problem::new("controls", text.to_owned(), None) });
    }
    for CertificateProblem { text, file, since } in identities.problems(now) {
        let since = Timestamp::from_second(since).ok();
        problems.push(Problem { file, ..Problem::new("certificate", text, since) });
    }
    for backend in &store.status.backends {
        let Some(saved) = &backend.saved else { continue };
        if let Some(error) = &saved.not_saved_because {
            let text = format!(
                "cannot save counters: limits are enforced, but a restart loses the latest hits: {error}"
            );
            let file = backend.address.clone();
            problems.push(Problem { file, ..Problem::new("disk", text, ago(saved.sync_age)) });
        }
    }
    problems
}

/// Returns that the store fails charges, or would.
fn store_problem(
    store: &StoreState,
    ago: impl Fn(Duration) -> Option<Timestamp>,
) -> Option<Problem> {
    let failures = store.status.failures.as_ref()?;
    let backends = &store.status.backends;
    let lasts = failures.failing_for?;
    let down = backends.iter().find(|backend| backend.down_because.is_some());
    let policy = failures.on_failure;
    let mut text = format!("the store failed: requests are answered by the policy {policy}");
    if let Some(error) = down.and_then(|backend| backend.down_because) {
        text += &format!(": {error}");
    }
    Some(Problem::new("store", text, ago(lasts)))
}

impl From<Rejected> for Problem {
    fn from(rejected: Rejected) -> Problem {
        let Rejected { text, file, line, column, errors, since } = rejected;
        let since = Timestamp::try_from(since).ok();
        let since = since.and_then(|since| Timestamp::from_second(since.as_second()).ok());
        let count = Some(errors);
        Problem { file, line, column, count, ..Problem::new("rules", text, since) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: &'static str, text: &str) -> Problem {
        Problem::new(kind, text.to_owned(), None)
    }

    #[test]
    fn errors_that_take_turns_are_one_problem() {
        for kind in VARYING_KINDS {
            let [timeout, closed] = ["failed: timeout", "failed: closed"];
            assert!(problem(kind, timeout).is_like(&problem(kind, closed)), "{kind}");
        }
        assert!(!problem("store", "failed").is_like(&problem("disk", "failed")));
        let of_file = |file: &str| Problem { file: Some(file.to_owned()), ..problem("disk", "") };
        assert!(!of_file("/a").is_like(&of_file("/b")));
    }

    #[test]
    fn other_texts_are_other_problems_but_for_their_numbers() {
        for kind in ["rules", "certificate"] {
            let [one, two, three] = ["ends in 3 d", "ends in 12 d", "has ended"];
            assert!(problem(kind, one).is_like(&problem(kind, two)), "{kind}");
            assert!(!problem(kind, two).is_like(&problem(kind, three)), "{kind}");
        }
    }
}
