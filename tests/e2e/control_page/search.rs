//! The search field, and the view of a key.

use super::*;

#[test]
fn a_whole_key_is_opened_by_keyboard_whether_it_is_listed_or_not() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    page.press_until_focused("Tab", "#query");
    page.browser.type_text("shop path=/quiet");
    page.browser.press("Enter");
    page.wait_for("document.activeElement.id == 'key-h'");
    let address = page.address();
    assert!(address.contains("#/key?domain=shop&descriptor=path%3D%2Fquiet"), "{address}");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent == 'Within its limits: 2 left.'",
    );
    page.wait_for("document.querySelector('#key-steps').textContent.includes('path=/quiet matches path (rules.yaml:4')");
    page.wait_for("document.querySelector('#key-unlisted').checkVisibility()");
    for _ in 0..3 {
        decide(&page.weir, "path", "/quiet");
    }
    page.click("#key-again");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent.startsWith('Over its limit')",
    );
    let cells =
        "[...document.querySelectorAll('#key-limit-rows td')].map(cell => cell.textContent)";
    let cells = page.browser.evaluate(cells);
    assert_eq!((&cells[0], &cells[1]), (&json!("3"), &json!("0")), "{cells}");

    // Reset, after a question.
    page.click("#key-reset");
    page.wait_for("document.querySelector('#reset-text').textContent.includes('shop path=/quiet')");
    page.wait_for("document.querySelector('#reset-text').textContent.includes('3 used')");
    page.click("#reset-confirm");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent == 'Within its limits: 2 left.'",
    );
    page.wait_for("document.activeElement.id == 'key-reset'");
    assert_eq!(decide(&page.weir, "path", "/quiet"), Code::Ok);

    // Blocked, after what it matches.
    page.click("#key-block");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#preview').textContent.includes('Block shop path=/quiet for ')",
    );
    assert_eq!(decide(&page.weir, "path", "/quiet"), Code::Ok);
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent.startsWith('Denied: it is blocked')",
    );
    assert_eq!(decide(&page.weir, "path", "/quiet"), Code::OverLimit);
    page.wait_for("document.querySelectorAll('#key-control-rows tr').length == 1");
    page.wait_for("document.activeElement.id == 'key-block'");
    // A limit starts with that action.
    page.click("#key-limit");
    assert_eq!(
        page.browser.evaluate("document.querySelector('input[name=action]:checked').value"),
        "limit"
    );
    page.click("#editor-back");

    // The address is that of the key, for any browser.
    page.search("shop path=/other");
    page.wait_for("document.querySelector('#key-h').textContent == 'path=/other'");
    page.browser.evaluate("history.back()");
    page.wait_for("document.querySelector('#key-h').textContent == 'path=/quiet'");
    page.reload();
    page.wait_for(
        "document.querySelector('#key-verdict').textContent.startsWith('Denied: it is blocked')",
    );
    page.check();
}

#[test]
fn keys_and_rules_are_suggested_and_enter_says_what_it_does() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    decide(&page.weir, "path", "/listed");
    page.wait_for("document.querySelectorAll('#hits-rows tr').length == 1");
    page.press_until_focused("Tab", "#query");
    page.browser.type_text("pat");
    let suggested =
        "[...document.querySelectorAll('#suggestions option')].map(({ value }) => value).join()";
    page.wait_for(&format!("{suggested} == 'shop path=/listed,shop path='"));
    assert_eq!(page.text("#query-note"), "Enter searches");
    page.browser.type_text("h=/new");
    page.wait_for("document.querySelector('#query-note').textContent == 'Enter opens'");
    let note = "getComputedStyle(document.querySelector('#query-note')).display";
    assert_ne!(page.browser.evaluate(note), "none");
    page.browser.press("Enter");
    page.wait_for("document.querySelector('#key-h').textContent == 'path=/new'");
    page.check();
}

#[test]
fn a_text_finds_rules_controls_keys_and_denials() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    let block = of_user("mallory", &json!({ "action": "block", "reason": "scraping" }));
    ControlApi::new(&page.weir).put_good("b1", &block);
    // One is denied: two in different samples would be two rows.
    for _ in 0..3 {
        decide(&page.weir, "path", "/mallory");
    }
    page.wait_for("document.querySelector('#denial-rows li')");
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 1");
    let find = |page: &mut Page, text: &str| {
        page.browser.evaluate("document.querySelector('#search-count').textContent = ''; 0");
        page.search(text);
        page.wait_for("location.hash == '#/search' && document.querySelector('#search-view').checkVisibility()");
        page.wait_for("!/^$|^Searching/.test(document.querySelector('#search-count').textContent)");
    };
    find(&mut page, "MALLORY");
    assert_eq!(page.text("#search-count"), "1\u{a0}control, 1\u{a0}key, 1\u{a0}denial.");
    assert!(page.text("#found-control-rows").contains("scraping"));
    assert!(page.text("#found-key-rows").contains("shop path=/mallory"));
    find(&mut page, "shop user");
    assert!(page.text("#found-rule-rows").contains("shop.user"));
    find(&mut page, "shop");
    assert_eq!(page.text("#found-domain-rows"), "shop");
    find(&mut page, "no such thing");
    assert!(page.text("#search-count").starts_with("Nothing is found."));
    // Each leads on: a key to its view, a rule to its own.
    find(&mut page, "MALLORY");
    page.click("#found-key-rows a");
    page.wait_for("document.querySelector('#key-h').textContent == 'path=/mallory'");
    page.wait_for("document.querySelector('#key-tiles').textContent.includes('Denied1')");
    find(&mut page, "user");
    page.click("#found-rule-rows a");
    page.wait_for("document.querySelector('#one-rule-h').textContent == 'user of shop'");
    page.browser.evaluate("history.back()");
    page.wait_for("document.querySelector('#search-h').checkVisibility()");
    page.check();
}

#[test]
fn a_key_without_its_domain_is_opened_where_only_one_has_such_entries() {
    let setup = crate::support::weir::Setup::new();
    let domain = |name: &str, key: &str| {
        let limit = "rate_limit: { unit: year, requests_per_unit: 2 }";
        format!(
            "domain: {name}\ndescriptors:\n  - {{ key: user, {limit} }}\n  - {{ key: {key}, {limit} }}\n"
        )
    };
    let setup = setup.file("rules/a.yaml", &domain("shop", "cart"));
    let setup = setup.file("rules/b.yaml", &domain("wholesale", "order"));
    let weir = setup.arg("serve").arg("--rules").arg("rules").start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    let is_key = |key: &str, domain: &str| {
        format!(
            "document.querySelector('#key-h').textContent == '{key}' && document.querySelector('#key-domain').value == '{domain}'"
        )
    };
    page.search("order=17");
    page.wait_for(&is_key("order=17", "wholesale"));
    page.search("user=ann");
    page.wait_for("document.querySelectorAll('#found-open-rows a').length == 2");
    page.click("#found-open-rows li:last-child a");
    page.wait_for(&is_key("user=ann", "wholesale"));
    // The domain can be changed there.
    page.browser.evaluate("(() => { const choice = document.querySelector('#key-domain'); choice.value = 'shop'; choice.dispatchEvent(new Event('change')) })()");
    page.wait_for(&is_key("user=ann", "shop"));
    page.wait_for(
        "document.querySelector('#key-verdict').textContent == 'Within its limits: 2 left.'",
    );
    let address = page.address();
    assert!(address.contains("#/key?domain=shop&descriptor=user%3Dann"), "{address}");
    page.check();
}
