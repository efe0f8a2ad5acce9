//! What was before the page was opened, and what is wrong.

use std::fs;

use super::*;
use crate::support::wait_for;

/// How much the plot of the last hour shows.
const DRAWN: &str = "document.querySelector('#hour-plot svg').outerHTML.length";

#[test]
fn a_page_that_is_opened_later_shows_what_was_before() {
    let weir = serving(RULES).start();
    for _ in 0..5 {
        decide(&weir, "path", "/login");
    }
    // A second later, weir has sampled it.
    let api = ControlApi::new(&weir);
    wait_for("the history has it", || {
        let history = api.good("/v1/history?step=1s");
        let over = history["series"]["over_limit"].as_array().unwrap().iter();
        let sum: u64 = over.filter_map(Value::as_u64).sum();
        (sum == 3 && history["denials"] != json!([])).then_some(())
    });
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    page.wait_for("document.querySelector('#hour').checkVisibility()");
    page.wait_for("document.querySelector('#denial-rows li')?.textContent.includes('path=/login')");
    page.wait_for("document.querySelector('#change-rows li')");
    page.wait_for(&format!("{DRAWN} > 500"));
    // The view of its rule has its own.
    page.browser.evaluate("location.hash = '#/rule?domain=shop&rule=path'; 0");
    page.wait_for("document.querySelector('#one-rule-h').textContent.includes('path')");
    page.wait_for("document.querySelector('#one-rule-plot').checkVisibility()");
    page.check();
}

#[test]
fn without_a_history_the_page_starts_when_it_is_opened() {
    let weir = serving(RULES).env("WEIR__HISTORY__ENABLED", "false").start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    decide(&page.weir, "path", "/a");
    page.wait_for("document.querySelectorAll('#hits-rows tr').length == 1");
    assert_eq!(page.browser.evaluate("document.querySelector('#hour').checkVisibility()"), false);
    // Chromium reports the answer of /v1/history.
    let problems = page.browser.happened().problems;
    assert!(problems.iter().all(|problem| problem.contains("status of 404")), "{problems:?}");
}

#[test]
fn refused_rules_are_a_red_line_on_every_view_until_they_are_mended() {
    let weir = serving(RULES).start();
    let rules = weir.path("rules.yaml");
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    assert_eq!(
        page.browser.evaluate("document.querySelector('#problems').checkVisibility()"),
        false
    );
    fs::write(&rules, RULES.replace("requests_per_unit: 2", "request_per_unit: 2")).unwrap();
    page.wait_for("document.querySelector('#problem-rows')?.textContent.startsWith('The rules are refused: ')");
    let line = page.text("#problem-rows");
    assert!(line.contains("at rules.yaml:4:"), "{line}");
    assert!(line.contains("since ") && line.contains("unknown key 'request_per_unit'"), "{line}");
    // A screen reader is told once.
    page.wait_for(
        "document.querySelector('#announcement').textContent.startsWith('The rules are refused')",
    );
    page.browser.evaluate("document.querySelector('#announcement').textContent = 'read'; 0");
    page.browser.evaluate("location.hash = '#/rules'; 0");
    page.wait_for("document.querySelector('#rules-view').checkVisibility()");
    assert_eq!(
        page.browser.evaluate("document.querySelector('#problems').checkVisibility()"),
        true
    );
    for width in [360, 1280] {
        page.browser.show_as(View { width, dark: width == 360 });
        assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}");
    }
    assert_eq!(page.text("#announcement"), "read");
    fs::write(&rules, RULES).unwrap();
    page.wait_for("!document.querySelector('#problems').checkVisibility()");
    page.check();
}
