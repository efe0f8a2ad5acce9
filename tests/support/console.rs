//! Runs `console` blocks of documents as they are pasted.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use regex::Regex;

/// Runs a block in a directory, with `weir` on the PATH, and compares what each command prints with what
/// the block shows. The file of a command `cat FILE` is written first.
pub fn run(block: &str, directory: &Path) -> Result<(), String> {
    let commands = commands(block)?;
    let mut script = "exec 2>&1\n".to_owned();
    for (command, shown) in &commands {
        if let Some(file) = command.strip_prefix("cat ") {
            fs::write(directory.join(file), shown).unwrap();
        }
        // The next command sees the exit code.
        writeln!(script, "{command}\nstatus=$?; echo @@@; (exit $status)").unwrap();
    }
    let bin = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_weir"), bin.path().join("weir")).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    // Variables set for the test run must not change what is printed.
    shell.args(["-c", &script]).current_dir(directory).env_clear().env("PATH", path);
    let printed = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    let outputs: Vec<&str> = printed.split("@@@\n").collect();
    if outputs.len() != commands.len() + 1 {
        return Err(format!("not all commands have run:\n{printed}"));
    }
    for ((command, shown), printed) in commands.iter().zip(outputs) {
        if !matches(shown, printed) {
            return Err(format!("{command}\nprints\n{printed}\nnot\n{shown}"));
        }
    }
    Ok(())
}

/// Returns the commands of a block, each with the output that follows it.
fn commands(block: &str) -> Result<Vec<(&str, String)>, String> {
    let mut commands: Vec<(&str, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command, String::new())),
            (None, Some((_, output))) => writeln!(output, "{line}").unwrap(),
            (None, None) => return Err(format!("no command: {line}")),
        }
    }
    Ok(commands)
}

/// Whether an output is the one shown, in which `…` is a number or a duration.
fn matches(shown: &str, printed: &str) -> bool {
    let pattern = regex::escape(shown).replace('…', r"[0-9.][0-9.dhms]*");
    Regex::new(&format!("^{pattern}$")).unwrap().is_match(printed)
}
