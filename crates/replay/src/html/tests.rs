//! Tests of the page: its text, its size, and how Chromium shows it.

#[path = "../../../../tests/support/browser.rs"]
mod browser;
#[path = "../../../../tests/support/tools.rs"]
mod tools;

use std::path::PathBuf;

use serde_json::Value;

use super::super::report::Report;
use super::text::number;
use super::{print, sample};
use browser::{Browser, View};

fn page(report: &Report) -> String {
    let mut out = Vec::new();
    print(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns the text of the page without tags.
fn text(page: &str) -> String {
    let body = page.split_once("</style>").unwrap().1;
    let text: String =
        body.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
    text.replace('\u{a0}', " ")
}

fn samples() -> [(&'static str, Report); 7] {
    [
        ("plain", sample::plain()),
        ("compared", sample::compared()),
        ("days", sample::days()),
        ("calm", sample::calm()),
        ("empty", sample::empty()),
        ("brief", sample::brief()),
        ("hostile", sample::hostile()),
    ]
}

#[test]
fn the_headline_is_the_answer() {
    let headline = |report: &Report| {
        let page = page(report);
        text(&page)
            .split_once(" Over time")
            .map(|(start, _)| start.to_owned())
            .unwrap_or_else(|| text(&page))
    };
    let plain = headline(&sample::plain());
    assert!(
        plain.contains("On 2026-11-22 from 08:00 to 13:59 UTC, these limits would have denied "),
        "{plain}"
    );
    assert!(plain.contains(" of 877,802 requests ("), "{plain}");
    let calm = headline(&sample::calm());
    assert!(calm.contains("these limits would have denied none of 877,802 requests."), "{calm}");
    let brief = headline(&sample::brief());
    assert!(
        brief.contains(
            "At 2026-11-22 08:00:00 UTC, these limits would have denied 1 of 6 requests (16.67 %)."
        ),
        "{brief}"
    );
    let empty = headline(&sample::empty());
    assert!(empty.contains("No requests to replay."), "{empty}");
    assert!(empty.contains("12 lines lack a field of every descriptor"), "{empty}");
}

#[test]
fn what_was_read_lists_what_is_odd() {
    let mut report = sample::plain();
    let plain = text(&page(&report));
    for expected in [
        "lines 17, 2203: no field &#39;time&#39;: name it with --time",
        "line 48211: expected a JSON object, found &#39;Killed&#39;",
        "The first is shop: remote_address=203.0.113.9,path=/healthz.",
        "Late lines",
    ] {
        assert!(plain.contains(expected), "{expected}: {plain}");
    }
    for absent in ["Counters dropped", "No line was skipped"] {
        assert!(!plain.contains(absent), "{absent}: {plain}");
    }
    report.traffic.evicted = 1;
    assert!(text(&page(&report)).contains("More counters were in use than --max-keys allows"));
    let traffic = &mut report.traffic;
    (traffic.invalid, traffic.without_descriptors, traffic.late) = (0, 0, 0);
    let clean = text(&page(&report));
    assert!(clean.contains("No line was skipped or late."), "{clean}");
    assert!(!clean.contains("Late lines"), "{clean}");
}

#[test]
fn the_comparison_is_in_the_headline() {
    let report = sample::compared();
    let other = &report.comparison.as_ref().unwrap().other;
    let denied = number(other.denied.requests);
    let text = text(&page(&report));
    for expected in [
        &*format!("strict.yaml would have denied {denied} ("),
        " %). It denies 41,762 requests that shop.yaml lets pass, and lets ",
        " pass that shop.yaml denies.",
        "Rules of shop.yamlRules of strict.yamlWhat was read",
        "41,762 requests (4.76 %) of 402 keys pass with shop.yaml and are denied with",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn the_worst_minute_of_several_days_has_a_date() {
    let text = text(&page(&sample::days()));
    for expected in [
        "Worst minute14:13 UTC on 2026-12-01, ",
        "worst minute 2026-12-01 14:13 UTC: ",
        "From 2026-11-22 08:00 to 2026-12-07 07:59 UTC",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_worst_minute_with_one_request_is_not_worth_a_mark() {
    assert!(text(&page(&sample::plain())).contains("worst minute 11:"));
    let brief = text(&page(&sample::brief()));
    assert!(!brief.contains("worst minute"), "{brief}");
}

#[test]
fn rules_have_their_limits_and_a_shadow_denies_nothing() {
    let text = text(&page(&sample::plain()));
    assert!(text.contains("gcra 10/s, burst 20shop.yaml:4"), "{text}");
    let place = |name: &str| text.find(name).unwrap();
    assert!(place("shop.user_agent") < place("shop.path_/login.remote_address"));
    assert!(text.contains(" would be denied, 57 keys"), "{text}");
}

#[test]
fn descriptors_say_what_lines_lack() {
    let mut report = sample::plain();
    let lacking = text(&page(&report));
    let expected = "remote_address={x_forwarded_for} 4,310 of 878,112 lines lack a field, first missing: x_forwarded_for";
    assert!(lacking.contains(expected), "{lacking}");
    report.traffic.descriptors[0].missing = 878_112;
    assert!(
        text(&page(&report)).contains("no line has its fields, first missing: x_forwarded_for")
    );
    report.traffic.descriptors[0].missing = 0;
    assert!(!text(&page(&report)).contains("first missing"));
}

#[test]
fn hostile_text_stays_text_and_the_page_small() {
    let page = page(&sample::hostile());
    for tag in ["<script", "<img", "<svg onload", "</code><svg"] {
        assert!(!page.contains(tag), "{tag}");
    }
    assert!(!page.contains(|c: char| c.is_control() && c != '\n'), "no control characters");
    assert!(!page.contains('\u{202e}'));
    assert!(page.len() < 4_000_000, "{}", page.len());
    // A report that is not too large is far from the bound.
    assert!(self::page(&sample::compared()).len() < 300_000);
}

#[test]
fn the_rest_of_a_long_list_is_counted() {
    let text = text(&page(&sample::hostile()));
    assert!(text.contains("30 more rules with requests"), "{text}");
    assert!(text.contains("and 40 more"));
}

/// The errors in how a page looks, as a list of sentences.
const CHECK: &str = r#"(() => {
  const problems = [], width = document.documentElement.clientWidth;
  for (const details of document.querySelectorAll('details')) details.open = true;
  if (document.documentElement.scrollWidth > width) problems.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const cut = element => {
    for (; element; element = element.parentElement)
      if (getComputedStyle(element).overflow == 'hidden') return true;
    return false;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  let texts = 0;
  for (let node; node = walker.nextNode();) {
    if (!node.data.trim() || cut(node.parentElement)) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      texts += 1;
      if (box.left < -0.5 || box.right > width + 0.5)
        problems.push(`${box.left} to ${box.right}: ${node.data.slice(0, 60)}`);
    }
  }
  if (texts < 10) problems.push(`only ${texts} texts`);
  for (const axis of document.querySelectorAll('.xs, .ys')) {
    const boxes = [...axis.children].map(label => label.getBoundingClientRect()).filter(box => box.width > 0);
    if (boxes.length < 2) problems.push(`an axis with ${boxes.length} labels`);
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
        problems.push(`labels overlap at ${a.left}, ${a.top}`);
    }));
  }
  for (const element of document.querySelectorAll('h1, h2, h3, dd, table, figure, svg, .bar i, path:not(.hit)')) {
    const box = element.getBoundingClientRect();
    // Lines have no area.
    if (!(box.width > 0 || box.height > 0) || (element.tagName != 'path' && !(box.width > 0 && box.height > 0)))
      problems.push(`${element.tagName}.${element.getAttribute('class')} has no size`);
  }
  // No text leaves its tile, and the tiles of a row are equally wide.
  const widths = [...document.querySelectorAll('.tiles div')].map(tile => tile.getBoundingClientRect().width);
  if (Math.max(...widths) - Math.min(...widths) > 1) problems.push(`tiles of ${widths}`);
  for (const text of document.querySelectorAll('.tiles dt, .tiles b, .tiles span, .rules td > span, .sides td')) {
    const area = text.closest('.tiles div, .rules td, .sides td').getBoundingClientRect();
    range.selectNodeContents(text);
    for (const box of range.getClientRects())
      if (box.left < area.left - 0.5 || box.right > area.right + 0.5)
        problems.push(`${text.textContent.slice(0, 60)} leaves its cell`);
  }
  for (const svg of document.querySelectorAll('svg'))
    if (!svg.querySelector('title')?.textContent) problems.push('a plot without a title');
  const foreign = document.querySelectorAll('img, script, iframe, object, embed, form, [onload], [onerror]').length;
  if (foreign || window.hacked) problems.push(`${foreign} elements of hostile text`);
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  if (new Set(ids).size != ids.length) problems.push('ids are not unique');
  for (const link of document.querySelectorAll('a'))
    if (!document.querySelector(link.getAttribute('href'))) problems.push(`no place ${link.href}`);
  return problems.slice(0, 20);
})()"#;

#[test]
fn chromium_shows_the_page_on_a_phone_and_a_desk() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    for (name, report) in samples() {
        let file = directory.path().join(format!("{name}.html"));
        std::fs::write(&file, page(&report)).unwrap();
        if let Some(directory) = pictures() {
            std::fs::copy(&file, directory.join(format!("replay-{name}.html"))).unwrap();
        }
        let views = [(390, false), (840, false), (1280, true), (390, true), (1280, false)];
        // The colours do not move anything: the other two are for pictures.
        let count = if pictures().is_some() { views.len() } else { 3 };
        for (width, dark) in views.into_iter().take(count) {
            let view = View { width, dark };
            let loaded = browser.open(&file, view);
            assert_eq!(loaded.problems, [""; 0], "{name}, {view:?}");
            let external = loaded.requests.iter().filter(|url| !url.starts_with("data:")).count();
            assert_eq!(external, 1, "{name}: {:?}", loaded.requests);
            if name != "hostile" {
                save(&mut browser, name, view);
            }
            let problems = browser.evaluate(CHECK);
            assert_eq!(problems, Value::Array(Vec::new()), "{name}, {view:?}");
        }
    }
}

#[test]
fn screen_readers_get_headings_tables_and_titles_on_a_phone_too() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    std::fs::write(&file, page(&sample::plain())).unwrap();
    for width in [390, 1280] {
        browser.open(&file, View { width, dark: false });
        let tree = browser.call("Accessibility.getFullAXTree", Value::Object(Default::default()));
        let nodes = tree["nodes"].as_array().unwrap();
        let named = |role: &str| {
            let with_role = nodes.iter().filter(|node| node["role"]["value"] == role);
            let name = |node: &Value| node["name"]["value"].as_str().unwrap_or_default().to_owned();
            with_role.map(name).collect::<Vec<_>>()
        };
        let headings = named("heading");
        for heading in ["Over time", "Rules", "What was read"] {
            assert!(headings.iter().any(|found| found == heading), "{width}: {headings:?}");
        }
        let tables = named("table");
        assert!(tables.iter().all(|name| !name.is_empty()), "{width}: {tables:?}");
        assert!(tables.iter().any(|name| name.starts_with("Rules with")), "{width}: {tables:?}");
        for column in ["Rule", "Requests", "Worst minute"] {
            assert!(named("columnheader").iter().any(|name| name == column), "{width}: {column}");
        }
        let plots = named("image");
        assert!(
            plots.len() >= 7 && plots.iter().all(|name| !name.is_empty()),
            "{width}: {plots:?}"
        );
    }
}

/// Returns where to save the pages and pictures of them, to look at.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("WEIR_SCREENSHOTS").map(PathBuf::from)
}

fn save(browser: &mut Browser, name: &str, view: View) {
    use base64::Engine as _;
    let Some(directory) = pictures() else { return };
    let picture = base64::engine::general_purpose::STANDARD.decode(browser.screenshot()).unwrap();
    let scheme = if view.dark { "-dark" } else { "" };
    let file = format!("replay-{name}-{}{scheme}.png", view.width);
    std::fs::write(directory.join(file), picture).unwrap();
}
