//! Finds circles: files that use each other, directly or through others.
//!
//! A name counts where it is imported from, and, in a second look, in the file that declares it, through all re-exports
//! on the way. A parent and its child that use each other are a circle, too. What only tests use does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How far names are followed to the file that declares them.
#[derive(Clone, Copy, Debug)]
pub enum Names {
    /// They count in the file that they are imported from.
    AsWritten,
    /// Through re-exports.
    Followed,
}

impl Names {
    /// Returns how many re-exports are followed at most.
    fn reexports(self) -> u8 {
        match self {
            Names::AsWritten => 0,
            Names::Followed => 8,
        }
    }
}

/// A file. Paths are relative to it, or begin with `crate`.
#[derive(Default)]
struct Module {
    /// By the name.
    imports: BTreeMap<String, String>,
    /// The names of those that others may use.
    exports: BTreeSet<String>,
    /// The modules of which all names are imported.
    globs: Vec<String>,
    /// All paths that it names.
    paths: Vec<String>,
}

/// The files of a package, by their paths: `crate::plan::op`.
#[derive(Default)]
pub struct Package(BTreeMap<String, Module>);

/// The files that each file uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

impl Package {
    /// Reads a package from the file of its root.
    pub fn read(lib: &Path) -> Package {
        let mut package = Package::default();
        package.read_module(lib, lib.parent().unwrap(), "crate");
        package
    }

    fn read_module(&mut self, file: &Path, children: &Path, name: &str) {
        let text = fs::read_to_string(file).unwrap_or_else(|it| panic!("{}: {it}", file.display()));
        let code = code(&text);
        for child in declared(&code) {
            let file = children.join(format!("{child}.rs"));
            self.read_module(&file, &children.join(child), &format!("{name}::{child}"));
        }
        self.0.insert(name.to_owned(), Module::new(&code));
    }

    /// Returns the files of all circles, each with those that it uses there.
    pub fn circles(&self, names: Names) -> Uses {
        let uses_of = |(name, module): (&String, &Module)| {
            (name.clone(), self.uses(name, module, names.reexports()))
        };
        let mut uses: Uses = self.0.iter().map(uses_of).collect();
        loop {
            let (before, names): (_, BTreeSet<_>) = (uses.len(), uses.keys().cloned().collect());
            let used: BTreeSet<_> = uses.values().flatten().cloned().collect();
            uses.retain(|name, of_name| {
                of_name.retain(|it| names.contains(it));
                used.contains(name) && !of_name.is_empty()
            });
            if uses.len() == before {
                return uses;
            }
        }
    }

    fn uses(&self, name: &str, module: &Module, reexports: u8) -> BTreeSet<String> {
        let files =
            module.paths.iter().filter_map(|path| self.file(&absolute(name, path), reexports));
        let others = files.filter(|file| *file != name);
        others.map(str::to_owned).collect()
    }

    /// Returns the file that declares what a path names.
    fn file<'p>(&'p self, path: &str, reexports: u8) -> Option<&'p str> {
        let mut prefix = path;
        let (file, module) = loop {
            match self.0.get_key_value(prefix) {
                Some(found) => break found,
                None => prefix = prefix.rsplit_once("::")?.0,
            }
        };
        let rest = path[prefix.len()..].trim_start_matches("::");
        let name = rest.split("::").next().unwrap_or_default();
        if name.is_empty() || reexports == 0 {
            return Some(file);
        }
        let import = module.imports.get(name).map(|it| absolute(file, it) + &rest[name.len()..]);
        let by_glob = || {
            let modules = module.globs.iter().map(|glob| absolute(file, glob));
            let mut names =
                modules.filter(|it| self.0.get(it).is_some_and(|it| it.exports.contains(name)));
            names.next().map(|module| format!("{module}::{rest}"))
        };
        match import.or_else(by_glob) {
            Some(path) => self.file(&path, reexports - 1),
            None => Some(file),
        }
    }
}

impl Module {
    fn new(code: &str) -> Module {
        let mut module = Module::default();
        let mut rest = String::new();
        for statement in code.split(';') {
            let (before, tree) = statement.rsplit_once("use ").unwrap_or((statement, ""));
            let visibility = before.rsplit('\n').next().unwrap_or_default().trim();
            if tree.is_empty() || !is_visibility(visibility) {
                rest += statement;
            } else {
                module.import("", tree, !visibility.is_empty());
                rest += before;
            }
            rest.push(';');
        }
        let paths = rest.split(|char: char| !char.is_alphanumeric() && !"_:".contains(char));
        module.paths.extend(paths.filter(|path| path.contains("::")).map(str::to_owned));
        module
    }

