//! What was before the page was opened.

use super::*;
use crate::support::redis::Server;
use crate::support::wait_for;

/// Returns the sum of a series of the last five minutes.
fn counted(api: &ControlApi, series: &str) -> u64 {
    let history = api.good("/v1/history?step=1s");
    history["series"][series].as_array().unwrap().iter().filter_map(Value::as_u64).sum()
}

#[test]
fn a_page_that_is_opened_later_shows_what_was_before() {
    let weir = serving(RULES).start();
    let api = ControlApi::new(&weir);
    let more =
        format!("{RULES}  - {{ key: later, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n");
    std::fs::write(weir.path("rules.yaml"), more).unwrap();
    wait_for("the reload", || {
        let events = api.good("/v1/history")["events"].as_array().unwrap().clone();
        events.iter().any(|event| event["event"] == "reload").then_some(())
    });
    for _ in 0..6 {
        decide(&weir, "path", "/login");
        decide(&weir, "user", "ann");
    }
    wait_for("all is in the history", || (counted(&api, "over_limit") >= 4).then_some(()));
    let Some(mut page) = Page::open(weir, DESK) else { return };
    // Nothing happens any more.
    page.wait_for(
        "document.querySelector('#denial-rows li')?.textContent.includes('shop path=/login')",
    );
    page.wait_for("document.querySelector('#change-rows').textContent.includes('loaded')");
    for part in ["passed", "denied"] {
        page.wait_for(&format!("document.querySelector('#plot path.{part}')?.getAttribute('d')"));
    }
    page.wait_for("document.querySelector('#hour').checkVisibility()");
    // The events go on.
    decide(&page.weir, "path", "/next");
    decide(&page.weir, "path", "/next");
    decide(&page.weir, "path", "/next");
    page.wait_for(
        "document.querySelector('#denial-rows li').textContent.includes('shop path=/next')",
    );
    page.wait_for("document.querySelector('#hour-plot path.denied').getAttribute('d')");
    let denials = "[...document.querySelectorAll('#denial-rows time')].map(time => time.dateTime)";
    let times = page.browser.evaluate(denials);
    let times: Vec<&str> = times.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    page.check();
}

#[test]
fn problems_of_the_past_are_events() {
    let weir = serving(RULES).start();
    let (api, file) = (ControlApi::new(&weir), weir.path("rules.yaml"));
    let problems = |count: usize| {
        wait_for("the problems are recorded", || {
            let events = api.good("/v1/history")["events"].as_array().unwrap().clone();
            let found = events.iter().filter(|event| event["event"] == "problems").count();
            (found == count).then_some(())
        });
    };
    std::fs::write(&file, RULES.replace("key: path", "kye: path")).unwrap();
    problems(1);
    std::fs::write(&file, RULES).unwrap();
    problems(2);
    let Some(mut page) = Page::open(weir, DESK) else { return };
    let rows = "[...document.querySelectorAll('#change-rows .badge')].map(row => row.textContent)";
    page.wait_for(&format!("{rows}.includes('problem') && {rows}.includes('solved')"));
    let text = page.text("#change-rows");
    assert!(text.contains("The rules are rejected: "), "{text}");
    assert!(text.contains("No problem is left."), "{text}");
    // The events go on.
    page.wait_until_live();
    std::fs::write(&file, RULES.replace("key: user", "kye: user")).unwrap();
    page.wait_for(&format!("{rows}.filter(badge => badge == 'problem').length == 2"));
    page.check();
}

#[test]
fn changes_of_controls_on_any_replica_are_listed_with_what_was_before() {
    let redis = Server::start();
    let start = || serving(RULES).env("REDIS_URL", redis.addr()).start();
    let (weir, other) = (start(), start());
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    let there = ControlApi::new(&other);
    let limit = |n: u32| {
        let limit = json!({ "n": n });
        of_user(
            "ann",
            &json!({ "action": "limit", "limit": limit, "by": "bob", "reason": "launch" }),
        )
    };
    let changes = "document.querySelector('#change-rows').textContent";
    there.put_good("launch", &limit(20));
    page.wait_for(&format!("{changes}.includes('limit to 20 shop user=ann by bob')"));
    there.put_good("launch", &limit(50));
    page.wait_for(&format!("{changes}.includes('now limit to 50, before limit to 20')"));
    // Who deletes it is known where that is done.
    ControlApi::new(&page.weir).delete("/v1/controls/launch?by=cid");
    page.wait_for(&format!("{changes}.includes('limit to 50 shop user=ann by cid')"));
    let badges = "[...document.querySelectorAll('#change-rows .badge')].map(badge => badge.textContent).join()";
    let badges = page.browser.evaluate(badges);
    assert!(badges.as_str().unwrap().starts_with("removed,changed,added"), "{badges}");
    let headers = [("host", "localhost")];
    http::ask(page.weir.debug, "PUT", "/log_level?level=debug", &headers, b"").unwrap();
    page.wait_for(&format!("{changes}.includes('set log level info to debug')"));
    page.check();
}

#[test]
fn a_redis_that_is_emptied_is_a_change() {
    let redis = Server::start();
    let weir = serving(RULES).env("REDIS_URL", redis.addr()).start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    let block = of_user("ann", &json!({ "action": "block" }));
    assert_eq!(ControlApi::new(&page.weir).put_good("no-ann", &block)["shared"], true);
    redis.command(&["FLUSHALL"]);
    page.wait_for("document.querySelector('#change-rows').textContent.includes('Redis was emptied: what was counted is lost.')");
    page.weir.has_said("redis was emptied");
    assert_eq!(decide(&page.weir, "user", "ann"), Code::OverLimit);
    page.check();
}

#[test]
fn a_rule_has_its_last_hour() {
    let weir = serving(RULES).start();
    for _ in 0..4 {
        decide(&weir, "path", "/login");
    }
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    page.go("#/rule?domain=shop&rule=path");
    page.wait_for("document.querySelector('#one-rule-plot').checkVisibility()");
    page.wait_for("document.querySelector('#one-rule-keys').textContent.includes('path=/login')");
    page.wait_for("document.querySelector('#one-rule-facts').textContent.includes('2 per year')");
    page.check();
}
