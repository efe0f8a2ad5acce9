//! The types of a parsed file of `weir test`: the rules to load, the requests to send, and the responses to expect.

use std::path::PathBuf;
use std::rc::Rc;

use weir_api::headers::HeaderNames;
use weir_common::descriptor::DescriptorArg;
use weir_limit::{Micros, ReservationResult};
use weir_limiter::{LimiterOptions, Override, ReservationStep};
use weir_rules::Position;

#[derive(Debug, Default)]
pub(super) struct TestFile {
    pub rules: Vec<PathBuf>,
    pub overlay: Vec<PathBuf>,
    pub merge_domains: bool,
    pub response: ResponseOptions,
    pub tests: Vec<Test>,
}

/// The section `response` of a test file: the service's settings of the same name.
#[derive(Debug)]
pub(super) struct ResponseOptions {
    pub headers: bool,
    pub names: HeaderNames,
    pub retry_after: bool,
    pub ratelimit_fields: bool,
    pub limiter: LimiterOptions,
}

impl Default for ResponseOptions {
    /// All headers, so that tests can expect them without setting them up.
    fn default() -> ResponseOptions {
        ResponseOptions {
            headers: true,
            names: HeaderNames {
                limit: "RateLimit-Limit".to_owned(),
                remaining: "RateLimit-Remaining".to_owned(),
                reset: "RateLimit-Reset".to_owned(),
            },
            retry_after: true,
            ratelimit_fields: true,
            limiter: LimiterOptions::default(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Test {
    pub name: String,
    pub position: Position,
    pub start: Micros,
    pub steps: Vec<Step>,
}

/// One request, or several equal ones.
#[derive(Debug)]
pub(super) struct Step {
    pub position: Position,
    /// The time of the first request since the start.
    pub at: Micros,
    pub repeat: u32,
    pub every: Micros,
    pub domain: Rc<str>,
    /// The hits of each descriptor without its own; 0 if the request has no number.
    pub hits: u32,
    pub descriptors: Vec<DescriptorSpec>,
    /// What to do about a reservation of the descriptors, in place of taking hits: its id, and the step.
    pub reservation: Option<(String, ReservationStep)>,
    pub expect: Expect,
}

#[derive(Debug, Default)]
pub(super) struct DescriptorSpec {
    pub entries: DescriptorArg,
    pub hits: Option<u64>,
    pub refund: bool,
    pub limit: Option<Override>,
}

/// What the responses of a step should be. What is absent is not compared.
#[derive(Debug, Default)]
pub(super) struct Expect {
    /// The numbers of responses.
    pub ok: Option<u32>,
    pub over: Option<u32>,
    /// Whether the code of all responses is OVER_LIMIT.
    pub over_limit: Option<bool>,
    /// The status that headers show, in the last response.
    pub shown: ExpectedStatus,
    /// Names and values in the last response; no value: without such a header.
    pub headers: Vec<(String, Option<String>)>,
    /// The statuses of all descriptors in the last response.
    pub statuses: Vec<ExpectedStatus>,
}

#[derive(Debug, Default)]
pub(super) struct ExpectedStatus {
    pub over_limit: Option<bool>,
    pub remaining: Option<u32>,
    /// Seconds; none if no limit applies.
    pub reset: Option<Option<u64>>,
    /// The name; none if no limit applies.
    pub limit: Option<Option<String>>,
    /// The path in metrics; none if no rule applies.
    pub rule: Option<Option<String>>,
    /// The wait after a denial; none without one.
    pub retry: Option<Option<Micros>>,
    /// Whether a ban denies, or begins.
    pub banned: Option<bool>,
    pub result: Option<ReservationResult>,
    /// The hits that were reserved, or that were settled.
    pub reserved: Option<u32>,
}
