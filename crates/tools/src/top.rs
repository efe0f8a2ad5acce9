//! `weir top`: lists the keys (what a rule counts together) with the most hits or denials, near a limit, or banned.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValue;

use super::api_client::{ApiClient, ServerArgs, with_query};
use crate::print::Column::{self, Left, Right};
use crate::print::{Output, counted, entries, line, table};
use weir_common::duration::rounded;
use weir_common::number::whole;
use weir_top::{By, Scope, TopList, TopRow, Window};

const EXAMPLES: &str = "\
Examples:
  weir top
  weir top --sort-by denied --rows 10
  weir top -d shop --rule user --window 1m
  weir top --sort-by would-be-denied
  weir top --sort-by near --output json
  weir top --sort-by banned
  weir top --sort-by denied --window 1m --watch

It lists the keys of all replicas that share their lists (top.share), else of one; banned keys are always those of one.
The last line has the time over which they are counted, which may be somewhat more than the window. The true count of a
key is at most OVERCOUNT lower.";

const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// What moves a terminal's cursor to its top, and erases what is below.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// What to list keys by.
    #[arg(long, visible_alias = "by", value_name = "LIST", default_value = "hits")]
    #[arg(value_parser = lists())]
    sort_by: String,
    /// Only keys of this domain.
    #[arg(short, long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Only keys of this rule, as the column RULE names it.
    #[arg(long, value_name = "NAME", requires = "domain")]
    rule: Option<String>,
    /// The time over which hits are counted. Keys near a limit and banned keys are those of now.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = windows())]
    window: String,
    /// The largest number of keys.
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole::<u16>(1..=10_000))]
    #[arg(allow_negative_numbers = true)]
    rows: u16,
    /// Format of the list.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// List again every two seconds, until Ctrl-C or an error.
    #[arg(long)]
    watch: bool,
    /// Only what this replica has counted, also where replicas share their lists.
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    server: ServerArgs,
}

fn windows() -> [PossibleValue; 4] {
    Window::ALL.map(|window| {
        let help = match window {
            Window::Minute => "The last minute",
            Window::TenMinutes => "The last ten minutes",
            Window::Hour => "The last hour",
            Window::Start => "All time since the replica started",
        };
        PossibleValue::new(window.name()).help(help)
    })
}

/// The lists, by their names in the API with dashes.
fn lists() -> [PossibleValue; 5] {
    [
        ("hits", "Hits requested, admitted or not"),
        ("denied", "Hits denied"),
        ("would-be-denied", "Hits that only a shadow mode admits"),
        ("near", "How much of a limit is used"),
        ("banned", "Hits denied by a ban, of keys that are banned now"),
    ]
    .map(|(name, help)| PossibleValue::new(name).help(help))
}

impl TopArgs {
    fn path(&self) -> String {
        let (by, rows) = (self.sort_by.replace('-', "_"), self.rows.to_string());
        let mut query = vec![("by", &*by), ("window", &*self.window), ("limit", &*rows)];
        query.extend(self.domain.as_deref().map(|domain| ("domain", domain)));
        query.extend(self.rule.as_deref().map(|rule| ("rule", rule)));
        query.extend(self.here.then_some(("scope", "here")));
        with_query("/v1/top", &query)
    }
}

#[expect(clippy::disallowed_methods, reason = "the command does nothing else meanwhile")]
pub fn run(args: &TopArgs) -> ExitCode {
    loop {
        let answer = ApiClient::new(&args.server).and_then(|client| client.get(&args.path()));
        let shown =
            args.output.show(answer, |list, out| print_list(list, args.domain.is_some(), out));
        if !args.watch || shown != ExitCode::SUCCESS {
            return shown;
        }
        sleep(WATCH_INTERVAL);
        // A reader that is gone is noticed here.
        if separate(&mut io::stdout().lock()).is_err() {
            return shown;
        }
    }
}

/// Clears a terminal, or else leaves a line between two lists.
fn separate(out: &mut (impl Write + IsTerminal)) -> io::Result<()> {
    out.write_all(if out.is_terminal() { CLEAR } else { b"\n" })?;
    out.flush()
}

/// Prints a list. `is_part`: it has only the keys of some rules.
fn print_list(list: &TopList, is_part: bool, out: &mut dyn Write) -> io::Result<()> {
    let (what, none) = match list.by {
        By::Hits => ("hit", "no hits"),
        By::Denied => ("denied hit", "no hits are denied"),
        By::WouldBeDenied => ("would-be-denied hit", "no hits would be denied"),
        By::Near => ("hit", "no key is near a limit"),
        By::Banned => ("hit", "no key is banned"),
    };
    if list.rows.is_empty() {
        line(out, none)?
    } else {
        print_rows(&list.rows, 0, out)?
    }
    let since = rounded(list.seconds.saturating_mul(1_000));
    let total = match list.by {
        // One hit may be near several limits, and bans are not of a window.
        By::Near | By::Banned => String::new(),
        _ if is_part => format!("{} of all keys ", counted(list.total, what)),
        _ => format!("{} ", counted(list.total, what)),
    };
    let others = match list.unlisted {
        0 => String::new(),
        unlisted => format!("; a key that is not counted has at most {}", counted(unlisted, what)),
    };
    let place = match (list.scope, list.replicas) {
        (Scope::Here, _) => "on this replica".to_owned(),
        (Scope::All, replicas) => format!("on {}", counted(replicas, "replica")),
    };
    line(out, &format!("{total}in {since} {place}{others}"))
}

