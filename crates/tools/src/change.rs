//! `weir block`, `weir allow` and `weir limit`: send a running weir a control, which blocks, allows or limits requests.

mod consent;
mod text;

use self::consent::{OnWarnings, confirm};
pub(super) use self::text::print_deleted;

use std::io;
use std::process::ExitCode;

use clap::Args;
use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::api_client::{ApiClient, ClientError, ServerArgs, encode, read, variable, with_query};
use super::match_args::MatchArgs;
use crate::print::Output;
use weir_api::messages::WrittenControl;
use weir_common::descriptor::DescriptorArg;
use weir_common::duration::read_duration;
use weir_common::entry::OwnedEntry;
use weir_common::number::whole_u32;
use weir_common::secret::without_any_login;
use weir_controls::{Action, Draft, LimitChange};
use weir_rules::rate::Rate;

const BLOCK_EXAMPLES: &str = "\
Examples:
  weir block -d shop user=mallory --for 1h --reason scraping
  weir block -d shop remote_address=203.0.113.0/24 --for 1h
  weir block -d '*' 'user=m*' --dry-run
  weir block -d shop '*' --except plan=partner --force --for 10m --reason 'incident 42'

The descriptor '*' is everything of the domain, also where there is no rule; `weir unblock -d shop '*'` ends that. A
value may have `*` for any text, or be a network, which matches the addresses in it. Without a
duration a block lasts the longest period of the rules that it matches, else an hour. Exits 0 if the control is active, 1 if it is rejected or
not confirmed, or weir does not answer.";

const ALLOW_EXAMPLES: &str = "\
Examples:
  weir allow -d shop user=ann --for 1d --reason 'support case 17'
  weir allow -d shop remote_address=192.0.2.7 --no-count --forever
  weir allow -d '*' remote_address=10.0.0.0/8 --forever --reason 'our own network'

A value may have `*` for any text, or be a network, which matches the addresses in it. Without a duration it lasts
until it is deleted. A block of the same client wins.";

const LIMIT_EXAMPLES: &str = "\
Examples:
  weir limit -d shop user=ann --rate 500/m --for 1d --reason launch
  weir limit -d shop 'path=/checkout*' --n 2000 --burst 100 --limit per-minute --until 2030-11-29T00:00:00Z

It changes the limit of the rule that a descriptor matches; what is counted stays. Without a duration it lasts until it
is deleted. A value may have `*` for any text, or be a network, which matches the addresses in it.";

/// The descriptors of a control, and how it is written.
#[derive(Debug, Args)]
struct ControlArgs {
    #[command(flatten)]
    matched: MatchArgs,
    /// How long it lasts: 10m, 1h30m, 7d.
    #[arg(long = "for", value_name = "DURATION", group = "lasts", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    duration: Option<String>,
    /// When it ends, in RFC 3339: 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", group = "lasts", value_parser = parse_time)]
    until: Option<String>,
    /// It lasts until it is deleted.
    #[arg(long, group = "lasts")]
    forever: bool,
    /// Why, for others who see it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    by: ByArgs,
    /// Match only descriptors with these entries alone, in this order.
    #[arg(long)]
    exact: bool,
    /// Match a network in a value as this text alone, not the addresses in it.
    #[arg(long)]
    text: bool,
    /// The id; a control with it is replaced. Default: a hash of the action and of what it matches.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Show what it would do, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Accept a control that matches everything.
    #[arg(long)]
    force: bool,
    /// Change nothing if there is a warning about the control, and exit with 1. Default: ask in a terminal, else go
    /// on.
    #[arg(long)]
    deny_warnings: bool,
    /// Format of the answer.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = BLOCK_EXAMPLES)]
pub struct BlockArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Spare requests with this entry in any descriptor, as plan=partner. The value may have `*`, or be a network. Can
    /// be repeated.
    #[arg(long, value_name = "ENTRY", value_parser = parse_entry)]
    except: Vec<OwnedEntry>,
}

#[derive(Debug, Args)]
#[command(after_help = ALLOW_EXAMPLES)]
pub struct AllowArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Do not count the hits.
    #[arg(long)]
    no_count: bool,
}

