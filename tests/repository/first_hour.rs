//! Runs the blocks of docs/first-hour.md as they are pasted, in order, and compares the outputs it shows.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use regex::Regex;

use crate::readme::session::Session;
use crate::readme::{Step, install_tools, run_up_to_three_times, steps};
use crate::support::files::{read, root};
use crate::support::tools::tool;

/// The ports of two replicas, of Redis, and of Envoy and its backend.
const PORTS: [u16; 9] = [8081, 8080, 6070, 8083, 8082, 6071, 6390, 10000, 10001];

/// The first words of commands that run until they are stopped.
const SERVERS: [&str; 3] = ["weir serve ", "\"$(scripts/install-envoy)\" ", "redis-server "];

/// A Redis that a busy machine delays answers all the same.
const PATIENCE: &str = "export WEIR__STORE__BUDGET=5s WEIR__STORE__REDIS__SLOW_AFTER=5s\n";

/// The time between two blocks. Files are loaded, and blocks are shared, within a second.
const PAUSE: Duration = Duration::from_secs(1);

#[test]
fn the_first_hour_goes_as_shown() {
    let Some(redis) = tool("redis-server", "WEIR_REDIS_SERVER") else { return };
    let steps = steps(&read("docs/first-hour.md"));
    run_up_to_three_times(|| run(&steps, &redis));
}

fn run(steps: &[Step], redis: &Path) -> Result<(), String> {
    let (tools, checkout) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    install_tools(tools.path());
    symlink(redis, tools.path().join("redis-server")).unwrap();
    for directory in ["examples", "scripts"] {
        symlink(root().join(directory), checkout.path().join(directory)).unwrap();
    }
    let mut session = Session::new(checkout.path(), tools.path(), &PORTS);
    for Step { line, commands, output } in steps {
        let describe = |error| format!("docs/first-hour.md:{line}: {error}");
        let shown = output.as_deref().unwrap_or_default();
        if commands.starts_with("redis-server ") {
            // As the page says.
            session.stop_servers(&PORTS);
        }
        if SERVERS.iter().any(|server| commands.starts_with(server)) {
            session.start(&format!("{PATIENCE}{commands}"), shown).map_err(describe)?;
            continue;
        }
        sleep(PAUSE);
        let printed = session.run(&format!("exec 2>&1\nexport USER=ann\n{commands}"));
        let printed = printed.map_err(describe)?;
        if without_durations(shown) != without_durations(&printed) {
            return Err(describe(format!("shown:\n{shown}\nprinted:\n{printed}")));
        }
    }
    Ok(())
}

fn without_durations(text: &str) -> String {
    Regex::new(r"\b[0-9][0-9dhms]*[dhms]\b").unwrap().replace_all(text, "…").into_owned()
}
