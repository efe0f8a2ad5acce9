//! Prints what happens to requests.

use std::io::{self, Write};
use std::time::Duration;

use tonic::Status;

use super::summary::millis;
use crate::http::clients::encode_json;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir_common::duration::exact;
use weir_common::escape::escape;

const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";
const RESET: &str = "\u{1b}[0m";

/// What happens to a request.
#[derive(Debug)]
pub(super) enum Event<'e> {
    Response { number: u64, latency: Duration, response: &'e RateLimitResponse },
    Error { number: u64, error: &'e Status },
    Wait { wait: Duration },
    NoRetry { number: u64, reason: &'e str },
}

/// Prints events.
pub(super) trait Report {
    /// # Errors
    /// Standard output cannot be written. Errors of standard error are ignored.
    fn event(&mut self, event: Event<'_>) -> io::Result<()>;
}

/// Prints events as text.
#[derive(Debug)]
pub(super) struct TextReport<'r> {
    pub request: &'r RateLimitRequest,
    pub is_single: bool,
    pub is_quiet: bool,
    pub colors: bool,
}

impl Report for TextReport<'_> {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Error { number, error } => print_error(number, self.is_single, error),
            _ if self.is_quiet => {}
            Event::Response { response, .. } if self.is_single => {
                self.whole(response, &mut io::stdout().lock())?;
            }
            Event::Response { number, latency, response } => {
                let line = self.line(number, latency, response);
                writeln!(io::stdout(), "{line}")?;
            }
            Event::Wait { wait } => print_note(&format!("waiting {}", exact(wait))),
            Event::NoRetry { reason, .. } if self.is_single => {
                print_note(&format!("not retried: {reason}"));
            }
            Event::NoRetry { number, reason } => {
                print_note(&format!("{number}  not retried: {reason}"));
            }
        }
        Ok(())
    }
}

impl TextReport<'_> {
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
    fn line(&self, number: u64, latency: Duration, response: &RateLimitResponse) -> String {
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
        format!("{number}  {code}  {}{}", millis(latency), deciding.unwrap_or_default())
    }
}

/// Prints each response as the JSON of the API, one a line.
#[derive(Debug)]
pub(super) struct JsonReport {
    pub is_quiet: bool,
}

impl Report for JsonReport {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Error { number, error } => print_error(number, false, error),
            Event::Response { response, .. } if !self.is_quiet => match encode_json(response) {
                Ok(json) => {
                    let json = String::from_utf8_lossy(&json);
                    writeln!(io::stdout(), "{}", escape(&json))?;
                }
                Err(error) => print_note(&format!("error: {}", escape(&error))),
            },
            Event::Response { .. } | Event::Wait { .. } | Event::NoRetry { .. } => {}
        }
        Ok(())
    }
}

fn print_error(number: u64, is_single: bool, error: &Status) {
    let (code, message) = (error.code(), escape(error.message()));
    match is_single {
        true => print_note(&format!("error: {code:?}: {message}")),
        false => print_note(&format!("{number}  error: {code:?}: {message}")),
    }
}

/// Prints to standard error, which may be closed.
fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns a descriptor as its argument has it, in one line.
fn name(descriptor: &RateLimitDescriptor) -> String {
    let entries = descriptor.entries.iter();
    let entries: Vec<String> =
        entries.map(|entry| format!("{}={}", entry.key, entry.value)).collect();
    escape(&entries.join(",")).into_owned()
}

/// Returns the limit of a status and its state.
fn limit(status: &DescriptorStatus) -> String {
    let reset = status.duration_until_reset.and_then(|reset| Duration::try_from(reset).ok());
    let Some(limit) = &status.current_limit else {
        return match (status.code(), reset) {
            (Code::OverLimit, Some(left)) => format!("blocked for {}", exact(left)),
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
    let reset = reset.map(|reset| format!(", reset in {}", exact(reset))).unwrap_or_default();
    let (requests, remaining) = (limit.requests_per_unit, status.limit_remaining);
    format!("{name}{requests} {period}, {remaining} remaining{reset}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::config::core::v3::HeaderValue;
    use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;

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
        let report =
            TextReport { request: &request, is_single: true, is_quiet: false, colors: false };
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
    fn a_denial_without_a_limit_is_a_block() {
        let duration = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let status = |code: Code, duration_until_reset| DescriptorStatus {
            code: code.into(),
            duration_until_reset,
            ..Default::default()
        };
        assert_eq!(limit(&status(Code::OverLimit, duration(90))), "blocked for 90s");
        assert_eq!(limit(&status(Code::OverLimit, None)), "blocked");
        assert_eq!(limit(&status(Code::Ok, None)), "no limit");
    }

    #[test]
    fn a_line_has_the_deciding_status_and_colors_only_if_wanted() {
        let request = request();
        let line = |colors| {
            let report =
                TextReport { request: &request, is_single: false, is_quiet: false, colors };
            report.line(7, Duration::from_micros(310), &response())
        };
        let plain = "7  OVER_LIMIT  0.31ms  user=ann\\r  \
                     lo\\ngin: 5 per 15 minutes, 0 remaining, reset in 42s";
        assert_eq!(line(false), plain);
        let colored = plain.replace("OVER_LIMIT", &format!("{RED}OVER_LIMIT{RESET}"));
        assert_eq!(line(true), colored);
    }
}
