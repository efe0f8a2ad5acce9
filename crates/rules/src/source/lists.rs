//! Finds and reads lists: files of values that rules name by `values_file`. A service never uses a half-written one.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::settled_files::SettledFiles;
use super::{MAX_FILE_BYTES, text_of};
use crate::model::value_set::ValueList;
use crate::syntax::document::EmbeddedList;
use crate::syntax::problem::Problem;
use weir_common::regular;

/// Where the lists of rules are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    /// Rules must not name any, because the rules themselves are in no file.
    #[default]
    None,
    /// Not read: the rules are only looked at, and the lists may be on another machine.
    Unread,
    /// Relative to the rule file, in its directory or below, of up to [`MAX_FILE_BYTES`] each.
    BesideRules,
    /// In this directory, by plain names: rules are sent by a management server.
    InDirectory(Option<PathBuf>),
}

/// A list that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFile {
    /// Its path.
    pub path: PathBuf,
    /// The fingerprint of what was read, or of the error; none if it may be half written.
    pub hash: Option<u64>,
}

/// Reads the lists of one compilation, each once.
#[derive(Debug)]
pub(crate) struct ListReader {
    lists: Lists,
    watched: Option<Arc<WatchedLists>>,
    /// The lists beside the current document, if it is in a manifest.
    pub embedded: Option<Arc<[EmbeddedList]>>,
    read: HashMap<PathBuf, Arc<ValueList>>,
    pub files: Vec<ListFile>,
}

impl ListReader {
    pub fn new(lists: Lists, watched: Option<Arc<WatchedLists>>) -> ListReader {
        ListReader { lists, watched, embedded: None, read: HashMap::new(), files: Vec::new() }
    }

    /// Reads a list that a rule file names. `report` is called with every error of the list, once. One without a
    /// position is to be reported where a rule names the list.
    pub fn list(
        &mut self,
        rule_file: &str,
        name: &str,
        report: &mut dyn FnMut(Problem),
    ) -> Arc<ValueList> {
        let path = match self.path(rule_file, name) {
            Ok(Some(path)) => path,
            Ok(None) => return Arc::default(),
            Err((message, help)) => {
                report(Problem::of_file(rule_file, message, help));
                return Arc::default();
            }
        };
        if let Some(lists) = self.embedded.clone() {
            return self.embedded_list(&lists, name, report);
        }
        if let Some(known) = self.read.get(&path) {
            return known.clone();
        }
        let content = match &self.watched {
            Some(watched) => watched.content(&path),
            None => {
                let read = regular::read(&path, MAX_FILE_BYTES).map(|read| read.bytes);
                let content = ListContent::of(&path, read);
                // Only the service asks whether it has changed.
                Some((0, content))
            }
        };
        let shown = path.display().to_string();
        let (hash, content) = content.unzip();
        let list = match content {
            Some(ListContent::Good(list)) => list,
            Some(ListContent::Bad(text)) => Arc::new(ValueList::parse(&shown, &text, report)),
            Some(ListContent::Unreadable(problem)) => {
                let message = match problem.position {
                    Some(_) => format!("config error, {}", problem.message),
                    None => format!("config error, the list '{shown}': {}", problem.message),
                };
                report(Problem { message, ..(*problem).clone() });
                Arc::default()
            }
            None => {
                let message = format!("config error, the list '{shown}' is being written");
                let help = "wait, or write a new file and rename it over the old one";
                report(Problem::of_file(&shown, message, help));
                Arc::default()
            }
        };
        self.files.push(ListFile { path: path.clone(), hash });
        self.read.insert(path, list.clone());
        list
    }

