//! Finds the commit that is built. The code for `proto/` is committed, in `proto/generated`.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The digits of a commit that are shown.
const COMMIT_DIGITS: usize = 12;

fn main() {
    println!("cargo:rustc-env=WEIR_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
}

/// Returns the commit: that of the variable `GIT_COMMIT`, else that of the repository. Debug builds
/// do not look into the repository, because each commit would rebuild the crate.
fn commit() -> Option<String> {
    println!("cargo:rerun-if-env-changed=GIT_COMMIT");
    let given = env::var("GIT_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| if is_release { checked_out() } else { None })?;
    let is_hash = commit.len() >= 7 && commit.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_hash {
        println!("cargo:warning=no commit is shown: {commit:?} is not one");
    }
    is_hash.then(|| commit.chars().take(COMMIT_DIGITS).collect())
}

/// Reads the commit that is checked out. None without a repository, as in a source archive.
fn checked_out() -> Option<String> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let dot_git = root.join(".git");
    // In a worktree it is a file with the path of the directory.
    let git = match fs::read_to_string(&dot_git) {
        Ok(link) => root.join(link.strip_prefix("gitdir:")?.trim()),
        Err(_) => dot_git,
    };
    // Each commit appends to the log of HEAD, also if a packed branch gets a file of its own.
    read(&git.join("logs/HEAD"));
    let head = read(&git.join("HEAD"))?;
    let Some(branch) = head.strip_prefix("ref:").map(str::trim) else { return Some(head) };
    // Branches are shared between worktrees.
    let common = fs::read_to_string(git.join("commondir"));
    let common = common.map_or(git.clone(), |path| git.join(path.trim()));
    read(&common.join(branch)).or_else(|| packed(&common, branch))
}

/// Finds the commit of a branch that has no file of its own.
fn packed(git: &Path, branch: &str) -> Option<String> {
    let packed = read(&git.join("packed-refs"))?;
    let commit = packed.lines().find_map(|line| line.strip_suffix(branch)?.strip_suffix(' '));
    commit.map(str::to_owned)
}

/// Reads a file that decides which commit is built.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    Some(text.trim().to_owned())
}
