//! How the page looks at different widths.

use super::*;

/// The errors in how the page looks, as a list of sentences.
pub const CHECK: &str = r#"(() => {
  const problems = [], width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) problems.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const isCut = element => {
    for (; element; element = element.parentElement)
      if (['hidden', 'auto'].includes(getComputedStyle(element).overflowX)) return true;
    return false;
  };
  const root = document.querySelector('dialog[open]') ?? document.body;
  if (root.scrollWidth > root.clientWidth) problems.push(`${root.scrollWidth} in ${root.clientWidth}`);
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), range = document.createRange();
  let texts = 0;
  for (let node; node = walker.nextNode();) {
    if (!node.data.trim() || (root === document.body && isCut(node.parentElement))) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      texts += 1;
      if (box.left < -0.5 || box.right > width + 0.5) problems.push(`${box.left} to ${box.right}: ${node.data.slice(0, 60)}`);
    }
  }
  if (texts < 10) problems.push(`only ${texts} texts`);
  for (const cell of document.querySelectorAll('tbody td, tbody th, .tiles div')) {
    const area = cell.getBoundingClientRect();
    range.selectNodeContents(cell);
    if (area.width > 2) for (const box of range.getClientRects())
      if (box.width > 1.5 && (box.left < area.left - 0.5 || box.right > area.right + 0.5)) problems.push(`${cell.textContent.slice(0, 60)} leaves its cell`);
  }
  for (const button of root.querySelectorAll('button, input, select, summary')) {
    const box = button.getBoundingClientRect();
    if (box.width === 0) continue;
    const name = button.ariaLabel || button.textContent || button.labels?.length;
    if (!name) problems.push(`${button.outerHTML.slice(0, 80)} has no name`);
    const target = button.closest('label:has(> input[type=checkbox])') ?? button.closest('.segments label')?.querySelector('span') ?? button;
    if (width < 500 && target.getBoundingClientRect().height < 43.5) problems.push(`${name} is hard to touch`);
    if (box.height < 20 && button.type !== 'checkbox' && button.type !== 'radio') problems.push(`${button.textContent} is ${box.height} high`);
  }
  for (const link of document.querySelectorAll('nav a, .key a')) if (width < 500 && root === document.body && link.checkVisibility() && link.getBoundingClientRect().height < 43.5) problems.push(`${link.textContent.slice(0, 40)} is hard to touch`);
  // Text on its ground: 4.5 to 1.
  const channels = text => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = rgb => rgb.slice(0, 3).map(c => c / 255).map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const groundOf = element => {
    for (; element; element = element.parentElement) {
      const ground = channels(getComputedStyle(element).backgroundColor);
      if (ground.length === 3) return ground;
    }
    return channels(getComputedStyle(document.body).backgroundColor);
  };
  const pale = new Set();
  const texted = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node; node = texted.nextNode();) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility() || element.closest('.unseen, :disabled, script, style, datalist')) continue;
    const [a, b] = [light(channels(getComputedStyle(element).color)), light(groundOf(element))].sort((a, b) => b - a);
    if ((a + 0.05) / (b + 0.05) < 4.5) pale.add(`${node.data.trim().slice(0, 40)} is pale: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  problems.push(...pale);
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  if (new Set(ids).size != ids.length) problems.push('ids are not unique');
  for (const link of document.querySelectorAll('nav a')) if (!link.hash.startsWith('#/') && !document.querySelector(link.hash)) problems.push(`no place ${link.href}`);
  return problems.slice(0, 20);
})()"#;

/// Views besides the overview.
const LOOKED_AT: [&str; 5] = [
    "#/rules",
    "#/rule?domain=shop&rule=path",
    "#/key?domain=shop&descriptor=path%3D203.0.113.9",
    "#/key?domain=shop&descriptor=path%3D%3Cimg%20src%3Dx%3E%2Cuser%3Dxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "#/search",
];

#[test]
fn a_phone_and_a_desk_show_everything_in_light_and_dark() {
    let weir = serving(RULES).start();
    let api = ControlApi::new(&weir);
    let long = "x".repeat(400);
    for text in HOSTILE.into_iter().chain([&*long, "203.0.113.9"]) {
        for _ in 0..4 {
            decide(&weir, "path", text);
        }
        decide(&weir, "user", text);
        let entries = json!([{ "key": "path", "value": text }, { "key": "user", "value": text }]);
        let body = json!({ "domain": "shop", "entries": entries, "action": "allow", "reason": text, "by": text });
        assert_eq!(api.put(&format!("a{}", text.len()), &body).0, 200, "{text}");
    }
    let Some(mut page) = Page::open(weir, DESK) else { return };
    page.wait_until_live();
    page.wait_for("document.querySelectorAll('#hits-rows tr').length > 7");
    page.wait_for("document.querySelectorAll('#rule-rows tr').length == 2");
    decide(&page.weir, "path", &long);
    page.wait_for("document.querySelector('#denial-rows li')");
    for width in [360, 390, 768, 1024, 1280] {
        for dark in [false, true] {
            page.browser.show_as(View { width, dark });
            assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}, {dark}");
            let ink = page.browser.evaluate("getComputedStyle(document.body).backgroundColor");
            assert_eq!(ink, if dark { "rgb(13, 17, 23)" } else { "rgb(255, 255, 255)" });
        }
        for view in LOOKED_AT {
            page.go(view);
            let h1 = "[...document.querySelectorAll('h1')].filter(h1 => h1.checkVisibility())";
            page.wait_for(&format!("{h1}[0] == document.activeElement && {h1}.length == 1"));
            assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}, {view}");
        }
        for part in ["keys", "controls", "changes", "service"] {
            page.go(&format!("#/{part}"));
            page.wait_for(&format!(
                "document.activeElement == document.querySelector('#{part} h2')"
            ));
            let shown = "[...document.querySelectorAll('#overview > section')].filter(section => section.checkVisibility()).map(section => section.id).join()";
            assert_eq!(page.browser.evaluate(shown), part);
            let current = "document.querySelector('nav [aria-current]').hash";
            assert_eq!(page.browser.evaluate(current), format!("#/{part}"));
            assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}, {part}");
        }
        page.go("#/");
        page.wait_for("document.querySelector('#denied-rows button')?.checkVisibility()");
        page.click("#denied-rows button");
        page.click("#add-entry");
        page.click("input[name=action][value=limit]");
        assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}, the form");
        page.click("input[name=action][value=block]");
        page.click("#editor-next");
        page.wait_for("document.querySelector('#preview').checkVisibility()");
        assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}, the preview");
        page.click("#editor-back");
        page.click("#editor-back");
        page.click("#control-rows button:last-child");
        assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}, the removal");
        page.click("#removal-cancel");
    }
    page.check();
}

#[test]
fn the_head_stays_in_sight_and_a_slash_leads_to_the_search() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    decide(&page.weir, "user", "ann");
    page.wait_for("document.querySelector('#rule-rows tr')");
    for width in [390, 1280] {
        page.browser.show_as(View { width, dark: false });
        page.browser.evaluate("scrollTo(0, 600)");
        page.wait_for("scrollY > 100");
        let nav = "document.querySelector('nav').getBoundingClientRect()";
        page.wait_for(&format!("{nav}.top >= -1 && {nav}.bottom < 80"));
    }
    let slash = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true, cancelable: true }))";
    assert_eq!(page.browser.evaluate(slash), false, "it is not written");
    assert_eq!(page.browser.evaluate("document.activeElement.id"), "query");
    assert_eq!(page.browser.evaluate(slash), true, "in the field it is a character");
    page.check();
}

#[test]
fn a_service_without_requests_shows_one_to_try() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    page.wait_for("document.querySelector('#empty').checkVisibility()");
    let command = format!("weir hit localhost:{} -d shop user=x", page.weir.grpc.port());
    assert_eq!(page.text("#try"), command);
    decide(&page.weir, "user", "x");
    page.wait_for("!document.querySelector('#empty').checkVisibility()");
    page.check();
}

#[test]
fn the_page_links_to_the_documents() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    let links = "[...document.querySelectorAll('footer a')].map(link => link.pathname)";
    let links = page.browser.evaluate(links);
    assert!(links.as_array().unwrap().contains(&"/runbooks".into()), "{links}");
    let shown = http::get(page.weir.debug, "/runbooks").body;
    assert!(shown.contains("\n### WeirStoreErrors\n"), "{shown:.999}");
    page.check();
}

#[test]
fn a_tab_that_is_cut_off_fades() {
    let Some(mut page) = Page::open(serving(RULES).start(), DESK) else { return };
    page.wait_until_live();
    for (width, fades) in [(360, true), (1280, false)] {
        page.browser.show_as(View { width, dark: false });
        let mask = "getComputedStyle(document.querySelector('nav')).getPropertyValue('mask-image')";
        let mask = page.browser.evaluate(mask);
        assert_eq!(mask != "none", fades, "{width}: {mask}");
    }
    page.check();
}
