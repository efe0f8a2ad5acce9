//! Prints the responses that `weir hit` receives, and how many requests were OK, over the limit or failed.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use tonic::Status;

use crate::print::{counted, on_stderr};
use weir_api::json;
use weir_api::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_api::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use weir_api::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use weir_api::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir_common::duration::rounded;
use weir_common::escape::escape;

/// The exit code if a request is over its limit.
const OVER_LIMIT: u8 = 3;

const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";
const RESET: &str = "\u{1b}[0m";

#[derive(Debug, Default)]
pub(super) struct Results {
    ok: u64,
    over_limit: u64,
    errors: u64,
}

impl Results {
    pub fn count(&mut self, answer: &Result<RateLimitResponse, Status>) {
        match answer.as_ref().map(RateLimitResponse::overall_code) {
            Ok(Code::Ok) => self.ok += 1,
            Ok(Code::OverLimit) => self.over_limit += 1,
            // No server sends it.
            Ok(Code::Unknown) | Err(_) => self.errors += 1,
        }
    }

    pub fn requests(&self) -> u64 {
        self.ok + self.over_limit + self.errors
    }

    /// Returns 1 if a request failed, or none has a result; 3 if one is over its limit.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Results { errors: 0, over_limit: 0, ok: 1.. } => ExitCode::SUCCESS,
            Results { errors: 0, over_limit: 1.., .. } => ExitCode::from(OVER_LIMIT),
            _ => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Results { ok, over_limit, errors } = self;
        let requests = counted(self.requests(), "request");
        write!(f, "{requests}: {ok} OK, {over_limit} over limit, {errors} errors")
    }
}

#[derive(Debug)]
pub(super) struct TextReport<'r> {
    pub request: &'r RateLimitRequest,
    /// Whether there is one request, whose response is printed whole.
    pub is_single: bool,
    pub colors: bool,
}

impl TextReport<'_> {
    pub fn print(&self, number: u64, response: &RateLimitResponse) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.is_single {
            true => self.whole(response, &mut out),
            false => writeln!(out, "{}", self.line(number, response)),
        }
    }

    fn code(&self, code: Code, padded: usize) -> String {
        let text = format!("{:padded$}", code.as_str_name());
        match code {
            _ if !self.colors => text,
            Code::Ok => format!("{GREEN}{text}{RESET}"),
            Code::OverLimit | Code::Unknown => format!("{RED}{text}{RESET}"),
        }
    }

    /// Prints a response with all statuses and headers.
    fn whole(&self, response: &RateLimitResponse, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.code(response.overall_code(), 0))?;
        let names: Vec<String> = self.request.descriptors.iter().map(name).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        for (at, status) in response.statuses.iter().enumerate() {
            let name = names.get(at).map(String::as_str).unwrap_or_default();
            let code = self.code(status.code(), Code::OverLimit.as_str_name().len());
            writeln!(out, "  {name:width$}  {code}  {}", limit(status))?;
        }
        for header in &response.response_headers_to_add {
            let value = match header.value.is_empty() {
                true => String::from_utf8_lossy(&header.raw_value),
                false => header.value.as_str().into(),
            };
            writeln!(out, "  {}: {}", escape(&header.key), escape(&value))?;
        }
        Ok(())
    }

    /// Returns a response as one line, with the status that decides it.
    fn line(&self, number: u64, response: &RateLimitResponse) -> String {
        let code = self.code(response.overall_code(), Code::OverLimit.as_str_name().len());
        let statuses = response.statuses.iter().enumerate();
        let deciding = statuses.min_by_key(|(_, status)| {
            let is_over = status.code() == Code::OverLimit;
            (!is_over, status.current_limit.is_none(), status.limit_remaining)
        });
        let deciding = deciding.map(|(at, status)| {
            let name = self.request.descriptors.get(at).map(name).unwrap_or_default();
            format!("  {name}  {}", limit(status))
        });
        format!("{number}  {code}{}", deciding.unwrap_or_default())
    }
}

/// Prints a response as the JSON of the API, in one line.
pub(super) fn print_json(response: &RateLimitResponse) -> io::Result<()> {
    let json = json::encode(response).map_err(io::Error::other)?;
    writeln!(io::stdout(), "{}", escape(&String::from_utf8_lossy(&json)))
}

pub(super) fn print_error(number: Option<u64>, error: &Status) {
    let number = number.map(|number| format!("{number}  ")).unwrap_or_default();
    on_stderr(&format!("{number}error: {:?}: {}", error.code(), error.message()));
}

/// Returns a descriptor as its argument has it, in one line.
fn name(descriptor: &RateLimitDescriptor) -> String {
    let entries = descriptor.entries.iter();
    let entries: Vec<String> =
        entries.map(|entry| format!("{}={}", entry.key, entry.value)).collect();
    escape(&entries.join(",")).into_owned()
}