#[derive(Debug, Args)]
#[command(after_help = LIMIT_EXAMPLES)]
pub struct LimitArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// The requests per unit, instead of the rule's.
    #[arg(long, value_name = "N", value_parser = whole_u32(), allow_negative_numbers = true)]
    #[arg(required_unless_present = "rate")]
    n: Option<u32>,
    /// The requests per unit, with the period of the rule's limit: 20/s, 300/15m. Another period is an error: it would
    /// start the counts over.
    #[arg(long, value_name = "RATE", conflicts_with = "n", allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// The burst, for limits that have one.
    #[arg(long, value_name = "N", value_parser = whole_u32(), allow_negative_numbers = true)]
    burst: Option<u32>,
    /// The name of the limit, if the rule has several.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    limit: String,
}

pub fn block(args: &BlockArgs) -> ExitCode {
    run(&args.control, Action::Block, &args.except)
}

pub fn allow(args: &AllowArgs) -> ExitCode {
    run(&args.control, args.action(), &[])
}

pub fn limit(args: &LimitArgs) -> ExitCode {
    run(&args.control, args.action(), &[])
}

/// Adds the command with the name of a limit to the error of a rule that has several.
fn with_command(error: ClientError, args: impl Iterator<Item = String>) -> ClientError {
    let ClientError::Rejected { error, mut help, names } = error else { return error };
    if !names.is_empty() {
        let line: Vec<String> = args.map(|arg| quoted(&arg)).collect();
        let ends = names.iter().map(|name| format!("--limit {}", quoted(name)));
        let ends = ends.collect::<Vec<_>>().join(", or ");
        help = without_any_login(&format!("weir {} {ends}", line.join(" ")));
    }
    ClientError::Rejected { error, help, names }
}

/// Returns an argument as a shell takes it.
fn quoted(arg: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    match !arg.is_empty() && arg.chars().all(is_plain) {
        true => arg.to_owned(),
        false => format!("'{}'", arg.replace('\'', r"'\''")),
    }
}

impl AllowArgs {
    fn action(&self) -> Action {
        Action::Allow { count: !self.no_count }
    }
}

impl LimitArgs {
    fn action(&self) -> Action {
        let (name, rate) = (self.limit.clone(), self.rate);
        let n = rate.map(|rate| rate.n).or(self.n).unwrap_or_default();
        Action::Limit { limit: LimitChange { n, burst: self.burst, name, rate } }
    }
}

fn run(args: &ControlArgs, action: Action, except: &[OwnedEntry]) -> ExitCode {
    let err = &mut io::stderr();
    let ask = |warnings: &[String]| confirm(warnings, io::stdin().lock(), &mut io::stderr());
    let on_warnings = OnWarnings::new(args.deny_warnings, args.dry_run);
    let draft = draft(args, action, except);
    match draft.and_then(|draft| put(args, &draft, on_warnings, ask)) {
        Ok(Outcome::Put { answer, shown }) => {
            args.output.show(Ok(answer), |written: &WrittenControl, out| {
                let mut written = written.clone();
                written.warnings.retain(|warning| !shown.contains(warning));
                text::print(&written, args.dry_run, out, err)
            })
        }
        Ok(Outcome::Denied(answer)) => {
            args.output.show(Ok(answer), |written, out| text::print(written, true, out, err));
            ExitCode::FAILURE
        }
        Ok(Outcome::Declined) => ExitCode::FAILURE,
        Err(error) => {
            let args = std::env::args_os().skip(1);
            with_command(error, args.map(|arg| arg.to_string_lossy().into_owned())).report()
        }
    }
}

enum Outcome {
    /// The answer, with `--dry-run` that of a dry run, and the warnings that the user has seen.
    Put {
        answer: Value,
        shown: Vec<String>,
    },
    /// The answer of a dry run, whose warnings prevent the change.
    Denied(Value),
    Declined,
}

