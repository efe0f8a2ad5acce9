//! `weir unblock` and `weir remove`: end controls (blocks, allows and limits of operators) by id or by what they match.

use std::io;
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api_client::{ApiClient, ClientError, ServerArgs, encode, read, with_query};
use super::change::{ByArgs, print_deleted};
use super::describe::matched;
use crate::print::Output;
use weir_api::messages::{ChangedControl, ControlList, ShownControl};
use weir_common::descriptor::{DescriptorArg, descriptor_text, parse_match};
use weir_common::entry::OwnedEntry;
use weir_controls::Action;
use weir_limiter::explain::{Explained, LiveDescriptor};

const UNBLOCK_EXAMPLES: &str = "\
Examples:
  weir unblock -d shop user=mallory
  weir unblock user=mallory
  weir unblock block-3fa4c21d8e70

It ends the blocks of exactly these entries, in any order, or the one of an id. `weir remove` ends other controls, too.
Exits 1 if there is none.";

const REMOVE_EXAMPLES: &str = "\
Examples:
  weir remove limit-3fa4c21d8e70
  weir remove -d shop user=ann

It removes the control of an id, or all that match exactly these entries, in any order. Exits 1 if there is none.";

#[derive(Debug, Args)]
#[command(after_help = UNBLOCK_EXAMPLES)]
#[command(
    override_usage = "weir unblock [OPTIONS] [-d <DOMAIN>] <DESCRIPTOR>\n       weir unblock [OPTIONS] <ID>"
)]
pub struct UnblockArgs {
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(after_help = REMOVE_EXAMPLES)]
#[command(
    override_usage = "weir remove [OPTIONS] <ID>\n       weir remove [OPTIONS] [-d <DOMAIN>] <DESCRIPTOR>"
)]
pub struct RemoveArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// Which controls end.
#[derive(Debug, Args)]
struct TargetArgs {
    /// The id of a control, as `weir controls` lists it.
    #[arg(value_name = "ID", required_unless_present = "domain")]
    id: Option<String>,
    /// The domain, if several have rules, and what the control matches, as it was written for `weir block`.
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

#[derive(Deserialize)]
struct Deleted {
    deleted: Vec<ChangedControl>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Block,
    Any,
}

pub fn unblock(args: &UnblockArgs) -> ExitCode {
    run(&args.target, Kind::Block)
}

pub fn remove(args: &RemoveArgs) -> ExitCode {
    run(&args.target, Kind::Any)
}

fn run(args: &TargetArgs, kind: Kind) -> ExitCode {
    let (deleted, failed) = match delete(args, kind) {
        Ok((deleted, failed)) => (Ok(json!({ "deleted": deleted })), failed),
        Err(error) => (Err(error), None),
    };
    let shown = args.output.show(deleted, |Deleted { deleted }, out| {
        deleted.iter().try_for_each(|control| print_deleted(control, out, &mut io::stderr().lock()))
    });
    failed.map_or(shown, |error| error.report())
}

/// Returns the answers of what was deleted, at least one, and why the rest was not.
fn delete(args: &TargetArgs, kind: Kind) -> Result<(Vec<Value>, Option<ClientError>), ClientError> {
    let client = ApiClient::new(&args.server)?;
    let list = || read::<ControlList>(&client.get("/v1/controls")?);
    let ids = match &args.id {
        Some(id) if args.domain.is_empty() && !id.contains('=') && id != "*" => {
            if kind == Kind::Block {
                check_block(&list()?, id)?;
            }
            vec![id.clone()]
        }
        descriptor => {
            let parsed = parse_match(&args.domain, descriptor.as_deref());
            let (domain, descriptor) = parsed.map_err(ClientError::Usage)?;
            // The server knows whether one domain alone has rules.
            let query = [("descriptor", &*descriptor_text(&descriptor.entries()))];
            let domain = match domain {
                "" => {
                    let explained = client.get(&with_query("/v1/explain", &query))?;
                    read::<Explained<LiveDescriptor>>(&explained)?.domain
                }
                domain => domain.to_owned(),
            };
            kind.find(&list()?, &domain, &descriptor)?
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

/// Checks that the control of an id is a block, if there is one.
fn check_block(list: &ControlList, id: &str) -> Result<(), ClientError> {
    let mut controls = list.controls.iter().map(|shown| &shown.control);
    match controls.find(|control| control.id == id && control.action != Action::Block) {
        Some(other) => Err(ClientError::Rejected {
            error: format!("{id} is no block: {} of {}", other.action, matched(other)),
            help: format!("weir remove {id} ends it"),
            names: Vec::new(),
        }),
        None => Ok(()),
    }
}

impl Kind {
    /// Returns the ids of the controls of exactly these entries. If there is none, the error names another that matches.
    fn find(
        self,
        ControlList { controls, .. }: &ControlList,
        domain: &str,
        descriptor: &DescriptorArg,
    ) -> Result<Vec<String>, ClientError> {
        let entries = descriptor.entries();
        let controls = || controls.iter().map(|ShownControl { control, .. }| control);
        let wanted = sorted(OwnedEntry::copied(entries.iter().copied()));
        let found: Vec<String> = controls()
            .filter(|control| self == Kind::Any || control.action == Action::Block)
            .filter(|control| control.domain == domain)
            .filter(|control| sorted(control.entries.clone()) == wanted)
            .map(|control| control.id.clone())
            .collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let help = match controls().find(|control| control.matches(domain, &entries)) {
            Some(other) => {
                let command = if other.action == Action::Block { "unblock" } else { "remove" };
                let (action, id) = (other.action.name(), &other.id);
                format!("{action} of {} matches it: weir {command} {id} ends it", matched(other))
            }
            None => "weir controls lists all controls".to_owned(),
        };
        let what = if self == Kind::Block { "block" } else { "control" };
        let error = format!("there is no {what} of {domain} {}", descriptor_text(&entries));
        Err(ClientError::Rejected { error, help, names: Vec::new() })
    }
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
            Kind::Block.find(&controls, domain, &descriptor.parse().unwrap())
        };
        assert_eq!(found("shop", "path=/,user=m1").unwrap(), ["a", "b"]);
        assert_eq!(found("shop", "user=m1").unwrap(), ["c"]);
        assert_eq!(found("shop", "user=n*").unwrap(), ["e"]);
        let missing = |domain: &str, descriptor: &str| match found(domain, descriptor) {
            Err(ClientError::Rejected { error, help, .. }) => (error, help),
            other => panic!("{other:?}"),
        };
        let (error, help) = missing("shop", "user=n7");
        assert_eq!(error, "there is no block of shop user=n7");
        assert_eq!(help, "block of shop user=n* matches it: weir unblock e ends it");
        assert_eq!(missing("other", "user=m1").1, "weir controls lists all controls");
        let all = |descriptor: &str| {
            Kind::Any.find(&controls, "shop", &descriptor.parse::<DescriptorArg>().unwrap())
        };
        assert_eq!(all("user=m1").unwrap(), ["c", "d"]);
        let Err(ClientError::Rejected { error, .. }) = all("user=n7") else { panic!("a control") };
        assert_eq!(error, "there is no control of shop user=n7");
    }

    #[test]
    fn only_blocks_are_unblocked() {
        let mut controls = json!({ "share_error": null, "controls": [
            control("a", "block", &[("user", "m1")]),
            control("d", "allow", &[("user", "m1")]),
            control("l", "limit", &[("user", "m2")]),
        ] });
        controls["controls"][2]["limit"] = json!({ "n": 5 });
        let controls: ControlList = serde_json::from_value(controls).unwrap();
        assert_eq!((check_block(&controls, "a"), check_block(&controls, "none")), (Ok(()), Ok(())));
        let rejected = |id: &str| match check_block(&controls, id) {
            Err(ClientError::Rejected { error, help, .. }) => (error, help),
            other => panic!("{other:?}"),
        };
        let (error, help) = rejected("l");
        assert_eq!(
            (error.as_str(), help.as_str()),
            ("l is no block: limit 5 of shop user=m2", "weir remove l ends it")
        );
        assert_eq!(rejected("d").0, "d is no block: allow of shop user=m1");
    }
}
