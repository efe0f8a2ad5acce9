//! Lists, overlays and rejections of the newest rules.

use std::fs;
use std::path::Path;
use std::time::Duration;

use prost::Message;

use super::*;
use weir_rules::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy};
use weir_rules::{Lists, WatchedLists};

/// A list that is read, and one that is rejected.
const GOOD: &str = "10.0.0.0/8\n";
const BROKEN: &str = "10.0.0.1/8\n";

/// A loader of rules of a directory that has these lists, with an overlay.
fn loader(lists: Lists, files: &[(&str, &str)], directory: &Path) -> Loader {
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
    // Each version is whole.
    let watched_lists = Some(Arc::new(WatchedLists::new(Duration::ZERO)));
    let options = RuleOptions { lists, watched_lists, ..RuleOptions::default() };
    let mut loader =
        Loader::new(Arc::default(), options, Arc::new(Health::new(Default::default())));
    loader.expect_overlay();
    loader
}

/// A rule file of the directory that names a list.
fn rules(directory: &Path, list: &str) -> Vec<RuleFile> {
    let name = directory.join("rules.yaml").display().to_string();
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let rule = format!("- {{ key: ip, values_file: {list}, {limit} }}\n");
    vec![RuleFile { name, text: format!("domain: shop\ndescriptors:\n{rule}") }]
}

fn overlay(requests_per_unit: u32) -> Vec<RuleFile> {
    let set = format!("{{ requests_per_unit: {requests_per_unit} }}");
    let text = format!("patches: [{{ match: {{ domain: shop }}, set: {set} }}]\n");
    vec![RuleFile { name: "a.overlay.yaml".to_owned(), text }]
}

/// The limits of the active rule.
fn limits(loader: &Loader) -> String {
    let active = loader.rules.load_full().unwrap();
    active.rules().next().unwrap().limits_text()
}

/// The places of what is rejected.
fn rejected(loader: &Loader) -> Vec<String> {
    let place = |rejected: Rejected| {
        let file = rejected.file.unwrap_or_default();
        file.rsplit('/').next().unwrap_or_default().to_owned()
    };
    loader.rejected().map(place).collect()
}

#[test]
fn an_overlay_is_loaded_once_rules_are_active_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let lists = Lists::BesideRules;
    let loader = loader(lists, &[("a.txt", GOOD)], dir.path());
    loader.load(rules(dir.path(), "a.txt"), Vec::new()).unwrap();
    loader.load_overlay(overlay(2), Vec::new());
    let shown = || loader.status()["overlay"].take();
    assert_eq!((&shown()["patches"], limits(&loader)), (&1.into(), "2 per day".to_owned()));

    fs::write(dir.path().join("a.txt"), BROKEN).unwrap();
    loader.lists.read();
    let more = [overlay(3), overlay(3)].concat();
    loader.load_overlay(more, Vec::new());
    assert_eq!((&shown()["patches"], limits(&loader)), (&1.into(), "2 per day".to_owned()));
    assert_eq!(rejected(&loader), ["a.txt"]);

    fs::write(dir.path().join("a.txt"), GOOD).unwrap();
    loader.lists.read();
    assert!(loader.lists.are_changed());
    loader.load(rules(dir.path(), "a.txt"), Vec::new()).unwrap();
    assert_eq!((&shown()["patches"], limits(&loader)), (&2.into(), "3 per day".to_owned()));
    assert_eq!(rejected(&loader), [""; 0]);
}

#[test]
fn an_overlay_leaves_files_rejected_whose_list_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    let lists = Lists::BesideRules;
    let loader = loader(lists, &[("a.txt", GOOD), ("b.txt", BROKEN)], dir.path());
    loader.load(rules(dir.path(), "a.txt"), Vec::new()).unwrap();
    loader.load(rules(dir.path(), "b.txt"), Vec::new()).unwrap_err();
    loader.load_overlay(overlay(2), Vec::new());
    assert_eq!(limits(&loader), "2 per day");
    assert_eq!(rejected(&loader), ["b.txt"]);
    assert!(loader.status()["refused"]["problems"].to_string().contains("b.txt:1:1"));
    assert_eq!(loader.metrics.newest_rejected.get(), 1);
    // The list that is to be fixed is still watched.
    assert_eq!(loader.lists.paths(), ["a.txt", "b.txt"].map(|list| dir.path().join(list)));
    fs::write(dir.path().join("b.txt"), GOOD).unwrap();
    loader.lists.read();
    assert!(loader.lists.are_changed());
    loader.load(rules(dir.path(), "b.txt"), Vec::new()).unwrap();
    assert_eq!((rejected(&loader).len(), loader.metrics.newest_rejected.get()), (0, 0));
}

