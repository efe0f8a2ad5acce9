//! `weir check --envoy`: reads Envoy configurations, and compares the descriptors that Envoy would send with the rules.

mod actions;
mod charges;
mod compare;
mod config;
mod ends;
mod filter;
mod findings;
mod input;
mod network;
mod nodes;
mod quotas;
mod reservations;
mod resources;
mod routes;
mod service;

use std::path::PathBuf;

use self::filter::EnvoyConfig;
use self::findings::Findings;
use self::input::EnvoyFile;
use weir_rules::source::RuleFile;
use weir_rules::{Loaded, SourceFile};

/// The most work of a comparison: how often an entry is compared with a rule. It takes some seconds. Filters, routes,
/// `rate_limits` and rules multiply.
pub(super) const MAX_EFFORT: usize = 1 << 28;

/// Compares the configurations at `paths` with the rules of `loaded`, and adds what it finds to the problems there. The
/// files are added too, so that problems can show their lines. `effort` bounds the work.
pub(super) fn check(
    effort: usize,
    loaded: &mut Loaded<SourceFile>,
    paths: &[PathBuf],
    max_problems: usize,
) {
    let mut findings = Findings::new(effort, max_problems);
    let mut sent = Vec::new();
    let texts: Vec<RuleFile> =
        paths.iter().filter_map(|path| input::read(path, &mut findings.problems)).collect();
    let mut is_complete = texts.len() == paths.len();
    let files: Vec<EnvoyFile<'_>> =
        texts.iter().map(|file| EnvoyFile::parse(file, &mut findings.problems)).collect();
    let documents = files.iter().flat_map(|file| &file.documents);
    let config = EnvoyConfig::new(&loaded.rules, documents);
    for file in &files {
        findings.problems.start_file();
        findings.file = file.name.into();
        is_complete &= file.is_whole;
        if !file.is_configuration(&mut findings.problems) {
            is_complete = false;
            continue;
        }
        for document in &file.documents {
            is_complete &= config.read(document, &mut findings, &mut sent);
        }
        if findings.effort.is_none() {
            break;
        }
        findings.problems.sort_file();
    }
    findings.problems.start_file();
    if findings.effort.is_some() {
        compare::compare(&loaded.rules, &sent, is_complete, &mut findings);
    }
    let (problems, omitted) = findings.problems.into_parts();
    loaded.problems.extend(problems);
    loaded.omitted.errors += omitted.errors;
    loaded.omitted.warnings += omitted.warnings;
    loaded.files.extend(texts.into_iter().map(SourceFile::from));
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rules::{DEFAULT_MAX_PROBLEMS, Problem, Problems, RuleOptions};

    /// The problems of 30 filters and 30 routes, with 30 rules, within this effort.
    fn problems(effort: usize) -> Vec<String> {
        let mut rules = "domain: d\ndescriptors:\n".to_owned();
        let mut envoy = "listeners:\n- http_filters:\n".to_owned();
        for i in 0..30 {
            rules += &format!("- {{key: a, value: v{i}, rate_limit: {{unit: day}}}}\n");
            envoy += &format!(
                "  - {{name: f{i}, typed_config: {{'@type': x.filters.http.ratelimit.v3.RateLimit, \
                 domain: d}}}}\n"
            );
        }
        envoy += "  route_config:\n    virtual_hosts:\n    - routes:\n";
        let actions = "[{actions: [{request_headers: {descriptor_key: a}}]}]";
        let route = format!("      - route: {{cluster: c, rate_limits: {actions}}}\n");
        envoy += &route.repeat(30);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.yaml");
        std::fs::write(&path, envoy).unwrap();
        let file = RuleFile { name: "rules.yaml".into(), text: rules };
        let none = Problems::new(DEFAULT_MAX_PROBLEMS);
        let mut loaded = Loaded::compile(vec![file.into()], none, &RuleOptions::default(), None);
        check(effort, &mut loaded, &[path], DEFAULT_MAX_PROBLEMS);
        let shown = |problem: &Problem| {
            assert!(problem.position.is_some(), "{problem}");
            assert!(problem.help.contains("fewer"), "{problem}");
            problem.message.clone()
        };
        // Each filter sends the same, which is a warning.
        loaded.problems.iter().filter(|problem| problem.is_error()).map(shown).collect()
    }

    #[test]
    fn a_comparison_that_takes_too_long_is_an_error() {
        let error = "the comparison with the rules takes too long, and was stopped here";
        assert_eq!(problems(MAX_EFFORT), [""; 0]);
        // On the first route; among the filters of it; among those of a later one.
        for effort in [10, 1_000, 100_000] {
            assert_eq!(problems(effort), [error], "{effort}");
        }
    }
}
