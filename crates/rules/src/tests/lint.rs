//! What `weir check` warns about.

use super::file;
use crate::source::RuleFile;
use crate::{Document, Loaded, Overlay, Problems, RuleOptions, SourceFile};

fn options() -> RuleOptions {
    RuleOptions { lint: true, ..RuleOptions::default() }
}

/// The warnings about files, each as position and message.
fn warnings_of(files: &[RuleFile]) -> Vec<String> {
    let options = RuleOptions { merge_domains: true, ..options() };
    let loaded = Loaded::compile(files.to_vec(), Problems::new(100), &options, None);
    let problems = loaded.problems.iter();
    problems
        .map(|problem| {
            assert!(!problem.is_error(), "{problem}");
            problem.to_string().replacen("rules.yaml:", "", 1).replacen(" warning: ", " ", 1)
        })
        .collect()
}

fn warnings(text: &str) -> Vec<String> {
    warnings_of(&[file("rules.yaml", text)])
}

/// The warnings about these descriptors in flow style, a line each from line 3.
fn of(descriptors: &str) -> Vec<String> {
    warnings(&format!("domain: d\ndescriptors:\n{}", descriptors.replace(" L", LIMIT)))
}

const LIMIT: &str = " rate_limit: { unit: day, requests_per_unit: 1 }";

/// Whether the compilation for serving has no warning.
fn loads_silently(text: &str) -> bool {
    let loaded = Loaded::compile(
        vec![file("rules.yaml", text)],
        Problems::new(100),
        &RuleOptions::default(),
        None,
    );
    loaded.problems.is_empty()
}

#[test]
fn names_of_limits_that_headers_do_not_escape() {
    let limit = |name: &str| {
        let limit = format!("{{ unit: day, requests_per_unit: 1, name: {name} }}");
        let lone = of(&format!("  - {{ key: k, rate_limit: {limit} }}\n"));
        let listed = of(&format!("  - {{ key: k, rate_limits: [{limit}] }}\n"));
        assert_eq!(lone.len(), listed.len(), "{name}");
        lone
    };
    for name in [r#""a\"b""#, r#""a\\b""#, r#""a\nb""#, r#""a\u0007""#] {
        let warned = limit(name);
        let [warned] = &warned[..] else { panic!("{name}: {warned:?}") };
        assert!(warned.starts_with("3:68: Envoy writes this name into x-"), "{warned}");
    }
    for name in ["per-user", "'a, b;=é'", "''"] {
        assert_eq!(limit(name), [""; 0], "{name}");
    }
    assert!(loads_silently(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: { name: '\"', unit: day, requests_per_unit: 1 }\n"
    ));
}

#[test]
fn further_yaml_documents() {
    let rules = "domain: d\ndescriptors: []\n";
    let warned = ["3:5: only the first YAML document of a file is read: what follows is ignored"];
    let further = format!("{rules}--- {rules}");
    assert_eq!(warnings(&further), warned);
    assert!(!loads_silently(&further), "weir serve warns too");
    let broken = format!("{rules}---\n\"\n");
    assert_eq!(warnings(&broken).len(), 1, "what is ignored need not be YAML");
    for good in [format!("---\n{rules}"), format!("{rules}---\n"), format!("{rules}...\n# end\n")] {
        assert_eq!(warnings(&good), [""; 0], "{good}");
    }
}

