//! Problems, at the top of every view.

use super::*;
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::wait_for;
use crate::support::weir::Setup;

/// Errors, the first in line 4.
const WRONG: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: yeer, requests_per_unit: 1 }
  - key: path
    rate_limit: { unit: year, requests_per_unit: -2 }
  - kye: other
";

/// Keeps what the live region says.
const LISTEN: &str = "(() => {
  window.said = [];
  const region = document.querySelector('#announcement');
  new MutationObserver(() => window.said.push(region.textContent)).observe(region, { childList: true, characterData: true, subtree: true });
})()";

#[test]
fn rejected_rules_are_a_red_line_on_every_view_and_are_announced_once() {
    let weir = serving(RULES).start();
    let file = weir.path("rules.yaml");
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    assert_eq!(page.fact("State"), "serving");
    assert_eq!(page.browser.evaluate("document.querySelector('#problems').hidden"), true);
    page.browser.evaluate(LISTEN);
    std::fs::write(&file, WRONG).unwrap();
    page.wait_for("document.querySelector('#problems').checkVisibility()");
    let line = page.text("#problem-rows li");
    let begins = "The rules are rejected: 4\u{a0}problems, first at rules.yaml:4:";
    assert!(line.starts_with(begins), "{line}");
    assert!(line.contains(", since "), "{line}");
    assert!(line.contains("yeer"), "{line}");
    page.wait_for("document.querySelector('#change-rows').textContent.includes('The rules are rejected; those before stay active.')");
    page.wait_for("[...document.querySelectorAll('#facts dd')][0].textContent == 'serving; the rules are rejected'");
    // The same problem in later statuses is nothing new.
    for _ in 0..3 {
        let before = page.fact("Running for");
        page.wait_for(&format!(
            "![...document.querySelectorAll('#facts dd')].some(dd => dd.textContent == {})",
            json!(before)
        ));
    }
    let said = page.browser.evaluate("window.said");
    let said: Vec<&str> = said.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with(begins), "{said:?}");
    for view in ["#/rules", "#/key?domain=shop&descriptor=user%3Dann", "#/search"] {
        page.go(view);
        page.wait_for("document.activeElement.tagName == 'H1'");
        assert_eq!(
            page.browser.evaluate("document.querySelector('#problems').checkVisibility()"),
            true
        );
    }
    // One who comes later hears of it, too.
    page.reload();
    page.wait_for(
        "document.querySelector('#announcement').textContent.startsWith('The rules are rejected')",
    );
    std::fs::write(&file, RULES).unwrap();
    page.wait_for("!document.querySelector('#problems').checkVisibility()");
    page.wait_for("document.querySelector('#announcement').textContent == 'No problem is left.'");
    page.check();
}

#[test]
fn no_rules_and_no_stream_are_red_lines() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let setup = Setup::new().arg("serve").env("CONFIG_TYPE", "GRPC_XDS_SOTW");
    let setup = setup.env("CONFIG_GRPC_XDS_SERVER_URL", nobody.to_string());
    let weir = setup.env("FORCE_START_WITHOUT_INITIAL_CONFIG", "true").start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_for("document.querySelectorAll('#problem-rows li').length == 2");
    let line = page.text("#problem-rows li");
    assert!(line.starts_with("No rules are loaded: every request gets an error, since "), "{line}");
    let line = page.text("#problem-rows li + li");
    assert!(line.starts_with("No stream from the management server: "), "{line}");
    page.wait_for(
        "document.querySelector('#headline.critical')?.textContent == 'Every request fails: no rules are loaded'",
    );
    let critical = "document.querySelectorAll('#problem-rows li.critical').length";
    assert_eq!(page.browser.evaluate(critical), 2);
    page.wait_for(
        "[...document.querySelectorAll('#facts dd')][0].textContent == 'serving; 2\u{a0}problems'",
    );
    page.check();
}

