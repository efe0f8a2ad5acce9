//! Lists what operators should fix now (rejected rules, a failing store, a certificate that expires), for `/status`,
//! `/v1/status` and the change log.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::sources::Sources;
use super::store_state::StoreState;
use super::store_watch::{Counted, Failing, Severity, WINDOW};
use crate::net::tls::CertificateProblem;
use crate::rule_sources::loader::{Loader, Rejected, StreamLost};
use weir_common::duration::{exact, rounded};
use weir_controls::Unkept;
use weir_limit::{Micros, SECOND};
use weir_rules::source::settled_files::Unsettled;
use weir_store::{Late, Store, StoreError};

/// Kinds whose text quotes an error, or one domain of several: another text is the same problem. Also in `problems.js`.
pub(super) const VARYING_KINDS: [&str; 5] = ["store", "controls", "disk", "xds", "domain"];

/// The kinds in the order of harm, each with the alert whose runbook fits.
const KINDS: [(&str, &str); 10] = [
    ("no_rules", "WeirRulesRejected"),
    ("store", "WeirStoreErrors"),
    ("certificate", "WeirCertificateExpires"),
    ("controls", "WeirControlsMissing"),
    ("disk", "WeirDiskNotSaved"),
    ("rules", "WeirRulesRejected"),
    ("xds", "WeirManagementServerLost"),
    ("file", "WeirRulesUnread"),
    ("clock", "WeirClockStepped"),
    ("domain", "WeirUnknownDomain"),
];

/// How long a step of the wall clock is listed as a problem.
const STEP_SHOWN: Duration = Duration::from_secs(600);

/// When the first rules are due after the start, and the next stream of the management server after its end.
const RULES_DUE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    /// `rules`, `no_rules`, `xds`, `file`, `store`, `controls`, `certificate`, `disk`, `clock` or `domain`.
    pub kind: &'static str,
    pub severity: Severity,
    /// The problem in one sentence.
    pub text: String,
    /// The file, and the place in it, if that is a reason.
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    /// The number of errors of rules that are rejected.
    count: Option<usize>,
    /// When the problem began, as RFC 3339 writes it.
    since: String,
    /// The name of a runbook in docs/operations.md.
    runbook: &'static str,
    /// How long it has lasted, if the log repeats it.
    #[serde(skip)]
    pub logged_for: Option<Duration>,
}

impl Problem {
    pub fn new(kind: &'static str, text: String, since: Option<Timestamp>) -> Problem {
        let since = since.unwrap_or(Timestamp::UNIX_EPOCH).to_string();
        let severity = Severity::Critical;
        let (file, line, column, count, logged_for) = Default::default();
        let runbook = KINDS.iter().find(|(of, _)| *of == kind).map_or("", |(_, runbook)| runbook);
        Problem { kind, severity, text, file, line, column, count, since, runbook, logged_for }
    }

    /// Returns how little harm it does, compared with others.
    fn rank(&self) -> (Reverse<Severity>, Option<usize>) {
        (Reverse(self.severity), KINDS.iter().position(|(kind, _)| *kind == self.kind))
    }

    /// Returns whether the store fails charges, or cannot be reached.
    pub fn is_of_store(&self) -> bool {
        self.kind == "store"
    }

    /// Returns whether it is the same problem, although its times, numbers in its text and the errors of a
    /// store or a disk vary.
    pub fn is_like(&self, other: &Problem) -> bool {
        let place = |problem: &Problem| (problem.file.clone(), problem.line, problem.column);
        let words = |text: &str| text.replace(|char: char| char.is_ascii_digit(), "");
        let varies = VARYING_KINDS.contains(&self.kind);
        (self.kind, self.severity, self.count) == (other.kind, other.severity, other.count)
            && place(self) == place(other)
            && (varies || words(&self.text) == words(&other.text))
    }
}

