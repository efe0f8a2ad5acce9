//! Compares the dependencies between modules with the table of ARCHITECTURE.md, and what each package has to
//! declare with what they declare. Finds files that use each other.

mod circles;
mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use self::circles::{Names, Package};
use self::sizes::{Source, functions_with, sources};

/// The modules that may use all others, because they assemble the program.
const WIRING: [&str; 2] = ["app", "cli"];

/// The most files with fewer than 40 lines; each algorithm's codec is one.
const MAX_SHORT_FILES: usize = 35;

/// The most functions with five or more parameters besides `self`.
const MAX_FUNCTIONS_WITH_MANY_PARAMETERS: usize = 15;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the top-level modules that src/lib.rs declares.
fn modules() -> BTreeSet<String> {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let declared = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    declared.map(str::to_owned).collect()
}

/// Returns the other modules that a module names as `crate::module`.
fn uses(module: &str) -> BTreeSet<String> {
    let directory = root().join("src").join(module);
    let mut files = sources(&directory);
    files.push(Source::read(directory.with_extension("rs")));
    let names = files.iter().flat_map(|file| {
        let name = |path: &str| {
            let path = path.trim_start();
            path.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().map(str::to_owned)
        };
        let named = |rest: &str| match rest.strip_prefix('{') {
            Some(group) => {
                let paths = group.split('}').next().unwrap_or_default().split(',');
                paths.filter_map(name).collect::<Vec<_>>()
            }
            None => name(rest).into_iter().collect(),
        };
        file.code.split("crate::").skip(1).flat_map(named).collect::<Vec<_>>()
    });
    names.filter(|name| name != module).collect()
}

/// Reads the table: which modules each module may use.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = text.split("| Module | May use |\n").nth(1).expect("the table of dependencies");
    let names = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut allowed = BTreeMap::new();
    for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').collect();
        let may_use = BTreeSet::from_iter(names(cells[2]));
        allowed.extend(names(cells[1]).into_iter().map(|module| (module, may_use.clone())));
    }
    allowed
}

#[test]
fn modules_use_only_what_the_table_allows() {
    let (modules, allowed) = (modules(), allowed());
    for module in &modules {
        let may_use = allowed.get(module).unwrap_or_else(|| panic!("{module} is not in the table"));
        if WIRING.contains(&module.as_str()) {
            continue;
        }
        let used = uses(module);
        let used = used.iter().filter(|name| modules.contains(*name));
        let surplus: Vec<_> = used.filter(|name| !may_use.contains(*name)).collect();
        assert!(surplus.is_empty(), "{module} uses {surplus:?}: ARCHITECTURE.md does not allow it");
    }
}

#[test]
fn the_table_names_only_existing_modules() {
    let modules = modules();
    for (module, may_use) in allowed() {
        assert!(modules.contains(&module), "{module}");
        for used in may_use.iter().filter(|used| !WIRING.contains(&used.as_str())) {
            assert!(modules.contains(used), "{module}: {used}");
        }
    }
}

/// Returns the directories of the packages in `crates`.
fn packages() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|package| package.join("Cargo.toml").exists());
    found.sort();
    assert!(found.len() > 5, "{found:?}");
    found
}

/// A piece that both use belongs into a file that uses neither.
#[test]
fn no_files_use_each_other() {
    for package in packages().into_iter().chain([root().to_owned()]) {
        let files = Package::read(&package.join("src/lib.rs"));
        for names in [Names::AsWritten, Names::Followed] {
            let circles = files.circles(names);
            assert!(circles.is_empty(), "{} ({names:?}): {circles:#?}", package.display());
        }
    }
}

/// Returns the files of the product.
fn product() -> Vec<Source> {
    let roots = packages().into_iter().chain([root().to_owned()]);
    roots.flat_map(|package| sources(&package.join("src"))).collect()
}

/// A reader of two packages meets one idea by one name.
#[test]
fn public_types_have_a_name_of_their_own() {
    // What a rule says, and what a charge does.
    let exceptions = ["Reserve"];
    let mut packages_of: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for package in packages().into_iter().chain([root().to_owned()]) {
        for file in sources(&package.join("src")) {
            let lines = file.code.lines().filter_map(|line| line.strip_prefix("pub "));
            for line in lines {
                let Some((kind, rest)) = line.split_once(' ') else { continue };
                let name =
                    rest.split(|char: char| !char.is_alphanumeric()).next().unwrap_or_default();
                if ["struct", "enum", "trait"].contains(&kind) && !exceptions.contains(&name) {
                    packages_of.entry(name.to_owned()).or_default().insert(package.clone());
                }
            }
        }
    }
    assert!(packages_of.len() > 300, "{}", packages_of.len());
    packages_of.retain(|_, packages| packages.len() > 1);
    assert!(packages_of.is_empty(), "{packages_of:#?}");
}

