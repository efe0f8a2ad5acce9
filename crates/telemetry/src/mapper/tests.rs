use super::mapping::Series;
use super::*;

fn mapper(text: &str) -> Mapper {
    let (mapper, warnings) = read(text).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    mapper
}

/// Returns the series of a counter as Prometheus shows it.
fn shown(mapper: &Mapper, name: &str) -> String {
    match mapper.map(name, StatisticType::Counter) {
        Some(Series { name, labels, .. }) => {
            let labels = labels.iter().map(|(name, value)| format!("{name}=\"{value}\""));
            format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(","))
        }
        None => "dropped".to_owned(),
    }
}

#[test]
fn the_first_glob_decides_and_then_the_first_regular_expression() {
    let mapper = mapper(
        r#"
mappings:
  - match: "a\\.(.*)\\.end"
    match_type: regex
    name: regex
    labels: {rest: "$1", text: x$1y}
  - match: "a.*.end"
    name: glob_$1
  - match: "a.*.*"
    name: late
    labels:
      both: "${1}-${2}"
"#,
    );
    assert_eq!(shown(&mapper, "a.b.end"), "glob_b{}");
    // A reference to a group takes all letters and digits, and there is no group 1y.
    assert_eq!(shown(&mapper, "a.b.c.end"), "regex{rest=\"b.c\",text=\"x\"}");
    // A regular expression is not anchored, a glob is.
    assert_eq!(shown(&mapper, "x.a.b.ends"), "regex{rest=\"b\",text=\"x\"}");
    assert_eq!(shown(&mapper, "a.b.c"), "late{both=\"b-c\"}");
    assert_eq!(shown(&mapper, "a..c"), "late{both=\"-c\"}");
    assert_eq!(shown(&mapper, "9x-y.z"), "_9x_y_z{}");
}

#[test]
fn statistics_are_dropped_scaled_and_matched_by_type() {
    let mapper = mapper(
        "
mappings:
- {match: a.*, match_metric_type: gauge, name: gauge}
- {match: a.*, match_metric_type: timer, name: timer, scale: 0.001, help: Time}
- {match: a.b, action: drop, name: dropped}
- {match: a.c, action: map, name: 'c', ttl: 1m, honor_labels: true}
",
    );
    assert_eq!(shown(&mapper, "a.b"), "dropped");
    assert_eq!(shown(&mapper, "a.c"), "c{}");
    assert_eq!(shown(&mapper, "a.d"), "a_d{}");
    assert_eq!(mapper.map("a.b", StatisticType::Gauge).unwrap().name, "gauge");
    let timer = mapper.map("a.b", StatisticType::Timer).unwrap();
    assert_eq!((timer.name.as_str(), timer.scale, &*timer.help), ("timer", 0.001, "Time"));
}

#[test]
fn a_last_expression_may_drop_everything_else() {
    let mapper = mapper("mappings: [{match: ., match_type: regex, action: drop, name: x}]");
    assert_eq!(shown(&mapper, "any.thing"), "dropped");
}

#[test]
fn timers_take_options_from_their_mapping_then_from_the_defaults() {
    let text = "
defaults:
  timer_type: histogram
  buckets: [.5, 1]
  summary_options: {quantiles: [{quantile: 0.2, error: 0.1}], max_age: 1m, buf_cap: 5}
  match_type: regex
  glob_disable_ordering: true
  ttl: 0s
mappings:
- {match: ^own$, name: own, histogram_options: {buckets: [1, 2.5]}}
- {match: ^legacy$, name: legacy, buckets: [7]}
- {match: ^default$, name: default}
- {match: ^summary$, name: summary, timer_type: histogram, observer_type: summary}
- match: ^quantiles$
  name: quantiles
  observer_type: summary
  quantiles:
  - {quantile: 0.75, error: 0.05}
";
    let mapper = mapper(text);
    let observer = |name| mapper.map(name, StatisticType::Timer).unwrap().observer;
    assert_eq!(observer("own"), Observer::Histogram([1.0, 2.5].into()));
    assert_eq!(observer("legacy"), Observer::Histogram([7.0].into()));
    assert_eq!(observer("default"), Observer::Histogram([0.5, 1.0].into()));
    assert_eq!(observer("unmapped"), Observer::Histogram([0.5, 1.0].into()));
    assert_eq!(observer("summary"), Observer::Summary([0.2].into()));
    assert_eq!(observer("quantiles"), Observer::Summary([0.75].into()));
}

#[test]
fn a_file_without_mappings_maps_nothing() {
    for text in ["", "mappings:", "mappings: []\ndefaults: {}"] {
        assert_eq!(shown(&mapper(text), "a.b"), "a_b{}");
        let series = mapper(text).map("a", StatisticType::Timer).unwrap();
        assert_eq!(series.observer, Observer::Summary(DEFAULT_QUANTILES.into()), "{text}");
    }
}

#[test]
fn other_keys_are_named() {
    let text = "
mapping: []
mappings:
- match: a
  name: a
  lables: {}
  histogram_options: {native_histogram_max_buckets: 7}
";
    let (mapper, warnings) = read(text).unwrap();
    assert_eq!(shown(&mapper, "a"), "a{}");
    assert_eq!(
        warnings,
        [
            "2:1: unknown key \"mapping\" is ignored",
            "6:3: unknown key \"lables\" is ignored",
            "7:23: key \"native_histogram_max_buckets\" has no effect",
        ]
    );
}

#[test]
fn errors_have_a_place_and_a_fix() {
    for (text, error) in [
        ("mappings: 7", "1:11: not a list: write - before each item"),
        ("[]", "1:1: not a map: write keys with their values"),
        ("mappings: [{name: a}]", "1:12: a mapping without match: add match"),
        ("mappings: [{match: a}]", "1:12: a mapping without name: add name"),
        (
            "mappings: [{match: a..b, name: a}]",
            "1:20: not a glob: write levels with dots between them, each a name or *, or \
             match_type: regex",
        ),
        (
            "mappings: [{match: (, match_type: regex, name: a}]",
            "1:20: invalid regular expression: unclosed group",
        ),
        (
            "mappings: [{match: a, name: a-b}]",
            "1:29: \"a-b\" is not a name of Prometheus: use letters, digits and _",
        ),
        (
            "mappings: [{match: a, name: a, labels: {b-c: d}}]",
            "1:41: \"b-c\" is not a label: use letters, digits and _",
        ),
        (
            "mappings: [{match: a, name: a, match_type: globb}]",
            "1:44: \"globb\" is unknown: write one of glob, regex",
        ),
        ("mappings: [{match: a, name: a, scale: much}]", "1:39: not a number"),
        ("defaults: {buckets: [2, 1]}", "1:21: buckets are not in ascending order: sort them"),
        (
            "mappings: [{match: a, name: a, timer_type: histogram, summary_options: {}}]",
            "1:55: summary_options in a histogram: remove one of them",
        ),
        (
            "defaults: {quantiles: [{error: 0.1}]}",
            "1:24: a quantile without a number: write quantile: with a number from 0 to 1",
        ),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), error, "{text}");
    }
    assert!(read("mappings: [").is_err());
}
