//! The dialogs: the domain, and where the focus goes.

use super::*;

const TWO_DOMAINS: &str = "\
# Two domains, read as an active set is.
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }
";

/// `weir serve` with the domains `shop` and `wholesale`.
fn two_domains() -> Weir {
    let other = TWO_DOMAINS.replace("shop", "wholesale");
    let setup = crate::support::weir::Setup::new();
    let setup = setup.file("rules/a.yaml", TWO_DOMAINS).file("rules/b.yaml", &other);
    setup.arg("serve").arg("--rules").arg("rules").start()
}

#[test]
fn the_domain_is_that_of_the_row_or_is_asked_for() {
    let Some(mut page) = Page::open(two_domains(), DESK) else { return };
    page.wait_until_live();
    for _ in 0..4 {
        decide(&page.weir, "user", "ann");
    }
    page.wait_for("document.querySelectorAll('#domains option').length == 2");
    page.click("#add");
    assert_eq!(page.browser.evaluate("document.querySelector('#domain').value"), "");
    page.wait_for("document.activeElement.id == 'domain'");
    page.fill(".entry input:first-of-type", "user");
    page.fill(".entry input:last-of-type", "ann");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#editor-error').textContent.startsWith('Choose a domain.')",
    );
    page.wait_for("document.activeElement.id == 'domain'");
    page.click("#editor-back");
    page.click_when_there("#denied-rows button");
    assert_eq!(page.browser.evaluate("document.querySelector('#domain').value"), "shop");
    page.click("#editor-back");
    page.check();
}

#[test]
fn a_control_without_entries_needs_its_domain_typed() {
    let Some(mut page) = Page::open(two_domains(), DESK) else { return };
    page.wait_until_live();
    page.click("#add");
    page.fill("#domain", "wholesale");
    let typed = "document.querySelector('#force')";
    for (text, is_enough) in [("", false), ("shop", false), ("wholesale", true)] {
        page.browser.evaluate(&format!(
            "document.querySelector('#editor-error').textContent = ''; {typed}.value = {}; 0",
            json!(text)
        ));
        page.click("#editor-next");
        if is_enough {
            page.wait_for("document.querySelector('#preview').textContent.includes('Block everything of wholesale ')");
        } else {
            page.wait_for("document.querySelector('#editor-error').textContent.includes('type the domain wholesale')");
            page.wait_for("document.activeElement.id == 'force'");
        }
    }
    assert_eq!(ControlApi::new(&page.weir).good("/v1/controls")["controls"], json!([]));
}

#[test]
fn the_focus_returns_to_where_it_was() {
    let Some(mut page) = Page::open(two_domains(), DESK) else { return };
    page.wait_until_live();
    for _ in 0..4 {
        decide(&page.weir, "user", "ann");
    }
    let block = "#denied-rows button";
    page.wait_for("document.querySelector('#denied-rows button')?.checkVisibility()");
    page.browser.evaluate(&format!("document.querySelector('{block}').focus()"));
    page.browser.press("Enter");
    page.wait_for("document.querySelector('#editor').open");
    page.browser.press("Escape");
    page.wait_for("document.activeElement.matches('#denied-rows button')");
    page.browser.press("Enter");
    page.click("#editor-next");
    page.wait_for("document.activeElement.id == 'editor-next' && document.querySelector('#preview').checkVisibility()");
    page.browser.press("Enter");
    page.wait_for("!document.querySelector('#editor').open");
    page.wait_for("document.activeElement.matches('#denied-rows button')");
    // A changed control has a new row, and the focus is on its button.
    page.wait_for("document.querySelector('#control-rows button')");
    let change = "document.querySelector('#control-rows button')";
    page.browser.evaluate(&format!("window.row = {change}.closest('tr'); {change}.focus()"));
    page.browser.press("Enter");
    page.fill("#reason", "changed");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').checkVisibility()");
    page.click("#editor-next");
    page.wait_for(&format!(
        "{change} && {change}.closest('tr') != window.row && document.activeElement == {change}"
    ));
    // One that is gone leaves it to its heading.
    page.browser.evaluate("document.querySelector('#control-rows button:last-child').focus()");
    page.browser.press("Enter");
    page.wait_for("document.activeElement.id == 'removal-confirm'");
    page.browser.press("Enter");
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 0");
    page.wait_for("document.activeElement.id == 'controls-h'");
    page.check();
}
