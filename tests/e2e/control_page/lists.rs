//! The lists of top keys: what would be denied, and all replicas.

use super::*;
use crate::support::redis::Server;

const SHADOW: &str = "\
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: trial, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
";

#[test]
fn what_would_be_denied_is_a_list_without_a_button_to_block() {
    let Some(mut page) = Page::open(serving(SHADOW).start(), DESK) else { return };
    page.wait_until_live();
    for _ in 0..4 {
        assert_eq!(decide(&page.weir, "trial", "x"), Code::Ok);
    }
    decide(&page.weir, "user", "ann");
    decide(&page.weir, "user", "ann");
    page.wait_for(
        "document.querySelector('#would_be_denied-rows')?.textContent.includes('trial=x')",
    );
    page.wait_for("document.querySelector('#denied-rows').textContent.includes('user=ann')");
    assert!(!page.text("#denied-rows").contains("trial"));
    let buttons = |list: &str| format!("document.querySelectorAll('#{list}-rows button').length");
    assert_eq!(page.browser.evaluate(&buttons("would_be_denied")), 0);
    assert_eq!(page.browser.evaluate(&buttons("denied")), 1);
    page.check();
}

const BANS: &str = "\
domain: shop
descriptors:
  - key: login
    rate_limit: { unit: year, requests_per_unit: 1 }
    ban: { after: 2, within: 10m, for: 42m }
";

#[test]
fn a_banned_key_is_listed_and_its_ban_can_be_ended() {
    let Some(mut page) = Page::open(serving(BANS).start(), DESK) else { return };
    page.wait_until_live();
    let is_shown = "document.querySelector('#banned').checkVisibility()";
    assert_eq!(page.browser.evaluate(is_shown), false, "no key is banned");
    for _ in 0..3 {
        decide(&page.weir, "login", "ann");
    }
    page.wait_for(is_shown);
    let row = page.text("#banned-rows tr");
    assert!(row.contains("login=ann") && row.contains("in 4"), "{row}");
    assert_eq!(page.browser.evaluate(CHECK), json!([]));
    let name = "document.querySelector('#banned-rows button').ariaLabel";
    assert_eq!(page.browser.evaluate(name), "End the ban of shop login=ann");
    let list = ControlApi::new(&page.weir).good("/v1/top?by=denied");
    assert!(list["rows"][0]["banned_ms"].as_u64() > Some(2_400_000), "{list}");

    page.click("#banned-rows button");
    page.wait_for("document.querySelector('#reset').open");
    assert!(page.text("#reset-text").contains("a ban ends"), "{}", page.text("#reset-text"));
    page.click("#reset-confirm");
    page.wait_for("!document.querySelector('#reset').open");
    assert_eq!(decide(&page.weir, "login", "ann"), Code::Ok);
    page.wait_for(&format!("!{is_shown}"));
    page.check();
}

#[test]
fn a_block_shows_whom_it_spares() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    let except = json!([{ "key": "plan", "value": "partner" }]);
    let block = json!({ "domain": "shop", "entries": [], "action": "block", "for": "1h", "except": except });
    assert_eq!(ControlApi::new(&page.weir).put("all?force=1", &block).0, 200);
    let text = "document.querySelector('#control-rows').textContent";
    page.wait_for(&format!("{text}.includes('shop except plan=partner')"));
    page.wait_for(
        "document.querySelector('#change-rows').textContent.includes('except plan=partner')",
    );
    // A change keeps it, and shows it before it is made.
    page.click_when_there("#control-rows button");
    page.wait_for("document.querySelector('#editor').open");
    page.fill("#reason", "incident 42");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#force-field').checkVisibility()");
    let asked = page.text("#force-field");
    assert!(asked.starts_with("It matches everything except plan=partner. Type shop "), "{asked}");
    page.fill("#force", "shop");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').checkVisibility()");
    assert!(page.text("#preview").contains("except plan=partner"), "{}", page.text("#preview"));
    page.click("#editor-next");
    page.wait_for("!document.querySelector('#editor').open");
    let control = ControlApi::new(&page.weir).good("/v1/controls/all")["control"].clone();
    assert_eq!((&control["except"], &control["reason"]), (&except, &json!("incident 42")));
    // Chromium reports the refusal of a request.
    let problems = page.browser.happened().problems;
    assert!(problems.iter().all(|problem| problem.contains("status of 409")), "{problems:?}");
}