    /// Adds a tree of imports: `a::{b, c::d as e}`.
    fn import(&mut self, above: &str, tree: &str, is_public: bool) {
        let tree = tree.trim();
        if tree.is_empty() {
            return;
        }
        if let Some((path, group)) = tree.split_once('{') {
            let mut depth = 0;
            let branches = group.strip_suffix('}').unwrap_or(group).split(|char: char| {
                depth += i32::from(char == '{') - i32::from(char == '}');
                char == ',' && depth == 0
            });
            return branches
                .for_each(|branch| self.import(&format!("{above}{path}"), branch, is_public));
        }
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = format!("{above}{path}");
        let path = path.trim_end_matches("::self");
        match path.strip_suffix("::*") {
            Some(module) => self.globs.push(module.to_owned()),
            None => {
                let name = path.rsplit("::").next().filter(|_| alias.is_empty()).unwrap_or(alias);
                self.imports.insert(name.to_owned(), path.to_owned());
                self.exports.extend(is_public.then(|| name.to_owned()));
            }
        }
        self.paths.push(path.to_owned());
    }
}

/// Returns whether nothing but a visibility is before an item.
fn is_visibility(before: &str) -> bool {
    before.is_empty() || before == "pub" || before.starts_with("pub(") && before.ends_with(')')
}

/// Returns the code of a file, without its comments and the unit tests at its end.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.lines().map(|line| line.split(" //").next().unwrap_or_default());
    code.filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Returns the files that a file declares as its modules.
fn declared(code: &str) -> Vec<&str> {
    let lines = std::iter::once("").chain(code.lines()).zip(code.lines());
    let is_test =
        |before: &str| ["#[cfg(test)]", "#[cfg(all(test"].iter().any(|it| before.starts_with(it));
    let modules = lines.filter(|(before, _)| !is_test(before)).filter_map(|(_, line)| {
        let (before, name) = line.strip_suffix(';')?.split_once("mod ")?;
        is_visibility(before.trim()).then_some(name)
    });
    modules.collect()
}

/// Returns a path that a module names, from the root of the package.
fn absolute(module: &str, path: &str) -> String {
    if path == "crate" || path.starts_with("crate::") {
        return path.to_owned();
    }
    let (mut module, mut path) = (module, path.trim_start_matches("self::"));
    while path == "super" || path.starts_with("super::") {
        module = module.rsplit_once("::").map_or("crate", |(above, _)| above);
        path = path["super".len()..].trim_start_matches("::");
    }
    format!("{module}::{path}").trim_end_matches("::").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "mod a; mod b;\npub use a::{\n    A,\n};\npub use b::*;";

    fn circle(a: &str, b: &str, c: &str) -> Vec<String> {
        circle_of(Names::Followed, a, b, c)
    }

    fn circle_of(names: Names, a: &str, b: &str, c: &str) -> Vec<String> {
        let files = [("crate", ROOT), ("crate::a", a), ("crate::b", b), ("crate::b::c", c)];
        let module = |(name, text): (&str, &str)| (name.to_owned(), Module::new(&code(text)));
        Package(files.into_iter().map(module).collect()).circles(names).into_keys().collect()
    }

    #[test]
    fn circles_are_found_through_reexports() {
        let a = "use std::fmt;\nuse super::{b::{self, B as C}, a::D};";
        for b in
            ["use crate::A;", "fn f(a: crate::A) {}", "pub(crate) use super::a as d;\nuse d::A;"]
        {
            assert_eq!(circle(a, b, "use super::B;"), ["crate::a", "crate::b"], "{b}");
        }
        let by_glob = circle("fn f(c: crate::C) {}", "pub use self::c::C;", "use crate::A;");
        assert_eq!(by_glob, ["crate::a", "crate::b::c"]);
    }

    #[test]
    fn a_name_counts_where_it_is_imported_from() {
        // Declared in `c`, which uses nothing.
        let (a, b) = ("use crate::b::C;", "pub use self::c::C;\nuse crate::a::A;");
        assert_eq!(circle_of(Names::AsWritten, a, b, ""), ["crate::a", "crate::b"]);
        assert!(circle(a, b, "").is_empty());
    }

    #[test]
    fn a_parent_and_its_child_that_use_each_other_are_a_circle() {
        for c in ["use super::B;", "use crate::b::B;", "fn f(b: super::B) {}"] {
            assert_eq!(circle("", "use self::c::C;", c), ["crate::b", "crate::b::c"], "{c}");
            assert!(circle("", "mod c;", c).is_empty(), "only the child uses the other: {c}");
        }
        assert!(circle("", "use c::C;", "use super::super::A;").is_empty());
    }

    #[test]
    fn a_file_may_use_itself() {
        assert!(circle("use self::A;\nfn f(a: crate::a::A) {}", "", "").is_empty());
    }

    #[test]
    fn files_of_other_packages_and_tests_are_no_circle() {
        let a = "use super::b::B;";
        for b in
            ["// use crate::A;", "use std::a::A;", "#[cfg(test)]\nmod tests {\nuse crate::A;\n}"]
        {
            let b = format!("\n{b}");
            assert!(circle(a, &b, "use super::{B, super::A as C};").is_empty(), "{b}");
        }
    }
}
