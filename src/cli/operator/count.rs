//! `weir count`: counts the hits of one key over any recent time.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::api_client::ApiClient;
use super::state::{KeyArgs, print_key};
use crate::cli::print::{Column, table};
use crate::http::operators::v1::messages::Counts;
use weir_common::duration::{read_duration, rounded};
use weir_limiter::{CountResult, CountedSpan};

const EXAMPLES: &str = "\
Examples:
  weir count -d shop user=ann --span 5m,1h

Only limits with the algorithms sliding_log and bucketed_window count hits over spans. A hit may be counted for a while
after it has left the span: the column LATE has for how long at most. No hit is missing.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CountArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// How far back to count, up to the longest period of the rule; several with commas: 5m,1h.
    #[arg(long, value_name = "DURATION", required = true, value_delimiter = ',')]
    #[arg(value_parser = parse_span)]
    span: Vec<String>,
}

/// Prints the hits of each span.
pub fn run(args: &CountArgs) -> ExitCode {
    let answer = args.key.path("/v1/count", &[("span", &args.span.join(","))]);
    let answer = answer.and_then(|path| ApiClient::new(&args.key.server)?.get(&path));
    args.key.output.show(answer, print_counts)
}

fn print_counts(answer: &Counts, out: &mut dyn Write) -> io::Result<()> {
    const COLUMNS: [Column; 4] = [
        Column::Right("SPAN"),
        Column::Right("HITS"),
        Column::Right("LATE"),
        Column::Left("COUNTED BY"),
    ];
    print_key(&answer.domain, &answer.entries, answer.rule.as_ref(), out)?;
    let row = |CountedSpan { span_ms, result }: &CountedSpan| {
        let [hits, late, by] = match result {
            CountResult::Failed { error } => ["unknown".to_owned(), String::new(), error.clone()],
            CountResult::Counted { count, max_late_ms, is_minimum, algorithm, .. } => {
                let least = if *is_minimum { ">= " } else { "" };
                [format!("{least}{count}"), rounded(*max_late_ms), algorithm.clone()]
            }
        };
        vec![rounded(*span_ms), hits, late, by]
    };
    let rows: Vec<Vec<String>> = answer.counts.iter().map(row).collect();
    table(out, 2, &COLUMNS, &rows)
}

fn parse_span(text: &str) -> Result<String, String> {
    match read_duration(text).is_some_and(|span| !span.is_zero()) {
        true => Ok(text.to_owned()),
        false => Err("write durations such as 5m or 1h30m, with commas between them".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_span_has_a_row() {
        let answer = json!({
            "domain": "shop", "entries": [{ "key": "user", "value": "ann" }], "rule": null, "key": "k",
            "counts": [
                { "span_ms": 300_000, "count": 7, "resolution_ms": 0, "max_late_ms": 0,
                  "is_minimum": false, "limit": 0, "algorithm": "sliding_log" },
                { "span_ms": 3_600_000, "count": 12, "resolution_ms": 1_500, "max_late_ms": 1_500,
                  "is_minimum": true, "limit": 1, "algorithm": "bucketed_window" },
                { "span_ms": 86_400_000, "error": "too long" },
            ],
        });
        let mut out = Vec::new();
        print_counts(&serde_json::from_value(answer).unwrap(), &mut out).unwrap();
        let wanted = "\
shop: user=ann
  no rule
  SPAN     HITS  LATE  COUNTED BY
    5m        7    0s  sliding_log
    1h    >= 12    2s  bucketed_window
    1d  unknown        too long
";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn spans_are_durations_above_zero() {
        assert_eq!(parse_span("1h30m").unwrap(), "1h30m");
        for wrong in ["", "0", "5", "-1m"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }
}
