//! The editor of the page: what it sends back, and what it replaces.

use super::*;

/// Answers as a later version does, whose controls have members that the page does not know, and keeps the
/// bodies that it is sent.
const LATER_VERSION: &str = r"(() => {
  const ask = window.fetch;
  window.sent = [];
  window.fetch = async (path, options) => {
    if (!path.startsWith('/v1/controls')) return ask(path, options);
    const newer = { later: { deep: [1, null] } };
    if (options.body) {
      const { later, ...body } = JSON.parse(options.body);
      window.sent.push([options.method, path.split('?')[0], JSON.parse(options.body)]);
      body.entries = body.entries.map(({ key, value }) => ({ key, value }));
      if (body.limit) delete body.limit.later;
      return ask(path, { ...options, body: JSON.stringify(body) });
    }
    const answer = await (await ask(path, options)).json();
    for (const control of answer.controls) {
      Object.assign(control, newer);
      Object.assign(control.limit, newer);
      Object.assign(control.entries[0], newer);
    }
    return new Response(JSON.stringify(answer));
  };
})()";

#[test]
fn a_change_sends_back_what_the_form_does_not_know() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    page.browser.evaluate(LATER_VERSION);
    let limit = json!({ "action": "limit", "limit": { "n": 5 }, "by": "bob" });
    assert_eq!(ControlApi::new(&page.weir).put("vip", &of_user("ann", &limit)).0, 200);
    page.click_when_there("#control-rows button");
    page.wait_for("document.querySelector('#editor').open");
    page.fill("#limit-n", "7");
    page.fill("#by", "ann");
    page.click("#add-entry");
    page.fill(".entry:last-child input:first-of-type", "path");
    page.fill(".entry:last-child input:last-of-type", "/");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').checkVisibility()");
    page.click("#editor-next");
    page.wait_for("!document.querySelector('#editor').open");
    let later = json!({ "deep": [1, null] });
    let wanted = json!({
        "domain": "shop",
        "entries": [{ "key": "user", "value": "ann", "later": later }, { "key": "path", "value": "/" }],
        "exact": false, "action": "limit", "for": "forever", "reason": "", "by": "ann",
        "limit": { "n": 7, "name": "", "later": later }, "later": later,
    });
    let sent = json!(["PUT", "/v1/controls/vip", wanted]);
    assert_eq!(page.browser.evaluate("window.sent"), json!([sent, sent]));
    // A new control has none of that, and gets an id.
    page.click("#add");
    page.fill(".entry input:first-of-type", "user");
    page.fill(".entry input:last-of-type", "m1");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').checkVisibility()");
    let entry = json!([{ "key": "user", "value": "m1" }]);
    let block = json!({ "domain": "shop", "entries": entry, "exact": false, "action": "block", "for": "1h", "reason": "", "by": "ann" });
    assert_eq!(page.browser.evaluate("window.sent.at(-1)"), json!(["POST", "/v1/controls", block]));
    page.check();
}

#[test]
fn the_same_control_again_replaces_it_also_that_of_a_command() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    let block = of_user("m1", &json!({ "action": "block", "reason": "first" }));
    let id = ControlApi::new(&page.weir).post("", &block).1["control"]["id"].clone();
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 1");
    page.click("#add");
    page.fill(".entry input:first-of-type", "user");
    page.fill(".entry input:last-of-type", "m1");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').textContent.includes('It replaces the control that matches the same now.')");
    page.click("#editor-next");
    page.wait_for("!document.querySelector('#editor').open");
    let controls = ControlApi::new(&page.weir).good("/v1/controls")["controls"].clone();
    assert_eq!((controls.as_array().unwrap().len(), &controls[0]["id"]), (1, &id));
    assert_eq!(controls[0]["reason"], "");
    page.check();
}

#[test]
fn names_that_no_rule_has_are_shown_before_the_control_is_put() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    page.click("#add");
    page.fill(".entry input:first-of-type", "usr");
    page.fill(".entry input:last-of-type", "m1");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').checkVisibility()");
    let warned = page.browser.evaluate("document.querySelector('#preview .warned').textContent");
    assert_eq!(warned, "Unknown key 'usr': did you mean 'user'?");
    page.click("#editor-back");
    page.fill("#domain", "shpo");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#preview').textContent.includes(\"Unknown domain 'shpo'\")",
    );
    assert_eq!(ControlApi::new(&page.weir).good("/v1/controls")["controls"], json!([]));
    page.check();
}
