//! The page at `/` of the debug port, in Chromium, with the real program.

mod dialogs;
mod editor;
mod history;
mod key;
mod layout;
mod lists;
mod missing;
mod networks;
mod problems;
mod redacted;
mod rules;
mod search;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use self::layout::CHECK;
use crate::support::api::{code, request};
use crate::support::browser::{Browser, View};
use crate::support::control_api::{ControlApi, of_user};
use crate::support::weir::{Weir, serving};
use crate::support::{PATIENCE, http};

const RULES: &str = "\
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1000000 } }
  - { key: path, rate_limit: { unit: year, requests_per_unit: 2 } }
";

/// The dialog for a token is open. A closed one keeps the focus until the next frame.
const TOKEN_QUESTION: &str =
    "document.querySelector('#login').open && document.activeElement.id == 'token'";

const DESK: View = View { width: 1280, dark: false };

/// Texts that would do something if they were markup, or that hide what follows.
const HOSTILE: [&str; 6] = [
    "<img src=x onerror=\"window.hacked=1\">",
    "<script>window.hacked=1</script>",
    "\"><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "\u{202e}reversed\u{0}\n\u{200b}",
    "{{7+7}}${window.hacked=1}`",
];

/// A page of a running service.
struct Page {
    browser: Browser,
    weir: Weir,
}

impl Page {
    /// Opens the page; none without Chromium.
    fn open(weir: Weir, view: View) -> Option<Page> {
        let mut browser = Browser::start()?;
        let loaded = browser.visit(&format!("http://{}/", weir.debug), view);
        assert_eq!(loaded.problems, [""; 0]);
        Some(Page { browser, weir })
    }

    /// Evaluates an expression until it is true.
    fn wait_for(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.browser.evaluate(&format!("Boolean({expression})")) != true {
            std::thread::sleep(Duration::from_millis(20));
            if Instant::now() > deadline {
                let text = self.browser.evaluate("document.body.innerText");
                panic!(
                    "not within {PATIENCE:?}: {expression}; {:#?}; {text}",
                    self.browser.happened()
                );
            }
        }
    }

    fn wait_until_live(&mut self) {
        self.wait_for("document.querySelector('#live').textContent == 'Live'");
        self.wait_for("document.querySelector('#ok-rate').textContent != '–'");
    }

    /// Goes to a view.
    fn go(&mut self, address: &str) {
        self.browser.evaluate(&format!("location.hash = {}; 0", json!(address)));
    }

    /// Loads the page again. What is true next is true of the new one.
    fn reload(&mut self) {
        self.browser.evaluate("window.isBefore = true; location.reload()");
        self.wait_for("!window.isBefore && document.readyState == 'complete'");
    }

    fn click(&mut self, selector: &str) {
        self.browser.evaluate(&format!("document.querySelector({}).click()", json!(selector)));
    }

    /// Waits for a button, and clicks it.
    fn click_when_there(&mut self, selector: &str) {
        self.wait_for(&format!("document.querySelector({})?.checkVisibility()", json!(selector)));
        self.click(selector);
    }

    fn fill(&mut self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.browser.evaluate(&format!("document.querySelector({selector}).value = {text}; 0"));
    }

    /// Writes into the search field of every view, and searches.
    fn search(&mut self, text: &str) {
        self.fill("#query", text);
        self.browser.evaluate("document.querySelector('#search').requestSubmit()");
    }

    /// Returns what others can see of a view: its address and its title, and what the browser keeps with them.
    fn address(&mut self) -> String {
        let seen = "[location.href, document.title, JSON.stringify(history.state)].join('\\n')";
        self.browser.evaluate(seen).as_str().unwrap().to_owned()
    }

    fn text(&mut self, selector: &str) -> String {
        let text = format!("document.querySelector({})?.textContent", json!(selector));
        self.browser.evaluate(&text).as_str().unwrap_or_default().to_owned()
    }