#[test]
fn the_lists_are_those_of_all_replicas_or_of_this_one() {
    let redis = Server::start();
    let start = || {
        let setup = serving(RULES).env("REDIS_URL", redis.addr());
        setup.env("WEIR__TOP__SHARE", "true").start()
    };
    let (weir, other) = (start(), start());
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    for _ in 0..3 {
        decide(&page.weir, "user", "ann");
    }
    for _ in 0..4 {
        decide(&other, "user", "ann");
    }
    let hits = "document.querySelector('#hits-rows td.n span')?.textContent";
    page.wait_for(&format!("{hits} == '7'"));
    assert!(page.text("#top-note").starts_with("Of 2 replicas, "), "{}", page.text("#top-note"));
    page.click("input[name=scope][value=here]");
    page.wait_for(&format!("{hits} == '3'"));
    assert!(page.text("#top-note").starts_with("Of this replica, "), "{}", page.text("#top-note"));
    page.click("input[name=scope][value=all]");
    page.wait_for(&format!("{hits} == '7'"));
    page.check();
}

#[test]
fn lists_are_of_a_minute_ten_minutes_or_an_hour() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    for _ in 0..5 {
        decide(&page.weir, "path", "/login");
    }
    let denied = "document.querySelector('#denied-rows td.n span')?.textContent == '3'";
    page.wait_for(denied);
    assert_eq!(page.text("#denied-h"), "Most denied");
    // Who is limited comes first.
    let above = "document.querySelector('#denied-rows').getBoundingClientRect().top < document.querySelector('#plot').getBoundingClientRect().top";
    assert_eq!(page.browser.evaluate(above), true);
    for window in ["10m", "1h", "1m"] {
        page.click(&format!("input[name=window][value='{window}']"));
        page.wait_for(denied);
    }
    let asked = page.browser.happened().requests;
    assert!(
        asked.iter().any(|url| url.contains("/v1/top?by=denied&limit=20&window=10m")),
        "{asked:?}"
    );
    // Keys that are counted have a small plot after a while.
    page.wait_for("document.querySelector('#denied-rows path.line').getAttribute('d')");
    let width = "document.querySelector('#denied-rows path.line').getBoundingClientRect().width";
    assert!(page.browser.evaluate(width).as_f64().unwrap() > 50.0, "over its whole width");
    page.check();
}

#[test]
fn a_block_shows_the_share_of_hits_that_it_matches_and_lasts_an_hour() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    for user in ["ann", "bob", "bob", "bob"] {
        decide(&page.weir, "user", user);
    }
    page.click("#add");
    page.fill(".entry input:first-of-type", "user");
    page.fill(".entry input:last-of-type", "bob");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').textContent.includes('Block shop user=bob for 1\\u00a0h, until ')");
    let text = page.text("#preview");
    let share = "75\u{a0}% of all hits of the last hour on this replica match: a key that many share is not one client.";
    assert!(text.contains(share), "{text}");
    page.check();
}

#[test]
fn times_are_those_of_the_browser_with_its_zone() {
    let Some(mut browser) = Browser::start() else { return };
    browser.call("Emulation.setTimezoneOverride", json!({ "timezoneId": "Asia/Kolkata" }));
    let weir = serving(RULES).start();
    browser.visit(&format!("http://{}/", weir.debug), DESK);
    let mut page = Page { browser, weir };
    page.wait_until_live();
    let about = page.text("#about");
    assert!(about.starts_with("replica ") && about.ends_with(", times in UTC+5:30"), "{about}");
    page.click("#add");
    page.fill(".entry input:first-of-type", "user");
    page.fill(".entry input:last-of-type", "ann");
    page.browser.evaluate("document.querySelector('#lasts').value = 'until'; 0");
    page.fill("#until", "2040-01-02T03:04:05");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').textContent.includes(', until 2040-01-02 03:04 UTC+5:30.')");
    page.click("#editor-next");
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 1");
    let control = ControlApi::new(&page.weir).good("/v1/controls")["controls"][0].clone();
    assert_eq!(control["until"], "2040-01-01T21:34:05Z");
    page.check();
}
