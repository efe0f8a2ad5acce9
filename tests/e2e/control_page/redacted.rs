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
    let visited = page.address() + &page.text("#key-h");
    assert!(!visited.contains("s3cret"), "{visited}");
    page.go("#/rules");
    page.wait_for("document.querySelector('#rules-view').checkVisibility()");
    page.browser.evaluate("history.back()");
    page.wait_for(
        "document.querySelector('#key-verdict').textContent.startsWith('Over its limit')",
    );
    // A new page knows only the address.
    page.reload();
    page.wait_for("document.querySelector('#key-values').checkVisibility()");
    page.check();
}

#[test]
fn what_is_written_into_the_search_is_in_no_address_or_title() {
    let weir = serving(RULES).env("WEIR__TOP__REDACT", "path").start();
    let Some(mut page) = Page::open(weir, DESK) else { return };
    // Not even before the first status; as a key and as anything else, in any case and with any separator.
    for (text, shown) in [
        ("shop path=s3cret", "key"),
        ("path=s3cret", "key"),
        ("shop PATH=s3cret", "key"),
        ("shop path=s3cret,us", "search"),
        ("usr=x path=s3cret", "search"),
        ("Path:s3cret", "search"),
        ("path_s3cret", "search"),
        ("s3cret", "search"),
    ] {
        page.go("#/");
        page.search(text);
        page.wait_for(&format!("document.querySelector('#{shown}-view').checkVisibility()"));
        if shown == "key" {
            page.wait_for("/^Within its limits: 2 left|^Passes: no rule/.test(document.querySelector('#key-verdict').textContent)");
        } else {
            page.wait_for("/^Nothing is found|^No list has/.test(document.querySelector('#search-count').textContent)");
        }
        let address = page.address();
        assert!(!address.contains("s3c"), "{text}: {address}");
        // Where it leads to, neither.
        let links = "[...document.querySelectorAll('main a')].map(link => link.href).join('\\n')";
        let links = page.browser.evaluate(links).as_str().unwrap().to_owned();
        assert!(!links.contains("s3c"), "{text}: {links}");
    }
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
    page.search("shop user=ann");
    page.wait_for("document.querySelector('#key-h').textContent == 'user=ann'");
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
    for text in ["path=s3cret", "path_s3cret"] {
        page.fill("#rule-filter", "");
        page.browser
            .evaluate("document.querySelector('#rule-filter').dispatchEvent(new Event('input'))");
        page.wait_for("document.querySelectorAll('#all-rule-rows tr').length > 1");
        page.fill("#rule-filter", text);
        page.browser
            .evaluate("document.querySelector('#rule-filter').dispatchEvent(new Event('input'))");
        page.wait_for("document.querySelectorAll('#all-rule-rows tr').length == 1");
        let address = page.address();
        assert!(!address.contains("s3c"), "{address}");
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
    page.search("path_s3cret");
    page.wait_for("location.hash == '#/search'");
    page.wait_for("document.querySelectorAll('#found-rule-rows a').length == 1");
    let link = page.browser.evaluate("document.querySelector('#found-rule-rows a').href");
    assert!(!link.as_str().unwrap().contains("s3cret"), "{link}");
    page.check();
}