/// A resource whose rule has a list.
fn resources(list: &str) -> Vec<Resource> {
    let policy = RateLimitPolicy { unit: 3, requests_per_unit: 1, ..Default::default() };
    let descriptor = RateLimitDescriptor {
        key: "ip".to_owned(),
        values_file: list.to_owned(),
        rate_limit: Some(policy),
        ..Default::default()
    };
    let config = RateLimitConfig {
        name: "shop".to_owned(),
        domain: "shop".to_owned(),
        descriptors: vec![descriptor],
        ..Default::default()
    };
    vec![Resource::decode(config.encode_to_vec().into(), "shop").unwrap()]
}

#[test]
fn lists_leave_a_set_of_a_management_server_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let lists = Lists::InDirectory(Some(dir.path().into()));
    let loader = loader(lists, &[("a.txt", GOOD), ("b.txt", BROKEN)], dir.path());
    let load = |list| loader.load_resources(resources(list), loader.new_problems());
    load("a.txt").unwrap();
    load("b.txt").unwrap_err();
    let write = |text| {
        fs::write(dir.path().join("a.txt"), text).unwrap();
        loader.lists.read();
        loader.load_lists();
    };
    write("192.0.2.0/24\n");
    assert_eq!(
        (rejected(&loader), loader.metrics.newest_rejected.get()),
        (vec!["b.txt".to_owned()], 1)
    );
    write(BROKEN);
    assert_eq!(rejected(&loader), ["b.txt", "a.txt"]);
    // A newer set with the same error is no other problem.
    load("a.txt").unwrap_err();
    assert_eq!(rejected(&loader), ["a.txt"]);
    load("b.txt").unwrap_err();
    write("10.0.0.2/8\n");
    assert!(loader.status()["refused"]["problems"].to_string().contains("a.txt:1:1"));
    write(GOOD);
    assert_eq!(rejected(&loader), ["b.txt"]);
    assert!(loader.status()["refused"]["problems"].to_string().contains("b.txt:1:1"));
    assert!(loader.status()["last_error"]["problems"].to_string().contains("a.txt:1:1"));
    load("a.txt").unwrap();
    assert_eq!((rejected(&loader).len(), loader.metrics.newest_rejected.get()), (0, 0));
    assert!(loader.status()["refused"].is_null());
}

#[test]
fn a_set_whose_list_is_missing_is_loaded_once_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let lists = Lists::InDirectory(Some(dir.path().into()));
    let loader = loader(lists, &[], dir.path());
    let load = || loader.load_resources(resources("a.txt"), loader.new_problems());
    let errors = load().unwrap_err().problems;
    assert!(errors.contains("a.txt': cannot be read"), "{errors}");
    assert_eq!(loader.lists.paths(), [dir.path().join("a.txt")]);
    assert!(loader.is_still_rejected());
    fs::write(dir.path().join("a.txt"), BROKEN).unwrap();
    assert!(!loader.is_still_rejected());
    loader.load_lists();
    assert_eq!(rejected(&loader), ["a.txt"]);
    assert!(loader.is_still_rejected());
    fs::write(dir.path().join("a.txt"), GOOD).unwrap();
    loader.lists.read();
    loader.load_lists();
    assert_eq!((limits(&loader), rejected(&loader).len()), ("1 per hour".to_owned(), 0));
    assert!(!loader.is_newest_rejected());
    // It is the active one, whose list is followed.
    fs::write(dir.path().join("a.txt"), BROKEN).unwrap();
    loader.lists.read();
    loader.load_lists();
    assert_eq!(rejected(&loader), ["a.txt"]);
}

#[test]
fn a_newer_set_takes_the_place_of_a_rejected_one() {
    let dir = tempfile::tempdir().unwrap();
    let lists = Lists::InDirectory(Some(dir.path().into()));
    let loader = loader(lists, &[("a.txt", GOOD)], dir.path());
    let load = |list| loader.load_resources(resources(list), loader.new_problems());
    load("b.txt").unwrap_err();
    load("a.txt").unwrap();
    assert_eq!(loader.lists.paths(), [dir.path().join("a.txt")]);
    fs::write(dir.path().join("b.txt"), GOOD).unwrap();
    loader.lists.read();
    loader.load_lists();
    let rules = loader.rules.load_full().unwrap();
    assert_eq!(rules.rules().next().unwrap().path(), "ip_@a.txt");
}
