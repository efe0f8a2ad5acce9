//! The text of rule files: never a panic, and every problem has its place.
//!
//! A line `# next file` begins another file; where the text begins with `# merge`, files may add
//! to one domain. After a line `# overlay` comes an overlay.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir_fuzz::ruled;
use weir_rules::source::{RuleFile, Selection};
use weir_rules::{Loaded, RuleOptions};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return no_text(bytes) };
    let (text, overlay) = match text.split_once("# overlay\n") {
        Some((text, overlay)) => (text, Some(overlay)),
        None => (text, None),
    };
    let files = text.split("# next file\n").enumerate();
    let files =
        files.map(|(i, text)| RuleFile { name: format!("{i}.yaml"), text: text.to_owned() });
    let files: Vec<RuleFile> = files.collect();
    let merge_domains = text.starts_with("# merge");
    if let Some(overlay) = overlay {
        ruled::check_overlay(&files, merge_domains, overlay);
    }
    ruled::check(files, merge_domains, ruled::is_in_file);
});

/// A file that is not UTF-8 gets an error with the position of the first invalid byte.
fn no_text(bytes: &[u8]) {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
        std::env::temp_dir().join(format!("weir-fuzz-{}.yaml", std::process::id()))
    });
    std::fs::write(&*FILE, bytes).expect("a file");
    let loaded = Loaded::read(&Selection::of(&*FILE), &RuleOptions::default(), None);
    let _ = std::fs::remove_file(&*FILE);
    let [problem] = &loaded.problems[..] else { panic!("one problem: {:?}", loaded.problems) };
    ruled::is_in_text(problem, &String::from_utf8_lossy(bytes));
    assert!(loaded.render_errors().contains("UTF-8"));
}
