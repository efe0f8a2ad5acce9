//! `weir unblock`: deletes a control, by its id or by what it blocks.

use std::io;
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api_client::{ApiClient, ClientError, ServerArgs, encode, read, with_query};
use super::change::{ByArgs, print_deleted};
use super::describe::matched;
use crate::print::Output;
use weir_api::messages::{ControlList, DeletedControl, ShownControl};
use weir_common::descriptor::{DescriptorArg, descriptor_text, parse_match};
use weir_common::entry::OwnedEntry;
use weir_limiter::controls::Action;

const EXAMPLES: &str = "\
Examples:
  weir unblock -d shop user=mallory
  weir unblock limit-3fa4c21d8e70

With -d it deletes the blocks of exactly these entries, in any order; by id a control of any kind. Exits 1 if there is
none.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(
    override_usage = "weir unblock [OPTIONS] <ID>\n       weir unblock [OPTIONS] -d <DOMAIN> <DESCRIPTOR>"
)]
pub struct UnblockArgs {
    /// The id of a control, as `weir controls` lists it.
    #[arg(value_name = "ID", required_unless_present = "domain", conflicts_with = "domain")]
    id: Option<String>,
    /// The domain, and what the block matches, as it was written for `weir block`.
    #[arg(short, long, num_args = 1..=2, value_names = ["DOMAIN", "DESCRIPTOR"])]
    domain: Vec<String>,
    #[command(flatten)]
    by: ByArgs,
    /// Format of the answer.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// What was deleted.
#[derive(Deserialize)]
struct Deleted {
    deleted: Vec<DeletedControl>,
}

/// Deletes the control, or the blocks of a client.
pub fn run(args: &UnblockArgs) -> ExitCode {
    let (deleted, failed) = match delete(args) {
        Ok((deleted, failed)) => (Ok(json!({ "deleted": deleted })), failed),
        Err(error) => (Err(error), None),
    };
    let shown = args.output.show(deleted, |Deleted { deleted }, out| {
        deleted.iter().try_for_each(|control| print_deleted(control, out, &mut io::stderr().lock()))
    });
    failed.map_or(shown, |error| error.report())
}

/// Returns the answers of what was deleted, at least one, and why the rest was not.
fn delete(args: &UnblockArgs) -> Result<(Vec<Value>, Option<ClientError>), ClientError> {
    let client = ApiClient::new(&args.server)?;
    let ids = match &args.id {
        Some(id) => vec![id.clone()],
        None => {
            let (domain, descriptor) = parse_match(&args.domain).map_err(ClientError::Usage)?;
            blocks(&read(&client.get("/v1/controls")?)?, domain, &descriptor)?
        }
    };
    let by = args.by.name();
    let path = |id: &String| with_query(&format!("/v1/controls/{}", encode(id)), &[("by", &by)]);
    let mut deleted = Vec::new();
    for id in &ids {
        match client.delete(&path(id)) {
            Ok(answer) => deleted.push(answer),
            Err(error) if deleted.is_empty() => return Err(error),
            Err(error) => return Ok((deleted, Some(error))),
        }
    }
    Ok((deleted, None))
}

/// Returns the ids of the blocks of exactly these entries.
///
/// # Errors
///
/// There is none; the error names other controls that match.
fn blocks(
    ControlList { controls, .. }: &ControlList,
    domain: &str,
    descriptor: &DescriptorArg,
) -> Result<Vec<String>, ClientError> {
    let entries = descriptor.entries();
    let controls = || controls.iter().map(|ShownControl { control, .. }| control);
    let wanted = sorted(OwnedEntry::copied(entries.iter().copied()));
    let found: Vec<String> = controls()
        .filter(|control| control.action == Action::Block && control.domain == domain)
        .filter(|control| sorted(control.entries.clone()) == wanted)
        .map(|control| control.id.clone())
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let help = match controls().find(|control| control.matches(domain, &entries)) {
        Some(other) => format!(
            "{} of {} matches it: weir unblock {} deletes that",
            other.action.name(),
            matched(other),
            other.id
        ),
        None => "weir controls lists all controls".to_owned(),
    };
    let error = format!("there is no block of {domain} {}", descriptor_text(&entries));
    Err(ClientError::Rejected { error, help })
}

fn sorted(mut entries: Vec<OwnedEntry>) -> Vec<OwnedEntry> {
    entries.sort_unstable();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(id: &str, action: &str, entries: &[(&str, &str)]) -> Value {
        let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
        json!({
            "id": id, "domain": "shop", "entries": entries.iter().map(entry).collect::<Vec<_>>(),
            "exact": false, "action": action, "until": null, "left_ms": null, "reason": "", "by": "",
            "at": "2026-01-01T00:00:00Z",
        })
    }

    #[test]
    fn blocks_are_found_by_their_entries_in_any_order() {
        let controls = json!({ "share_error": null, "controls": [
            control("a", "block", &[("user", "m1"), ("path", "/")]),
            control("b", "block", &[("path", "/"), ("user", "m1")]),
            control("c", "block", &[("user", "m1")]),
            control("d", "allow", &[("user", "m1")]),
            control("e", "block", &[("user", "n*")]),
        ] });
        let controls = serde_json::from_value(controls).unwrap();
        let found = |domain: &str, descriptor: &str| {
            blocks(&controls, domain, &descriptor.parse().unwrap())
        };
        assert_eq!(found("shop", "path=/,user=m1").unwrap(), ["a", "b"]);
        assert_eq!(found("shop", "user=m1").unwrap(), ["c"]);
        assert_eq!(found("shop", "user=n*").unwrap(), ["e"]);
        let missing = |domain: &str, descriptor: &str| match found(domain, descriptor) {
            Err(ClientError::Rejected { error, help }) => (error, help),
            other => panic!("{other:?}"),
        };
        let (error, help) = missing("shop", "user=n7");
        assert_eq!(error, "there is no block of shop user=n7");
        assert_eq!(help, "block of shop user=n* matches it: weir unblock e deletes that");
        assert_eq!(missing("other", "user=m1").1, "weir controls lists all controls");
    }
}
