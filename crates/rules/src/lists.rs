//! Finds and reads the lists that rules name by `values_file`.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::embedded_list::EmbeddedList;
use super::position::Position;
use super::problem::Problem;
use super::source::read_text;
use super::value_list::{LineError, ValueList, content_hash};

/// Where the lists of rules are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    /// Rules must not name any: they are in no file.
    #[default]
    None,
    /// Not read: the rules decide nothing, and the lists may be on another machine.
    Unread,
    /// Relative to the rule file, in its directory or below, of up to this many bytes each.
    BesideRules { max_file: u64 },
    /// In this directory, by plain names: rules are sent by a management server.
    InDirectory { directory: Option<PathBuf>, max_file: u64 },
}

/// A list that was read, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFile {
    pub path: PathBuf,
    /// The fingerprint of what was read, or of the error.
    pub hash: u64,
}

impl ListFile {
    /// Returns whether reading the list again gives something else. `lists` is where it was found.
    pub fn is_changed(&self, lists: &Lists) -> bool {
        read(&self.path, lists.max_file()).1 != self.hash
    }
}

impl Lists {
    /// The bytes of the largest list that is read.
    fn max_file(&self) -> u64 {
        match self {
            Lists::BesideRules { max_file } | Lists::InDirectory { max_file, .. } => *max_file,
            Lists::None | Lists::Unread => 0,
        }
    }
}

/// Why a list cannot be used.
#[derive(Debug)]
pub(crate) enum ListError {
    /// An error of the whole list, to be reported where a rule names it: the message, and what to do instead.
    Whole(String, String),
    /// An error at a place in the list.
    Line { path: String, position: Position, text: String, message: String, help: String },
}

/// Reads the lists of one compilation, each once.
#[derive(Debug)]
pub(crate) struct ListReader {
    lists: Lists,
    /// The lists beside the current document, if it is in a manifest.
    embedded: Option<Arc<[EmbeddedList]>>,
    read: HashMap<PathBuf, Arc<ValueList>>,
    files: Vec<ListFile>,
}

impl ListReader {
    pub fn new(lists: Lists) -> ListReader {
        ListReader { lists, embedded: None, read: HashMap::new(), files: Vec::new() }
    }

    /// Starts the next document, which may bring its lists along.
    pub fn start_document(&mut self, embedded: Option<Arc<[EmbeddedList]>>) {
        self.embedded = embedded;
    }

    /// Returns the files that were read.
    pub fn into_files(self) -> Vec<ListFile> {
        self.files
    }

    /// Reads a list that a rule file names. `report` is called with every error. The errors of a list are
    /// reported once.
    pub fn list(
        &mut self,
        rule_file: &str,
        name: &str,
        report: &mut dyn FnMut(ListError),
    ) -> Arc<ValueList> {
        let path = match self.path(rule_file, name) {
            Ok(Some(path)) => path,
            Ok(None) => return Arc::default(),
            Err((message, help)) => {
                report(ListError::Whole(message, help));
                return Arc::default();
            }
        };
        if let Some(lists) = self.embedded.clone() {
            return self.embedded_list(&lists, rule_file, name, report);
        }
        if let Some(known) = self.read.get(&path) {
            return known.clone();
        }
        let (text, hash) = read(&path, self.lists.max_file());
        let shown = path.display().to_string();
        let list = match text {
            Ok(text) => ValueList::parse(&text, |LineError { position, text, message, help }| {
                let (path, text) = (shown.clone(), text.to_owned());
                report(ListError::Line { path, position, text, message, help })
            }),
            Err(Unreadable { message, help, position }) => {
                report(match position {
                    Some(position) => {
                        let message = format!("config error, {message}");
                        let text = String::new();
                        ListError::Line { path: shown, position, text, message, help }
                    }
                    None => {
                        let message = format!("config error, the list '{shown}': {message}");
                        ListError::Whole(message, help)
                    }
                });
                ValueList::default()
            }
        };
        self.files.push(ListFile { path: path.clone(), hash });
        let list = Arc::new(list);
        self.read.insert(path, list.clone());
        list
    }

