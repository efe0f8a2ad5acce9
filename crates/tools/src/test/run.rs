//! Runs the tests of one file of `weir test`: each with its own simulated clock and memory store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::compare::{Response, Responses, Status, compare};
use super::file::{ResponseOptions, Step, Test, TestFile};
use super::read::read;
use super::report::{Difference, Failure, FileReport, TestReport};
use weir_api::headers::{HeaderOptions, headers};
use weir_common::clock::ManualClock;
use weir_common::suggest::Suggester;
use weir_limit::{Micros, SECOND};
use weir_limiter::{
    Budget, Descriptor, Holds, Limiter, Request, RequestDecision, RequestError, TakenHolds,
};
use weir_rules::source::{RuleFile, Selection};
use weir_rules::{Document, Loaded, Problem, Problems, RuleOptions, RuleSet, Severity};
use weir_store::recording::RecordingStore;
use weir_store::{Answer, Entry, StoreError};

/// The most failed steps of a test that are listed.
const MAX_FAILURES: usize = 20;

/// The fewest keys that the memory store has room for. It has room for four times the keys of a test: no shard is full.
const MIN_KEYS: usize = 1 << 14;

const MILLISECOND: Micros = SECOND / 1_000;

/// Runs the tests of a file; with `filter`, only those whose names contain it. `selection` and `options` say how to
/// find and read the rule files.
pub(super) fn run_file(
    file: RuleFile,
    filter: Option<&str>,
    selection: &Selection,
    options: &RuleOptions,
) -> FileReport {
    let mut problems = Problems::new(options.max_problems);
    // A warning is about further documents, whose tests would not run.
    let tree =
        file.tree(&mut |problem| problems.push(Problem { severity: Severity::Error, ..problem }));
    let read = match tree {
        Ok(root) => read(&file.name, root.as_ref(), &mut problems),
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    problems.sort_file();
    let (is_valid, (problems, omitted)) = (!problems.has_errors(), problems.into_parts());
    let Some(mut tests) = read.filter(|_| is_valid) else {
        return FileReport::broken(file.name.clone(), problems, omitted, vec![file]);
    };
    if let Some(filter) = filter {
        tests.tests.retain(|test| test.name.contains(filter));
    }
    if tests.tests.is_empty() {
        return FileReport::default();
    }
    let rules = load(&tests, selection, options);
    if !rules.is_good() {
        return FileReport::broken(file.name, rules.problems, rules.omitted, rules.files);
    }
    let (mut suggester, mut reached) = (Suggester::default(), HashSet::new());
    let run = |test| run_test(test, &rules.rules, &tests.response, &mut suggester, &mut reached);
    let runs = tests.tests.into_iter().map(run).collect();
    let all = rules.rules.rules().filter(|_| filter.is_none());
    let rules =
        all.map(|rule| (format!("{} ({})", rule.name, rule.origin), reached.contains(&*rule.name)));
    FileReport { name: file.name, tests: runs, rules: rules.collect(), ..FileReport::default() }
}

fn load(tests: &TestFile, selection: &Selection, options: &RuleOptions) -> Loaded {
    let selection = Selection { roots: tests.rules.clone(), ..selection.clone() };
    let options = RuleOptions { merge_domains: tests.merge_domains, ..options.clone() };
    if tests.overlay.is_empty() {
        return Loaded::read(&selection, &options, None);
    }
    let overlay = Selection { roots: tests.overlay.clone(), ..selection.clone() };
    Loaded::read_patched(&selection, &overlay, &options)
}

fn run_test<'r>(
    test: Test,
    rules: &'r RuleSet,
    response: &ResponseOptions,
    suggester: &mut Suggester,
    reached: &mut HashSet<&'r str>,
) -> TestReport {
    let mut bench = Bench::new(&test, rules, response);
    let mut report =
        TestReport { name: test.name, position: test.position, failures: Vec::new(), omitted: 0 };
    for (i, step) in test.steps.iter().enumerate() {
        let mut differences = match bench.run(step) {
            Ok(responses) => compare(&step.expect, &responses),
            Err(error) => vec![Difference::new("response", "a decision", error.to_string())],
        };
        if differences.is_empty() {
            continue;
        }
        if report.failures.len() >= MAX_FAILURES {
            report.omitted += 1;
            continue;
        }
        differences.splice(0..0, unknown_domain(step, rules, suggester));
        let (position, at) = (step.position, step.at);
        report.failures.push(Failure { position, step: i + 1, at, differences });
    }
    reached.extend(bench.reached);
    report
}

/// Returns the probable cause of differences: no rules have the domain. It is no difference by itself,
/// because a test may expect that nothing applies, or send limits of its own.
fn unknown_domain(step: &Step, rules: &RuleSet, suggester: &mut Suggester) -> Option<Difference> {
    let needs_rules = step.descriptors.iter().any(|descriptor| descriptor.limit.is_none());
    if !needs_rules || rules.domain(&step.domain).is_some() {
        return None;
    }
    let near = rules.nearest_domain(&step.domain, suggester);
    let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
    let actual = format!("'{}', which has none{near}", step.domain);
    Some(Difference::new("domain", "one with rules", actual))
}

struct Bench<'r> {
    rules: &'r RuleSet,
    limiter: Limiter<RecordingStore>,
    clock: Arc<ManualClock>,
    start: Micros,
    headers: HeaderOptions,
    /// The names of the rules that have decided.
    reached: HashSet<&'r str>,
}