#[test]
fn unreachable_wildcards() {
    assert_eq!(
        of("- { key: k, value: 'a*', L }\n- { key: k, value: 'ab*', L }\n"),
        [
            "4:10: the wildcard 'k_ab*' is unreachable: 'k_a*', earlier in the file, matches all that it does"
        ]
    );
    for (earlier, later) in
        [("*", "a*"), ("*a*", "*ab*"), ("a*c", "a*b*c"), ("a*", "a**"), ("*/x/*", "/x/*/y")]
    {
        let text =
            format!("- {{ key: k, value: '{earlier}', L }}\n- {{ key: k, value: '{later}', L }}\n");
        assert_eq!(of(&text).len(), 1, "{earlier} {later}");
    }
    for (earlier, later) in [
        ("ab*", "a*"),
        ("a*b", "a*"),
        ("aa*aa", "aa*a"),
        ("a*b*c", "a*c"),
        ("*a", "a*"),
        ("*ab*ba*", "*aba*"),
        ("\u{10ff7e}*", "*"),
    ] {
        let text =
            format!("- {{ key: k, value: '{earlier}', L }}\n- {{ key: k, value: '{later}', L }}\n");
        assert_eq!(of(&text), [""; 0], "{earlier} {later}");
    }
    // All earlier ones count.
    let third = "- { key: k, value: 'x*', L }\n- { key: k, value: 'a*', L }\n\
                 - { key: k, value: 'ab*', L }\n";
    assert_eq!(of(third).len(), 1);
    assert_eq!(of("- { key: 'k*', L }\n"), [""; 0], "no wildcard hides itself");
    // An exact value comes first, wherever it is.
    assert_eq!(of("- { key: k, value: 'a*', L }\n- { key: k, value: ab, L }\n"), [""; 0]);
}

#[test]
fn children_that_are_not_reached_for_one_value() {
    let of_address = |value: &str, children: &str| {
        let text = format!(
            "- {{ key: a, L, descriptors: [{{ key: path, L, descriptors: [{{ key: m, value: GET, L }}] }}, \
             {{ key: none }}] }}\n- {{ key: a, {value}, descriptors: [{children}] }}\n"
        );
        of(&text)
    };
    let hidden = |by: &str, child: &str, above: &str| {
        format!(
            "'{by}' matches before '{above}', so that '{child}' below '{above}' is never reached for it"
        )
    };
    for (value, children, wanted) in [
        ("value: x, L", "", hidden("a_x", "path", "a")),
        ("value: x", "{ key: other, L }", hidden("a_x", "path", "a")),
        ("value: 'x*', L", "{ key: path, value: /, L }", hidden("a_x*", "path", "a")),
        ("network: 10.0.0.0/8, L", "", hidden("a_10.0.0.0/8", "path", "a")),
        ("value: x, L", "{ key: path, L }", hidden("path", "m_GET", "path")),
    ] {
        let warned = of_address(value, children);
        let [warning] = &warned[..] else { panic!("{value} {children}: {warned:?}") };
        assert!(warning.starts_with("4:") && warning.ends_with(&wanted), "{warning}");
    }
    let whole = "{ key: path, L, descriptors: [{ key: m, L }] }";
    for (value, children) in [
        // The usual list of exceptions, and what has no effect of its own.
        ("value: x, rate_limit: { unlimited: true }", ""),
        ("value: x", ""),
        ("value: x, L", whole),
        ("value: x, L", "{ key: path, value: '*', L, descriptors: [{ key: m, value: 'G*', L }] }"),
        ("value: x, L", "{ key: path, rate_limit: { unlimited: true } }"),
    ] {
        assert_eq!(of_address(value, children), [""; 0], "{value} {children}");
    }
    let listed = "{ key: b, values: [p, q], L }";
    let text = format!(
        "- {{ key: a, descriptors: [{listed}] }}\n- {{ key: a, value: x, L, descriptors: [{listed}] }}\n"
    );
    assert_eq!(of(&text), [""; 0]);
}

#[test]
fn keys_that_a_wildcard_hides() {
    let wanted =
        "3:10: no entry with the key 'k' gets here: the wildcard 'k_*' matches all of them";
    let hidden = "- { key: k, L }\n- { key: k, value: '*', L }\n";
    assert_eq!(of(hidden), [wanted]);
    let help = |descriptors: &str| {
        let text = format!("domain: d\ndescriptors:\n{}", descriptors.replace(" L", LIMIT));
        let files = vec![file("rules.yaml", &text)];
        let loaded = Loaded::compile(files, Problems::new(100), &options(), None);
        loaded.problems[0].help.clone()
    };
    assert!(help(hidden).starts_with("remove one of the two"));
    let later = "- { key: k, value: '*', L }\n- { key: k, value: 'a*', L }\n";
    assert!(help(later).starts_with("move it before the other"));
    assert_eq!(of("- { key: k, L }\n- { key: k, value: '*a', L }\n- { key: kk, L }\n"), [""; 0]);
    // On a deeper level, and across files of a domain.
    let nested = "- key: a\n  descriptors:\n  - { key: k, value: '*', L }\n  - { key: k, L }\n";
    assert_eq!(of(nested).len(), 1);
    let first = file("a.yaml", &format!("domain: d\ndescriptors: [{{ key: k, {LIMIT} }}]\n"));
    let second =
        file("b.yaml", &format!("domain: d\ndescriptors: [{{ key: k, value: '*', {LIMIT} }}]\n"));
    let found = warnings_of(&[first, second]);
    assert!(found.len() == 1 && found[0].starts_with("a.yaml:2:"), "{found:?}");
}

