//! Values of `top.redact` and tokens are in no address.

use super::*;

#[test]
fn redacted_values_stay_hashes_in_addresses() {
    let weir = serving(RULES).env("WEIR__TOP__REDACT", "path").start();
    for _ in 0..4 {
        decide(&weir, "path", "s3cret");
    }
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    page.wait_for("document.querySelector('#denied-rows a')");
    page.click("#denied-rows a");
    page.wait_for("location.hash.startsWith('#/key?domain=shop&descriptor=path%3Dhash%3A')");
    page.wait_for("document.querySelector('#key-values').checkVisibility()");
    // Its numbers are those of the list.
    page.wait_for("document.querySelector('#key-tiles').textContent.includes('Denied2')");
    assert_eq!(page.browser.evaluate("document.querySelector('#key-reset').disabled"), true);
    // One who knows the value sees what applies.
    page.fill("#key-value-rows input", "s3cret");
    page.browser.evaluate("document.querySelector('#key-values').requestSubmit()");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent.startsWith('Over its limit')",
    );
    // As in the search field.
    page.fill("#query", "shop path=s3cret");
    page.browser.evaluate("document.querySelector('#search').requestSubmit()");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent.startsWith('Over its limit')",
    );
    // A descriptor with the beginning of another entry, too.
    for (text, part) in [
        ("usr=x,path=s3cret", "usr%3Dx"),
        ("shop path=s3cret,us", "%2Cus"),
        ("usr=x path=s3cret", "usr%3Dx"),
    ] {
        page.fill("#query", text);
        page.browser.evaluate("document.querySelector('#search').requestSubmit()");
        page.wait_for(&format!("/^#\\/search\\?.*{part}/.test(location.hash)"));
        page.wait_for("document.querySelector('#search-h').checkVisibility()");
        let address = page.browser.evaluate("location.href");
        assert!(!address.as_str().unwrap().contains("s3cret"), "{address}");
    }
    let visited = "[location.href, document.title, document.querySelector('#key-h').textContent, \
                   document.querySelector('#search-h').textContent, JSON.stringify(history.state)].join('\\n')";
    let visited = page.browser.evaluate(visited).as_str().unwrap().to_owned();
    assert!(!visited.contains("s3cret"), "{visited}");
    page.browser.evaluate("history.go(-3)");
    page.wait_for("location.hash.startsWith('#/key?')");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent.startsWith('Over its limit')",
    );
    let address = page.browser.evaluate("location.href");
    assert!(!address.as_str().unwrap().contains("s3cret"), "{address}");
    // A new page knows only the address.
    page.reload();
    page.wait_for("document.querySelector('#key-values').checkVisibility()");
    page.check();
}

#[test]
fn a_value_that_is_searched_before_any_row_has_come_is_in_no_address() {
    let setup = serving(RULES).env("WEIR__TOP__REDACT", "path");
    let weir = setup.env("WEIR__TOP__ENTRIES", "0").start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    // Not even before the first status.
    page.fill("#query", "shop path=s3cret");
    page.browser.evaluate("document.querySelector('#search').requestSubmit()");
    page.wait_for("location.hash.startsWith('#/key?domain=shop&descriptor=path%3Dhash%3A')");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent == 'Within its limits: 2 left.'",
    );
    let visited = page.browser.evaluate("[location.href, document.title].join('\\n')");
    assert!(!visited.as_str().unwrap().contains("s3cret"), "{visited}");
    page.check();
}

#[test]
fn a_client_that_sends_a_text_like_a_hash_hides_no_key() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    decide(&page.weir, "user", "hash:ab");
    page.wait_for("document.querySelector('#hits-rows a')");
    page.click("#hits-rows a");
    page.wait_for("location.hash == '#/key?domain=shop&descriptor=user%3Dhash%3Aab'");
    let within =
        "document.querySelector('#key-verdict').textContent.startsWith('Within its limits')";
    page.wait_for(within);
    let asks = "document.querySelector('#key-values').checkVisibility()";
    assert_eq!(page.browser.evaluate(asks), false);
    // The address is enough.
    page.reload();
    page.wait_for(within);
    page.fill("#query", "shop user=ann");
    page.browser.evaluate("document.querySelector('#search').requestSubmit()");
    page.wait_for("location.hash == '#/key?domain=shop&descriptor=user%3Dann'");
    page.check();
}

/// Starts a weir one of whose rules names a hidden value, with hits of it.
fn with_a_hidden_value() -> Weir {
    let rules = RULES.replace("key: path", "key: path, value: s3cret");
    let weir = serving(&rules).env("WEIR__TOP__REDACT", "path").start();
    for _ in 0..4 {
        decide(&weir, "path", "s3cret");
    }
    weir
}

#[test]
fn a_key_whose_rule_names_a_hidden_value_has_the_last_hour_of_its_rule() {
    let Some(mut page) = Page::open(with_a_hidden_value(), DESK) else { return };
    page.wait_until_live();
    page.click_when_there("#denied-rows a");
    page.wait_for("document.querySelector('#key-values').checkVisibility()");
    page.wait_for("document.querySelector('#key-plot').checkVisibility()");
    page.check();
}

#[test]
fn a_rule_that_names_a_hidden_value_is_filtered_searched_and_opened_by_a_hash() {
    let Some(mut page) = Page::open(with_a_hidden_value(), DESK) else { return };
    page.wait_until_live();
    page.go("#/rules");
    page.wait_for("document.querySelectorAll('#all-rule-rows tr').length > 1");
    for (text, address) in [
        ("path=s3cret", "#/rules?text=path%3Dhash%3A"),
        ("path_s3cret", "#/rules?text=path_hash%3A"),
    ] {
        page.fill("#rule-filter", text);
        page.browser
            .evaluate("document.querySelector('#rule-filter').dispatchEvent(new Event('input'))");
        page.wait_for(&format!("location.hash.startsWith({})", json!(address)));
        page.wait_for("document.querySelectorAll('#all-rule-rows tr').length == 1");
        let address = page.browser.evaluate("location.href");
        assert!(!address.as_str().unwrap().contains("s3c"), "{address}");
    }
    // The link of a rule has the path that lists of keys have.
    page.click_when_there("#all-rule-rows a");
    page.wait_for("location.hash.startsWith('#/rule?domain=shop&rule=path_hash%3A')");
    let is_open = "document.querySelector('#one-rule-h').textContent == 'path_s3cret of shop' && \
                   document.querySelector('#one-rule-buttons').checkVisibility()";
    page.wait_for(is_open);
    page.wait_for("document.querySelectorAll('#one-rule-keys tr').length > 0");
    // What was filtered stands there again.
    page.browser.evaluate("history.back()");
    page.wait_for("document.querySelector('#rule-filter').value == 'path_s3cret'");
    page.browser.evaluate("history.forward()");
    page.wait_for(is_open);
    // A new page finds the rule by the address.
    page.reload();
    page.wait_for(is_open);
    page.fill("#query", "path_s3cret");
    page.browser.evaluate("document.querySelector('#search').requestSubmit()");
    page.wait_for("location.hash.startsWith('#/search?text=path_hash%3A')");
    page.wait_for("document.querySelectorAll('#found-rule-rows a').length == 1");
    let link = page.browser.evaluate("document.querySelector('#found-rule-rows a').href");
    assert!(!link.as_str().unwrap().contains("s3cret"), "{link}");
    page.check();
}