/// Sends the control, unless warnings of a dry run prevent it.
fn put(
    args: &ControlArgs,
    draft: &Draft,
    on_warnings: OnWarnings,
    ask: impl Fn(&[String]) -> bool,
) -> Result<Outcome, ClientError> {
    let (method, path) = match &args.id {
        Some(id) => (Method::PUT, format!("/v1/controls/{}", encode(id))),
        None => (Method::POST, "/v1/controls".to_owned()),
    };
    // Texts and numbers are always valid.
    let body = serde_json::to_string(draft).unwrap_or_default();
    let client = ApiClient::new(&args.server)?;
    let send = |is_dry_run: bool| {
        let mut query = Vec::new();
        query.extend(is_dry_run.then_some(("dry_run", "1")));
        query.extend(args.force.then_some(("force", "1")));
        client.call(method.clone(), &with_query(&path, &query), body.clone())
    };
    if on_warnings == OnWarnings::Continue {
        return Ok(Outcome::Put { answer: send(args.dry_run)?, shown: Vec::new() });
    }
    let checked = send(true)?;
    let WrittenControl { warnings, .. } = read(&checked)?;
    match on_warnings {
        _ if warnings.is_empty() => {}
        OnWarnings::Ask if ask(&warnings) => {}
        OnWarnings::Ask => return Ok(Outcome::Declined),
        _ => return Ok(Outcome::Denied(checked)),
    }
    let answer = if args.dry_run { checked } else { send(false)? };
    Ok(Outcome::Put { answer, shown: warnings })
}

fn draft(args: &ControlArgs, action: Action, except: &[OwnedEntry]) -> Result<Draft, ClientError> {
    let (domain, entries) = args.matched.parse()?;
    let forever = args.forever.then(|| "forever".to_owned());
    Ok(Draft {
        domain: domain.to_owned(),
        entries: OwnedEntry::copied(entries.entries()),
        exact: args.exact,
        text: args.text,
        action,
        except: except.to_vec(),
        duration: args.duration.clone().or(forever),
        until: args.until.clone(),
        reason: args.reason.clone(),
        by: args.by.name(),
    })
}

/// Who makes a change.
#[derive(Debug, Args)]
pub(super) struct ByArgs {
    /// Who, for others who see it. Default: the variable USER.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl ByArgs {
    /// Returns the name; empty if there is none.
    pub fn name(&self) -> String {
        let user = || ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(variable);
        self.by.clone().or_else(user).unwrap_or_default()
    }
}

fn parse_duration(text: &str) -> Result<String, String> {
    let help = "write a duration such as 10m, 1h30m or 7d, or --forever";
    read_duration(text).map(|_| text.to_owned()).ok_or_else(|| help.to_owned())
}

fn parse_entry(text: &str) -> Result<OwnedEntry, String> {
    match &text.parse::<DescriptorArg>()?.entries()[..] {
        [entry] => Ok((*entry).into()),
        _ => Err("write one entry, and --except again for another".to_owned()),
    }
}

