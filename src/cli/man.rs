//! `weir man`: writes the manual pages.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};

use super::Cli;

const EXAMPLES: &str = "\
Example:
  weir man /usr/local/share/man/man1

Then `man weir` and `man weir-serve` show them.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// The directory to write to. Created if it does not exist.
    directory: PathBuf,
}

/// Writes a page for the program and one for each command.
pub fn run(args: &ManArgs) -> ExitCode {
    let directory = &args.directory;
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ =
                writeln!(io::stderr(), "error: cannot write to {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
