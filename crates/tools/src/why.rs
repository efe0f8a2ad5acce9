//! `weir why`: shows what happened to one descriptor: its denials, changes that affect it, and its state now.

mod events;
mod replica;

use std::collections::HashSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use serde::Deserialize;
use serde_json::{Value, json};

use self::events::{Key, Row, time};
use self::replica::{Replica, ReplicaStatus};
use super::api_client::{ApiClient, ClientError, ConnectionArgs, read};
use super::describe::part;
use super::match_args::MatchArgs;
use crate::http_client::parse_timeout;
use crate::print::Column::{self, Left, Right};
use crate::print::{self, Output, counted, finish, line, table};
use weir_api::messages::HistoryAnswer;
use weir_common::duration::rounded;
use weir_limiter::explain::{Explained, LiveDescriptor};
use weir_top::TopList;

const EXAMPLES: &str = "\
Examples:
  weir why -d shop user=mallory
  weir why -d shop user=mallory --since 1h --output json
  weir why -d shop user=mallory --since 14:03
  weir why -d shop user=mallory --server http://10.0.0.7:6070 --server http://10.0.0.8:6070

It lists denied requests whose descriptor has these entries, alone or with others, and changes of controls, rules and
the store. Each replica has its own: name all with --server. Exits 0 if all of them answer, 1 if one does not.";

const MAX_ROWS: usize = 30;

