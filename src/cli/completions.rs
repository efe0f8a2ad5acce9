//! `weir completions`: prints a completion script for a shell.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::output::finish;

const EXAMPLES: &str = "\
Examples:
  weir completions bash > /usr/share/bash-completion/completions/weir
  weir completions fish > ~/.config/fish/completions/weir.fish
  weir completions zsh > /usr/local/share/zsh/site-functions/_weir";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weir", &mut script);
    finish(std::io::stdout().lock().write_all(&script), ExitCode::SUCCESS)
}