#[test]
fn a_store_out_of_reach_is_the_headline_in_the_words_of_the_log_and_the_status() {
    let mut redis = Server::start();
    let address = format!("127.0.0.1:{}", redis.port());
    let weir = serving(RULES).env("REDIS_URL", address).start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    let deadline = Instant::now() + PATIENCE;
    let headline = "document.querySelector('#headline').textContent";
    let ask_until = |page: &mut Page, wanted: &str| {
        let wanted = format!("Boolean({wanted})");
        while page.browser.evaluate(&wanted) != true {
            let entries = json!([{ "key": "user", "value": "ann" }]);
            let body = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
            http::post(page.weir.http, "/json", body.to_string());
            assert!(Instant::now() < deadline, "{wanted}: {}", page.text("body"));
        }
    };
    ask_until(&mut page, &format!("/^[0-9.,]+ decisions? a second, none/.test({headline})"));
    redis.kill();
    let fails = "/^[0-9.,]+ a second, [0-9.]+.% fail: Redis does not answer$/";
    ask_until(&mut page, &format!("{fails}.test({headline})"));
    assert_eq!(page.browser.evaluate("document.querySelector('#headline').className"), "critical");
    let line = page.text("#problem-rows li");
    let says = |line: &str| {
        line.starts_with("Redis does not answer: ")
            && line.contains(" charges in 10 s failed; policy error answered them")
    };
    assert!(says(&line), "{line}");
    page.weir.has_said("store problem problem=\"Redis does not answer");
    let status = http::get(page.weir.debug, "/status").json();
    let problem = &status["problems"][0];
    assert!(says(problem["text"].as_str().unwrap()), "{status}");
    assert_eq!(
        (&problem["severity"], &status["store"]["failing"]),
        (&json!("critical"), &json!(true))
    );
    wait_for("controls that are not shared", || {
        let status = http::get(page.weir.debug, "/status").json();
        status.to_string().contains("and controls of others may be missing: ").then_some(())
    });
    redis.restart();
    wait_for("the end of the problem", || {
        let status = http::get(page.weir.debug, "/status").json();
        (status["store"]["failing"] == false).then_some(())
    });
    page.weir.has_said("store problem is over");
    page.wait_for("!document.querySelector('#problems').checkVisibility()");
    page.check();
}

#[test]
fn a_store_that_is_far_away_is_too_slow_and_not_dead() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let setup = serving(RULES).env("REDIS_URL", format!("127.0.0.1:{}", proxy.port()));
    let weir = setup.env("WEIR__STORE__REDIS__SLOW_AFTER", "20ms").start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    proxy.delay(Duration::from_millis(80));
    page.wait_for(
        "/^Redis answers in [0-9]+ms, later than store.redis.slow_after allows \\(20ms\\): policy error answers requests, since /.test(document.querySelector('#problem-rows li')?.textContent)",
    );
    assert_eq!(page.text("#store-state"), "too slow");
    let runbook = page.browser.evaluate("document.querySelector('#problem-rows a').pathname");
    assert_eq!(runbook, "/runbooks/WeirRedisConnectionSlow");
    let runbook = http::get(page.weir.debug, "/runbooks/WeirRedisConnectionSlow").body;
    assert!(runbook.contains("raise `store.redis.slow_after`"), "{runbook}");
    let events = page.text("#change-rows");
    assert!(
        events.contains("Redis answers in ") || events.contains("within store.redis.slow_after"),
        "{events}"
    );
    assert!(!page.text("body").contains("does not answer,"), "{}", page.text("body"));
    proxy.resume();
    page.wait_for("document.querySelector('#store-state').textContent == 'up'");
    page.check();
}

#[test]
fn controls_that_cannot_be_kept_are_a_line_with_the_cause_until_they_can() {
    let setup = serving(RULES);
    let directory = setup.path("away");
    let weir = setup.env("WEIR__CONTROLS__FILE", directory.join("controls.json")).start();
    let metric = "weir_controls_unkept";
    wait_for("a missing directory at the start", || (weir.metric(metric) == 1).then_some(()));
    let block = |user: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        let server = format!("http://{}", weir.debug);
        command.args(["block", "-d", "shop", &format!("user={user}"), "--for", "1h"]);
        let ran = command.env_clear().env("WEIR_SERVER", server).output().expect("weir runs");
        String::from_utf8(ran.stderr).expect("text")
    };
    let err = block("ann");
    let cause = format!(
        "controls.file {}/controls.json cannot be written: No such file or directory",
        directory.display()
    );
    let wanted = format!("warning: not kept: it ends when weir restarts: {cause}");
    assert!(err.starts_with(&wanted) && !err.contains("unless controls"), "{err}");
    assert_eq!(weir.metric(metric), 1);
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_for("document.querySelector('#problem-rows li')");
    let line = page.text("#problem-rows li");
    let wanted = "Controls are not kept: a restart loses what their file lacks: controls.file /";
    assert!(line.starts_with(wanted), "{line}");
    assert!(line.contains(" cannot be written: No such file or directory"), "{line}");
    std::fs::create_dir(&directory).unwrap();
    page.wait_for("!document.querySelector('#problems').checkVisibility()");
    assert_eq!(page.weir.metric(metric), 0);
    page.weir.has_said("controls are kept again");
    page.check();
}