#[test]
fn limits_without_a_number() {
    let missing = "no `requests_per_unit`: this limit denies everything";
    for limit in ["{ unit: day }", "{ unit: day, requests_per_unit: }"] {
        let text = format!("- {{ key: k, rate_limit: {limit} }}\n");
        assert_eq!(of(&text), [format!("3:25: {missing}")], "{text}");
        assert!(loads_silently(&format!("domain: d\ndescriptors:\n{text}")));
    }
    for limit in ["{ unit: day, requests_per_unit: 0 }", "{ unlimited: true }"] {
        assert_eq!(of(&format!("- {{ key: k, rate_limit: {limit} }}\n")), [""; 0]);
    }
    assert_eq!(of("- { key: k, rate_limits: [{ unit: day }] }\n").len(), 1);
    // A misspelled key is not a missing one.
    for limit in ["{ unit: day, requests: 5 }", "{ unit: day, requests_per_unit: , x: 1 }"] {
        let text = format!("domain: d\ndescriptors:\n- {{ key: k, rate_limit: {limit} }}\n");
        let files = vec![file("rules.yaml", &text)];
        let problems = Loaded::compile(files, Problems::new(100), &options(), None).problems;
        assert!(problems.len() == 1 && problems[0].is_error(), "{limit}: {problems:?}");
    }
}

#[test]
fn replaces_that_name_nothing() {
    let limit = |name: &str, replaced: &str| {
        format!(
            "- {{ key: {name}, rate_limit: {{ name: {name}, unit: day, requests_per_unit: 1, \
             replaces: [{{ name: {replaced} }}] }} }}\n"
        )
    };
    let text = limit("gold", "basic");
    assert_eq!(of(&text), ["3:86: no rule of the domain 'd' has the name 'basic'"]);
    let files = [file("rules.yaml", &format!("domain: d\ndescriptors:\n{text}"))];
    let loaded = Loaded::compile(files.to_vec(), Problems::new(100), &options(), None);
    assert!(loaded.problems[0].help.contains("`name`"));
    // Names of limits of a list count, also those of a later rule.
    let listed = "- { key: b, rate_limits: [{ name: basic, unit: day, requests_per_unit: 1 }] }\n";
    assert_eq!(of(&(text.clone() + listed)), [""; 0]);
    let near = text.replace("{ name: basic }", "{ name: baisc }") + listed;
    let files = vec![file("rules.yaml", &format!("domain: d\ndescriptors:\n{near}"))];
    let loaded = Loaded::compile(files, Problems::new(100), &options(), None);
    assert_eq!(loaded.problems[0].help, "did you mean `basic`?");
    let unlimited = "- { key: b, rate_limit: { name: basic, unlimited: true } }\n";
    assert!(of(&(text + unlimited))[0].contains("is an unlimited rule"));
}

