//! `weir state` and `weir reset`: show and delete what one key has counted.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::api_client::{ApiClient, ClientError, Output, ServerArgs, with_query};
use super::control::ByArgs;
use super::control_text;
use super::descriptor_args::parse_match;
use super::print::{counted, entries, line, list, number, place, text};
use weir_common::descriptor::descriptor_text;
use weir_common::duration::rounded;

const STATE_EXAMPLES: &str = "\
Examples:
  weir state -d shop user=ann
  weir state -d shop route=api,user=ann --output json

Nothing is counted by it. Exits 1 if nothing is counted for the descriptor, because it matches no rule with a limit.";

const RESET_EXAMPLES: &str = "\
Examples:
  weir reset -d shop user=ann

It deletes the counts of all limits of the rule, for this key only: the next request starts over.";

/// One key of a running weir.
#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    /// The domain, and the descriptor as a request has it: `key=value,key2=value2`.
    #[arg(short, long, num_args = 2, required = true, value_names = ["DOMAIN", "DESCRIPTOR"])]
    domain: Vec<String>,
    /// Format of the answer.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl KeyArgs {
    /// Returns a path with the domain, the descriptor and other parameters.
    ///
    /// # Errors
    ///
    /// The domain or the descriptor is invalid.
    pub fn path(&self, path: &str, others: &[(&str, &str)]) -> Result<String, ClientError> {
        let (domain, descriptor) = parse_match(&self.domain).map_err(ClientError::Usage)?;
        let descriptor = descriptor_text(&descriptor.entries());
        let mut query = vec![("domain", domain), ("descriptor", descriptor.as_str())];
        query.extend(others);
        Ok(with_query(path, &query))
    }
}

#[derive(Debug, Args)]
#[command(after_help = STATE_EXAMPLES)]
pub struct StateArgs {
    #[command(flatten)]
    key: KeyArgs,
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
    let answer = args.key.path("/v1/state", &[]);
    let answer = answer.and_then(|path| ApiClient::new(&args.key.server)?.get(&path));
    args.key.output.show(answer, |state, out| print_state(state, Timestamp::now(), out))
}

/// Deletes what a key has counted.
pub fn reset(args: &ResetArgs) -> ExitCode {
    let answer = args.key.path("/v1/state", &[("by", &args.by.name())]);
    let answer = answer.and_then(|path| ApiClient::new(&args.key.server)?.delete(&path));
    args.key.output.show(answer, print_reset)
}

fn print_state(state: &Value, now: Timestamp, out: &mut dyn Write) -> io::Result<()> {
    print_key(state, out)?;
    if let Some(key) = state["key"].as_str() {
        line(out, &format!("  key:    {key}"))?;
    }
    if !state["control"].is_null() {
        let control = control_text::described(&state["control"], now);
        line(out, &format!("  control: {control}"))?;
    }
    state_lines(state).iter().try_for_each(|text| line(out, text))
}

fn print_reset(state: &Value, out: &mut dyn Write) -> io::Result<()> {
    print_key(state, out)?;
    line(out, &format!("  reset:  {}", text(&state["key"])))?;
    if state["control"]["action"] == "block" {
        let id = text(&state["control"]["id"]);
        line(out, &format!("  note: {id} still blocks it; weir unblock {id} ends that"))?;
    }
    Ok(())
}

/// Prints which key an answer is about, and its rule.
pub(super) fn print_key(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    line(out, &format!("{}: {}", text(&answer["domain"]), entries(&answer["entries"])))?;
    let rule = &answer["rule"];
    match rule.is_null() {
        true => line(out, "  no rule"),
        false => line(out, &format!("  rule:   {} ({})", text(&rule["rule"]), place(rule))),
    }
}

/// Returns what a key has counted, a line for each limit; nothing without a state.
pub(super) fn state_lines(state: &Value) -> Vec<String> {
    if let Some(error) = state["error"].as_str() {
        return vec![format!("  state:  unknown: {error}")];
    }
    let mut lines: Vec<String> = list(&state["limits"]).map(limit_line).collect();
    let holds = &state["holds"];
    if number(&holds["hits"]) > 0 {
        let ids = match holds["ids"].as_u64() {
            Some(ids) => format!(" under {}", counted(ids, "id")),
            None => String::new(),
        };
        let (hits, expires) = (counted(number(&holds["hits"]), "hit"), &holds["expires_ms"]);
        let expires = rounded(number(expires));
        lines.push(format!("  holds:  {hits} in flight{ids}; the first expires in {expires}"));
    }
    if let Some(length @ 1..) = state["log_len"].as_u64() {
        let entries = if length == 1 { "entry" } else { "entries" };
        lines.push(format!("  log:    {length} {entries}"));
    }
    lines
}

fn limit_line(limit: &Value) -> String {
    let name = match text(&limit["name"]) {
        "" => String::new(),
        name => format!(", named {name}"),
    };
    let (used, left) = (number(&limit["used"]), number(&limit["remaining"]));
    let reset = match number(&limit["reset_ms"]) {
        0 => String::new(),
        reset => format!(", resets in {}", rounded(reset)),
    };
    let retry = match limit["retry_ms"].as_u64() {
        Some(retry) => format!(", admits the next hit in {}", rounded(retry)),
        None => String::new(),
    };
    format!("  state:  {}{name}: {used} used, {left} left{reset}{retry}", text(&limit["text"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_is_shown_with_its_rule_control_and_limits() {
        let state = json!({
            "domain": "shop", "entries": [{ "key": "user", "value": "ann\u{1b}" }],
            "rule": { "rule": "user", "file": "shop.yaml", "line": 3, "column": 5 },
            "key": "{shop|user=ann}f60", "control": {
                "id": "block-1", "action": "block", "until": "2026-01-01T00:10:00Z", "by": "ann",
            },
            "limits": [
                { "name": "", "text": "5 per minute", "used": 5, "remaining": 0,
                  "reset_ms": 31_000, "retry_ms": 31_000 },
                { "name": "daily", "text": "9 per day", "used": 0, "remaining": 9,
                  "reset_ms": 0, "retry_ms": null },
            ],
            "holds": { "ids": 2, "hits": 3, "expires_ms": 500 }, "log_len": 7, "error": null,
        });
        let mut out = Vec::new();
        print_state(&state, "2026-01-01T00:00:00Z".parse().unwrap(), &mut out).unwrap();
        let wanted = "\
shop: user=ann\\u001b
  rule:   user (shop.yaml:3:5)
  key:    {shop|user=ann}f60
  control: block-1 blocks it for 10m, by ann
  state:  5 per minute: 5 used, 0 left, resets in 31s, admits the next hit in 31s
  state:  9 per day, named daily: 0 used, 9 left
  holds:  3 hits in flight under 2 ids; the first expires in 500ms
  log:    7 entries
";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn a_state_that_cannot_be_read_is_unknown() {
        let failed = json!({ "error": "no answer", "limits": [{ "text": "5 per minute" }] });
        assert_eq!(state_lines(&failed), ["  state:  unknown: no answer"]);
        assert!(state_lines(&Value::Null).is_empty());
    }

    #[test]
    fn a_reset_of_a_blocked_key_says_that_it_stays_blocked() {
        let answer = json!({
            "domain": "shop", "entries": [], "key": "k",
            "control": { "id": "block-1", "action": "block" },
        });
        let mut out = Vec::new();
        print_reset(&answer, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.ends_with("block-1 still blocks it; weir unblock block-1 ends that\n"),
            "{out}"
        );
    }
}
