//! The files that a request passes through, which ARCHITECTURE.md lists: those of which a function runs for one request
//! without TLS, with one descriptor of a lone fixed_window, without controls and traces. Also the files of tools, HTTP and
//! controls through which `weir block` goes.
//!
//! The program runs under callgrind, which records the functions that run between two commands, by thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;

use crate::support::api::{channel, request};
use crate::support::redis::Server;
use crate::support::tools::tool;
use crate::support::wait_for;
use crate::support::weir::{Setup, Weir};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

type Client = RateLimitServiceClient<Channel>;

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

/// A weir under callgrind.
struct Recorded {
    weir: Weir,
    vgdb: PathBuf,
    output: PathBuf,
    _directory: TempDir,
}

/// The functions of the service that answer `weir block`: the end of a change runs in a task of its own.
const OF_BLOCK: [&str; 2] = [
    "weir::http::answer::{{closure}}",
    "weir::http::operators::v1::controls::write::{{closure}}::{{closure}}",
];

/// The arguments of valgrind for weir under callgrind, which writes to files whose names begin with `output`. It
/// records what runs in some functions, or everything if there are none.
fn under_callgrind(output: &Path, functions: &[&str]) -> Vec<String> {
    let mut arguments = vec!["--tool=callgrind".to_owned(), "--separate-threads=yes".to_owned()];
    arguments.push(format!("--callgrind-out-file={}", output.display()));
    arguments.extend(functions.iter().map(|function| format!("--toggle-collect={function}")));
    arguments.push(env!("CARGO_BIN_EXE_weir").to_owned());
    arguments
}

impl Recorded {
    fn start(valgrind: &Path, functions: &[&str], redis: Option<&Server>) -> Recorded {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("functions");
        let mut setup = Setup::new().build(valgrind.to_owned());
        for argument in under_callgrind(&output, functions) {
            setup = setup.arg(&argument);
        }
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
    fn command(&self, word: &str) {
        let mut command = Command::new(&self.vgdb);
        command.arg(format!("--pid={}", self.weir.pid())).arg(word);
        let output = command.output().expect("vgdb runs");
        assert!(output.status.success(), "{command:?}: {output:?}");
    }

    /// Returns the files through which a request goes each time.
    fn way_of_request(&self) -> Files {
        // Connects to Redis, and reads what is read once.
        self.walk();
        let walks = (0..WALKS).map(|_| {
            self.command("zero");
            let client = self.walk();
            self.command("dump");
            drop(client);
            // The end of a connection comes after its answers, and would be part of the next walk.
            let open = r#"weir_connections{listener="grpc"}"#;
            wait_for("the connection is closed", || (self.weir.metric(open) == 0).then_some(()));
            take_files(&self.output, "rls::grpc::connection")
        });
        walks.reduce(|all, walk| &all & &walk).expect("walks")
    }

    /// Returns the files through which `weir block` goes each time: those of the command, and those of the service.
    fn way_of_block(&self, valgrind: &Path) -> [Files; 2] {
        // Reads what is read once.
        self.block(valgrind);
        let walks = (0..WALKS).map(|_| {
            self.command("zero");
            let in_command = self.block(valgrind);
            self.command("dump");
            [in_command, take_files(&self.output, "http::operators")]
        });
        let common = |all: [Files; 2], walk: [Files; 2]| [&all[0] & &walk[0], &all[1] & &walk[1]];
        walks.reduce(common).expect("walks")
    }

    /// Blocks a key by the command. Returns the files of which the command ran a function.
    fn block(&self, valgrind: &Path) -> Files {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("functions");
        let mut command = Command::new(valgrind);
        command.args(under_callgrind(&output, &["weir_tools::change::block"]));
        command.args(["block", "--domain", "shop", "user=ann"]);
        command.arg("--server").arg(format!("http://{}", self.weir.debug));
        let done = command.output().expect("valgrind runs");
        assert!(done.status.success(), "{done:?}");
        take_files(&output, "weir_tools::change")
    }

    /// Sends a request over a new connection, and another: what weir does after an answer is done by then. Returns the
    /// connection, and what keeps it open.
    fn walk(&self) -> (Client, Runtime) {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut client = runtime.block_on(async { Client::new(channel(self.weir.grpc).await) });
        for _ in 0..2 {
            let asked = client.should_rate_limit(request("shop", &[("user", "ann")]));
            let answer = runtime.block_on(asked).expect("an answer");
            assert_eq!(answer.into_inner().overall_code(), Code::Ok);
        }
        (client, runtime)
    }
}

/// Removes what callgrind wrote: a file for each thread. Returns the files of weir of which a function ran on a thread
/// that ran one of `room`.
fn take_files(output: &Path, room: &str) -> Files {
    let name = output.file_name().and_then(|name| name.to_str()).expect("text");
    let mut found = Files::new();
    for entry in fs::read_dir(output.parent().expect("is below")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if !path.file_name().and_then(|file| file.to_str()).expect("text").starts_with(name) {
            continue;
        }
        let functions = read_functions(&fs::read_to_string(&path).expect("a file"));
        if functions.iter().any(|function| function.contains(room)) {
            // All commands describe their arguments, whichever runs.
            let ran = functions.iter().filter(|function| !function.contains(" as clap"));
            found.extend(ran.filter_map(|function| file(function)));
        }
        fs::remove_file(path).expect("a file");
    }
    // The allocator is declared there, and generated code.
    for other in ["src/lib.rs", "src/main.rs", "crates/api/src/proto.rs"] {
        found.remove(other);
    }
    found
}

/// Reads the functions that a thread ran from a file of callgrind. A name stands where its number first does,
/// `fn=(1) name`, also where the function is called, `cfn=(1) name`; later there is only `fn=(1)`. What ran while
/// nothing was recorded has no lines below its name.
fn read_functions(text: &str) -> BTreeSet<String> {
    let mut names = HashMap::new();
    let mut functions = BTreeSet::new();
    let mut current = None;
    for line in text.lines() {
        let name = line.strip_prefix('c').unwrap_or(line).strip_prefix("fn=(");
        let Some((number, name)) = name.and_then(|rest| rest.split_once(')')) else {
            match line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                true => functions.extend(current.take().map(str::to_owned)),
                false if line.is_empty() => current = None,
                false => {}
            }
            continue;
        };
        let name = match name.trim_start() {
            "" => names.get(number).copied().unwrap_or_default(),
            name => *names.entry(number).or_insert(name),
        };
        functions.extend(current.take().filter(|_| line.starts_with('c')).map(str::to_owned));
        current = Some(name);
    }
    functions
}

