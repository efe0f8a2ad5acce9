//! The view of a key: what is used of its limits, and what is changed there.

use super::*;

/// Writes into the search field, and sends it.
fn search(page: &mut Page, text: &str) {
    page.browser.evaluate(
        "document.querySelector('#query').value = ''; document.querySelector('#query').focus()",
    );
    page.browser.type_text(text);
    page.browser.press("Enter");
}

#[test]
fn a_key_shows_what_applies_what_is_used_and_its_controls() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    decide(&page.weir, "path", "/login");
    // It need not be listed: nobody has asked for the other one.
    search(&mut page, "path=/never");
    page.wait_for("document.querySelector('#key-limit-rows')?.textContent.includes('0')");
    search(&mut page, "path=/login");
    page.wait_for("document.querySelector('#key-h').textContent == 'path=/login'");
    page.wait_for("/^1\\D/.test(document.querySelector('#key-limit-rows td').textContent + ' ')");
    let address = page.address();
    assert!(address.contains("/key?domain=shop&descriptor=path"), "{address}");
    page.wait_for("document.querySelector('#key-steps').textContent.includes('matches path')");
    // It is listed over the hour, and over the minute.
    page.wait_for("document.querySelector('#key-tiles').textContent.includes('Hits1')");
    let tiles = page.text("#key-tiles");
    assert!(tiles.contains("Hits in the last minute1"), "{tiles}");

    // It is blocked here, which says before what it matches.
    page.click("#key-block");
    page.wait_for("document.querySelector('#editor').open");
    assert_eq!(page.browser.evaluate("document.querySelector('#domain').value"), "shop");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#preview').textContent.includes('Block shop path=/login for ')",
    );
    page.click("#editor-next");
    page.wait_for("document.querySelector('#key-control-rows')?.textContent.includes('block')");
    page.wait_for("document.querySelector('#key-verdict').textContent.startsWith('Denied')");
    assert_eq!(decide(&page.weir, "path", "/login"), Code::OverLimit);
    page.click("#key-control-rows button:last-child");
    page.click_when_there("#removal-confirm");
    page.wait_for("document.querySelectorAll('#key-control-rows tr').length == 0");

    // A reset says what it forgets.
    page.click("#key-reset");
    page.wait_for("document.querySelector('#reset').open");
    assert!(
        page.text("#reset-text").contains("1 used, which becomes 0"),
        "{}",
        page.text("#reset-text")
    );
    page.click("#reset-confirm");
    page.wait_for("/^0\\D/.test(document.querySelector('#key-limit-rows td').textContent + ' ')");
    for width in [360, 1280] {
        page.browser.show_as(View { width, dark: width == 360 });
        assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}");
    }
    page.check();
}

/// A burst may be far below the rate, and a rule in shadow mode denies nothing.
#[test]
fn bars_end_at_the_burst_and_what_only_would_be_denied_is_not_shown_as_denied() {
    const BURSTS: &str = "\
domain: shop
descriptors:
  - { key: path, rate_limit: { rate: 300/h, burst: 2 } }
  - { key: upload, rate_limit: { algorithm: concurrency, requests_per_unit: 4 } }
  - { key: trial, shadow_mode: true, rate_limit: { rate: 1/h } }
";
    let Some(mut page) = Page::open(serving(BURSTS).start(), DESK) else { return };
    page.wait_until_live();
    for _ in 0..3 {
        decide(&page.weir, "path", "/login");
        decide(&page.weir, "trial", "x");
    }
    page.wait_for("document.querySelectorAll('#rule-rows path.denied').length == 1");
    page.wait_for("document.querySelectorAll('#rule-rows path.would').length == 1");
    page.go("#/key?domain=shop&descriptor=path%3D%2Flogin");
    page.wait_for("document.querySelector('#key-limit-rows .bar i')?.style.width == '100%'");
    page.go("#/key?domain=shop&descriptor=upload%3Dx");
    page.wait_for(
        "document.querySelector('#key-facts').textContent.includes('4 at once, concurrency')",
    );
    assert_eq!(page.text("#key-state-note"), "");
    page.check();
}
