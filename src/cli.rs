//! The command line: parses it, and runs a subcommand. The crate `weir-tools` has most of them, in a file each.

mod check;
mod health;
mod serve;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::LONG_VERSION;
use crate::settings::table::example;
use weir_common::secret::without_any_login;
use weir_tools::check::CheckArgs;
use weir_tools::print::{finish, on_stderr};
use weir_tools::{
    change, controls, diff, explain, hit, quotas, replay, state, test, top, unblock, why,
};

const EXAMPLES: &str = "\
Examples:
  weir serve --rules rules/
  weir check rules/
  weir diff rules/
  weir explain rules/ -d shop path=/login
  weir test rules/
  weir replay rules/ --traffic access.log -d shop --descriptor 'path={path}'
  weir hit -d shop path=/login
  weir block -d shop user=mallory --for 1h
  weir why -d shop user=mallory";

/// The groups of commands in the help, each with its first command.
const GROUPS: [(&str, &str); 4] =
    [("Run", "serve"), ("Rules", "check"), ("Running service", "hit"), ("Shell", "completions")];

const SETTINGS_EXAMPLES: &str = "\
Examples:
  weir settings > weir.toml
  weir serve --settings weir.toml";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  weir completions bash > /usr/share/bash-completion/completions/weir
  weir completions fish > ~/.config/fish/completions/weir.fish
  weir completions zsh > /usr/local/share/zsh/site-functions/_weir";

const MAN_EXAMPLES: &str = "\
Examples:
  weir man /usr/local/share/man/man1
  man weir-check";

const VERSION_EXAMPLES: &str = "\
Examples:
  weir version";

/// A rate-limit service for Envoy.
///
/// Envoy, or any gRPC client, asks whether a request is allowed. weir answers from rules.
#[derive(Debug, Parser)]
#[command(name = "weir", version = LONG_VERSION, arg_required_else_help = true)]
#[command(after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service.
    Serve(serve::ServeArgs),
    /// Print a settings file with every setting, its default and its description.
    #[command(after_help = SETTINGS_EXAMPLES)]
    Settings,
    /// Check whether a running weir is ready, for probes and health checks of containers.
    Health(health::HealthArgs),
    /// Check rule files and print their rules.
    Check(CheckArgs),
    /// Compare rule files with the active rules of a running weir, or with other rule files.
    Diff(diff::DiffArgs),
    /// Show which rule a descriptor matches, and why.
    Explain(explain::ExplainArgs),
    /// Run tests of rules in simulated time.
    Test(test::TestArgs),
    /// Replay recorded traffic through rules, and report what they would deny.
    Replay(replay::ReplayArgs),
    /// Send requests to a rate-limit service, as Envoy does.
    Hit(hit::HitArgs),
    /// Show why a client was denied: its denials, what changed for it, and its state.
    Why(why::WhyArgs),
    /// List the keys with the most hits, the most denials, or near a limit.
    Top(top::TopArgs),
    /// Show what a key has counted, for each limit.
    State(state::StateArgs),
    /// Reset what a key has counted.
    Reset(state::ResetArgs),
    /// List the hits that Envoys were granted ahead of time.
    Quotas(quotas::QuotasArgs),
    /// List what is blocked, allowed and limited.
    Controls(controls::ControlsArgs),
    /// Deny a client's requests, on all replicas of a running service.
    Block(change::BlockArgs),
    /// Allow a client's requests, whatever the limits say.
    Allow(change::AllowArgs),
    /// Change a limit for a client.
    Limit(change::LimitArgs),
    /// End a block.
    Unblock(unblock::UnblockArgs),
    /// End a block, an allowance or a changed limit.
    Remove(unblock::RemoveArgs),
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write manual pages, one for each command.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The directory, which has to exist.
        directory: PathBuf,
    },
    /// Print the version.
    #[command(after_help = VERSION_EXAMPLES)]
    Version,
}

/// Commands that other programs have, and what to do instead. Commands of weir with similar names do something else.
const TIPS: [(&str, &str); 2] = [
    // A conversion can limit nothing without an error.
    ("convert", "docs/migrating.md has the rule for each limit of other programs"),
    ("lint", "weir check reports errors and warnings of rule files"),
];