#[test]
fn limits_are_checked_as_patched() {
    let rules = "domain: d
descriptors:
- { key: a, rate_limit: { name: a, unit: day } }
- { key: b, rate_limit: { name: b, unit: day, requests_per_unit: 1, replaces: [{ name: c }] } }
";
    let missing = "no `requests_per_unit`: this limit denies everything";
    let unnamed = "no rule of the domain 'd' has the name";
    let warnings = |set: &str| {
        let patches = format!("patches: [{{ match: {{}}, set: {set} }}]");
        let options = options();
        let overlays = vec![file("o.yaml", &patches)];
        let overlay = Overlay::new(overlays, Vec::new(), &options);
        let overlay = overlay.unwrap_or_else(|error| panic!("{}", error.render()));
        let files = vec![file("r.yaml", rules)];
        let options = RuleOptions { overlay: Some(overlay), ..options };
        let loaded = Loaded::compile(files, Problems::new(100), &options, None);
        let listed: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
        assert_eq!(loaded.overlay.problems.len(), 0, "{:?}", loaded.overlay.problems);
        listed
    };
    let as_delivered =
        [format!("r.yaml:3:3: warning: {missing}"), format!("r.yaml:4:3: warning: {unnamed} 'c'")];
    assert_eq!(warnings("{ shadow_mode: true }"), as_delivered);
    assert_eq!(warnings("{ requests_per_unit: 5 }"), as_delivered[1..]);
    assert_eq!(warnings("{ replaces: null }"), as_delivered[..1]);
    assert_eq!(
        warnings("{ replaces: null, requests_per_unit: null }"),
        [3, 4].map(|line| format!("r.yaml:{line}:3: warning: {missing}"))
    );
    assert_eq!(
        warnings("{ replaces: [{ name: e }] }")[1..],
        [3, 4].map(|line| format!("r.yaml:{line}:3: warning: {unnamed} 'e'"))
    );
}

#[test]
fn values_that_are_networks() {
    let warned = "this value is a network, but it is compared as text";
    for value in ["10.0.0.0/8", "10.1.2.3/32", "10.1.2.3/12", "'::/0'", "'2001:db8::/32'"] {
        let text = format!("- {{ key: ip, value: {value}, L }}\n");
        let at = if value.starts_with('\'') { 22 } else { 21 };
        let found = of(&text);
        assert!(found.len() == 1 && found[0].ends_with(warned), "{value} {at}: {found:?}");
    }
    for value in
        ["'*'", "10.0.*", "10/8", "1.2.3/8", "10.0.0.0/33", "10.0.0.1", "/a", "''", "'^/a'"]
    {
        assert_eq!(of(&format!("- {{ key: ip, value: {value}, L }}\n")), [""; 0], "{value}");
    }
    assert_eq!(of("- { key: masked_remote_address, value: 10.0.0.0/8, L }\n"), [""; 0]);
    // Envoy AI Gateway names a rule by what it matches, and sends the name.
    assert_eq!(of("- { key: 10.0.0.0/8, value: 10.0.0.0/8, L }\n"), [""; 0]);
    let text = format!("domain: d\ndescriptors: [{{ key: ip, value: 10.1.2.3/12,{LIMIT} }}]\n");
    let files = vec![file("rules.yaml", &text)];
    let problems = Loaded::compile(files, Problems::new(100), &options(), None).problems;
    assert!(problems[0].help.starts_with("write `network: 10.0.0.0/12`"), "{}", problems[0].help);
    assert_eq!(problems[0].position.unwrap().column(), Some(33));
}

#[test]
fn repeated_keys() {
    let text = "domain: d\ndescriptors:\n- key: k\n  rate_limit: { unit: day, requests_per_unit: 1 }\n  \
                rate_limit: { unit: hour, requests_per_unit: 3, requests_per_unit: 4 }\n";
    assert_eq!(
        warnings(text),
        [
            "5:3: 'rate_limit' is repeated: the two become one limit",
            "5:51: 'requests_per_unit' is repeated: only the last one counts",
        ]
    );
    let merged = "domain: d\ndescriptors:\n- { key: a, rate_limit: &a { unit: day, requests_per_unit: 1 } }\n\
                  - { key: b, rate_limit: { <<: *a, requests_per_unit: 2 } }\n";
    assert_eq!(warnings(merged), [""; 0], "a merged key is meant to be overridden");
}