/// What is not in the history.
const SAMPLED: &str = "note: a replica keeps the newest denial of each of up to 4096 keys, and of all keys one a \
                       second, 200 in an hour; the setting log.denials logs more";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WhyArgs {
    #[command(flatten)]
    matched: MatchArgs,
    /// How long to look back, or the time of day (UTC) from which on: 30m, 14:03.
    #[arg(long, value_name = "SINCE", default_value = "10m", value_parser = parse_since)]
    #[arg(allow_hyphen_values = true)]
    since: Duration,
    /// Format of the answer.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// URL of the debug port of a replica; can be repeated. Default: WEIR_SERVER, else http://127.0.0.1:6070.
    #[arg(long, value_name = "URL")]
    server: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Reads a duration, or a time of the last day, in UTC as times are printed. Returns the time since then.
fn parse_since(text: &str) -> Result<Duration, String> {
    let time = text.contains(':').then(|| text.parse::<jiff::civil::Time>());
    let Some(Ok(time)) = time else {
        return parse_timeout(text)
            .map_err(|error| format!("{error}, or a time of day such as 14:03"));
    };
    Ok(time_since(time, Timestamp::now().to_zoned(TimeZone::UTC).time()))
}

fn time_since(time: jiff::civil::Time, now: jiff::civil::Time) -> Duration {
    const DAY: i64 = 86_400;
    let seconds = time.until((Unit::Second, now)).map_or(0, |span| span.get_seconds());
    Duration::from_secs(seconds.rem_euclid(DAY).unsigned_abs())
}

pub fn run(args: &WhyArgs) -> ExitCode {
    let (mut replicas, mut code) = (Vec::new(), ExitCode::SUCCESS);
    let named = args.server.iter().map(|server| Some(server.as_str()));
    for server in named.chain(args.server.is_empty().then_some(None)) {
        match ask(args, server) {
            Ok(replica) => replicas.push(replica),
            Err(error) => code = error.report(),
        }
    }
    let mut out = io::stdout().lock();
    let printed = match args.output {
        _ if replicas.is_empty() => Ok(()),
        Output::Text => print_all(&replicas, args.since, &mut out),
        Output::Json => print::json(&json!({ "replicas": replicas }), &mut out),
    };
    finish(printed, code)
}

fn ask(args: &WhyArgs, server: Option<&str>) -> Result<Replica, ClientError> {
    let explain = args.matched.path("/v1/explain", &[])?;
    let (_, descriptor) = args.matched.parse()?;
    let client = ApiClient::of(server, &args.connection)?;
    let history: HistoryAnswer = read(&client.get("/v1/history?step=1s")?)?;
    // After the history: what applies now is never older than the changes that are listed.
    let explained: Explained<LiveDescriptor> = read(&client.get(&explain)?)?;
    let status = read::<StatusAnswer>(&client.get("/v1/status")?)?.status;
    let mut denied: TopList = read(&client.get("/v1/top?by=denied&window=1h&limit=10000")?)?;
    let shown = explained.descriptors.first().map_or(&[][..], |descriptor| &descriptor.shown);
    let key = Key { domain: &explained.domain, entries: descriptor.entries(), shown };
    denied.rows.retain(|row| key.is_in(&row.domain, &row.entries));
    let now = status.at.parse().unwrap_or(Timestamp::MAX);
    let is_recent = |event: &Value| now.duration_since(time(event)).unsigned_abs() <= args.since;
    let (mut denials, mut changes) = (history.denials, history.events);
    denials.retain(|denial| is_recent(denial) && key.is_denied_by(denial));
    changes.retain(|change| is_recent(change) && key.is_changed_by(change));
    Ok(Replica { server: client.shown, status, explained, denied, denials, changes })
}

#[derive(Deserialize)]
struct StatusAnswer {
    status: ReplicaStatus,
}

fn print_all(replicas: &[Replica], since: Duration, out: &mut dyn Write) -> io::Result<()> {
    const COLUMNS: [Column; 4] = [Right("AGO"), Left("AT"), Left("REPLICA"), Left("EVENT")];
    let are_several = replicas.len() > 1;
    for replica in replicas {
        if are_several {
            let name = part(" is ", &replica.status.replica);
            line(out, &format!("{}{name}", replica.server))?;
        }
        replica.print_now(out)?;
    }
    let mut rows: Vec<Row> = replicas.iter().flat_map(Row::all).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.at));
    // Replicas that share a control all report its change.
    let mut known = HashSet::new();
    rows.retain(|row| row.control.clone().is_none_or(|control| known.insert(control)));
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let span = rounded(millis);
    writeln!(out)?;
    match rows.len().saturating_sub(MAX_ROWS) {
        _ if rows.is_empty() => line(out, &format!("nothing is known of the last {span}"))?,
        0 => line(out, &format!("in the last {span}, the newest first:"))?,
        more => line(out, &format!("in the last {span}, the newest first, without {more} older:"))?,
    }
    let cells = |row: &Row| {
        let replica = if are_several { row.replica.clone() } else { String::new() };
        let at = row.at.round(Unit::Second).unwrap_or(row.at);
        vec![rounded(row.ago_ms), at.to_string(), replica, row.text.clone()]
    };
    table(out, 2, &COLUMNS, &rows.iter().take(MAX_ROWS).map(cells).collect::<Vec<_>>())?;
    for replica in replicas.iter().filter(|replica| replica.status.uptime_ms < millis) {
        let (name, uptime) = (replica.name(), rounded(replica.status.uptime_ms));
        line(out, &format!("note: {name} started {uptime} ago, and knows nothing from before"))?;
    }
    let known = replicas.iter().map(|replica| replica.denied.replicas).max().unwrap_or(1);
    if known > replicas.len() {
        let asked = counted(replicas.len() as u64, "replica");
        let others = format!("note: this is from {asked} of {known}: name all with --server");
        line(out, &others)?;
    }
    line(out, SAMPLED)
}

#[cfg(test)]
mod tests {
    use jiff::civil::time;

    use super::*;

    #[test]
    fn a_time_of_day_is_of_the_last_day() {
        let since =
            |hour, minute| time_since(time(hour, minute, 0, 0), time(14, 10, 30, 0)).as_secs();
        assert_eq!((since(14, 3), since(13, 3)), (450, 4_050));
        assert_eq!(since(14, 11), 86_400 - 30);
        assert_eq!(parse_since("30m"), Ok(Duration::from_secs(1_800)));
        assert!(parse_since("23:59:59").unwrap() <= Duration::from_secs(86_400));
        assert!(parse_since("x").unwrap_err().contains("or a time of day such as 14:03"));
    }
}