/// Runs the command that `args` name. The first is the program itself.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let args = arguments(args);
    let parsed = parse(&args);
    let fail = |error| without_logins(add_tip(error, &args)).exit();
    match parsed.unwrap_or_else(fail).command {
        Command::Serve(serve) => {
            let served = serve::run(serve, args.first().is_some_and(is_reference));
            served.err().unwrap_or(ExitCode::SUCCESS)
        }
        Command::Check(args) => check::run(args),
        Command::Diff(args) => diff::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Hit(args) => hit::run(&args),
        Command::Block(args) => change::block(&args),
        Command::Allow(args) => change::allow(&args),
        Command::Limit(args) => change::limit(&args),
        Command::Unblock(args) => unblock::unblock(&args),
        Command::Remove(args) => unblock::remove(&args),
        Command::Why(args) => why::run(&args),
        Command::Quotas(args) => quotas::run(&args),
        Command::Controls(args) => controls::run(&args),
        Command::Top(args) => top::run(&args),
        Command::State(args) => state::show(&args),
        Command::Reset(args) => state::reset(&args),
        Command::Settings => print(example().as_bytes()),
        Command::Completions { shell } => completions(shell),
        Command::Man { directory } => write_manual(&directory),
        Command::Version => print(format!("weir {LONG_VERSION}\n").as_bytes()),
    }
}

fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command()))
}

/// Returns the command line, whose help has the commands in groups.
fn command() -> clap::Command {
    let mut built = Cli::command();
    built.build();
    let header = *built.get_styles().get_header();
    let literal = *built.get_styles().get_literal();
    let mut groups = String::new();
    for command in built.get_subcommands() {
        let name = command.get_name();
        if let Some((group, _)) = GROUPS.iter().find(|(_, first)| *first == name) {
            groups += &format!("\n{header}{group}:{header:#}\n");
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        groups += &format!("  {literal}{name:11}{literal:#}  {about}\n");
    }
    Cli::command().help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
    print(&script)
}

fn write_manual(directory: &Path) -> ExitCode {
    match clap_mangen::generate_to(Cli::command(), directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            on_stderr(&format!("error: cannot write to {}: {error}", directory.display()));
            ExitCode::FAILURE
        }
    }
}

fn print(text: &[u8]) -> ExitCode {
    finish(std::io::stdout().lock().write_all(text), ExitCode::SUCCESS)
}

/// Removes logins of URLs and addresses from the arguments that an error quotes.
fn without_logins(mut error: clap::Error) -> clap::Error {
    let quoted = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(text) => Some((kind, without_any_login(text))),
        _ => None,
    });
    for (kind, text) in quoted.collect::<Vec<_>>() {
        error.insert(kind, ContextValue::String(text));
    }
    error
}

/// Adds what to write instead, where clap cannot know it.
fn add_tip(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let is_command = |command: &str| args.get(1).is_some_and(|arg| arg == command);
    let has_domain = args.iter().any(|arg| arg == "-d" || arg == "--domain");
    let tip = match error.kind() {
        ErrorKind::MissingRequiredArgument if is_command("explain") && has_domain => {
            "write RULES before -d".to_owned()
        }
        ErrorKind::UnknownArgument if is_command("serve") => {
            match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(path)) if !path.starts_with('-') => {
                    format!("name rules with --rules {}", without_any_login(path))
                }
                _ => return error,
            }
        }
        ErrorKind::InvalidSubcommand => {
            let Some((_, tip)) = TIPS.iter().find(|(command, _)| is_command(command)) else {
                return error;
            };
            error.remove(ContextKind::SuggestedSubcommand);
            (*tip).to_owned()
        }
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

const REFERENCE_NAME: &str = "ratelimit";

fn arguments(args: Vec<OsString>) -> Vec<OsString> {
    hit::reference_flags::rewrite(like_the_reference(args))
}

/// Returns the arguments as weir expects them. The reference has none, and containers pass the path of
/// its program as one: such an argument is then the program, and a program named `ratelimit` without
/// arguments serves.
fn like_the_reference(mut args: Vec<OsString>) -> Vec<OsString> {
    while let [program, arg, ..] = args.as_slice() {
        let (path, name) = (Path::new(arg), Path::new(program).file_name());
        let is_program = path.file_name() == name || path.ends_with(REFERENCE_NAME);
        if arg != program && !(path.is_absolute() && is_program) {
            break;
        }
        args.remove(0);
    }
    if args.len() == 1 && args.first().is_some_and(is_reference) {
        args.push("serve".into());
    }
    args
}

fn is_reference(program: &OsString) -> bool {
    Path::new(program).ends_with(REFERENCE_NAME)
}
