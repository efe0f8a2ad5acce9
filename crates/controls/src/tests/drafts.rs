//! What operators send.

use std::time::Duration;

use super::*;

#[test]
fn a_body_is_read() {
    let read = draft(
        r#"{"domain":"*","entries":[{"key":"user","value":"m*"}],"exact":true,"text":true,
            "action":"limit","for":"1m","reason":"launch","by":"ann","limit":{"n":10,"burst":20,"name":"fast"}}"#,
    );
    let expected = Draft {
        domain: "*".into(),
        entries: vec![entry("user", "m*")],
        exact: true,
        text: true,
        action: Action::Limit {
            limit: LimitChange { n: 10, burst: Some(20), name: "fast".into(), rate: None },
        },
        except: Vec::new(),
        duration: Some("1m".into()),
        until: None,
        reason: "launch".into(),
        by: "ann".into(),
    };
    assert_eq!(read, expected);
    assert_eq!(read.check(), Ok(Expiry::For(Duration::from_secs(60))));
    let allow = r#"{"domain":"d","entries":[],"action":"allow","count":false,"until":"2030-01-02T03:04:05Z"}"#;
    let allow = draft(allow);
    assert_eq!(allow.action, Action::Allow { count: false });
    assert_eq!(allow.check(), Ok(Expiry::Until(1_893_553_445 * SECOND)));
}

