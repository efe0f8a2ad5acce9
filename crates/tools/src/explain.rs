//! `weir explain`: shows which rule a descriptor matches, and why.

mod envoy_actions;
mod text;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

pub(crate) use self::text::print as print_text;
use super::api_client::{ApiClient, ClientError, ServerArgs, read, with_query};
use super::print::{self, Output, finish};
use super::rule_files::RuleFileArgs;
use weir_common::descriptor::{DescriptorArg, descriptor_text, parse_request};
use weir_common::entry::Entry;
use weir_limiter::explain::{Explained, LiveDescriptor, explain};
use weir_limiter::{Descriptor, Request};
use weir_rules::{Domain, RuleSet, UnorderedMatch};

const EXAMPLES: &str = "\
Examples:
  weir explain rules/ -d shop path=/login
  weir explain rules/ --overlay limits.overlay.yaml -d shop user=ann,path=/login remote_address=192.0.2.7
  weir explain --server http://127.0.0.1:6070 -d shop path=/login
  weir explain rules/ --near -d shop user=ann,pth=/login
  weir explain rules/ --envoy-actions user

With --server a running weir explains by its active rules, with the controls of operators and what is counted.

Exits 0 if every descriptor matches a rule, 3 if one does not, 1 if a file has an error or weir does not answer.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(
    override_usage = "weir explain [OPTIONS] <RULES>... -d <DOMAIN> <DESCRIPTOR>...\n       \
                            weir explain [OPTIONS] --server <URL> -d <DOMAIN> <DESCRIPTOR>...\n       \
                            weir explain <RULES>... --envoy-actions <RULE>"
)]
pub struct ExplainArgs {
    /// Rule files, directories of them, or Kubernetes manifests; `-` for standard input.
    #[arg(required_unless_present = "server", conflicts_with = "server", value_name = "RULES")]
    paths: Vec<PathBuf>,
    /// The domain, and the descriptors of one request, each as `key=value,key2=value2`. Write it last.
    #[arg(short, long, num_args = 2.., value_names = ["DOMAIN", "DESCRIPTOR"])]
    #[arg(required_unless_present = "envoy_actions")]
    domain: Vec<String>,
    /// For a descriptor that matches no rule, also list up to 20 rules whose first entry it has.
    #[arg(long)]
    near: bool,
    /// The entries are those of a quota bucket of Envoy: any order matches.
    #[arg(long, conflicts_with_all = ["envoy_actions", "server"])]
    quota: bool,
    /// Instead of -d: print the items of Envoy's `rate_limits` that reserve hits of a rule with `reserve`, and settle
    /// them.
    #[arg(long, value_name = "RULE", conflicts_with_all = ["domain", "near", "server", "output"])]
    envoy_actions: Option<String>,
    #[command(flatten)]
    rule_files: RuleFileArgs,
    /// Format of the explanation.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// The prefix of keys in Redis: the setting store.redis.key_prefix.
    #[arg(long, value_name = "PREFIX", default_value = "weir:")]
    key_prefix: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// The exit code if a descriptor matches no rule.
const NO_MATCH: u8 = 3;

pub fn run(args: &ExplainArgs) -> ExitCode {
    let explained = match args.server.server {
        Some(_) => explain_by_server(args),
        None => {
            let Some(rules) = args.rule_files.load(&args.paths) else { return ExitCode::FAILURE };
            if let Some(rule) = &args.envoy_actions {
                return match envoy_actions::items_of(&rules, rule) {
                    Ok(items) => {
                        let out = &mut io::stdout().lock();
                        let printed = items.lines().try_for_each(|text| print::line(out, text));
                        finish(printed, ExitCode::SUCCESS)
                    }
                    Err(error) => ClientError::Usage(error).report(),
                };
            }
            explain_by_files(args, &rules).map_err(ClientError::Usage)
        }
    };
    let read = explained.and_then(|json| Ok((read::<Explained<LiveDescriptor>>(&json)?, json)));
    let (explained, json) = match read {
        Ok(explained) => explained,
        Err(error) => return error.report(),
    };
    let mut out = io::stdout().lock();
    let printed = match args.output {
        Output::Text => print_text(&explained, &mut out),
        Output::Json => print::json(&json, &mut out),
    };
    let code = match explained.descriptors.iter().all(|descriptor| descriptor.explained.matched) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(NO_MATCH),
    };
    finish(printed, code)
}

fn explain_by_server(args: &ExplainArgs) -> Result<Value, ClientError> {
    let (domain, descriptors) = parse_request(&args.domain).map_err(ClientError::Usage)?;
    let texts: Vec<String> =
        descriptors.iter().map(|descriptor| descriptor_text(&descriptor.entries())).collect();
    let mut query = vec![("domain", domain)];
    query.extend(texts.iter().map(|text| ("descriptor", text.as_str())));
    query.extend(args.near.then_some(("near", "1")));
    ApiClient::new(&args.server)?.get(&with_query("/v1/explain", &query))
}

fn explain_by_files(args: &ExplainArgs, rules: &RuleSet) -> Result<Value, String> {
    let (domain, parsed) = parse_request(&args.domain)?;
    let mut entries: Vec<_> = parsed.iter().map(DescriptorArg::entries).collect();
    if let Some(domain) = rules.domain(domain).filter(|_| args.quota) {
        for entries in &mut entries {
            *entries = bucket_entries(domain, entries)?;
        }
    }
    let descriptors: Vec<Descriptor<'_>> =
        entries.iter().map(|entries| Descriptor { entries, ..Descriptor::default() }).collect();
    let request = Request { domain, descriptors: &descriptors, ..Request::default() };
    let explained = explain(rules, &request, args.near, &args.key_prefix)?;
    serde_json::to_value(explained).map_err(|error| error.to_string())
}

/// Returns the entries of a quota bucket in the order of their rule, or as they are without a rule.
fn bucket_entries<'e>(domain: &Domain, entries: &[Entry<'e>]) -> Result<Vec<Entry<'e>>, String> {
    let ordered = |order: &[usize]| order.iter().map(|&i| entries[i]).collect::<Vec<_>>();
    match domain.find_unordered(entries) {
        UnorderedMatch::None => Ok(entries.to_vec()),
        UnorderedMatch::One(order) => Ok(ordered(&order)),
        UnorderedMatch::Several(orders) => {
            let paths = orders.iter().filter_map(|order| {
                let entries = ordered(order);
                let rule = domain.find(&entries)?.rule;
                let (path, origin) = (rule.path(), &rule.origin);
                Some(format!("'{path}' ({origin}) as {}", descriptor_text(&entries)))
            });
            let paths = paths.collect::<Vec<_>>().join(" and ");
            Err(format!("not supported: a quota bucket needs one rule, but it matches {paths}"))
        }
        UnorderedMatch::TooMany => {
            let entries = descriptor_text(entries);
            Err(format!("not supported: too many rules may match the quota bucket {entries}"))
        }
    }
}