fn parse_time(text: &str) -> Result<String, String> {
    let help = "write a time such as 2030-01-31T08:00:00Z";
    text.parse::<Timestamp>().map(|_| text.to_owned()).map_err(|_| help.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use weir_controls::Expiry;

    #[derive(Parser)]
    enum Command {
        Block(BlockArgs),
        Allow(AllowArgs),
        Limit(LimitArgs),
    }

    /// Returns the control that the server reads of a command by ann, or the error of the command line.
    fn sent(line: &str) -> Result<Draft, String> {
        let words = ["weir"].into_iter().chain(line.split(' ')).chain(["--by", "ann"]);
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        let (args, action, except) = match &command {
            Command::Block(args) => (&args.control, Action::Block, &args.except[..]),
            Command::Allow(args) => (&args.control, args.action(), &[][..]),
            Command::Limit(args) => (&args.control, args.action(), &[][..]),
        };
        let body = draft(args, action, except).map_err(|error| format!("{error:?}"))?;
        let body = serde_json::to_vec(&body).unwrap();
        Draft::read(&body, None).map_err(|error| error.to_string())
    }

    #[test]
    fn a_limit_without_a_name_gets_the_command_with_one() {
        let rejected = |names: &[&str]| {
            let (error, help) = ("it does not fit".to_owned(), "write other numbers".to_owned());
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let line = ["limit", "-d", "shop", "a=it's *", "--n", "9"].map(str::to_owned);
            match with_command(ClientError::Rejected { error, help, names }, line.into_iter()) {
                ClientError::Rejected { help, .. } => help,
                other => panic!("{other:?}"),
            }
        };
        let wanted = r"weir limit -d shop 'a=it'\''s *' --n 9 --limit monthly, or --limit 'per day, or more'";
        assert_eq!(rejected(&["monthly", "per day, or more"]), wanted);
        assert_eq!(rejected(&[]), "write other numbers");
    }

    #[test]
    fn arguments_become_controls() {
        let lasts = |line| sent(line).unwrap().check().unwrap();
        let block = sent("block -d shop user=m1,path=/* --for 1h30m --reason abuse").unwrap();
        assert_eq!((block.domain.as_str(), block.action), ("shop", Action::Block));
        let entries: Vec<(&str, &str)> =
            block.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        assert_eq!(entries, [("user", "m1"), ("path", "/*")]);
        assert_eq!((block.reason.as_str(), block.by.as_str()), ("abuse", "ann"));
        let hours = std::time::Duration::from_secs(5_400);
        assert_eq!(lasts("block -d shop a=b --for 1h30m"), Expiry::For(hours));
        for line in ["block -d shop --for 1h30m a=b", "block --for 1h30m a=b -d shop"] {
            let draft = sent(line).unwrap();
            assert_eq!(
                (draft.check(), draft.entries),
                (Ok(Expiry::For(hours)), vec![("a", "b").into()])
            );
        }

        assert_eq!(lasts("block -d * --force"), Expiry::Default);
        assert_eq!(lasts("block -d shop a=b --forever"), Expiry::Forever);
        let until = sent("block --exact --until 1970-01-01T00:00:01Z -d shop a=b").unwrap();
        assert_eq!((until.check(), until.exact), (Ok(Expiry::Until(1_000_000)), true));
        let text = |line| sent(line).unwrap().text;
        assert!(text("block -d shop ip=10.0.0.0/8 --text") && !text("block -d shop ip=10.0.0.0/8"));

        let all = sent("block -d shop * --except plan=partner --except ip=10.0.0.0/8").unwrap();
        let spared = vec![("plan", "partner").into(), ("ip", "10.0.0.0/8").into()];
        assert_eq!((all.entries, all.except), (Vec::new(), spared));
        let several = sent("block -d shop * --except a=b,c=d").unwrap_err();
        assert!(several.contains("write one entry, and --except again for another"), "{several}");
        assert!(sent("block -d shop *=*").unwrap_err().contains("the key `*` matches nothing"));
        assert!(sent("allow -d shop * --except a=b").is_err());

        let allow = |line| sent(line).unwrap().action;
        assert_eq!(allow("allow -d shop a=b"), Action::Allow { count: true });
        assert_eq!(allow("allow -d shop a=b --no-count"), Action::Allow { count: false });
        let (name, rate) = ("day".to_owned(), None);
        let change = LimitChange { n: 5, burst: Some(2), name, rate };
        let limit = sent("limit -d shop a=b --n 5 --burst 2 --limit day").unwrap();
        assert_eq!(limit.action, Action::Limit { limit: change });
        let limit = sent("limit -d shop a=b --rate 300/15m").unwrap();
        let rate = "300/15m".parse().ok();
        let change = LimitChange { n: 300, rate, ..LimitChange::default() };
        assert_eq!(limit.action, Action::Limit { limit: change });
    }

    #[test]
    fn invalid_arguments_are_reported_with_a_fix() {
        for (line, cause) in [
            ("block", "there is no descriptor: write key=value"),
            ("block -d shop =a", "no key"),
            ("block -d shop a=b c=d", "two descriptors"),
            ("block -d shop a=b --for 10", "10m"),
            ("block -d shop a=b --until tomorrow", "2030-01-31"),
            ("block -d shop a=b --for 1m --forever", "cannot be used with"),
            ("block -d shop a=b --for 1m --until 2030-01-31T08:00:00Z", "cannot be used with"),
            ("block -d shop a=b --n 5", "--n"),
            ("limit -d shop a=b", "--n"),
            ("limit -d shop a=b --n -1", "'--n <N>': write a whole number from 0 to 4294967295"),
            ("limit -d shop a=b --n 5 --burst 5e9", "from 0 to 4294967295"),
            ("limit -d shop a=b --n 5 --rate 5/s", "cannot be used with"),
            ("limit -d shop a=b --rate 5r/s", "'--rate <RATE>': write `5/s`"),
            ("limit -d shop a=b --rate -5/s", "'--rate <RATE>': write a whole number and a period"),
        ] {
            let error = sent(line).unwrap_err();
            assert!(error.contains(cause), "{line}: {error}");
        }
    }
}