/// One that is shorter belongs to the file that uses it, or has a subject that is larger.
#[test]
fn few_files_are_short() {
    let product = product();
    assert!(product.len() > 300, "{}", product.len());
    // The root of a package has only its modules and their names.
    let others = product.iter().filter(|file| !file.path.ends_with("src/lib.rs"));
    let short = others.filter(|file| file.code.lines().count() < 40);
    let short: Vec<_> = short.map(|file| file.path.display()).collect();
    assert!(short.len() <= MAX_SHORT_FILES, "{}: {short:#?}", short.len());
}

#[test]
fn few_functions_have_many_parameters() {
    let product = product();
    let found = product.iter().flat_map(|file| {
        let functions = functions_with(5, &file.code).into_iter();
        functions.map(|name| format!("{}: {name}", file.path.display()))
    });
    let found: Vec<_> = found.collect();
    assert!(found.len() <= MAX_FUNCTIONS_WITH_MANY_PARAMETERS, "{}: {found:#?}", found.len());
}

/// Returns the files of a directory and those below it.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files_below(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

/// Without its source, proptest ignores a seed in silence.
#[test]
fn seeds_of_property_tests_are_named_as_their_sources() {
    let mut seeds = 0;
    for package in packages().into_iter().chain([root().to_owned()]) {
        let directory = package.join("proptest-regressions");
        for seed in files_below(&directory) {
            let name = seed.strip_prefix(&directory).unwrap().with_extension("rs");
            let source = package.join("src").join(name);
            assert!(source.is_file(), "{} is of no file {}", seed.display(), source.display());
            seeds += 1;
        }
    }
    assert!(seeds > 5, "{seeds}");
}

#[test]
fn every_package_forbids_unsafe_code_denies_panics_and_finds_unused_dependencies() {
    const NO_PANICS: &str =
        "#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]";
    let roots = packages().into_iter().chain([root().to_owned()]);
    let roots = roots.flat_map(|package| ["src/lib.rs", "src/main.rs"].map(|it| package.join(it)));
    for file in roots.filter(|file| file.exists()) {
        let text = fs::read_to_string(&file).unwrap();
        // allocator.rs of weir-common calls a function of C.
        let is_common = file.ends_with("common/src/lib.rs");
        let no_unsafe = if is_common { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        for lint in [no_unsafe, NO_PANICS] {
            assert!(text.lines().any(|line| line == lint), "add to {}: {lint}", file.display());
        }
        // A program and tests have the dependencies of their library.
        let lint = "#![cfg_attr(not(test), warn(unused_crate_dependencies))]";
        let has_lint = text.lines().any(|line| line == lint) || file.ends_with("main.rs");
        assert!(has_lint, "add to {}: {lint}", file.display());
    }
    for package in packages() {
        let text = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        let inherits = text.contains("[lints]\nworkspace = true\n");
        assert!(inherits, "{}/Cargo.toml does not inherit the lints", package.display());
    }
}

/// Otherwise a package would have the profile of "*": no optimization, no overflow checks.
#[test]
fn fuzz_targets_have_a_profile_for_every_package() {
    let text = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    // No target uses the library, which has only names.
    let packages = packages().into_iter().filter(|package| !package.ends_with("library"));
    let names = packages.map(|package| {
        let name = package.file_name().unwrap().to_str().unwrap();
        format!("weir-{name}")
    });
    for name in names.chain(["weir".to_owned()]) {
        for (profile, wanted) in
            [("dev", &["opt-level"][..]), ("release", &["debug-assertions", "opt-level"])]
        {
            let table = format!("[profile.{profile}.package.{name}]");
            let keys = text.split_once(&table).map(|(_, rest)| rest.split("\n[").next().unwrap());
            let keys = keys.unwrap_or_else(|| panic!("fuzz/Cargo.toml lacks {table}"));
            for key in wanted {
                let found = keys.lines().any(|line| line.starts_with(&format!("{key} = ")));
                assert!(found, "{table} in fuzz/Cargo.toml lacks {key}");
            }
        }
    }
}