#[test]
fn duplicates_suggest_a_list_of_limits() {
    let text = format!("domain: d\ndescriptors:\n- {{ key: k,{LIMIT} }}\n- {{ key: k,{LIMIT} }}\n");
    let files = vec![file("rules.yaml", &text)];
    let loaded = Loaded::compile(files, Problems::new(100), &options(), None);
    let problem = &loaded.problems[0];
    assert!(problem.is_error() && problem.help.contains("`rate_limits`"), "{problem}");
    assert_eq!(problem.first.as_ref().unwrap().to_string(), "rules.yaml:3:10");
}

#[test]
fn scalars_that_yaml_1_1_reads_as_something_else() {
    assert_eq!(
        of("- { key: n, value: on, L }\n- { key: k, value: 010, L }\n"),
        [
            "3:10: YAML 1.1 reads `n` as the boolean false; here it is the text 'n'",
            "3:20: YAML 1.1 reads `on` as the boolean true; here it is the text 'on'",
            "4:20: YAML 1.1 reads `010` as the number 8; here it is the text '010'",
        ]
    );
    assert_eq!(
        of(
            "- { key: \"n\", value: 'on', L }\n- { key: k, value: 80, L }\n- { key: k, value: true, L }\n"
        ),
        [""; 0]
    );
    assert_eq!(
        of("- { key: k, rate_limit: { unit: day, requests_per_unit: 010 } }\n"),
        ["3:57: YAML 1.1 reads `010` as the octal number 8"]
    );
    assert_eq!(
        of(
            "- { key: k, value: null, L }\n- { key: j, value: Null, L }\n- { key: i, value: , L }\n- { key: h, value: 'null', L }\n"
        ),
        [
            "3:20: YAML reads `null` as nothing: `value` is empty",
            "4:20: YAML reads `Null` as nothing: `value` is empty",
        ]
    );
    assert_eq!(
        of("- { key: k, rate_limit: { unit: day, requests_per_unit: 0x10 }, shadow_mode: on }\n"),
        [""; 0]
    );
    assert_eq!(
        of("- { key: k, metadata: { country: no, gold: false, zip: 01234 }, L }\n"),
        [
            "3:34: YAML 1.1 reads `no` as the boolean false",
            "3:56: YAML 1.1 reads `01234` as the octal number 668",
        ]
    );
}

#[test]
fn a_root_name_is_no_finding() {
    let text = "name: d\ndomain: d\ndescriptors: []\n";
    assert_eq!(warnings(text), [""; 0]);
    assert!(loads_silently(text));
}

const MANIFEST: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: { name: rules }
data:
  shop.yaml: |
    # A comment.
    domain: shop
    descriptors:
      - key: path
        rate_limit: { unit: minute }
  shop.test.yaml: |
    rules: [shop.yaml]
  notes.txt: hello
---
apiVersion: apps/v1
kind: Deployment
---
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: ConfigMap
    data:
      "api.yml": "domain: api\ndescriptors:\n- key: \"k\"\n  value: 'a'\n\
        \  rate_limit: { unit: fortnight, requests_per_unit: 1 }\n"
"#;

#[test]
fn manifests_are_unpacked_with_positions_in_their_entries() {
    let mut problems = Vec::new();
    let files = SourceFile::unpack(file("m.yaml", MANIFEST), &mut problems);
    assert!(problems.is_empty());
    assert_eq!(
        files.iter().map(|file| file.name()).collect::<Vec<_>>(),
        ["m.yaml#rules/shop.yaml", "m.yaml#/api.yml"]
    );
    let loaded = Loaded::compile(files, Problems::new(100), &options(), None);
    let wanted = r"m.yaml#rules/shop.yaml:5:17: warning: no `requests_per_unit`: this limit denies everything
 5 |     rate_limit: { unit: minute }
   |                 ^
  help: write `requests_per_unit: N`, or 0 to deny everything
m.yaml#/api.yml:5:23: error: invalid rate limit unit 'fortnight'
 5 |   rate_limit: { unit: fortnight, requests_per_unit: 1 }
   |                       ^^^^^^^^^
  help: write one of second, minute, hour, day, week, month, year
";
    let rendered = loaded.render(loaded.problems.iter());
    assert_eq!(rendered, wanted);
}

