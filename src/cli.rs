//! The command line: one file for each subcommand.

pub mod check;
pub mod completions;
pub mod convert;
pub mod descriptor;
#[cfg(test)]
mod docs;
pub mod hit;
pub mod man;
pub mod serve;
pub mod settings;
pub mod shorthand;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::version::LONG_VERSION;

/// A rate-limit service for Envoy.
///
/// Envoy, or any gRPC client, asks whether a request is allowed. weir answers from rules.
#[derive(Debug, Parser)]
#[command(name = "weir", version = LONG_VERSION, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service.
    Serve(serve::ServeArgs),
    /// Check rule files and print their rules.
    Check(check::CheckArgs),
    /// Send requests to a rate-limit service, as Envoy does.
    Hit(hit::HitArgs),
    /// Convert limits of other programs into weir's rules.
    Convert(convert::ConvertArgs),
    /// Print a settings file with every setting at its default, and its description.
    #[command(after_help = settings::EXAMPLES)]
    Settings,
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
    /// Write the manual pages.
    Man(man::ManArgs),
}

/// The exit code of invalid arguments, which is clap's.
const USAGE: u8 = 2;
/// The exit code of `hit` for requests over their limit.
const OVER_LIMIT: u8 = 3;

/// Runs the command that `args` name. The first is the program itself.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match Cli::parse_from(arguments(args)).command {
        Command::Serve(args) => serve::run(args),
        Command::Check(args) => check::run(&args),
        Command::Hit(args) => hit::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Settings => settings::run(),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// Returns the arguments as clap expects them.
fn arguments(args: Vec<OsString>) -> Vec<OsString> {
    hit::reference_flags::rewrite(like_the_reference(args))
}

/// Returns the arguments as weir expects them. The reference has none, and its images pass the
/// program's own path as one: such an argument is dropped, and a program named `ratelimit` without
/// arguments serves.
fn like_the_reference(mut args: Vec<OsString>) -> Vec<OsString> {
    let program = args.first().cloned().unwrap_or_default();
    let name = Path::new(&program).file_name().map(OsString::from);
    while args.get(1).is_some_and(|arg| {
        *arg == program
            || (Path::new(arg).is_absolute() && Path::new(arg).file_name() == name.as_deref())
    }) {
        args.remove(1);
    }
    if args.len() == 1 && name.as_deref() == Some("ratelimit".as_ref()) {
        args.push("serve".into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(args: &[&str]) -> Vec<String> {
        let args = args.iter().map(OsString::from).collect();
        like_the_reference(args).into_iter().map(|a| a.into_string().unwrap()).collect()
    }

    #[test]
    fn a_program_named_ratelimit_serves() {
        assert_eq!(started(&["/bin/ratelimit"]), ["/bin/ratelimit", "serve"]);
        assert_eq!(started(&["/bin/ratelimit", "/bin/ratelimit"]), ["/bin/ratelimit", "serve"]);
        assert_eq!(started(&["ratelimit", "/bin/ratelimit"]), ["ratelimit", "serve"]);
        assert_eq!(started(&["ratelimit", "check", "x"]), ["ratelimit", "check", "x"]);
        assert_eq!(started(&["weir"]), ["weir"]);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