    /// Reads a list of the ConfigMap that has the rule file.
    fn embedded_list(
        &mut self,
        lists: &[EmbeddedList],
        name: &str,
        report: &mut dyn FnMut(Problem),
    ) -> Arc<ValueList> {
        let Some(list) = lists.iter().find(|list| list.name == name) else {
            let message = format!("config error, the ConfigMap has no list '{name}'");
            let help =
                "put the list into the `data` of the ConfigMap with the rules, under this name";
            report(Problem::of_file(name, message, help));
            return Arc::default();
        };
        self.files.push(ListFile { path: list.path.clone().into(), hash: Some(0) });
        // No path of a file has this character, and each ConfigMap has a list of its own.
        let place = PathBuf::from(format!("{:p}\0{name}", lists.as_ptr()));
        let parse = || Arc::new(ValueList::parse(&list.path, &list.text, report));
        self.read.entry(place).or_insert_with(parse).clone()
    }

    /// Returns the path of a list; none if it is not read. The error is a message, and what to write instead.
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
            Lists::BesideRules => {
                let directory = Path::new(rule_file).parent().unwrap_or(Path::new(""));
                Ok(Some(directory.join(name)))
            }
            Lists::InDirectory(None) => Err((
                "config error, `values_file` over xDS, but no directory has lists".to_owned(),
                "set rules.values_dir to the directory with the lists".to_owned(),
            )),
            Lists::InDirectory(Some(directory)) => match parts().count() {
                1 => Ok(Some(directory.join(name))),
                _ => Err((
                    format!("config error, `values_file` is '{name}'"),
                    "write the plain name of a file in rules.values_dir".to_owned(),
                )),
            },
        }
    }
}

#[derive(Clone, Debug)]
enum ListContent {
    Good(Arc<ValueList>),
    /// Lines with errors.
    Bad(Arc<str>),
    Unreadable(Arc<Problem>),
}

impl ListContent {
    fn of(path: &Path, read: io::Result<Vec<u8>>) -> ListContent {
        let file = path.display().to_string();
        let text = read.map_err(|error| {
            let help = "put the list there, or correct `values_file`";
            Problem::of_file(&file, format!("cannot be read: {error}"), help)
        });
        match text.and_then(|bytes| text_of(path, bytes)) {
            Ok(text) => {
                let mut is_good = true;
                let list = ValueList::parse(&file, &text, |_| is_good = false);
                match is_good {
                    true => ListContent::Good(Arc::new(list)),
                    false => ListContent::Bad(text.into()),
                }
            }
            Err(problem) => ListContent::Unreadable(Arc::new(problem)),
        }
    }
}

/// Lists that are read again and again. A set of rules has the last whole version of each.
#[derive(Debug)]
pub struct WatchedLists {
    files: SettledFiles<ListContent>,
    settle_time: Duration,
}

impl WatchedLists {
    /// Lists, which are used once they have not changed for `settle_time`.
    pub fn new(settle_time: Duration) -> WatchedLists {
        WatchedLists { files: SettledFiles::new(MAX_FILE_BYTES, settle_time), settle_time }
    }

    /// Reads lists again.
    pub fn read(&self, paths: &[PathBuf]) {
        self.files.read(paths, ListContent::of);
    }

    /// Reads the lists again whose newest versions may be half written.
    pub fn read_unsettled(&self) {
        self.files.read_unsettled(ListContent::of);
    }

    /// Returns whether the whole version is another one than a set has.
    pub fn is_changed(&self, list: &ListFile) -> bool {
        self.files.whole(&list.path).is_some_and(|(hash, _)| Some(hash) != list.hash)
    }

    /// Reads lists again, and waits once if one may be half written.
    pub fn read_settled(&self, paths: &[PathBuf]) {
        self.read(paths);
        if !self.files.are_settled() {
            #[expect(clippy::disallowed_methods, reason = "the loading thread serves no requests")]
            std::thread::sleep(self.settle_time);
            self.read_unsettled();
        }
    }

    /// Returns the whole version of a list, if there is one yet, and its fingerprint. Reads a new list.
    fn content(&self, path: &Path) -> Option<(u64, ListContent)> {
        if self.files.is_new(path) {
            self.read_settled(&[path.to_owned()]);
        }
        self.files.whole(path)
    }

    /// Returns the files of the lists.
    pub fn files(&self) -> &SettledFiles<impl Clone> {
        &self.files
    }
}