    /// Returns the text of a fact, by its name.
    fn fact(&mut self, name: &str) -> String {
        let text = format!(
            "[...document.querySelectorAll('#facts dt')].find(dt => dt.textContent == {})?.nextSibling.textContent",
            json!(name)
        );
        self.browser.evaluate(&text).as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key until an element has the focus.
    fn press_until_focused(&mut self, key: &str, selector: &str) {
        for _ in 0..100 {
            if self
                .browser
                .evaluate(&format!("document.activeElement.matches({})", json!(selector)))
                == true
            {
                return;
            }
            self.browser.press(key);
        }
        panic!("{key} does not lead to {selector}");
    }

    /// Checks that nothing went wrong so far, and that nothing was asked from elsewhere.
    fn check(&mut self) {
        let happened = self.browser.happened();
        assert_eq!(happened.problems, [""; 0]);
        let own = format!("http://{}/", self.weir.debug);
        for url in happened.requests {
            assert!(url.starts_with(&own) || url.starts_with("data:"), "{url}");
        }
        let foreign = "document.querySelectorAll('img, iframe, object, embed, [onload], [onerror], body script ~ script').length";
        assert_eq!(self.browser.evaluate(foreign), 0);
        assert_eq!(self.browser.evaluate("typeof window.hacked"), "undefined");
    }
}

/// Asks for a decision on one entry by gRPC.
fn decide(weir: &Weir, key: &str, value: &str) -> Code {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(code(weir.grpc, request("shop", &[(key, value)])))
}

#[test]
fn a_block_added_by_keyboard_denies_the_next_request_and_its_removal_admits_again() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    assert_eq!(decide(&page.weir, "user", "m1"), Code::Ok);

    page.press_until_focused("Tab", "#add");
    // What has the focus shows it.
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(page.browser.evaluate(outline), "solid");
    page.browser.press("Enter");
    // The domain of the rules is filled in.
    page.press_until_focused("Tab", ".entry input:first-of-type");
    page.browser.type_text("user");
    page.press_until_focused("Tab", ".entry input:last-of-type");
    page.browser.type_text("m1");
    page.press_until_focused("Tab", "#reason");
    page.browser.type_text("scraping");
    page.press_until_focused("Tab", "#by");
    page.browser.type_text("ann");
    page.browser.press("Enter");
    // The dry run shows what it matches, and changes nothing.
    page.wait_for(
        "document.querySelector('#preview').textContent.includes('Block shop user=m1 for ')",
    );
    page.wait_for("document.querySelector('#preview th').textContent == 'shop user=m1'");
    assert_eq!(decide(&page.weir, "user", "m1"), Code::Ok);
    page.press_until_focused("Tab", "#editor-next");
    page.browser.press("Enter");
    page.wait_for("!document.querySelector('#editor').open");
    assert_eq!(decide(&page.weir, "user", "m1"), Code::OverLimit);
    assert_eq!(decide(&page.weir, "user", "m2"), Code::Ok);
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 1");
    let row = page.text("#control-rows tr");
    for expected in ["block", "shop user=m1", "scraping", "ann", "in "] {
        assert!(row.contains(expected), "{expected}: {row}");
    }
    page.wait_for("document.querySelector('#control-count').textContent == '1'");
    page.wait_for(
        "document.querySelector('#change-rows').textContent.includes('block shop user=m1 by ann')",
    );

    // Escape closes the question, and the control stays.
    page.press_until_focused("Tab", "#control-rows button:last-child");
    page.browser.press("Enter");
    page.wait_for("document.querySelector('#removal').open");
    page.browser.press("Escape");
    page.wait_for("!document.querySelector('#removal').open");
    assert_eq!(decide(&page.weir, "user", "m1"), Code::OverLimit);
    page.press_until_focused("Tab", "#control-rows button:last-child");
    page.browser.press("Enter");
    page.wait_for("document.activeElement.id == 'removal-confirm'");
    page.browser.press("Enter");
    page.wait_for("!document.querySelector('#removal').open");
    assert_eq!(decide(&page.weir, "user", "m1"), Code::Ok);
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 0");

    // The plot is read by keys, too.
    page.browser.evaluate("document.querySelector('#area').focus()");
    page.browser.press("ArrowLeft");
    page.browser.press("ArrowLeft");
    assert_eq!(page.browser.evaluate("document.querySelector('#area').ariaValueNow"), "-2");
    page.wait_for("document.querySelector('#readout').textContent.includes(' within')");
    page.check();
}