/// Returns all problems, those that do the most harm first, with the store in this state.
pub(super) fn problems<S: Store>(sources: &Sources<S>, store: &StoreState) -> Vec<Problem> {
    let Sources { loader, controls, identities, watch, clock, limits_follow, .. } = sources;
    let now = controls.now();
    let ago = |ago: Duration| {
        let then = now.saturating_sub(Micros::try_from(ago.as_micros()).unwrap_or(Micros::MAX));
        time(then)
    };
    let mut problems = rule_problems(loader, sources.started.elapsed(), ago);
    for Unsettled { path, reason, since } in loader.unsettled() {
        let text =
            format!("{}: its last whole version stays in use, if there is one", reason.text());
        let file = Some(path.display().to_string());
        problems.push(Problem { file, ..Problem::new("file", text, ago(since.elapsed())) });
    }
    problems.extend(watch.failing().map(|failing| store_problem(store, failing)));
    if let Some((since, error)) = watch.unshared() {
        let text = format!(
            "controls are not shared: changes apply to this replica only, and controls of others may be missing: {error}"
        );
        let runbook = "WeirRedisConnectionDown";
        problems.push(Problem { runbook, ..Problem::new("controls", text, time(since)) });
    }
    for file in controls.damaged_files() {
        let text = "controls may be missing: controls.file was damaged at a start: put what is missing and \
                    delete what was kept of it";
        let file = Some(file.display().to_string());
        problems.push(Problem { file, ..Problem::new("controls", text.to_owned(), None) });
    }
    if let Some(Unkept { error, since }) = controls.unkept() {
        let text = format!("{}: {error}", unkept_text(controls.would_share()));
        let (severity, runbook) = (Severity::Warning, "WeirControlsNotKept");
        let problem = Problem::new("controls", text, time(since));
        problems.push(Problem { severity, runbook, ..problem });
    }
    if let Some((step, at)) = clock.last_step().filter(|(_, at)| at.elapsed() < STEP_SHOWN) {
        let problem = Problem::new("clock", step_text(step, limits_follow), ago(at.elapsed()));
        problems.push(Problem { severity: Severity::Warning, ..problem });
    }
    if let Some((domain, since)) = watch.unknown_domain() {
        let text = format!("no rules have the domain {domain}: requests with it are allowed");
        let problem = Problem::new("domain", text, time(since));
        problems.push(Problem { severity: Severity::Warning, ..problem });
    }
    for CertificateProblem { text, file, since, runbook } in identities.problems(now) {
        let since = Timestamp::from_second(since).ok();
        problems.push(Problem { file, runbook, ..Problem::new("certificate", text, since) });
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
    problems.sort_by_key(Problem::rank);
    problems
}

/// Returns what it means that the file of controls cannot be written.
fn unkept_text(is_shared: bool) -> &'static str {
    match is_shared {
        true => "the file of controls is outdated: only Redis keeps the latest changes",
        false => "controls are not kept: a restart loses what their file lacks",
    }
}

/// Returns how far the wall clock stepped, and which clock limits follow.
fn step_text(step: i64, limits_follow: &str) -> String {
    let direction = if step < 0 { "back" } else { "forward" };
    let far = rounded(step.unsigned_abs() / 1_000);
    format!("the wall clock stepped {direction} by {far}: limits follow {limits_follow}")
}

/// Returns the problems of the rules and of where they come from, `started` after the start.
fn rule_problems(
    loader: &Loader,
    started: Duration,
    ago: impl Fn(Duration) -> Option<Timestamp>,
) -> Vec<Problem> {
    let has_rules = loader.has_rules();
    let lasting = |kind, text: String, lasted| Problem {
        logged_for: Some(lasted),
        ..Problem::new(kind, text, ago(lasted))
    };
    let mut problems: Vec<Problem> = loader.rejected().map(Problem::from).collect();
    if !has_rules && (started >= RULES_DUE || !problems.is_empty()) {
        let text = "no rules are loaded: every request gets an error";
        problems.push(lasting("no_rules", text.to_owned(), started));
    }
    if let Some(StreamLost { since, reason }) = loader.stream_lost()
        && since.elapsed() >= RULES_DUE
    {
        let text = format!("no stream from the management server: {reason}");
        let severity = if has_rules { Severity::Warning } else { Severity::Critical };
        problems.push(Problem { severity, ..lasting("xds", text, since.elapsed()) });
    }
    problems
}

