//! Keys as they are kept and shown.

use super::*;

fn record_entries(top: &Top, entries: &[Entry<'_>]) {
    let (domain, rule) = ("d", "api_key_s3cret.user");
    let outcome = Outcome::Admitted(&[]);
    top.record(&Recorded { domain, entries, rule, hits: 1, outcome });
}

fn shown(row: &TopRow) -> Vec<(&str, &str)> {
    row.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str())).collect()
}

#[test]
fn different_keys_have_different_rows() {
    let (top, _) = top(100, 1);
    let keys: [&[Entry<'_>]; 9] = [
        &[("a_b", "c")],
        &[("a", "b_c")],
        &[("a", "")],
        &[("", "a")],
        &[("", "")],
        &[],
        &[("a", "b"), ("", "")],
        &[("a", "b"), ("c", "d")],
        &[("c", "d"), ("a", "b")],
    ];
    keys.iter().chain(&keys).for_each(|entries| record_entries(&top, entries));
    let list = top.list(&all(By::Hits));
    assert!(list.rows.iter().all(|row| row.count == 2 && !row.cut));
    let mut rows: Vec<_> = list.rows.iter().map(shown).collect();
    let mut wanted = keys.map(<[Entry<'_>]>::to_vec);
    rows.sort();
    wanted.sort();
    assert_eq!(rows, wanted);
}

#[test]
fn long_keys_are_cut_and_counted_separately() {
    let (top, _) = top(100, 1);
    let long = "ä".repeat(5_000);
    let (one, two) = (format!("{long}1"), format!("{long}2"));
    let many = vec![("k", "v"); 10_000];
    for _ in 0..2 {
        record_entries(&top, &[("a", &one), ("b", "x")]);
        record_entries(&top, &[("a", &two), ("b", "x")]);
        record_entries(&top, &many);
    }
    let list = top.list(&all(By::Hits));
    assert_eq!(list.rows.len(), 3);
    for row in &list.rows {
        assert!(row.cut && row.count == 2, "{row:?}");
        let bytes: usize = shown(row).iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes <= 512 && row.entries.len() <= 512 / 6, "{row:?}");
    }
    let row = list.rows.iter().find(|row| row.entries[0].key == "a").unwrap();
    assert!(row.entries[0].value.ends_with("ä…"), "{row:?}");
    assert_eq!(row.entries[1].value, "x");
}

#[test]
fn values_of_redacted_keys_are_shown_as_hashes() {
    let redact = vec!["api_key".to_owned()];
    let options = TopOptions { entries: 10, redact, threads: 1, share: false };
    let top = Top::new(options, Arc::new(ManualClock::new(0)));
    let long = format!("{}1", "s3cret".repeat(100));
    record_entries(&top, &[("api_key", "s3cret"), ("user", "ann")]);
    record_entries(&top, &[("api_key", "s3cret"), ("user", "bob")]);
    record_entries(&top, &[("api_key", &long), ("user", "bob")]);
    record_entries(&top, &[("api_key", &long.replace('1', "2")), ("user", "bob")]);
    record_entries(&top, &[("api_key", ""), ("user", "api_key")]);
    let list = top.list(&all(By::Hits));
    assert_eq!(list.rows.len(), 5);
    let hash = |value: &str, user: &str| {
        let row = list.rows.iter().find(|row| {
            let is_cut = value.len() > 512;
            row.entries[1].value == user && row.cut == is_cut
        });
        row.expect("a row").entries[0].value.clone()
    };
    assert_eq!(hash("s3cret", "ann"), hash("s3cret", "bob"));
    assert_ne!(hash("s3cret", "ann"), hash(&long, "bob"));
    let values: std::collections::HashSet<_> =
        list.rows.iter().map(|row| &row.entries[0].value).collect();
    assert_eq!(values.len(), 4, "{values:?}");
    assert!(values.contains(&String::new()), "there is nothing to hide");
    let json = serde_json::to_string(&list).unwrap() + &format!("{top:?}");
    assert!(!json.contains("s3cr"), "{json}");
    // All keys of a rule have the same path, whatever their own values are.
    let path = format!("api_key_{}.user", hash("s3cret", "ann"));
    assert!(list.rows.iter().all(|row| row.rule.as_ref() == Some(&path)), "{json}");
    assert!(hash("s3cret", "ann").starts_with("hash:") && hash("s3cret", "ann").len() == 21);
}

#[test]
fn a_filter_gets_true_values() {
    let options =
        TopOptions { entries: 10, redact: vec!["user".to_owned()], threads: 1, share: false };
    let top = Top::new(options, Arc::new(ManualClock::new(0)));
    for name in ["ann", "bob", "cy"] {
        record(&top, name, 1, Outcome::Admitted(&[]));
    }
    let filter = |domain: &str, entries: &[Entry<'_>]| domain == "d" && entries[0].1 >= "b";
    let list = top.list(&TopQuery { filter: Some(&filter), ..all(By::Hits) });
    assert_eq!((list.rows.len(), list.total), (2, 3));
    let list = top.list(&TopQuery { filter: Some(&|_, _| false), ..all(By::Hits) });
    assert_eq!(list.rows, []);
}

#[test]
fn lists_are_ready_for_json() {
    let (top, clock) = top(10, 1);
    clock.advance(7 * SECOND);
    let limit = NearAdmission {
        limit: 0,
        name: "daily",
        unnamed: None,
        used: 8,
        n: 10,
        reset_after: 1_500,
    };
    record(&top, "ann", 2, Outcome::Admitted(&[limit]));
    let json = serde_json::to_value(top.list(&all(By::Near))).unwrap();
    let entries = serde_json::json!([{"key": "user", "value": "ann"}]);
    let row = serde_json::json!({
        "domain": "d", "entries": entries, "rule": "user", "count": 2, "error": 0,
        "limit": "daily", "used": 8, "n": 10, "reset_ms": 2,
    });
    let wanted = serde_json::json!({
        "by": "near", "window": "start", "scope": "here", "replicas": 1, "seconds": 7, "total": 2, "unlisted": 0, "rows": [row],
    });
    assert_eq!(json, wanted);
    let hits = serde_json::to_value(top.list(&all(By::Hits))).unwrap();
    assert_eq!(hits["rows"][0].get("used"), None);
}
