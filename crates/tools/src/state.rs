//! `weir state` and `weir reset`: show and delete what a running weir has counted for one descriptor.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::api_client::{ApiClient, ClientError, ServerArgs};
use super::change::ByArgs;
use super::describe;
use super::match_args::MatchArgs;
use crate::print::Column::{self, Left, Right};
use crate::print::{Output, counted, entries, line, table};
use weir_api::messages::Reset;
use weir_common::clock::{Clock, WallClock};
use weir_common::duration::{read_duration, rounded};
use weir_common::entry::OwnedEntry;
use weir_controls::Action;
use weir_limit::{Micros, SECOND};
use weir_limiter::{
    CountResult, CountedSpan, DescriptorState, InspectedBan, InspectedLimit, ReadState,
};
use weir_rules::RuleDescription;

const STATE_EXAMPLES: &str = "\
Examples:
  weir state -d shop user=ann
  weir state -d shop route=api,user=ann --output json

  weir state -d shop user=ann --last 20s,1h

It counts nothing. Only sliding_log and bucketed_window know what they counted in the last 20s. They may count a hit
for up to LATE longer. Exits 1 if the descriptor matches no rule with a limit.";

const RESET_EXAMPLES: &str = "\
Examples:
  weir reset -d shop user=ann

It deletes the counts of all limits of the rule, for this key only: the next request starts over.";

/// One key of a running weir.
#[derive(Debug, Args)]
struct KeyArgs {
    #[command(flatten)]
    matched: MatchArgs,
    /// Format of the answer.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = STATE_EXAMPLES)]
pub struct StateArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Also count the hits of the last times, up to the longest period of the rule: 20s, or several: 20s,1h.
    #[arg(long, value_name = "DURATION", value_delimiter = ',')]
    #[arg(value_parser = parse_span, allow_hyphen_values = true)]
    last: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = RESET_EXAMPLES)]
pub struct ResetArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    by: ByArgs,
}

/// Prints every limit of a key: what is used, what is left, when it resets.
pub fn show(args: &StateArgs) -> ExitCode {
    args.key.output.show(read_state(args), |ReadState { state, counts, .. }: &ReadState, out| {
        print_state(state, WallClock.now(), out)?;
        print_counts(counts.as_deref().unwrap_or_default(), out)
    })
}

fn read_state(args: &StateArgs) -> Result<Value, ClientError> {
    let client = ApiClient::new(&args.key.server)?;
    let mut state = client.get(&args.key.matched.path("/v1/state", &[])?)?;
    if !args.last.is_empty() {
        let path = args.key.matched.path("/v1/count", &[("span", &args.last.join(","))])?;
        let mut counts = client.get(&path)?;
        if let Some(state) = state.as_object_mut() {
            state.insert("counts".to_owned(), counts["counts"].take());
        }
    }
    Ok(state)
}

fn parse_span(text: &str) -> Result<String, String> {
    match read_duration(text).is_some_and(|span| !span.is_zero()) {
        true => Ok(text.to_owned()),
        false => Err("write durations such as 5m or 1h30m, with commas between them".to_owned()),
    }
}

pub fn reset(args: &ResetArgs) -> ExitCode {
    let answer = args.key.matched.path("/v1/state", &[("by", &args.by.name())]);
    let answer = answer.and_then(|path| ApiClient::new(&args.key.server)?.delete(&path));
    args.key.output.show(answer, print_reset)
}

fn print_state(state: &DescriptorState, now: Micros, out: &mut dyn Write) -> io::Result<()> {
    print_key(&state.domain, &state.entries, state.rule.as_ref(), out)?;
    if let Some(key) = &state.key {
        line(out, &format!("  key:    {key}"))?;
    }
    if let Some(control) = &state.control {
        line(out, &format!("  control: {}", describe::described(control, now)))?;
    }
    print_counted(state, now, out)
}

fn print_counts(counts: &[CountedSpan], out: &mut dyn Write) -> io::Result<()> {
    const COLUMNS: [Column; 4] = [Right("LAST"), Right("HITS"), Right("LATE"), Left("COUNTED BY")];
    if counts.is_empty() {
        return Ok(());
    }
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
    let rows: Vec<Vec<String>> = counts.iter().map(row).collect();
    table(out, 2, &COLUMNS, &rows)
}

fn print_reset(reset: &Reset, out: &mut dyn Write) -> io::Result<()> {
    print_key(&reset.domain, &reset.entries, reset.rule.as_ref(), out)?;
    line(out, &format!("  reset:  {}", reset.key))?;
    match &reset.control {
        Some(control) if control.action == Action::Block => {
            let id = &control.id;
            line(out, &format!("  note: {id} still blocks it; weir unblock {id} ends that"))
        }
        _ => Ok(()),
    }
}