#[test]
fn an_invalid_body_says_what_to_write() {
    for (body, error, help) in [
        ("", "not a control: EOF", "write for instance {"),
        ("[]", "not a control", "write for instance {"),
        (r#"{"domian":"d"}"#, "unknown member `domian`", "write `domain`"),
        (r#"{"entries":[],"action":"block"}"#, "`domain` is missing", "or `*` for all"),
        (r#"{"domain":"d","action":"block"}"#, "`entries` is missing", "write the entries"),
        (
            r#"{"domain":"d","entries":[{"key":"a","value":"b","exact":true}],"action":"block"}"#,
            "unknown field `exact`, expected one of `key`, `value`, `escaped`",
            "write for instance {",
        ),
        (r#"{"domain":"d","entries":[]}"#, "`action` is missing", "block, allow or limit"),
        (r#"{"domain":"d","entries":[],"action":"ban"}"#, "\"ban\"", "block, allow or limit"),
        (r#"{"domain":"d*","entries":[],"action":"block"}"#, "part of the domain", "whole domain"),
        (r#"{"domain":"d","entries":[],"action":"limit"}"#, "`limit` is missing", "numbers"),
        (r#"{"domain":"d","entries":[],"action":"block","count":true}"#, "`count`", "leave it out"),
        (
            r#"{"domain":"d","entries":[],"action":"block","limit":{"n":1}}"#,
            "`limit` with",
            "leave",
        ),
        (r#"{"domain":"d","entries":[],"action":"block","for":"1"}"#, "not a duration", "10m"),
        (r#"{"domain":"d","entries":[],"action":"block","for":"0"}"#, "duration is 0", "above 0"),
        (r#"{"domain":"d","entries":[],"action":"block","until":"x"}"#, "not a time", "RFC 3339"),
        (
            r#"{"domain":"d","entries":[{"key":"a","value":"b"},{"key":"a","value":"b"}],"action":"block"}"#,
            "repeated",
            "once",
        ),
        (
            r#"{"domain":"d","entries":[{"key":"*","value":"*"}],"action":"block"}"#,
            "the key `*` matches nothing",
            "no entries (in a command '*') for the whole domain",
        ),
        (
            r#"{"domain":"d","entries":[],"action":"allow","except":[{"key":"a","value":"b"}]}"#,
            "`except` without the action `block`",
            "leave it out",
        ),
        (
            r#"{"domain":"d","entries":[],"action":"block","except":[{"key":"a"}]}"#,
            "missing field `value`",
            "write for instance {",
        ),
        (
            r#"{"domain":"d","entries":[],"action":"block","except":[{"key":"*","value":"b"}]}"#,
            "the key `*` matches nothing",
            "write a key",
        ),
    ] {
        let actual = Draft::read(body.as_bytes(), None).unwrap_err();
        assert!(actual.error.contains(error) && actual.help.contains(help), "{body}: {actual:?}");
    }
}

#[test]
fn the_length_of_a_value_is_that_of_its_bytes() {
    let read = |bytes: usize| {
        let value = r"\\xff".repeat(bytes);
        let entry = format!(r#"{{"key":"a","value":"{value}","escaped":true}}"#);
        let body = format!(r#"{{"domain":"d","entries":[{entry}],"action":"block"}}"#);
        Draft::read(body.as_bytes(), None)
    };
    // In memory, each byte takes four.
    assert_eq!(read(900).map_err(|error| error.error).err(), None);
    let error = read(1_025).unwrap_err();
    assert!(error.error.contains("a text is too long"), "{error:?}");
}

#[test]
fn a_draft_without_a_domain_is_for_the_only_one() {
    let domain = |body: &str, only| Draft::read(body.as_bytes(), only).map(|draft| draft.domain);
    let body = r#"{"entries":[{"key":"a","value":"b"}],"action":"block"}"#;
    assert_eq!(domain(body, Some("shop")).unwrap(), "shop");
    assert!(domain(body, None).unwrap_err().error.contains("`domain` is missing"));
    let named = r#"{"domain":"d","entries":[],"action":"block"}"#;
    assert_eq!(domain(named, Some("shop")).unwrap(), "d");
}

#[test]
fn json_has_all_of_a_control() {
    let change = LimitChange { n: 10, burst: None, name: "fast".into(), rate: None };
    for action in [Action::Block, Action::Allow { count: false }, Action::Limit { limit: change }] {
        let until = Some(NOW + 1);
        let control = Control { until, ..control(action, &[("user", "m*"), ("path", "/")]) };
        let json = serde_json::to_string(&control).unwrap();
        assert!(json.contains(r#""until":"2023-11-15T12:00:00.000001Z""#), "{json}");
        assert_eq!(serde_json::from_str::<Control>(&json).unwrap(), control);
    }
}

#[test]
fn whom_a_block_spares_is_kept_and_ignored_by_earlier_versions() {
    let mut block = control(Action::Block, &[]);
    let without = serde_json::to_string(&block).unwrap();
    assert!(!without.contains("except"), "{without}");
    block.except = vec![entry("plan", "partner"), entry("ip", "10.0.0.0/8")];
    block.text = true;
    let json = serde_json::to_string(&block).unwrap();
    assert_eq!(serde_json::from_str::<Control>(&json).unwrap(), block);
    assert_eq!(block.match_text(), "d except plan=partner, ip=10.0.0.0/8");
    // To a version that does not know the member it is a block of all.
    let unknown = ControlRecord::read(&block.id, 0, &json.replace("except", "later")).unwrap();
    block.except.clear();
    assert_eq!(unknown.control().map(|control| &**control), Some(&block));
}

#[test]
fn the_default_id_is_of_action_and_match() {
    let id_of = |action: &Action, entries: &[(&str, &str)], exact, text| {
        let entries: Vec<_> = entries.iter().map(|(key, value)| entry(key, value)).collect();
        let body = r#"{"domain":"d","entries":[],"action":"block"}"#;
        Draft { entries, exact, text, action: action.clone(), ..draft(body) }.default_id()
    };
    let id =
        |action: &Action, entries: &[(&str, &str)], exact| id_of(action, entries, exact, false);
    let (block, allow) = (Action::Block, Action::Allow { count: true });
    let (ab, ba) = ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]);
    assert_eq!(id(&block, &ab, false), id(&block, &ba, false));
    assert_eq!(id(&allow, &ab, false), id(&Action::Allow { count: false }, &ab, false));
    let limit = |n, name: &str| Action::Limit {
        limit: LimitChange { n, burst: None, name: name.into(), rate: None },
    };
    assert_eq!(id(&limit(1, "fast"), &ab, false), id(&limit(2, "fast"), &ba, false));
    // Ids stay the same.
    let mallory =
        r#"{"domain":"shop","entries":[{"key":"user","value":"mallory"}],"action":"block"}"#;
    assert_eq!(draft(mallory).default_id(), "block-ccabcebdae9f");
    assert_eq!(id_of(&block, &ab, false, true), id(&block, &ab, false), "no value is a network");
    let network = [("ip", "10.0.0.0/8")];
    let all = [
        id(&block, &network, false),
        id(&block, &network, true),
        id_of(&block, &network, false, true),
        id_of(&block, &network, true, true),
        id(&limit(1, ""), &ab, false),
        id(&limit(1, "fast"), &ab, false),
        id(&limit(1, "slow"), &ab, false),
        id(&block, &ab, false),
        id(&allow, &ab, false),
        id(&block, &ab, true),
        id(&block, &ba, true),
        id(&block, &[("a", "1b"), ("", "2")], false),
    ];
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

#[tokio::test]
async fn a_block_lasts_the_longest_period_of_its_rules_by_default() {
    let process = Process::new(ControlsOptions::default());
    let body = |key: &str, action: &str| {
        let entries = format!(r#"[{{"key":"{key}","value":"x"}}]"#);
        draft(&format!(r#"{{"domain":"d","entries":{entries},"action":"{action}"}}"#))
    };
    for (key, seconds) in [("user", 86_400), ("path", 3_600), ("unknown", 3_600)] {
        let until = process.put(body(key, "block")).await.control.until;
        assert_eq!(until, Some(NOW + seconds * SECOND), "{key}");
    }
    assert_eq!(process.put(body("user", "allow")).await.control.until, None);
}

#[tokio::test]
async fn what_matches_everything_has_to_be_forced() {
    let process = Process::new(ControlsOptions::default());
    let everything = draft(r#"{"domain":"*","entries":[],"action":"block"}"#);
    let put = |force| {
        let options = PutOptions { force, dry_run: true };
        process.controls.put(None, everything.clone(), options)
    };
    assert_eq!(put(false).await.unwrap_err().kind, ErrorKind::NeedsForce);
    assert_eq!(put(true).await.unwrap().rules, ["d.user", "d.path"]);
    assert!(process.controls.list().is_empty(), "a dry run");
}

#[tokio::test]
async fn what_matches_every_value_has_to_be_forced() {
    let process = Process::new(ControlsOptions::default());
    for (entries, is_all) in [
        (r#"[{"key":"user","value":"*"}]"#, true),
        (r#"[{"key":"user","value":"**"},{"key":"path","value":"*"}]"#, true),
        (r#"[{"key":"user","value":"a*"}]"#, false),
        (r#"[{"key":"user","value":"*"},{"key":"path","value":"/"}]"#, false),
        (r#"[{"key":"user","value":""}]"#, false),
    ] {
        let body = format!(r#"{{"domain":"d","entries":{entries},"action":"block"}}"#);
        let put = process.controls.put(None, draft(&body), PutOptions::default()).await;
        let kind = put.err().map(|error| error.kind);
        assert_eq!(kind, is_all.then_some(ErrorKind::NeedsForce), "{entries}");
    }
}

#[tokio::test]
async fn a_limit_that_fits_no_rule_is_rejected() {
    let process = Process::new(ControlsOptions::default());
    let limit = |key: &str, limit: &str| {
        let entries = format!(r#"[{{"key":"{key}","value":"x"}}]"#);
        let body =
            format!(r#"{{"domain":"d","entries":{entries},"action":"limit","limit":{limit}}}"#);
        process.controls.put(None, draft(&body), PutOptions::default())
    };
    let error = limit("path", r#"{"n":1}"#).await.unwrap_err();
    assert!(
        error.error.contains("d.path") && error.error.contains("name the one to change"),
        "{error}"
    );
    assert_eq!(error.names, ["s"]);
    let burst = r#"{"key":"user","value":"x"}],"action":"limit","limit":{"n":1,"burst":0}}"#;
    let error = Draft::read(format!(r#"{{"domain":"d","entries":[{burst}"#).as_bytes(), None);
    assert!(error.unwrap_err().error.contains("denies every hit"));
    assert_eq!(limit("path", r#"{"n":1,"name":"s"}"#).await.unwrap().warnings, [""; 0]);
    let warnings = limit("unknown", r#"{"n":1}"#).await.unwrap().warnings;
    assert!(warnings[0].contains("no rule"), "{warnings:?}");
    let written = limit("user", r#"{"rate":"9/24h"}"#).await.unwrap();
    let Action::Limit { limit: change } = &written.control.action else { panic!("{written:?}") };
    assert_eq!((change.n, written.warnings.len()), (9, 0));
    let error = limit("user", r#"{"rate":"3/m"}"#).await.unwrap_err();
    assert_eq!(
        error.error,
        "the limit does not fit the rule d.user: the period of its limit is d, not m, which would \
         start the counts over: write 4320/d"
    );
}

#[test]
fn a_rate_is_a_number_with_a_period() {
    let read = |limit: &str| {
        let body = format!(r#"{{"domain":"d","entries":[],"action":"limit","limit":{limit}}}"#);
        Draft::read(body.as_bytes(), None).map_err(|error| error.error)
    };
    let draft = read(r#"{"rate":"1_000 / min","burst":5}"#).unwrap();
    let rate = "1000/m".parse().ok();
    let change = LimitChange { n: 1_000, burst: Some(5), rate, ..LimitChange::default() };
    assert_eq!(draft.action, Action::Limit { limit: change });
    assert_eq!(draft.action.to_string(), "limit 1000/m burst 5");
    // It is written with the number, too.
    let json = serde_json::to_value(&draft).unwrap();
    assert_eq!(
        json["limit"],
        serde_json::json!({ "n": 1000, "burst": 5, "name": "", "rate": "1000/m" })
    );
    assert_eq!(read(&json["limit"].to_string()), Ok(draft));
    for (limit, error) in [
        ("{}", "missing field `n`"),
        (r#"{"rate":"10 per second"}"#, "`rate` is \"10 per second\": write `10/s`"),
        (r#"{"rate":"10/s","n":9}"#, "`n` is 9, and `rate` 10/s: write only one of the two"),
    ] {
        let actual = read(limit).unwrap_err();
        assert!(actual.contains(error), "{limit}: {actual}");
    }
}

#[tokio::test]
async fn there_is_room_for_a_number_of_controls() {
    let process = Process::new(ControlsOptions { max: 150, ..ControlsOptions::default() });
    let block = async |user: String| {
        let put = process.controls.put(None, block(&user), PutOptions::default());
        put.await.map(drop).map_err(|error| error.kind)
    };
    for i in 0..MAX_COMPARED {
        block(format!("{i}*")).await.unwrap();
    }
    assert_eq!(block("more*".into()).await, Err(ErrorKind::TooMany));
    for i in MAX_COMPARED..150 {
        block(i.to_string()).await.unwrap();
    }
    assert_eq!(block("more".into()).await, Err(ErrorKind::TooMany));
    // Replacing one needs no room.
    block("149".into()).await.unwrap();
}

#[tokio::test]
async fn names_that_no_rule_has_get_a_warning() {
    let rules = "domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 5}
    descriptors: [{key: path, value: /a*, rate_limit: {unit: day, requests_per_unit: 5}}]
  - {key: tenant_id, value: big_one, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: health}
  - {key: probe, value: deep_one}
  - {key: x-*, rate_limit: {unit: day, requests_per_unit: 5}}
";
    let process = Process::new(ControlsOptions::default());
    let put = async |domain: &str, keys: &[&str], dry_run: bool| {
        let entry = |key: &&str| format!(r#"{{"key":"{key}","value":"v"}}"#);
        let entries = keys.iter().map(entry).collect::<Vec<_>>().join(",");
        let body = format!(r#"{{"domain":"{domain}","entries":[{entries}],"action":"block"}}"#);
        let options = PutOptions { dry_run, force: true };
        process.controls.put(None, draft(&body), options).await.unwrap().warnings
    };
    process.active.set_rules(Arc::new(RuleSet::default()));
    let none = ["no rules are loaded: the domain and the keys are not checked"];
    assert_eq!(put("shop", &["user"], true).await, none);
    assert_eq!(put("*", &["user"], true).await, none);
    assert_eq!(put("*", &[], true).await, [""; 0]);

    process.active.set_rules(Arc::new(rule_set(rules)));
    let cases: [(&str, &[&str], &[&str]); 11] = [
        ("shop", &["user", "path"], &[]),
        ("shop", &[], &[]),
        ("*", &[], &[]),
        ("*", &["tenant_id"], &[]),
        // Without a limit, with or without a value; a key with a star.
        ("shop", &["health", "probe", "x-user"], &[]),
        ("shpo", &["usr"], &["unknown domain 'shpo': did you mean 'shop'?"]),
        ("warehouse", &["user"], &["unknown domain 'warehouse': no rule has it"]),
        (
            "shop",
            &["usr", "user", "tenant"],
            &[
                "unknown key 'usr': did you mean 'user'?",
                "unknown key 'tenant': did you mean 'tenant_id'?",
            ],
        ),
        (
            "shop",
            &["remote_address"],
            &["unknown key 'remote_address': no rule of the domain has it"],
        ),
        ("*", &["remote_address"], &["unknown key 'remote_address': no rule has it"]),
        ("*", &["pth"], &["unknown key 'pth': did you mean 'path'?"]),
    ];
    for (domain, keys, expected) in cases {
        for dry_run in [true, false] {
            assert_eq!(put(domain, keys, dry_run).await, expected, "{domain} {keys:?}");
        }
    }
    assert_eq!(process.controls.list().len(), 11, "a warning prevents nothing");
}

#[tokio::test]
async fn an_allowance_under_a_block_names_it() {
    let process = Process::new(ControlsOptions::default());
    let ann = r#"{"key":"user","value":"ann"}"#;
    let block = async |except: &str| {
        let everyone = r#"[{"key":"user","value":"*"}]"#;
        let body = format!(
            r#"{{"domain":"d","entries":{everyone},"action":"block","except":[{except}]}}"#
        );
        let force = PutOptions { force: true, ..PutOptions::default() };
        process.controls.put(None, draft(&body), force).await.unwrap().control.id
    };
    let allow = async || {
        let body = format!(r#"{{"domain":"d","entries":[{ann}],"action":"allow"}}"#);
        process.put(draft(&body)).await.warnings
    };
    assert_eq!(allow().await, [""; 0]);
    let id = block("").await;
    let [warning] = &allow().await[..] else { panic!("a warning") };
    assert!(warning.starts_with(&format!("{id} (d user=*) still blocks it: ")), "{warning}");
    assert!(warning.ends_with("--except"), "{warning}");
    assert_eq!(block(ann).await, id);
    assert_eq!(allow().await, [""; 0]);
}
