//! Problems, at the top of every view.

use super::*;

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