/// Returns the problem of a store that fails charges, or would.
fn store_problem(store: &StoreState, failing: Failing) -> Problem {
    let Failing { severity, since, counted, lasts } = failing;
    let Counted { charges, failed, reason, policies } = counted;
    let policy = match &policies[..] {
        [] => store.status.failures.as_ref().map_or("error", |failures| failures.on_failure).into(),
        policies => policies.join(" and "),
    };
    let text = match (failed, cause(store)) {
        (0, Some(cause)) => format!("{cause}: policy {policy} answers requests"),
        (_, cause) => {
            let seconds = WINDOW.as_secs();
            let text = format!(
                "{failed} of {charges} charges in {seconds} s failed; policy {policy} answered them"
            );
            match (cause, reason) {
                _ if !lasts => format!("{text}; {} answers again", name(store)),
                (Some(cause), _) => format!("{cause}: {text}"),
                (None, Some(reason)) => format!("{text}: {}", named(store, reason)),
                (None, None) => text,
            }
        }
    };
    let is_late = store.status.backends.iter().any(|backend| backend.late.is_some());
    let runbook = match reason {
        _ if !store.is_connected && is_late => "WeirRedisConnectionSlow",
        Some(StoreError::OutOfMemory) => "WeirRedisOutOfMemory",
        _ => "WeirStoreErrors",
    };
    Problem { severity, runbook, ..Problem::new("store", text, time(since)) }
}

/// Returns why no charge reaches the store, in words; none if some do.
pub(super) fn cause(store: &StoreState) -> Option<String> {
    if store.is_connected {
        return None;
    }
    let name = name(store);
    let down = store.status.backends.iter().find(|backend| backend.down_because.is_some());
    Some(match down.map(|backend| (backend.late, backend.down_because)) {
        Some((Some(Late { after: Some(after), slow_after }), _)) => format!(
            "{name} answers in {}, later than store.redis.slow_after allows ({})",
            rounded(after.as_millis() as u64),
            exact(slow_after)
        ),
        Some((Some(Late { after: None, slow_after }), _)) => {
            format!("{name} does not answer within store.redis.slow_after ({})", exact(slow_after))
        }
        None | Some((None, None | Some(StoreError::Unavailable | StoreError::TimedOut))) => {
            format!("{name} does not answer")
        }
        Some((None, Some(error))) => named(store, error),
    })
}

/// Returns what a sentence calls the store.
fn name(store: &StoreState) -> &'static str {
    let is_redis = store.status.backends.iter().any(|backend| backend.kind == "redis");
    if is_redis { "Redis" } else { "the store" }
}

/// Returns an error of the store that calls it by its name.
pub(super) fn named(store: &StoreState, error: StoreError) -> String {
    let mut text = error.to_string().replace("the store", name(store));
    if error == StoreError::TimedOut {
        let took = store.status.backends.iter().find_map(|backend| backend.late?.after);
        text.extend(took.map(|took| format!(" but in {}", rounded(took.as_millis() as u64))));
        text += " (settings store.budget and store.redis.slow_after)";
    }
    text
}

impl From<Rejected> for Problem {
    fn from(rejected: Rejected) -> Problem {
        let Rejected { text, file, line, column, errors, since } = rejected;
        let since = Timestamp::try_from(since).ok();
        let since = since.and_then(|since| Timestamp::from_second(since.as_second()).ok());
        Problem { file, line, column, count: Some(errors), ..Problem::new("rules", text, since) }
    }
}

