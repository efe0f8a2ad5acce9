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