    /// Reads a list of the manifest that has the rule file. Errors have the lines of the manifest; values that are
    /// found have those of the list.
    fn embedded_list(
        &mut self,
        lists: &[EmbeddedList],
        rule_file: &str,
        name: &str,
        report: &mut dyn FnMut(ListError),
    ) -> Arc<ValueList> {
        let Some(list) = lists.iter().find(|list| list.name == name) else {
            let message = format!("config error, the ConfigMap has no list '{name}'");
            let help =
                "put the list into the `data` of the ConfigMap with the rules, under this name";
            report(ListError::Whole(message, help.to_owned()));
            return Arc::default();
        };
        let (line, column) = list.map.locate(1, 1);
        // No path of a file has this character.
        let place = PathBuf::from(format!("{rule_file}\0{line}:{column}"));
        let parse = || {
            Arc::new(ValueList::parse(&list.text, |error| {
                let LineError { position, text, message, help } = error;
                let (path, text) = (rule_file.to_owned(), text.to_owned());
                let position = list.map.position(position);
                report(ListError::Line { path, position, text, message, help })
            }))
        };
        self.read.entry(place).or_insert_with(parse).clone()
    }

    /// Returns the path of a list; none if it is not read.
    ///
    /// # Errors
    /// The name must not be used here: the message, and what to write instead.
    fn path(&self, rule_file: &str, name: &str) -> Result<Option<PathBuf>, (String, String)> {
        let parts = || Path::new(name).components();
        let is_below = parts().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || name.contains('\0') || !is_below || name.ends_with('/') {
            let message = format!("config error, `values_file` is '{name}'");
            let help = "write the path of a file in the directory of the rule file, or below, without `..`";
            return Err((message, help.to_owned()));
        }
        match &self.lists {
            Lists::Unread => Ok(None),
            Lists::None => Err((
                "config error, `values_file` in rules that are in no file".to_owned(),
                "write the rules into a file, and the list beside it".to_owned(),
            )),
            Lists::BesideRules { .. } => {
                let directory = Path::new(rule_file).parent().unwrap_or(Path::new(""));
                Ok(Some(directory.join(name)))
            }
            Lists::InDirectory { directory: None, .. } => Err((
                "config error, `values_file` over xDS, but no directory has lists".to_owned(),
                "set rules.values_dir to the directory with the lists".to_owned(),
            )),
            Lists::InDirectory { directory: Some(directory), .. } => match parts().count() {
                1 => Ok(Some(directory.join(name))),
                _ => Err((
                    format!("config error, `values_file` is '{name}'"),
                    "write the plain name of a file in rules.values_dir".to_owned(),
                )),
            },
        }
    }
}

/// Why a file cannot be read, and what to do instead.
struct Unreadable {
    message: String,
    help: String,
    position: Option<Position>,
}

/// Reads a file, and returns its fingerprint, or that of the error.
fn read(path: &Path, max_file: u64) -> (Result<String, Unreadable>, u64) {
    let is_file = fs::metadata(path).map(|meta| meta.is_file());
    let text = match is_file {
        Ok(true) => read_text(path, max_file.min(u32::MAX.into())).map_err(|problem| {
            let Problem { message, help, position, .. } = problem;
            Unreadable { message, help, position }
        }),
        Ok(false) => Err(Unreadable {
            message: "not a regular file".to_owned(),
            help: "name a file with a value or network a line".to_owned(),
            position: None,
        }),
        Err(error) => Err(Unreadable {
            message: format!("cannot be read: {error}"),
            help: "put the list there, or correct `values_file`".to_owned(),
            position: None,
        }),
    };
    let hash = match &text {
        Ok(text) => content_hash(text),
        Err(Unreadable { message, .. }) => content_hash(&format!("\0{message}")),
    };
    (text, hash)
}