fn print_key(
    domain: &str,
    key: &[OwnedEntry],
    rule: Option<&RuleDescription>,
    out: &mut dyn Write,
) -> io::Result<()> {
    line(out, &format!("{domain}: {}", entries(key)))?;
    match rule {
        None => line(out, "  no rule"),
        Some(rule) => line(out, &format!("  rule:   {} ({})", rule.rule, rule.origin)),
    }
}

pub(crate) fn print_counted(
    state: &DescriptorState,
    now: Micros,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(ban) = state.ban.as_ref().and_then(|ban| ban_text(ban, now)) {
        line(out, &format!("  state:  {ban}"))?;
    }
    state.limits.iter().try_for_each(|limit| line(out, &limit_line("state: ", limit)))?;
    print_local(state, out)?;
    if let Some(holds) = state.holds.as_ref().filter(|holds| holds.hits > 0) {
        let ids = holds.ids.map(|ids| format!(" under {}", counted(ids, "id"))).unwrap_or_default();
        let (hits, expires) = (counted(holds.hits, "hit"), rounded(holds.expires_ms));
        line(out, &format!("  holds:  {hits} in flight{ids}; the first expires in {expires}"))?;
    }
    if let Some(reserved) = &state.reservation {
        let several = match reserved.count {
            1 => String::new(),
            count => format!(" in {count} reservations"),
        };
        let (age, lapses) = (rounded(reserved.age_ms), rounded(reserved.lapses_ms));
        let text = format!("  reserved: {}{several}, {age} ago, lapses in {lapses}", reserved.hits);
        line(out, &text)?;
    }
    if let Some(leased) = &state.leased {
        line(out, &format!("  leased here: {} for {}", leased.hits, rounded(leased.ends_ms)))?;
    }
    if let Some(granted) = &state.granted {
        let (envoys, hits) = (counted(granted.streams, "Envoy"), counted(granted.hits, "hit"));
        line(out, &format!("  granted to {envoys} here: {hits}, not reported as used"))?;
    }
    match state.log_len {
        None | Some(0) => Ok(()),
        Some(1) => line(out, "  log:    1 entry"),
        Some(length) => line(out, &format!("  log:    {length} entries")),
    }
}

/// Prints what a failure policy has counted in place of the store.
pub(crate) fn print_local(state: &DescriptorState, out: &mut dyn Write) -> io::Result<()> {
    state.local.iter().try_for_each(|limit| line(out, &limit_line("by policy local:", limit)))
}

/// Returns the ban of a key, or the denials that may lead to one; none without either.
fn ban_text(ban: &InspectedBan, now: Micros) -> Option<String> {
    let InspectedBan { strikes, after, within_ms, since_ms, ends_ms, bans, .. } = *ban;
    let Some(ends) = ends_ms else {
        let first = since_ms.map(|since| format!(", the first {} ago", rounded(since)));
        let first = first.unwrap_or_default();
        let before = if bans == 0 { "" } else { &format!("; {} before", counted(bans, "ban")) };
        let text = format!("{strikes} of {after} denials in {}{first}{before}", rounded(within_ms));
        return (strikes > 0 || bans > 0).then_some(text);
    };
    let until = time_text(now.saturating_add(ends.saturating_mul(1_000)), now);
    let since = since_ms.unwrap_or(0).saturating_mul(1_000);
    let since = time_text(now.saturating_sub(since), now);
    let (left, denials) = (rounded(ends), counted(after, "denial"));
    let in_a_row = if bans <= 1 { "" } else { &format!("; {bans} bans in a row") };
    Some(format!("banned until {until} UTC, in {left}, after {denials} since {since}{in_a_row}"))
}