#[test]
fn the_lists_of_a_manifest_are_other_entries_of_the_config_map() {
    let rules = "domain: d\n    descriptors:\n    - { key: ip, values_file: blocked.txt, L }\n"
        .replace('L', LIMIT);
    let config_map = |domain: &str, data: &str| {
        let rules = rules.replace("domain: d", &format!("domain: {domain}"));
        format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  r.yaml: |\n    {rules}{data}---\n")
    };
    let load = |text: &str| {
        let files = SourceFile::unpack(file("m.yaml", text), &mut Vec::new());
        let lists = crate::Lists::BesideRules;
        let options = RuleOptions { lists, ..options() };
        Loaded::compile(files, Problems::new(100), &options, None)
    };
    let text = config_map("d", "  blocked.txt: |\n    10.0.0.0/8\n    ann\n")
        + &config_map("e", "  blocked.txt: 192.0.2.1\n");
    let loaded = load(&text);
    assert_eq!(loaded.problems, []);
    let lists = loaded.lists.iter().map(|list| list.path.display().to_string());
    assert_eq!(lists.collect::<Vec<_>>(), ["m.yaml#/blocked.txt"; 2], "those of the manifest");
    let found =
        |domain, value| loaded.rules.domain(domain).unwrap().find(&[("ip", value)]).is_some();
    assert!(found("d", "10.1.2.3") && found("d", "ann") && !found("d", "192.0.2.1"));
    assert!(found("e", "192.0.2.1") && !found("e", "ann"), "each has its own list");
    let text =
        config_map("d", "  blocked.txt: |\n    # ours\n    10.0.0.1/8\n") + &config_map("e", "");
    let reported: Vec<String> = load(&text).problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "m.yaml#/blocked.txt:2:1: error: config error, '10.0.0.1/8' has bits set after its prefix",
            "m.yaml#/r.yaml:3:27: error: config error, the ConfigMap has no list 'blocked.txt'",
        ]
    );
}

/// The chart's ConfigMap has settings beside the rules.
#[test]
fn entries_without_domain_and_descriptors_are_no_rule_files() {
    let others = "  weir.yaml: |\n    store: { kind: redis }\n  envoy.yaml: '[1]'\n  empty.yaml: ''\n  text.yaml: hello\n";
    for rules in ["domain: d\n    descriptors: []", "descriptors: []"] {
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  r.yml: |\n    {rules}\n{others}");
        let mut problems = Vec::new();
        let files = SourceFile::unpack(file("m.yaml", &text), &mut problems);
        assert_eq!((files.len(), problems.len()), (1, 0), "{text}");
    }
    let text = format!("apiVersion: v1\nkind: ConfigMap\ndata:\n{others}");
    let mut problems = Vec::new();
    assert_eq!(SourceFile::unpack(file("m.yaml", &text), &mut problems).len(), 0);
    assert!(problems[0].message.contains("the manifest has no rules"), "{}", problems[0]);
}

#[test]
fn manifests_without_rules_and_broken_ones_are_errors() {
    let mut problems = Vec::new();
    let text = "apiVersion: v1\nkind: ConfigMap\ndata: { a.txt: b }\n";
    assert_eq!(SourceFile::unpack(file("m.yaml", text), &mut problems).len(), 0);
    assert!(problems[0].message.contains("the manifest has no rules"));
    let text = "apiVersion: v1\nkind: ConfigMap\n---\n\"\n";
    assert_eq!(SourceFile::unpack(file("m.yaml", text), &mut problems).len(), 0);
    assert!(problems[1].to_string().starts_with("m.yaml:"), "{}", problems[1]);
    // Rules that cannot be read are reported.
    let text =
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  a.yaml: |\n    domain: d\n    descriptors: [\n";
    let files = SourceFile::unpack(file("m.yaml", text), &mut problems);
    let loaded = Loaded::compile(files, Problems::new(100), &options(), None);
    assert!(
        loaded.problems[0].to_string().starts_with("m.yaml#/a.yaml:2:"),
        "{:?}",
        loaded.problems
    );
    // A rule file that only mentions the word stays one.
    let rules = "domain: d # apiVersion\n";
    assert_eq!(SourceFile::unpack(file("r.yaml", rules), &mut problems).len(), 1);
}
