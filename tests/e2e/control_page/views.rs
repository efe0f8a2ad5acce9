//! The search field, and the views of rules and keys.

use std::fmt::Write;

use super::*;

/// 600 rules in 30 domains.
pub fn many_rules() -> String {
    let mut files = String::new();
    for domain in 0..30 {
        write!(files, "---\ndomain: team{domain:02}\ndescriptors:\n").unwrap();
        for rule in 0..20 {
            writeln!(
                files,
                "  - {{ key: plan{rule:02}, rate_limit: {{ unit: hour, requests_per_unit: {} }} }}",
                100 + rule
            )
            .unwrap();
        }
    }
    files
}

/// Starts weir with a file for each document.
pub fn with_many_rules() -> Weir {
    let mut setup = crate::support::weir::Setup::new().arg("serve").arg("--rules").arg("rules");
    for (i, rules) in many_rules().split("---\n").skip(1).enumerate() {
        setup = setup.file(&format!("rules/{i}.yaml"), rules);
    }
    setup.start()
}

/// Writes into the search field, and sends it.
fn search(page: &mut Page, text: &str) {
    page.browser.evaluate(
        "document.querySelector('#query').value = ''; document.querySelector('#query').focus()",
    );
    page.browser.type_text(text);
    page.browser.press("Enter");
}

#[test]
fn rules_without_hits_are_found_filtered_sorted_and_paged() {
    let Some(mut page) = Page::open(with_many_rules(), DESK) else { return };
    page.wait_until_live();
    search(&mut page, "team07 plan03");
    page.wait_for("document.querySelector('#search-count').textContent == '1\\u00a0rule.'");
    page.click("#found-rule-rows a");
    page.wait_for("document.querySelector('#one-rule-h').textContent.includes('plan03')");
    assert_eq!(page.browser.evaluate("location.hash"), "#/rule?domain=team07&rule=plan03");
    search(&mut page, "team07");
    page.wait_for(
        "document.querySelector('#search-count').textContent == '1\\u00a0domain, 20\\u00a0rules.'",
    );

    page.browser.evaluate("location.hash = '#/rules'; 0");
    page.wait_for("document.querySelectorAll('#all-rule-rows tr').length == 50");
    page.click("#rules-after");
    page.wait_for("document.querySelector('#rule-page').textContent == 'Page 2 of 12'");
    page.browser.evaluate(
        "const filter = document.querySelector('#rule-filter'); filter.value = 'plan19 119'; filter.dispatchEvent(new Event('input')); 0",
    );
    page.wait_for(
        "document.querySelector('#rule-count').textContent.replace('\\u00a0', ' ').startsWith('30 of 600 rules')",
    );
    page.click("#all-rule-table th[data-sort=rule] button");
    page.wait_for("document.querySelector('#all-rule-rows tr').textContent.includes('team29')");
    // The address brings all of that back.
    let hash = page.browser.evaluate("location.hash").as_str().unwrap().to_owned();
    assert!(hash.contains("text=plan19") && hash.contains("turned=1"), "{hash}");
    for width in [360, 1280] {
        page.browser.show_as(View { width, dark: width == 360 });
        assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}");
    }
    page.check();
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
    assert_eq!(
        page.browser.evaluate("location.hash"),
        "#/key?domain=shop&descriptor=path%3D%2Flogin"
    );
    page.wait_for("document.querySelector('#key-steps').textContent.includes('matches path')");

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

#[test]
fn hidden_values_stay_hashes_in_addresses() {
    let weir = serving(RULES).env("WEIR__TOP__REDACT", "user").start();
    decide(&weir, "user", "secret-ann");
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    page.click_when_there("#hits-rows a");
    page.wait_for("document.querySelector('#key-values').checkVisibility()");
    page.fill("#key-values input", "secret-ann");
    page.click("#key-values button");
    page.wait_for("document.querySelector('#key-limit-rows')?.textContent.includes('1')");
    let address = page.browser.evaluate("location.href").as_str().unwrap().to_owned();
    assert!(address.contains("hash") && !address.contains("secret"), "{address}");
    page.check();
}

#[test]
fn what_a_shadow_rule_would_deny_has_a_list_without_a_button() {
    let rules =
        RULES.replace("requests_per_unit: 2 }", "requests_per_unit: 2 }, shadow_mode: true");
    let weir = serving(&rules).start();
    for _ in 0..4 {
        assert_eq!(decide(&weir, "path", "/trial"), Code::Ok);
    }
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    page.wait_for(
        "document.querySelector('#would_be_denied-rows')?.textContent.includes('path=/trial')",
    );
    assert_eq!(
        page.browser.evaluate("document.querySelectorAll('#would_be_denied-rows button').length"),
        0
    );
    assert_eq!(page.browser.evaluate("document.querySelectorAll('#denied-rows tr').length"), 0);
    page.check();
}

#[test]
fn a_dialog_asks_for_the_domain_and_gives_the_focus_back() {
    let Some(mut page) = Page::open(with_many_rules(), DESK) else { return };
    page.wait_until_live();
    page.press_until_focused("Tab", "#add");
    page.browser.press("Enter");
    page.wait_for("document.querySelector('#editor').open");
    // Of thirty domains none is chosen.
    assert_eq!(page.browser.evaluate("document.querySelector('#domain').value"), "");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#editor-error').textContent.includes('hoose a domain')");
    page.browser.press("Escape");
    page.wait_for("!document.querySelector('#editor').open");
    page.wait_for("document.activeElement.id == 'add'");
    page.check();
}
