//! Counts files that are too short to have a subject of their own, and functions with many parameters.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the product, without the tests at its end, which may use anything.
pub struct Source {
    pub path: PathBuf,
    pub code: String,
}

impl Source {
    pub fn read(path: PathBuf) -> Source {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        Source { code: code.to_owned(), path }
    }
}

/// Returns the files of a directory and those below it, without tests and the conformance suite.
pub fn sources(directory: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().map(Result::unwrap) {
        let path = entry.path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if matches!(stem, "tests" | "conformance") {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(Source::read(path));
        }
    }
    found
}

/// Returns the names of functions with at least this many parameters; `self` does not count.
pub fn functions_with(parameters: usize, code: &str) -> Vec<&str> {
    let functions = code.match_indices("fn ").filter_map(|(at, _)| {
        let rest = &code[at + "fn ".len()..];
        let name = rest.split(|char: char| !char.is_alphanumeric() && char != '_').next()?;
        let is_declared = !name.is_empty() && (at == 0 || code[..at].ends_with([' ', '\n']));
        let count = is_declared.then(|| count_parameters(&rest[name.len()..]))?;
        (count >= parameters).then_some(name)
    });
    functions.collect()
}

/// Counts the parameters of a function, of which this is what follows its name: `<T>(&self, a: A<B, C>)`.
fn count_parameters(rest: &str) -> usize {
    let (mut depth, mut before, mut is_list) = (0, ' ', false);
    let mut parameters = vec![String::new()];
    for char in rest.chars() {
        depth -= i32::from(")]}".contains(char) || char == '>' && !"-=".contains(before));
        match (depth, char) {
            (0, '(') => is_list = true,
            (0, ')') if is_list => break,
            (1, ',') if is_list => parameters.push(String::new()),
            _ if is_list => parameters.last_mut().unwrap().push(char),
            _ => {}
        }
        depth += i32::from("([{<".contains(char));
        before = char;
    }
    let is_self = |parameter: &str| {
        let last = parameter.split([' ', '&']).next_back().unwrap_or_default();
        last == "self" || parameter.starts_with("self:")
    };
    let parameters = parameters.iter().map(|parameter| parameter.trim());
    parameters.filter(|parameter| !parameter.is_empty() && !is_self(parameter)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted() {
        let code = "fn a() {}\n    pub fn b<T: Fn(u8) -> u8>(&'a mut self, a: A<B, C>, b: (D, E)) {}\n\
                    fn c(\n    self,\n    a: impl Fn(A, B) -> C,\n    b: [u8; 3],\n) -> D {}";
        assert_eq!(functions_with(2, code), ["b", "c"]);
        assert_eq!(functions_with(3, code), [""; 0]);
        assert_eq!(functions_with(0, code), ["a", "b", "c"]);
    }
}