/// Returns a time in UTC, without its day if that is the day of `now`.
fn time_text(time: Micros, now: Micros) -> String {
    const DAY: Micros = 86_400 * SECOND;
    let at = Timestamp::from_microsecond(time.cast_signed()).unwrap_or(Timestamp::MAX);
    let format = if time / DAY == now / DAY { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    at.strftime(format).to_string()
}

fn limit_line(label: &str, limit: &InspectedLimit) -> String {
    let name = describe::part(", named ", &limit.name);
    let (used, left) = (limit.used.unwrap_or(0), limit.remaining.unwrap_or(0));
    let reset = match limit.reset_ms {
        None | Some(0) => String::new(),
        Some(reset) => format!(", resets in {}", rounded(reset)),
    };
    let retry = limit.retry_ms.map(|wait| format!(", admits the next hit in {}", rounded(wait)));
    let retry = retry.unwrap_or_default();
    format!("  {label} {}{name}: {used} used, {left} left{reset}{retry}", limit.text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_is_shown_with_its_rule_control_and_limits() {
        let state = json!({
            "domain": "shop", "entries": [{ "key": "user", "value": "ann\u{1b}" }],
            "rule": {
                "domain": "shop", "rule": "user", "entries": [], "file": "shop.yaml", "line": 3,
                "column": 5, "unlimited": false, "limits": [], "name": "", "replaces": [],
                "shadow_mode": false, "quota_mode": false, "detailed_metric": false,
                "value_to_metric": false, "metadata": null,
            },
            "key": "weir:{shop|user=ann}f60", "control": {
                "id": "block-1", "domain": "*", "entries": [], "action": "block", "by": "ann",
                "until": "1970-01-01T00:10:00Z", "at": "1970-01-01T00:00:00Z",
            },
            "limits": [
                { "name": "", "algorithm": "fixed_window", "n": 5, "text": "5 per minute",
                  "shadow_mode": false, "used": 5, "remaining": 0, "reset_ms": 31_000, "retry_ms": 31_000 },
                { "name": "daily", "algorithm": "fixed_window", "n": 9, "text": "9 per day",
                  "shadow_mode": false, "used": 0, "remaining": 9, "reset_ms": 0, "retry_ms": null },
            ],
            "ban": {
                "banned": false, "strikes": 1, "after": 3, "within_ms": 60_000, "since_ms": 5_000,
                "ends_ms": null, "bans": 0,
            },
            "holds": { "ids": 2, "hits": 3, "expires_ms": 500 }, "log_len": 7,
            "granted": { "hits": 120, "streams": 2 },
            "local": [
                { "name": "daily", "algorithm": "fixed_window", "n": 3, "text": "3 per day",
                  "shadow_mode": false, "used": 1, "remaining": 2, "reset_ms": 0, "retry_ms": null },
            ],
        });
        let mut out = Vec::new();
        print_state(&serde_json::from_value(state).unwrap(), 0, &mut out).unwrap();
        let wanted = "\
shop: user=ann\\u001b
  rule:   user (shop.yaml:3:5)
  key:    weir:{shop|user=ann}f60
  control: block-1 blocks it for 10m, by ann
  state:  1 of 3 denials in 1m, the first 5s ago
  state:  5 per minute: 5 used, 0 left, resets in 31s, admits the next hit in 31s
  state:  9 per day, named daily: 0 used, 9 left
  by policy local: 3 per day, named daily: 1 used, 2 left
  holds:  3 hits in flight under 2 ids; the first expires in 500ms
  granted to 2 Envoys here: 120 hits, not reported as used
  log:    7 entries
";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn a_ban_and_the_denials_before_it_are_shown() {
        const NOW: Micros = 1_767_225_600 * SECOND + 13 * 3_600 * SECOND;
        let text = |strikes: u8, since_ms: Option<u64>, ends_ms: Option<u64>, bans: u8| {
            let (banned, after, within_ms) = (ends_ms.is_some(), 10, 600_000);
            let ban = InspectedBan { banned, strikes, after, within_ms, since_ms, ends_ms, bans };
            ban_text(&ban, NOW)
        };
        let shown = [
            text(0, None, None, 0),
            text(4, Some(120_000), None, 0),
            text(0, None, None, 1),
            text(1, Some(0), None, 2),
            text(0, Some(700_000), Some(2_520_000), 1),
            text(0, Some(86_400_000), Some(40_000_000), 3),
        ];
        let wanted = [
            None,
            Some("4 of 10 denials in 10m, the first 2m ago"),
            Some("0 of 10 denials in 10m; 1 ban before"),
            Some("1 of 10 denials in 10m, the first 0s ago; 2 bans before"),
            Some("banned until 13:42:00 UTC, in 42m, after 10 denials since 12:48:20"),
            Some(
                "banned until 2026-01-02 00:06:40 UTC, in 11h6m, after 10 denials since \
                 2025-12-31 13:00:00; 3 bans in a row",
            ),
        ];
        assert_eq!(shown.each_ref().map(Option::as_deref), wanted);
    }

    #[test]
    fn each_of_the_last_times_has_a_row() {
        let counts = json!([
            { "span_ms": 300_000, "count": 7, "resolution_ms": 0, "max_late_ms": 0,
              "is_minimum": false, "limit": 0, "algorithm": "sliding_log" },
            { "span_ms": 3_600_000, "count": 12, "resolution_ms": 1_500, "max_late_ms": 1_500,
              "is_minimum": true, "limit": 1, "algorithm": "bucketed_window" },
            { "span_ms": 86_400_000, "error": "too long" },
        ]);
        let counts: Vec<CountedSpan> = serde_json::from_value(counts).unwrap();
        let mut out = Vec::new();
        print_counts(&counts, &mut out).unwrap();
        let wanted = "  LAST     HITS  LATE  COUNTED BY
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

    #[test]
    fn a_reset_of_a_blocked_key_says_that_it_stays_blocked() {
        let answer = json!({
            "domain": "shop", "entries": [], "rule": null, "key": "k", "reset": true,
            "control": {
                "id": "block-1", "domain": "shop", "entries": [], "action": "block", "until": null,
                "at": "1970-01-01T00:00:00Z",
            },
        });
        let mut out = Vec::new();
        print_reset(&serde_json::from_value(answer).unwrap(), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.ends_with("block-1 still blocks it; weir unblock block-1 ends that\n"),
            "{out}"
        );
    }
}