pub(super) fn print_rows(rows: &[TopRow], indent: usize, out: &mut dyn Write) -> io::Result<()> {
    const KEY: [Column; 3] = [Left("DOMAIN"), Left("RULE"), Left("KEY")];
    let key = |row: &TopRow| {
        let cut = if row.cut { " (cut)" } else { "" };
        let ban = row.banned_ms.map(|ms| format!(" (banned {})", rounded(ms))).unwrap_or_default();
        let rule = row.rule.clone().unwrap_or_default();
        [row.domain.clone(), rule, format!("{}{cut}{ban}", entries(&row.entries))]
    };
    if rows.iter().any(|row| row.near.is_some()) {
        let columns = [Right("USED"), Right("OF"), Left("LIMIT"), Right("RESET")];
        let cells = rows.iter().filter_map(|row| {
            let near = row.near.as_ref()?;
            let (used, n) = (near.used.to_string(), near.n.to_string());
            let of_limit = [used, n, near.limit.clone(), rounded(near.reset_ms)];
            Some([&of_limit[..], &key(row)].concat())
        });
        return table(out, indent, &[&columns[..], &KEY].concat(), &cells.collect::<Vec<_>>());
    }
    let columns = [Right("HITS"), Right("OVERCOUNT")];
    let cells = rows
        .iter()
        .map(|row| [&[row.count.to_string(), row.error.to_string()][..], &key(row)].concat());
    table(out, indent, &[&columns[..], &KEY].concat(), &cells.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn printed(top: &Value, is_part: bool) -> String {
        let mut out = Vec::new();
        print_list(&serde_json::from_value(top.clone()).unwrap(), is_part, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_listed_with_their_counts() {
        let row = |value: &str, count: u64, error: u64| {
            json!({
                "domain": "shop", "entries": [{ "key": "user", "value": value }], "rule": "user",
                "count": count, "error": error,
            })
        };
        let rows = [row("m1", 1_200, 3), row("<b>\u{202e}", 7, 0)];
        let top = json!({
            "by": "hits", "window": "1h", "seconds": 3_600, "total": 1_300, "unlisted": 5, "rows": rows,
        });
        let wanted = "\
HITS  OVERCOUNT  DOMAIN  RULE  KEY
1200          3  shop    user  user=m1
   7          0  shop    user  user=<b>\\u202e
1300 hits in 1h on this replica; a key that is not counted has at most 5 hits
";
        assert_eq!(printed(&top, false), wanted);
        assert!(printed(&top, true).contains("\n1300 hits of all keys in 1h on this replica; "));
        let mut all = top;
        (all["scope"], all["replicas"]) = ("all".into(), 3.into());
        assert!(printed(&all, false).contains("\n1300 hits in 1h on 3 replicas; "));
        let none = json!({ "by": "denied", "seconds": 5, "total": 0, "unlisted": 0, "rows": [] });
        assert_eq!(
            printed(&none, false),
            "no hits are denied\n0 denied hits in 5s on this replica\n"
        );
    }

    #[test]
    fn banned_keys_are_marked() {
        let row = json!({
            "domain": "shop", "entries": [{ "key": "user", "value": "m1" }], "rule": "user",
            "count": 7, "error": 0, "banned_ms": 2_520_000,
        });
        let top =
            |by: &str| json!({ "by": by, "seconds": 60, "total": 7, "unlisted": 0, "rows": [row] });
        let rows = "\
HITS  OVERCOUNT  DOMAIN  RULE  KEY
   7          0  shop    user  user=m1 (banned 42m)
";
        let denied = format!("{rows}7 denied hits in 1m on this replica\n");
        assert_eq!(printed(&top("denied"), false), denied);
        assert_eq!(printed(&top("banned"), false), format!("{rows}in 1m on this replica\n"));
        let none = json!({ "by": "banned", "seconds": 60, "total": 0, "unlisted": 0, "rows": [] });
        assert!(printed(&none, false).starts_with("no key is banned\n"));
    }

    #[test]
    fn keys_near_a_limit_are_listed_with_what_they_have_used() {
        let row = json!({
            "domain": "shop", "entries": [{ "key": "user", "value": "bob" }], "cut": true,
            "count": 1, "error": 0, "limit": "daily", "used": 9, "n": 10, "reset_ms": 51_000,
        });
        let top = json!({
            "by": "near", "seconds": 60, "total": 1, "unlisted": 0, "rows": [row],
        });
        let start = "\
USED  OF  LIMIT  RESET  DOMAIN  KEY
   9  10  daily    51s  shop    user=bob (cut)
in 1m on this replica";
        assert!(printed(&top, false).starts_with(start), "{}", printed(&top, false));
    }
}
