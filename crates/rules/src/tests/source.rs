//! Tests of which files are found.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::source::{FileKind, MAX_FILE_BYTES, Selection};

fn selection(root: &Path) -> Selection {
    Selection::of(root)
}

/// The files found, below `root`, and the messages of problems.
fn read(selection: &Selection) -> (Vec<String>, Vec<String>) {
    let (files, problems) = selection.read();
    let root = selection.roots[0].display().to_string();
    let below = |name: &str| name.trim_start_matches(&root).trim_start_matches('/').to_owned();
    (
        files.iter().map(|file| below(&file.name)).collect(),
        problems.iter().map(|p| format!("{}: {}", below(&p.file), p.message)).collect(),
    )
}

fn write(root: &Path, name: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, name).unwrap();
}

#[test]
fn directories_are_searched_recursively_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b.yaml", "a.yml", "c/d/e.yaml", "README.md", ".hidden.yaml", "b.yaml~"] {
        write(dir.path(), name);
    }
    let mut selection = selection(dir.path());
    assert_eq!(read(&selection).0, ["a.yml", "b.yaml", "c/d/e.yaml"]);
    selection.ignore_dot_files = false;
    assert_eq!(read(&selection).0, ["a.yml", "b.yaml", "c/d/e.yaml", ".hidden.yaml"]);
    selection.roots.push(dir.path().join("README.md"));
    assert_eq!(read(&selection).0.len(), 5, "a file that is named is read whatever its name");
}

#[test]
fn overlays_and_tests_in_a_directory_are_no_rule_files() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.yaml", "b/a.test.yaml", "b/c.test.yml", "d.overlay.yaml", "e.overlay.yml"] {
        write(dir.path(), name);
    }
    // Only the last two extensions count.
    write(dir.path(), "test.yaml");
    write(dir.path(), "x.test.old.yaml");
    for yaml_only in [true, false] {
        let mut selection = Selection { yaml_only, ..selection(dir.path()) };
        assert_eq!(read(&selection).0, ["a.yaml", "test.yaml", "x.test.old.yaml"]);
        let (overlays, problems) = selection.read_kind(FileKind::Overlay);
        let names = overlays.iter().map(|file| file.text.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["d.overlay.yaml", "e.overlay.yml"]);
        assert!(problems.is_empty(), "{problems:?}");
        selection.roots = vec![dir.path().join("b/a.test.yaml"), dir.path().join("e.overlay.yml")];
        assert_eq!(read(&selection).0.len(), 2, "files that are named are read");
        selection.roots = vec![dir.path().join("b")];
        assert_eq!(read(&selection).1, [": no rule files are here"]);
        let (_, problems) = selection.read_kind(FileKind::Overlay);
        assert!(problems[0].message.contains("no overlay files are here"), "{problems:?}");
    }
}

#[test]
fn a_mounted_config_map_is_read_once_by_its_visible_names() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "..2024_01_01/a.yaml");
    symlink("..2024_01_01", dir.path().join("..data")).unwrap();
    symlink("..data/a.yaml", dir.path().join("a.yaml")).unwrap();
    let mut selection = selection(dir.path());
    for ignore in [true, false] {
        selection.ignore_dot_files = ignore;
        assert_eq!(read(&selection), (vec!["a.yaml".to_owned()], vec![]));
    }
}

#[test]
fn cyclic_links_end() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a/b.yaml");
    symlink("..", dir.path().join("a/up")).unwrap();
    assert_eq!(read(&selection(dir.path())).0, ["a/b.yaml"]);
}

#[test]
fn the_prefix_applies_to_the_path_below_the_root() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config/a.yaml", "config/b/c.txt", "config.d.yaml", "other/e.yaml"] {
        write(dir.path(), name);
    }
    let mut selection = selection(dir.path());
    selection.prefix = Some("config.".to_owned());
    selection.yaml_only = false;
    assert_eq!(read(&selection).0, ["config/a.yaml", "config/b/c.txt", "config.d.yaml"]);
}

#[test]
fn lock_links_of_editors_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.yaml");
    symlink("someone@somewhere.1:2", dir.path().join(".#a.yaml")).unwrap();
    let selection = Selection { ignore_dot_files: false, ..selection(dir.path()) };
    assert_eq!(read(&selection), (vec!["a.yaml".to_owned()], vec![]));
}

#[test]
fn unreadable_files_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    symlink("nowhere", dir.path().join("dangling.yaml")).unwrap();
    for (name, bytes) in [("large.yaml", MAX_FILE_BYTES + 1), ("exact.yaml", MAX_FILE_BYTES)] {
        fs::File::create(dir.path().join(name)).unwrap().set_len(bytes).unwrap();
    }
    fs::write(dir.path().join("latin.yaml"), b"domain: d\n# \xe4\n").unwrap();
    symlink("/dev/null", dir.path().join("device.yaml")).unwrap();
    let (files, problems) = read(&selection(dir.path()));
    assert_eq!(files, ["exact.yaml"]);
    assert_eq!(
        problems,
        [
            "dangling.yaml: cannot be read: No such file or directory (os error 2)",
            "device.yaml: not a regular file",
            "large.yaml: the file has more than 67108864 bytes",
            "latin.yaml: error loading config file: yaml: line 2: the text is not UTF-8",
        ]
    );
}