#[test]
fn a_click_blocks_a_key_of_the_top_list_and_other_actions_work() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    for _ in 0..5 {
        decide(&page.weir, "path", "/login");
    }
    page.click_when_there("#denied-rows button");
    page.wait_for("document.querySelector('#editor').open");
    page.fill("#reason", "many attempts");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#preview').textContent.includes('Block shop path=/login for ')",
    );
    page.click("#editor-next");
    page.click_when_there("#control-rows button");
    // The same control is changed to an allowance that does not count.
    page.wait_for("document.querySelector('#editor').open");
    assert_eq!(page.browser.evaluate("document.querySelector('#reason').value"), "many attempts");
    page.click("input[name=action][value=allow]");
    page.click("#count");
    page.browser.evaluate("document.querySelector('#lasts').value = 'forever'; 0");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').textContent.includes('until it is removed')");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#control-rows')?.textContent.includes('without counting')",
    );
    assert_eq!(decide(&page.weir, "path", "/login"), Code::Ok);
    let controls = ControlApi::new(&page.weir).good("/v1/controls")["controls"].clone();
    assert_eq!((controls.as_array().unwrap().len(), &controls[0]["until"]), (1, &Value::Null));

    // Another limit.
    page.click("#add");
    page.fill(".entry input:first-of-type", "path");
    page.fill(".entry input:last-of-type", "/slow*");
    page.click("input[name=action][value=limit]");
    page.fill("#limit-n", "1");
    page.click("#editor-next");
    page.wait_for("document.querySelector('#preview').textContent.includes('Limit shop path=/slow* to 1 for 1\\u00a0h')");
    page.click("#editor-next");
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 2");
    // The row may be there before the answer that closes the dialog.
    page.wait_for("!document.querySelector('#editor').open");
    let codes = [(); 2].map(|()| decide(&page.weir, "path", "/slower"));
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);

    // A control without entries is refused until its domain is typed.
    page.check();
    page.click("#add");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#editor-error').textContent.includes('matches everything')",
    );
    page.fill("#force", "shop");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#preview').textContent.includes('Block everything of shop ')",
    );
    page.click("#editor-next");
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 3");
    assert_eq!(decide(&page.weir, "user", "m1"), Code::OverLimit);
    // Chromium reports each refusal of a request.
    let problems = page.browser.happened().problems;
    assert!(problems.iter().all(|problem| problem.contains("status of 409")), "{problems:?}");
}

#[test]
fn texts_of_clients_stay_texts() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    let api = ControlApi::new(&page.weir);
    for (i, text) in HOSTILE.into_iter().enumerate() {
        for _ in 0..4 {
            decide(&page.weir, "path", text);
        }
        let entry = json!({ "key": text, "value": text });
        let body = json!({ "domain": text, "entries": [entry], "action": "block", "reason": text, "by": text, "for": "1h" });
        assert_eq!(api.put(&format!("b{i}"), &body).0, 200, "{text}");
    }
    let count = HOSTILE.len();
    for list in ["denied", "hits", "control"] {
        page.wait_for(&format!("document.querySelectorAll('#{list}-rows tr').length == {count}"));
        for text in &HOSTILE[..4] {
            page.wait_for(&format!(
                "document.querySelector('#{list}-rows').textContent.includes({})",
                json!(text)
            ));
        }
        // What is invisible is shown.
        let hidden = json!("\\u{202e}reversed\\u{0}\\n\\u{200b}");
        page.wait_for(&format!(
            "document.querySelector('#{list}-rows').textContent.includes({hidden})"
        ));
    }
    page.wait_for("document.querySelector('#denial-rows li')?.textContent.includes('shop path=')");
    // The form and the preview have them as they are.
    let button = "[...document.querySelectorAll('#denied-rows tr')].find(row => row.textContent.includes('<img')).querySelector('button').click()";
    page.browser.evaluate(button);
    let value = page.browser.evaluate("document.querySelector('.entry input:last-of-type').value");
    assert_eq!(value, HOSTILE[0]);
    page.click("#editor-next");
    page.wait_for(&format!(
        "document.querySelector('#preview').textContent.includes({})",
        json!(HOSTILE[0])
    ));
    page.click("#editor-next");
    page.wait_for(&format!(
        "document.querySelectorAll('#control-rows tr').length == {}",
        count + 1
    ));
    page.check();
    // The policy refuses what the script never does.
    let parsed = "(() => { try { document.body.innerHTML = '<b>'; return 'parsed' } catch (error) { return error.name } })()";
    assert_eq!(page.browser.evaluate(parsed), "TypeError");
}