impl<'r> Bench<'r> {
    fn new(test: &Test, rules: &'r RuleSet, response: &ResponseOptions) -> Bench<'r> {
        let clock = Arc::new(ManualClock::new(test.start));
        let keys: usize = test.steps.iter().map(|step| step.descriptors.len()).sum();
        let store = RecordingStore::new(clock.clone(), keys.saturating_mul(4).max(MIN_KEYS), true);
        let limiter = Limiter::new(store, response.limiter.clone());
        let headers = HeaderOptions {
            names: response.headers.then(|| response.names.clone()),
            reset_clock: None,
            retry_after: response.retry_after,
            ratelimit_fields: response.ratelimit_fields,
        };
        let (start, reached) = (test.start, HashSet::new());
        Bench { rules, limiter, clock, start, headers, reached }
    }

    /// Returns the responses; an error if the request is invalid, and has none.
    fn run(&mut self, step: &Step) -> Result<Responses, RequestError> {
        let entries: Vec<Vec<Entry<'_>>> =
            step.descriptors.iter().map(|spec| spec.entries.entries()).collect();
        let budget = step.reservation.as_ref().map(|(id, step)| Budget { id, step: *step });
        let descriptors: Vec<Descriptor<'_>> = std::iter::zip(&step.descriptors, &entries)
            .map(|(spec, entries)| Descriptor {
                entries,
                limit: spec.limit,
                hits_addend: spec.hits,
                is_negative_hits: spec.refund,
                budget: budget.as_ref(),
            })
            .collect();
        let request = Request {
            domain: &step.domain,
            descriptors: &descriptors,
            hits_addend: step.hits,
            ..Request::default()
        };
        let mut responses = Responses::default();
        let mut now = self.start.saturating_add(step.at);
        for number in 1..=step.repeat {
            self.clock.set(now);
            let decision = self.decide(&request)?;
            let over = decision.over_limit;
            *if over { &mut responses.over } else { &mut responses.ok } += 1;
            if step.expect.over_limit.is_some_and(|expected| expected != over) {
                responses.first_unexpected.get_or_insert(number);
            }
            if number == step.repeat {
                let rules = decision.statuses.iter().filter_map(|status| status.rule);
                self.reached.extend(rules.map(|rule| &*rule.name));
                responses.last = self.response(&request, &decision);
            }
            now = now.saturating_add(step.every);
        }
        Ok(responses)
    }

    fn decide(&self, request: &Request<'_>) -> Result<RequestDecision<'r>, RequestError> {
        self.limiter.store().answers().clear();
        // Holds are not released: in a test no caller disconnects.
        let (timeout, mut holds) = (Duration::from_secs(1), Holds::default());
        let deciding = self.limiter.decide(Some(self.rules), request, timeout, &mut holds);
        let decided = deciding.now_or_never();
        if let Some(denied) = holds.as_mut().and_then(TakenHolds::denied) {
            denied.release(self.limiter.store()).now_or_never();
        }
        decided.unwrap_or(Err(RequestError::Store(StoreError::Unavailable)))
    }

    fn response(&self, request: &Request<'_>, decision: &RequestDecision<'_>) -> Response {
        let shown = decision.shown().and_then(|(shown, _)| {
            decision.statuses.iter().position(|status| std::ptr::eq(status, shown))
        });
        let answers = self.limiter.store().answers();
        // Only descriptors with a limit are charged.
        let mut answers = answers.iter();
        let statuses = std::iter::zip(&decision.statuses, request.descriptors)
            .map(|(status, descriptor)| {
                let answer = status.limit.and_then(|_| answers.next());
                self.status(request.domain, status, descriptor, answer)
            })
            .collect();
        let headers = headers(&self.headers, decision);
        Response {
            shown: shown.unwrap_or_default(),
            statuses,
            headers: headers.into_iter().map(|header| (header.key, header.value)).collect(),
        }
    }

    fn status(
        &self,
        domain: &str,
        status: &weir_limiter::Status<'_>,
        descriptor: &Descriptor<'_>,
        answer: Option<&Answer>,
    ) -> Status {
        let answer = answer.and_then(|answer| answer.as_ref().ok());
        let wait = answer.and_then(|answer| answer.retry_after);
        Status {
            over_limit: status.over_limit,
            remaining: status.remaining,
            reset: status.limit.map(|_| status.reset_seconds()),
            limit: status.limit.map(|limit| limit.name.to_owned()),
            rule: self.metric_path(domain, status, descriptor),
            banned: answer.is_some_and(|answer| answer.banned),
            result: status.reservation,
            reserved: status.reserved,
            // A fraction of a millisecond is rounded up, so that the wait is long enough.
            retry: wait
                .filter(|_| status.over_limit)
                .map(|wait| wait.div_ceil(MILLISECOND).saturating_mul(MILLISECOND)),
        }
    }

    /// The path in metrics of what decided a descriptor; none if no rule did.
    fn metric_path(
        &self,
        domain: &str,
        status: &weir_limiter::Status<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Option<String> {
        let domain = self.rules.domain(domain)?;
        if descriptor.limit.is_some() {
            return Some(domain.override_path(descriptor.entries));
        }
        Some(domain.metric_path(status.rule?, descriptor.entries))
    }
}
