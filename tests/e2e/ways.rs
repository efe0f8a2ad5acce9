//! The files that a request and a control pass through, which ARCHITECTURE.md lists.
//!
//! The program runs under callgrind, which records the functions that run between two commands. What also runs
//! while nobody asks is not of the way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

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
    _directory: TempDir,
}

/// Returns the setup of a program under callgrind, which writes to files whose names begin with `output`.
fn under_callgrind(valgrind: &Path, output: &Path, options: &[&str]) -> Setup {
    let setup = Setup::new().build(valgrind.to_owned()).arg("--tool=callgrind");
    let output = format!("--callgrind-out-file={}", output.display());
    let options = [&["--separate-threads=yes", &output], options].concat();
    let setup = options.iter().fold(setup, |setup, option| setup.arg(option));
    setup.arg(env!("CARGO_BIN_EXE_weir"))
}

impl Recorded {
    fn start(valgrind: &Path, redis: Option<&Server>) -> Recorded {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("functions");
        let setup = under_callgrind(valgrind, &output, &["--instr-atstart=no"]);
        let setup = setup.file("rules.yaml", RULES);
        let rules = setup.path("rules.yaml");
        let mut setup = setup.arg("serve").arg("--rules").arg(rules.to_str().expect("text"));
        setup = setup.env("WEIR__RUNTIME__THREADS", "1");
        if let Some(redis) = redis {
            setup = setup.env("REDIS_URL", redis.addr());
        }
        let (weir, vgdb) = (setup.start(), valgrind.with_file_name("vgdb"));
        Recorded { weir, vgdb, output, _directory: directory }
    }

    /// Sends a command to callgrind.
    fn command(&self, words: &[&str]) {
        let mut command = Command::new(&self.vgdb);
        command.arg(format!("--pid={}", self.weir.pid())).args(words);
        let output = command.output().expect("vgdb runs");
        assert!(output.status.success(), "{command:?}: {output:?}");
    }

    /// Returns the files through which `walk` goes each time, on the threads that run one of the functions.
    fn way(&self, of_threads: &[&str], mut walk: impl FnMut()) -> Files {
        // Connects to Redis, and reads what is read once.
        walk();
        let walks = (0..WALKS).map(|_| {
            self.command(&["instrumentation", "on"]);
            walk();
            self.command(&["dump"]);
            self.command(&["instrumentation", "off"]);
            take_files(&self.output, of_threads)
        });
        walks.reduce(|all, walk| &all & &walk).expect("walks")
    }
}

/// Removes what callgrind wrote: a file for each thread. Returns the files of weir of which a function ran, on the threads that
/// ran one of these.
fn take_files(output: &Path, of_threads: &[&str]) -> Files {
    let name = output.file_name().and_then(|name| name.to_str()).expect("text");
    let mut found = Files::new();
    for entry in fs::read_dir(output.parent().expect("is below")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if !path.file_name().and_then(|file| file.to_str()).expect("text").starts_with(name) {
            continue;
        }
        let thread = Thread::read(&fs::read_to_string(&path).expect("a file"));
        let is_of_way = |function: &String| of_threads.iter().any(|of| function.contains(of));
        if thread.functions.iter().any(is_of_way) {
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

/// Returns the command that blocks a user.
fn block(setup: Setup, debug: SocketAddr) -> Setup {
    let args = ["block", "-d", "shop", "user=bob", "--for", "1h"];
    args.iter()
        .fold(setup, |setup, arg| setup.arg(arg))
        .env("WEIR_SERVER", format!("http://{debug}"))
}

/// Returns the ways of ARCHITECTURE.md, by their headings: each line of a list begins with a path.
fn listed() -> BTreeMap<String, Files> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md"));
    let text = text.expect("a page");
    let sections = text.split("\n### ").skip(1).map(|section| {
        let (heading, body) = section.split_once('\n').expect("a heading");
        let body = body.split("\n## ").next().unwrap_or_default();
        let paths = body.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next());
        (heading.to_owned(), paths.map(str::to_owned).collect())
    });
    sections.collect()
}

/// Where `weir block` and its control go, besides what the process does by itself.
const CONTROL_THREADS: [&str; 2] = ["operators::v1::controls", "controls::compiled"];

#[test]
fn the_ways_are_listed_and_short() {
    let Some(valgrind) = tool("valgrind", "WEIR_VALGRIND") else { return };
    let request_threads = ["rls::grpc::connection", "net::accept::accept"];
    let memory = Recorded::start(&valgrind, None);
    let in_memory = memory.way(&request_threads, || ask(memory.weir.grpc));
    let server = Server::start();
    let redis = Recorded::start(&valgrind, Some(&server));
    let in_redis = redis.way(&request_threads, || ask(redis.weir.grpc));
    let debug = memory.weir.debug;
    let mut blocked = memory.way(&CONTROL_THREADS, || {
        let (status, said) = block(Setup::new(), debug).run();
        assert!(status.success(), "{said}");
    });
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("functions");
    let client = under_callgrind(&valgrind, &output, &[]);
    let (status, said) = block(client, debug).run();
    assert!(status.success(), "{said}");
    blocked.extend(take_files(&output, &["weir"]));

    let (server, in_memory): (Files, Files) =
        in_memory.into_iter().partition(|file| is_server(file));
    let in_redis: Files = in_redis.into_iter().filter(|file| !is_server(file)).collect();
    println!("{} {} {} {}", server.len(), in_memory.len(), in_redis.len(), blocked.len());
    let found = [
        ("From the socket to the limiter", server),
        ("Whatever the store", &in_memory & &in_redis),
        ("In memory", &in_memory - &in_redis),
        ("In Redis", &in_redis - &in_memory),
        ("`weir block`, both sides", blocked),
    ];
    let listed = listed();
    let mut differences = String::new();
    for (heading, files) in &found {
        let listed = listed.get(*heading).cloned().unwrap_or_default();
        for (sign, files) in [('+', files - &listed), ('-', &listed - files)] {
            differences.extend(files.iter().map(|file| format!("{heading}: {sign} {file}\n")));
        }
    }
    assert_eq!(differences, "", "ARCHITECTURE.md lists other files than those that run");
}

/// Whether a file is before the limiter.
fn is_server(file: &str) -> bool {
    (file.starts_with("src/") || file.starts_with("crates/api/"))
        && !file.starts_with("src/app/stores")
}