fn time(time: Micros) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(time / SECOND).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use std::sync::Arc;
    use weir_rules::source::RuleFile;
    use weir_store::{BackendStatus, StoreStatus};

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
    fn problems_that_do_the_most_harm_come_first() {
        let problem_of = |severity, kind| Problem { severity, ..problem(kind, "") };
        let mut problems = [
            problem_of(Severity::Warning, "store"),
            problem_of(Severity::Critical, "rules"),
            problem_of(Severity::Critical, "controls"),
            problem_of(Severity::Critical, "store"),
            problem_of(Severity::Warning, "controls"),
        ];
        problems.sort_by_key(Problem::rank);
        assert_eq!(
            problems.map(|problem| (problem.severity, problem.kind)),
            [
                (Severity::Critical, "store"),
                (Severity::Critical, "controls"),
                (Severity::Critical, "rules"),
                (Severity::Warning, "store"),
                (Severity::Warning, "controls"),
            ]
        );
    }

    #[test]
    fn rules_that_are_rejected_at_the_start_leave_none() {
        let health = Arc::new(Health::new(Default::default()));
        let loader = Loader::new(Arc::default(), weir_rules::RuleOptions::default(), health);
        let load = |text: &str| {
            let file = RuleFile { name: "rules.yaml".into(), text: text.into() };
            let is_loaded = loader.load(vec![file], Vec::new()).is_ok();
            let mut problems = rule_problems(&loader, Duration::ZERO, |_| None);
            problems.sort_by_key(Problem::rank);
            let logged = problems.iter().filter(|problem| problem.logged_for.is_some()).count();
            (is_loaded, problems.iter().map(|problem| problem.kind).collect::<Vec<_>>(), logged)
        };
        assert_eq!(load("domain: d\nuint: day\n"), (false, vec!["no_rules", "rules"], 1));
        assert_eq!(load("domain: d\n"), (true, vec![], 0));
        assert_eq!(load("domain: d\nuint: day\n"), (false, vec!["rules"], 0));
    }

    #[test]
    fn a_step_of_the_clock_names_the_clock_of_limits() {
        let text = step_text(120_000_000, "it");
        assert_eq!(text, "the wall clock stepped forward by 2m: limits follow it");
        let text = step_text(-500_000, "the clock of Redis");
        assert!(text.contains("back by ") && text.ends_with("follow the clock of Redis"), "{text}");
    }

    #[test]
    fn controls_that_redis_keeps_outlive_a_restart() {
        assert!(unkept_text(false).contains("a restart loses what their file lacks"));
        assert!(unkept_text(true).contains("only Redis keeps the latest changes"));
    }

    #[test]
    fn every_problem_has_the_runbook_of_an_alert() {
        let alerts = include_str!("../../../alerts/weir.rules.yaml");
        let source = include_str!("problems.rs").split("mod tests").next().unwrap();
        let source = source.to_owned() + include_str!("../../net/tls/identities.rs");
        let names: Vec<&str> = source.split('"').filter(|text| text.starts_with("Weir")).collect();
        assert!(names.len() > 8, "{names:?}");
        for name in names {
            assert!(alerts.contains(&format!("- alert: {name}\n")), "{name}");
            let runbook = crate::http::operators::debug::runbook(name);
            assert!(runbook.starts_with(name) && runbook.len() < 3_000, "{runbook}");
        }
    }

    #[test]
    fn a_store_that_fails_is_a_sentence_with_numbers() {
        let text = |is_connected: bool,
                    (failed, charges): (u64, u64),
                    policies: &[&'static str],
                    lasts| {
            let down_because = Some(StoreError::TimedOut).filter(|_| !is_connected);
            let redis = BackendStatus { kind: "redis", down_because, ..BackendStatus::default() };
            let status = StoreStatus { backends: vec![redis], failures: None };
            let reason = (failed > 0).then_some(StoreError::TimedOut);
            let counted = Counted { charges, failed, reason, policies: policies.to_vec() };
            let failing = Failing { severity: Severity::Warning, since: SECOND, counted, lasts };
            let problem = store_problem(&StoreState { is_connected, status }, failing);
            assert_eq!((problem.since.as_str(), problem.kind), ("1970-01-01T00:00:01Z", "store"));
            problem.text
        };
        for (got, wanted) in [
            (
                text(true, (2, 540), &["error"], true),
                "2 of 540 charges in 10 s failed; policy error answered them: Redis did not answer in time (settings store.budget and store.redis.slow_after)",
            ),
            (
                text(true, (2, 540), &["error", "allow"], false),
                "2 of 540 charges in 10 s failed; policy error and allow answered them; Redis answers again",
            ),
            (
                text(false, (518, 540), &["deny"], true),
                "Redis does not answer: 518 of 540 charges in 10 s failed; policy deny answered them",
            ),
            (
                text(false, (0, 0), &[], true),
                "Redis does not answer: policy error answers requests",
            ),
        ] {
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn a_late_answer_has_its_time_and_the_settings() {
        let (after, slow_after) = (Some(Duration::from_millis(31)), Duration::from_millis(20));
        let late = Some(Late { after, slow_after });
        let redis = BackendStatus { kind: "redis", late, ..BackendStatus::default() };
        let status = StoreStatus { backends: vec![redis], failures: None };
        let store = StoreState { is_connected: true, status };
        assert_eq!(
            named(&store, StoreError::TimedOut),
            "Redis did not answer in time but in 31ms (settings store.budget and store.redis.slow_after)"
        );
        assert_eq!(named(&store, StoreError::OutOfMemory), "Redis has no room left");
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