fn shown(time: Duration) -> String {
    rounded(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn limit(status: &DescriptorStatus) -> String {
    let reset = status.duration_until_reset.and_then(|reset| Duration::try_from(reset).ok());
    let Some(limit) = &status.current_limit else {
        return match (status.code(), reset) {
            (Code::OverLimit, Some(left)) => format!("blocked for {}", shown(left)),
            (Code::OverLimit, None) => "blocked".to_owned(),
            _ => "no limit".to_owned(),
        };
    };
    let name = match limit.name.as_str() {
        "" => String::new(),
        name => format!("{}: ", escape(name)),
    };
    let unit = limit.unit().as_str_name().to_ascii_lowercase();
    let period = match (limit.unit(), limit.unit_multiplier) {
        (Unit::Unknown, _) => "at once".to_owned(),
        (_, None | Some(0 | 1)) => format!("per {unit}"),
        (_, Some(multiplier)) => format!("per {multiplier} {unit}s"),
    };
    let reset = reset.map(|reset| format!(", reset in {}", shown(reset))).unwrap_or_default();
    let (requests, remaining) = (limit.requests_per_unit, status.limit_remaining);
    format!("{name}{requests} {period}, {remaining} remaining{reset}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api::proto::envoy::config::core::v3::HeaderValue;
    use weir_api::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use weir_api::proto::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;

    fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
        let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
        RateLimitDescriptor { entries, ..Default::default() }
    }

    fn response() -> RateLimitResponse {
        let limit = RateLimit {
            name: "lo\ngin".to_owned(),
            requests_per_unit: 5,
            unit: Unit::Minute.into(),
            unit_multiplier: Some(15),
        };
        let over = DescriptorStatus {
            code: Code::OverLimit.into(),
            current_limit: Some(limit),
            duration_until_reset: Some(prost_types::Duration { seconds: 42, nanos: 0 }),
            ..Default::default()
        };
        let none = DescriptorStatus { code: Code::Ok.into(), ..Default::default() };
        let header = HeaderValue {
            key: "Retry-After".to_owned(),
            value: "42\u{1b}[31m".to_owned(),
            ..Default::default()
        };
        RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![none, over],
            response_headers_to_add: vec![header],
            ..Default::default()
        }
    }

    fn request() -> RateLimitRequest {
        let descriptors = vec![descriptor("a", "1"), descriptor("user", "ann\r")];
        RateLimitRequest { descriptors, ..Default::default() }
    }

    #[test]
    fn a_response_has_a_line_for_each_status_and_header() {
        let request = request();
        let report = TextReport { request: &request, is_single: true, colors: false };
        let mut out = Vec::new();
        report.whole(&response(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "OVER_LIMIT
  a=1         OK          no limit
  user=ann\\r  OVER_LIMIT  lo\\ngin: 5 per 15 minutes, 0 remaining, reset in 42s
  Retry-After: 42\\u001b[31m
"
        );
    }

    #[test]
    fn errors_outweigh_denials() {
        let code = |ok, over_limit, errors| {
            format!("{:?}", Results { ok, over_limit, errors }.exit_code())
        };
        let exit = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(2, 0, 0), exit(0));
        assert_eq!(code(2, 1, 0), exit(3));
        assert_eq!(code(2, 1, 1), exit(1));
        assert_eq!(code(0, 0, 0), exit(1));
        let results = Results { ok: 2, over_limit: 1, errors: 0 };
        assert_eq!(results.to_string(), "3 requests: 2 OK, 1 over limit, 0 errors");
    }

    #[test]
    fn a_denial_without_a_limit_is_a_block() {
        let duration = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let status = |code: Code, duration_until_reset| DescriptorStatus {
            code: code.into(),
            duration_until_reset,
            ..Default::default()
        };
        assert_eq!(limit(&status(Code::OverLimit, duration(90))), "blocked for 1m30s");
        assert_eq!(limit(&status(Code::OverLimit, None)), "blocked");
        assert_eq!(limit(&status(Code::Ok, None)), "no limit");
    }

    #[test]
    fn a_line_has_the_deciding_status_and_colors_only_if_wanted() {
        let request = request();
        let line = |colors| {
            TextReport { request: &request, is_single: false, colors }.line(7, &response())
        };
        let plain = "7  OVER_LIMIT  user=ann\\r  \
                     lo\\ngin: 5 per 15 minutes, 0 remaining, reset in 42s";
        assert_eq!(line(false), plain);
        let colored = plain.replace("OVER_LIMIT", &format!("{RED}OVER_LIMIT{RESET}"));
        assert_eq!(line(true), colored);
    }
}
