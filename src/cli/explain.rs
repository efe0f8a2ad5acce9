//! `weir explain`: shows which rule a descriptor matches, and why.

mod explained;
mod json;
mod text;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, ValueEnum};

use self::explained::{Explained, explain};
use super::output::finish;
use super::{json_body, rule_files};
use crate::descriptor::DescriptorArg;
use crate::limiter::{Descriptor, Request};
use crate::rules::{Loaded, Options, SourceFile};
use crate::service::RequestView;

const EXAMPLES: &str = "\
Examples:
  weir explain rules/ -d shop path=/login
  weir explain rules/ --overlay limits.overlay.yaml -d shop user=ann,path=/login remote_address=192.0.2.7

Exits 0 if every descriptor matches a rule, 3 if one does not, 1 if a file has an error.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "weir explain [OPTIONS] <RULES>... -d <DOMAIN> <DESCRIPTOR>...")]
pub struct ExplainArgs {
    /// Rule files, directories of them, or Kubernetes manifests; `-` for standard input.
    #[arg(required = true, value_name = "RULES")]
    paths: Vec<PathBuf>,
    /// The domain, and the descriptors of one request, each as `key=value,key2=value2`. Write it last.
    #[arg(short, long, num_args = 2.., value_names = ["DOMAIN", "DESCRIPTOR"])]
    #[arg(required_unless_present = "json")]
    domain: Vec<String>,
    /// Instead of -d: the request as the body of `/json`; `-` reads it from standard input.
    #[arg(long, value_name = "BODY", conflicts_with = "domain")]
    json: Option<String>,
    /// An overlay of the rules, or a directory with files named .overlay.yaml; can be repeated.
    #[arg(long, value_name = "FILE")]
    overlay: Vec<PathBuf>,
    /// Format of the explanation.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Let several files add to one domain, as MERGE_DOMAIN_CONFIG does.
    #[arg(long)]
    merge_domains: bool,
    /// The prefix of keys in Redis: the setting store.redis.key_prefix.
    #[arg(long, value_name = "PREFIX", default_value = "weir:")]
    key_prefix: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A descriptor of every request has no rule.
const NO_MATCH: u8 = 3;
const USAGE: u8 = 2;

/// The largest rule file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Prints what applies to each descriptor.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let options = Options { merge_domains: args.merge_domains, ..Options::default() };
    let loaded = rule_files::load(&args.paths, &args.overlay, MAX_FILE_BYTES, &options);
    if !loaded.is_good() {
        // Standard error may be closed.
        let _ = io::stderr().write_all(loaded.render_errors().as_bytes());
        return ExitCode::FAILURE;
    }
    let explained = match &args.json {
        Some(body) => explain_json(args, &loaded, body),
        None => explain_arguments(args, &loaded),
    };
    let explained = match explained {
        Ok(explained) => explained,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", crate::escape::escape(&error));
            return ExitCode::from(USAGE);
        }
    };
    let mut out = io::stdout().lock();
    let printed = match args.output {
        Output::Text => text::print(&explained, &mut out),
        Output::Json => json::print(&explained, &mut out),
    };
    let code = match explained.descriptors.iter().all(|descriptor| descriptor.is_matched()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(NO_MATCH),
    };
    finish(printed, code)
}

/// Adds a tip to an error of the command line if the rules stand after the descriptors, as one of them.
pub(super) fn add_tip(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
    let has_domain = args.iter().any(|arg| arg == "-d" || arg == "--domain");
    if is_missing && has_domain && args.get(1).is_some_and(|command| command == "explain") {
        let tip = ContextValue::StyledStrs(vec!["write RULES before -d".into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

fn explain_arguments<'s>(
    args: &ExplainArgs,
    loaded: &'s Loaded<SourceFile>,
) -> Result<Explained<'s>, String> {
    let (domain, descriptors) = args.domain.split_first().ok_or("no domain")?;
    // The service refuses it too.
    if domain.is_empty() {
        return Err("the domain is empty: write -d DOMAIN key=value".to_owned());
    }
    let parsed: Vec<Vec<(String, String)>> = descriptors
        .iter()
        .map(|text| match text.parse::<DescriptorArg>() {
            Ok(descriptor) => Ok(descriptor.0),
            Err(error) => Err(format!("invalid descriptor '{text}': {error}")),
        })
        .collect::<Result<_, _>>()?;
    let entries: Vec<Vec<(&str, &str)>> = parsed
        .iter()
        .map(|entries| entries.iter().map(|(key, value)| (&**key, &**value)).collect())
        .collect();
    let descriptors: Vec<Descriptor<'_>> =
        entries.iter().map(|entries| Descriptor { entries, ..Descriptor::default() }).collect();
    let request =
        Request { domain, descriptors: &descriptors, beyond: 0, hits_addend: 0, span: None };
    explain(&loaded.rules, &request, &args.key_prefix)
}

fn explain_json<'s>(
    args: &ExplainArgs,
    loaded: &'s Loaded<SourceFile>,
    body: &str,
) -> Result<Explained<'s>, String> {
    let message = json_body::decode(body)?;
    let view = RequestView::decode(&message, usize::MAX).map_err(|error| error.to_string())?;
    let descriptors = view.descriptors();
    let request = view.request(&descriptors);
    if request.domain.is_empty() || request.descriptors.is_empty() {
        return Err("--json has no `domain`, or no `descriptors`".to_owned());
    }
    explain(&loaded.rules, &request, &args.key_prefix)
}
