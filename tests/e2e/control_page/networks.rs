//! Networks in the values of controls.

use super::*;

/// Writes into an input as someone who types.
fn write(page: &mut Page, selector: &str, text: &str) {
    page.fill(selector, text);
    let event = "dispatchEvent(new Event('input', { bubbles: true }))";
    page.browser.evaluate(&format!("document.querySelector({}).{event}", json!(selector)));
}

#[test]
fn the_page_matches_networks_as_the_service_does() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    let api = ControlApi::new(&page.weir);
    for value in ["10.0.0.0/8", "10.1.2.3/32", "2001:db8::/33", "192.0.2.7/24", "fe80::/10"] {
        api.post("", &of_user(value, &json!({ "action": "allow" })));
    }
    let text = of_user("198.51.100.0/24", &json!({ "action": "allow", "text": true }));
    assert_eq!(api.post("", &text).0, 200);
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 6");
    page.wait_for("document.querySelector('#control-rows').textContent.includes('as a text')");
    let mut matched = 0;
    for value in [
        "10.1.2.3",
        "10.1.2.3:80",
        "10.1.2.3:65536",
        "::ffff:10.1.2.3",
        "[::ffff:a01:203]:80",
        "[10.1.2.3]",
        "10.1.0.0/16",
        "10.1.2.3/7",
        "010.1.2.3",
        "11.0.0.1",
        "2001:DB8::1",
        "[2001:db8:7fff::1%eth0]:443",
        "2001:db8:8000::1",
        "2001:db8::/32",
        "2001:db8::/34",
        "fe80::1%eth0",
        "fe80::1%",
        "192.0.2.7",
        "192.0.2.7/24",
        "198.51.100.0/24",
        "198.51.100.1",
        "ann",
    ] {
        let query = value.replace('%', "%25").replace('/', "%2F").replace('+', "%2B");
        let address = format!("domain=shop&descriptor=user%3D{query}");
        page.go(&format!("#/key?{address}"));
        page.wait_for(&format!(
            "document.querySelector('#key-h').textContent == {} && document.querySelector('#key-facts').checkVisibility()",
            json!(format!("user={value}"))
        ));
        let wanted = &api.good(&format!("/v1/explain?{address}"))["descriptors"][0]["control"];
        let rows =
            page.browser.evaluate("document.querySelectorAll('#key-control-rows tr').length");
        assert_eq!(rows != 0, !wanted.is_null(), "{value}: {rows} {wanted}");
        matched += i32::from(!wanted.is_null());
    }
    assert_eq!(matched, 11);
    page.go("#/key?domain=shop&descriptor=user%3D10.9.9.9");
    page.wait_for("document.querySelector('#key-facts').textContent.includes(' in 10.0.0.0/8')");
    page.check();
}

#[test]
fn a_network_can_be_a_text() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    let api = ControlApi::new(&page.weir);
    let shown = "document.querySelector('#text-field').checkVisibility()";
    page.click("#add");
    write(&mut page, ".entry input:first-of-type", "user");
    write(&mut page, ".entry input:last-of-type", "10.1.2.3/8");
    assert_eq!(page.browser.evaluate(shown), false, "it has host bits");
    write(&mut page, ".entry input:last-of-type", "10.0.0.0/8");
    assert_eq!(page.browser.evaluate(shown), true);
    for width in [360, 1280] {
        page.browser.show_as(View { width, dark: width == 360 });
        assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}");
    }
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#preview').textContent.includes('Block shop user=10.0.0.0/8 for ')",
    );
    page.click("#editor-back");
    page.click("#text");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#preview').textContent.includes('user=10.0.0.0/8 as a text for ')",
    );
    page.click("#editor-next");
    page.wait_for("!document.querySelector('#editor').open");
    let controls = api.good("/v1/controls")["controls"].clone();
    assert_eq!(controls[0]["text"], true, "{controls}");

    // A change starts with what it is.
    page.click_when_there("#control-rows button");
    page.wait_for(shown);
    page.click("#text");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').checkVisibility()");
    page.click("#editor-next");
    page.wait_for("!document.querySelector('#editor').open");
    let controls = api.good("/v1/controls")["controls"].clone();
    assert_eq!((controls.as_array().unwrap().len(), &controls[0]["text"]), (1, &json!(false)));

    // A network that a client has sent is this key, not the addresses in it.
    page.go("#/key?domain=shop&descriptor=user%3D192.0.2.0%2F24");
    page.wait_for("document.querySelector('#key-h').textContent == 'user=192.0.2.0/24'");
    page.click("#key-block");
    page.wait_for("document.querySelector('#editor').open");
    assert_eq!(page.browser.evaluate("document.querySelector('#text').checked"), true);
    assert_eq!(page.browser.evaluate(shown), true);
    page.check();
}

#[test]
fn a_rule_by_network_or_list_shows_the_controls_of_its_values() {
    let rules = "domain: shop\ndescriptors:\n\
        - { key: user, network: 10.0.0.0/8, rate_limit: { unit: hour, requests_per_unit: 9 } }\n\
        - { key: user, values_file: vips.txt, rate_limit: { unit: hour, requests_per_unit: 9 } }\n";
    let setup = serving(rules).file("vips.txt", "ann\n");
    let Some(mut page) = Page::open(setup.start(), DESK) else { return };
    page.wait_until_live();
    let api = ControlApi::new(&page.weir);
    for value in ["10.1.2.3:80", "10.1.0.0/16", "10.*", "192.0.2.1"] {
        api.post("", &of_user(value, &json!({ "action": "block" })));
    }
    let rows = "document.querySelectorAll('#one-rule-control-rows tr').length";
    for (rule, controls) in [("user_10.0.0.0/8", 3), ("user_@vips.txt", 4)] {
        let rule = rule.replace('/', "%2F").replace('@', "%40");
        page.go(&format!("#/rule?domain=shop&rule={rule}"));
        page.wait_for(&format!("{rows} == {controls}"));
    }
    page.check();
}
