//! The files that a request and a control pass through, which ARCHITECTURE.md lists.
//!
//! The program runs under callgrind, which records the functions that run between two commands. What also runs
//! while nobody asks is not of the way.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::api::{code, request};
use crate::support::redis::Server;
use crate::support::tools::tool;
use crate::support::weir::{Setup, Weir};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000000 }
";

/// How often each way is walked: what happens by chance does not happen each time.
const WALKS: usize = 3;

/// The files of a way.
type Files = BTreeSet<String>;

/// A weir under callgrind, which records nothing at first.
struct Recorded {
    weir: Weir,
    vgdb: PathBuf,
    output: PathBuf,
}

/// Returns the setup of a program under callgrind; the files of callgrind begin with `functions`.
fn under_callgrind(valgrind: &Path, options: &[&str]) -> Setup {
    let setup = Setup::new().build(valgrind.to_owned()).arg("--tool=callgrind");
    let output = format!("--callgrind-out-file={}", setup.path("functions").display());
    let options = [&["--separate-threads=yes", &output], options].concat();
    let setup = options.iter().fold(setup, |setup, option| setup.arg(option));
    setup.arg(env!("CARGO_BIN_EXE_weir"))
}

impl Recorded {
    fn start(valgrind: &Path, redis: Option<&Server>) -> Recorded {
        let setup = under_callgrind(valgrind, &["--instr-atstart=no"]).file("rules.yaml", RULES);
        let (rules, output) = (setup.path("rules.yaml"), setup.path("functions"));
        let mut setup = setup.arg("serve").arg("--rules").arg(rules.to_str().expect("text"));
        setup = setup.env("WEIR__RUNTIME__THREADS", "1");
        if let Some(redis) = redis {
            setup = setup.env("REDIS_URL", redis.addr());
        }
        Recorded { weir: setup.start(), vgdb: valgrind.with_file_name("vgdb"), output }
    }

    /// Sends a command to callgrind.
    fn command(&self, words: &[&str]) {
        let mut command = Command::new(&self.vgdb);
        command.arg(format!("--pid={}", self.weir.pid())).args(words);
        let output = command.output().expect("vgdb runs");
        assert!(output.status.success(), "{command:?}: {output:?}");
    }

    /// Returns the files through which `walk` goes each time, on the threads that run a function of `marker`.
    fn way(&self, marker: &str, mut walk: impl FnMut()) -> Files {
        // Connects to Redis, and reads what is read once.
        walk();
        let walks = (0..WALKS).map(|_| {
            self.command(&["instrumentation", "on"]);
            walk();
            self.command(&["dump"]);
            self.command(&["instrumentation", "off"]);
            take_files(&self.output, marker)
        });
        walks.reduce(|all, walk| &all & &walk).expect("walks")
    }
}

/// Removes what callgrind wrote: a file for each thread. Returns the files of weir of which a function ran, on the threads that
/// ran a function of `marker`.
fn take_files(output: &Path, marker: &str) -> Files {
    let name = output.file_name().and_then(|name| name.to_str()).expect("text");
    let mut found = Files::new();
    for entry in fs::read_dir(output.parent().expect("is below")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if !path.file_name().and_then(|file| file.to_str()).expect("text").starts_with(name) {
            continue;
        }
        let thread = Thread::read(&fs::read_to_string(&path).expect("a file"));
        if thread.functions.iter().any(|function| function.contains(marker)) {
            found.extend(thread.functions.iter().filter_map(|function| file(function)));
            found.extend(thread.files.iter().filter_map(|path| within_root(path)));
        }
        fs::remove_file(path).expect("a file");
    }
    // The allocator is declared there.
    for root in ["src/lib.rs", "src/main.rs"] {
        found.remove(root);
    }
    found
}

/// What a thread ran.
#[derive(Default)]
struct Thread {
    functions: BTreeSet<String>,
    /// The files of these, and of functions that were inlined into them.
    files: BTreeSet<String>,
}

impl Thread {
    /// Reads a file of callgrind. A name has a number where it first stands, `fn=(1) name`, and only that later, `fn=(1)`.
    fn read(text: &str) -> Thread {
        let mut names = HashMap::new();
        let mut thread = Thread::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once("=(") else { continue };
            let Some((number, name)) = value.split_once(')') else { continue };
            let is_function = matches!(key, "fn" | "cfn");
            let name = match name.trim_start() {
                "" => names.get(&(is_function, number)).copied().unwrap_or_default(),
                name => {
                    names.insert((is_function, number), name);
                    name
                }
            };
            match key {
                "fn" => thread.functions.insert(name.to_owned()),
                "fl" | "fi" | "fe" => thread.files.insert(name.to_owned()),
                _ => false,
            };
        }
        thread
    }
}

/// Returns the path of a source file from the root of the project, if it is of weir.
fn within_root(path: &str) -> Option<String> {
    let root = env!("CARGO_MANIFEST_DIR");
    let path = path.strip_prefix(root).map_or(path, |path| path.trim_start_matches('/'));
    let is_ours = path.starts_with("src/") || path.starts_with("crates/");
    (is_ours && Path::new(root).join(path).is_file()).then(|| path.to_owned())
}

/// Returns the file of weir that has a function: `weir_limit::plan::Plan::charge`, `<weir::a::B as C>::d`.
fn file(function: &str) -> Option<String> {
    let mut path = function;
    while let Some(inner) = path.strip_prefix(['<', '&']) {
        path = inner.trim_start_matches("mut ");
    }
    if !path.starts_with("weir") {
        // What a trait of weir does for a type of others is beside the trait.
        path = function.split_once(" as ").map(|(_, of_trait)| of_trait)?;
    }
    let mut names = path.split(['<', '>', ' ', '{']).next()?.split("::");
    let package = names.next()?;
    let directory = match package.strip_prefix("weir_") {
        Some(package) => format!("crates/{package}/src"),
        None if package == "weir" => "src".to_owned(),
        None => return None,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut module = directory.clone();
    for name in names {
        let deeper = format!("{module}/{name}");
        if !root.join(format!("{deeper}.rs")).is_file() {
            break;
        }
        module = deeper;
    }
    Some(if module == directory { format!("{directory}/lib.rs") } else { format!("{module}.rs") })
}

fn ask(grpc: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answered = runtime.block_on(code(grpc, request("shop", &[("user", "ann")])));
    assert_eq!(answered, Code::Ok);
}

fn block(debug: SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["block", "-d", "shop", "user=bob", "--for", "1h"]);
    command.env("WEIR_SERVER", format!("http://{debug}"));
    let output = command.output().expect("weir runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn print_ways() {
    let Some(valgrind) = tool("valgrind", "WEIR_VALGRIND") else { return };
    let memory = Recorded::start(&valgrind, None);
    for file in memory.way("weir::rls::grpc", || ask(memory.weir.grpc)) {
        println!("memory {file}");
    }
    let server = Server::start();
    let redis = Recorded::start(&valgrind, Some(&server));
    for file in redis.way("weir::rls::grpc", || ask(redis.weir.grpc)) {
        println!("redis {file}");
    }
    for file in memory.way("weir::http::operators", || block(memory.weir.debug)) {
        println!("block {file}");
    }
}
