//! `weir count`: counts the hits of one key over any recent time.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::api_client::ApiClient;
use super::print::{Column, list, number, table, text};
use super::state::{KeyArgs, print_key};
use weir_common::duration::{read_duration, rounded};

const EXAMPLES: &str = "\
Examples:
  weir count -d shop user=ann --span 5m,1h

Only limits with the algorithms sliding_log and bucketed_window count hits over spans. A hit may be counted for a while
after it has left the span: the column LATE says for how long at most. No hit is missing.";

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

fn print_counts(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    const COLUMNS: [Column; 4] = [
        Column::Right("SPAN"),
        Column::Right("HITS"),
        Column::Right("LATE"),
        Column::Left("COUNTED BY"),
    ];
    print_key(answer, out)?;
    let row = |count: &Value| {
        let span = rounded(number(&count["span_ms"]));
        if let Some(error) = count["error"].as_str() {
            return vec![span, "unknown".to_owned(), String::new(), error.to_owned()];
        }
        let least = if count["is_minimum"] == true { ">= " } else { "" };
        vec![
            span,
            format!("{least}{}", number(&count["count"])),
            rounded(number(&count["max_late_ms"])),
            text(&count["algorithm"]).to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = list(&answer["counts"]).map(row).collect();
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
            "domain": "shop", "entries": [{ "key": "user", "value": "ann" }], "rule": null,
            "counts": [
                { "span_ms": 300_000, "count": 7, "max_late_ms": 0, "is_minimum": false,
                  "algorithm": "sliding_log" },
                { "span_ms": 3_600_000, "count": 12, "max_late_ms": 1_500, "is_minimum": true,
                  "algorithm": "bucketed_window" },
                { "span_ms": 86_400_000, "error": "too long" },
            ],
        });
        let mut out = Vec::new();
        print_counts(&answer, &mut out).unwrap();
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