#[test]
fn a_token_is_asked_for_once_and_kept_in_memory() {
    let setup = serving(RULES).file("read", "secret-to-read\n").file("write", "secret-to-write\n");
    let (read, write) = (setup.path("read"), setup.path("write"));
    let weir = setup
        .env("WEIR__DEBUG__READ_TOKEN_FILE", read)
        .env("WEIR__DEBUG__WRITE_TOKEN_FILE", write)
        .env("WEIR__DEBUG__REQUIRE_TOKEN", "true")
        .start();
    let Some(mut browser) = Browser::start() else { return };
    browser.visit(&format!("http://{}/", weir.debug), DESK);
    let mut page = Page { browser, weir };
    page.wait_for(TOKEN_QUESTION);
    assert_eq!(page.text("#login-error"), "");
    page.browser.type_text("secret-wrong");
    page.browser.press("Enter");
    page.wait_for("document.querySelector('#login-error').textContent == 'The token is wrong.'");
    // Without a token the page says so, and asks again when it is told to.
    page.browser.press("Escape");
    page.wait_for("!document.querySelector('#login').open");
    page.wait_for("document.querySelector('#stale').textContent.includes('Not connected: the token is wrong.')");
    page.click("#retry");
    page.wait_for(TOKEN_QUESTION);
    page.browser.type_text("secret-to-read");
    page.browser.press("Enter");
    page.wait_until_live();
    assert_eq!(page.browser.evaluate("document.querySelector('#login').open"), false);

    // A token that may only read is not enough to write.
    page.click("#add");
    page.fill(".entry input:first-of-type", "user");
    page.fill(".entry input:last-of-type", "m1");
    page.click("#editor-next");
    page.wait_for(
        "document.querySelector('#login-error').textContent == 'The token may only read.'",
    );
    page.wait_for(TOKEN_QUESTION);
    page.browser.type_text("secret-to-write");
    page.browser.press("Enter");
    page.wait_for("document.querySelector('#preview').textContent.includes('Block shop user=m1')");
    page.click("#editor-next");
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 1");
    assert_eq!(decide(&page.weir, "user", "m1"), Code::OverLimit);
    page.click("#control-rows button:last-child");
    page.click("#removal-confirm");
    page.wait_for("document.querySelectorAll('#control-rows tr').length == 0");

    // It is nowhere but in the script.
    let kept = "JSON.stringify([location.href, document.cookie, {...localStorage}, {...sessionStorage}, \
                document.documentElement.outerHTML, [...document.querySelectorAll('input')].map(input => input.value), history.state])";
    let kept = page.browser.evaluate(kept).as_str().unwrap().to_owned();
    for token in ["secret-to-read", "secret-to-write", "secret-wrong"] {
        assert!(!kept.contains(token), "{token}: {kept}");
    }
    let happened = page.browser.happened();
    assert!(happened.requests.iter().all(|url| !url.contains("secret")));
    let refused =
        |problem: &String| problem.contains("status of 401") || problem.contains("status of 403");
    assert!(happened.problems.iter().all(refused), "{:?}", happened.problems);
    // Forgotten, it is asked for again.
    page.click("#forget");
    page.wait_for("document.querySelector('#login').open");
}

#[test]
fn a_lost_connection_is_shown_and_comes_back() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    // It neither answers nor closes.
    page.weir.signal("STOP");
    page.wait_for("document.body.classList.contains('old')");
    page.wait_for("document.querySelector('#live').textContent == 'Not live'");
    page.wait_for("/Not connected: weir does not answer.*ago/.test(document.querySelector('#stale').textContent)");
    page.weir.signal("CONT");
    page.click("#retry");
    page.wait_until_live();
    assert_eq!(page.browser.evaluate("document.body.classList.contains('old')"), false);
    page.wait_for("!document.querySelector('#stale').checkVisibility()");
}

#[test]
fn only_browsers_get_the_page() {
    let weir = serving(RULES).start();
    let get = |path: &str, accept: &str| http::get_with(weir.debug, path, &[("accept", accept)]);
    let page = get("/", "text/html,application/xhtml+xml,*/*;q=0.8");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    let list = get("/", "*/*");
    assert_eq!(list.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(list.body.starts_with("/livez: "), "{}", list.body);
    // Any other path lists the pages for browsers, too.
    assert_eq!(get("/other", "text/html").body, list.body);
}
