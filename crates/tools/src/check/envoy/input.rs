//! Reads the files of `weir check --envoy`: configurations and `/config_dump`s of Envoy, in YAML or JSON.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::nodes::{get, has_type, unwrapped, walk};
use super::resources::{HELP, binds, not_a_configuration, patches};
use crate::rule_files::{is_stdin, read_stdin};
use weir_rules::source::{MAX_FILE_BYTES, RuleFile};
use weir_rules::tree::Node;
use weir_rules::yaml::{Documents, SyntaxError};
use weir_rules::{Position, Problem, Problems};

pub(super) struct EnvoyFile<'a> {
    pub name: &'a str,
    pub documents: Vec<Node<'a>>,
    /// Whether there was no syntax error.
    pub is_whole: bool,
}

impl<'a> EnvoyFile<'a> {
    pub fn parse(file: &'a RuleFile, problems: &mut Problems) -> EnvoyFile<'a> {
        let mut parsed = EnvoyFile { name: &file.name, documents: Vec::new(), is_whole: true };
        for document in Documents::new(&file.text) {
            match document {
                Ok(root) => parsed.documents.extend(root.map(unwrapped)),
                Err(SyntaxError { line, column, message, .. }) => {
                    parsed.is_whole = false;
                    let message = format!("the Envoy configuration is not YAML or JSON: {message}");
                    let problem = Problem::of_file(&file.name, message, "fix the syntax here");
                    problems.of_files([problem.at(Position::in_text(line, column))]);
                    break;
                }
            }
        }
        parsed
    }

    /// Returns whether the file is a configuration, and reports if not.
    pub fn is_configuration(&self, problems: &mut Problems) -> bool {
        // The listeners of agentgateway are no listeners of Envoy.
        let is_envoy = |root: &Node<'_>| binds(root).is_none() && has_config(root);
        let has_patches = self.documents.iter().any(|root| patches(root).is_some());
        let is_configuration = !has_patches && self.documents.iter().any(is_envoy);
        if !is_configuration && (self.is_whole || has_patches) {
            problems.push(not_a_configuration(self.name, &self.documents));
        }
        is_configuration
    }
}

/// Whether any of it is a listener, a route, a cluster or a layer of the runtime.
fn has_config(root: &Node<'_>) -> bool {
    const FIELDS: &str =
        "http_filters virtual_hosts filter_chains listeners static_layer clusters load_assignment";
    let mut found = false;
    walk(root, &mut |node, _| {
        found |= FIELDS.split(' ').any(|name| get(node, name).is_some());
        found |= has_type(node, "config.cluster.v3.Cluster");
    });
    found
}

/// Reads a file, a pipe of a shell, or standard input for `-`.
pub(super) fn read(path: &Path, problems: &mut Problems) -> Option<RuleFile> {
    let read = match is_stdin(path) {
        true => read_stdin(),
        false => {
            let name = path.display().to_string();
            let text = File::open(path)
                .and_then(read_text)
                .map_err(|error| Problem::of_file(&name, format!("cannot be read: {error}"), HELP));
            text.map(|text| RuleFile { name, text })
        }
    };
    read.map_err(|problem| problems.of_files([problem])).ok()
}

fn read_text(file: File) -> io::Result<String> {
    let mut text = String::new();
    let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