/// Returns the file of weir that has a function: `weir_limit::plan::Plan::charge`, `<weir::a::B as C>::d`.
fn file(function: &str) -> Option<String> {
    // The compiler makes it, whatever types its name has.
    if function.starts_with("core::ptr::drop_in_place<") {
        return None;
    }
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

/// The most files from the socket to the limiter, from there in memory and in Redis, and of `weir block`.
const MAX_FILES: [usize; 4] = [15, 23, 34, 35];

#[test]
fn the_ways_of_a_request_are_listed_and_short() {
    let Some(valgrind) = tool("valgrind", "WEIR_VALGRIND") else { return };
    let in_memory = Recorded::start(&valgrind, &[], None).way_of_request();
    let block = Recorded::start(&valgrind, &OF_BLOCK, None).way_of_block(&valgrind);
    let [in_command, in_service]: [Files; 2] =
        block.map(|files| files.into_iter().filter(|file| is_of_block(file)).collect());
    let server = Server::start();
    let in_redis = Recorded::start(&valgrind, &[], Some(&server)).way_of_request();

    let (server, in_memory): (Files, Files) =
        in_memory.into_iter().partition(|file| is_server(file));
    let in_redis: Files = in_redis.into_iter().filter(|file| !is_server(file)).collect();
    let block = (&in_command | &in_service).len();
    let counts = [server.len(), in_memory.len(), in_redis.len(), block];
    let found = [
        ("From the socket to the limiter", server),
        ("Whatever the store", &in_memory & &in_redis),
        ("In memory", &in_memory - &in_redis),
        ("In Redis", &in_redis - &in_memory),
        ("The command `weir block`", in_command),
        ("The service at `weir block`", in_service),
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
    let is_short = counts.iter().zip(MAX_FILES).all(|(count, most)| *count <= most);
    assert!(is_short, "{counts:?} files, at most {MAX_FILES:?}");
}

/// Whether a file is of the rooms that `weir block` is about.
fn is_of_block(file: &str) -> bool {
    ["crates/tools/", "crates/controls/src/", "src/http"].iter().any(|room| file.starts_with(room))
}

/// Whether a file is before the limiter.
fn is_server(file: &str) -> bool {
    (file.starts_with("src/") || file.starts_with("crates/api/"))
        && !file.starts_with("src/app/stores")
}
