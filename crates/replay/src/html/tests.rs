//! Tests of the page: what it has, its size, and how Chromium shows it.

#[path = "../../../../tests/support/browser.rs"]
mod browser;
mod sample;
#[path = "../../../../tests/support/tools.rs"]
mod tools;

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;

use super::{MAX_CHARS, print, shown};
use crate::distinct::NearlyDistinct;
use crate::report::{Report, RequestSeries, number};
use crate::time::stamp;
use browser::{Browser, View};

fn page(report: &Report) -> String {
    let mut out = Vec::new();
    print(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns the JSON in a page.
fn json(page: &str) -> &str {
    let (_, rest) = page.split_once(r#"id="data">"#).unwrap();
    rest.split_once("</script>").unwrap().0
}

/// A browser, and a directory for its pages.
struct Viewer {
    browser: Browser,
    directory: tempfile::TempDir,
}

impl Viewer {
    /// Starts a browser; none without one.
    fn start() -> Option<Viewer> {
        let browser = Browser::start()?;
        Some(Viewer { browser, directory: tempfile::tempdir().unwrap() })
    }

    fn open(&mut self, report: &Report, view: View) {
        let file = self.directory.path().join("page.html");
        std::fs::write(&file, page(report)).unwrap();
        let loaded = self.browser.open(&file, view);
        assert_eq!(loaded.problems, [""; 0]);
    }

    /// Returns the text of the page, also that of closed parts.
    fn text(&mut self, report: &Report) -> String {
        self.open(report, View { width: 1280, dark: false });
        let parts = "[...document.querySelectorAll('header, nav, main')].map(part => part.textContent).join(' ')";
        self.browser.evaluate(parts).as_str().unwrap().replace('\u{a0}', " ")
    }
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

fn assert_has(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn the_headline_is_the_answer() {
    let Some(mut viewer) = Viewer::start() else { return };
    let plain = viewer.text(&sample::plain());
    assert_has(
        &plain,
        &[
            "On 2026-11-22 from 08:00 to 13:59 UTC, these limits would have denied ",
            " of 877,802 requests (",
            "worst minute 11:",
        ],
    );
    let calm = viewer.text(&sample::calm());
    assert_has(&calm, &["these limits would have denied none of 877,802 requests."]);
    let brief = viewer.text(&sample::brief());
    let answer =
        "At 2026-11-22 08:00:00 UTC, these limits would have denied 1 of 6 requests (16.67 %).";
    assert_has(&brief, &[answer]);
    // One request is not worth a mark.
    assert!(!brief.contains("worst minute"), "{brief}");
    let empty = viewer.text(&sample::empty());
    assert_has(
        &empty,
        &[
            "No requests to replay.",
            "12 lines lack a field of every descriptor: see what was read.",
        ],
    );
}

#[test]
fn what_was_read_lists_what_is_odd() {
    let Some(mut viewer) = Viewer::start() else { return };
    let mut report = sample::plain();
    let plain = viewer.text(&report);
    assert_has(
        &plain,
        &[
            "lines 17, 2203: no field 'time': name it with --time",
            "line 48211: expected a JSON object, found 'Killed'",
            "The first is shop: remote_address=203.0.113.9,path=/healthz.",
            "Late lines",
            "remote_address={x_forwarded_for} 4,310 of 878,112 lines lack a field, first missing: x_forwarded_for",
            "(5 h 59 min)",
        ],
    );
    for absent in ["Counters dropped", "No line was skipped", "nearly every request"] {
        assert!(!plain.contains(absent), "{absent}: {plain}");
    }
    report.traffic.evicted_counters = 1;
    report.traffic.descriptors[0].lines_without_it = 878_112;
    report.traffic.descriptors[1].nearly_distinct =
        Some(NearlyDistinct { requests: 4_096, keys: 4_000 });
    assert_has(
        &viewer.text(&report),
        &[
            "More counters were in use than --max-keys allows",
            "no line has its fields, first missing: x_forwarded_for",
            "the first 4,096 lines, 4,000 keys: nearly every request has a counter of its own",
        ],
    );
    report.traffic.descriptors[0].lines_without_it = 0;
    let traffic = &mut report.traffic;
    (traffic.invalid, traffic.without_descriptors, traffic.late) = (0, 0, 0);
    let clean = viewer.text(&report);
    assert_has(&clean, &["No line was skipped or late."]);
    for absent in ["Late lines", "first missing"] {
        assert!(!clean.contains(absent), "{absent}: {clean}");
    }
}

#[test]
fn two_sets_of_rules_are_compared() {
    let Some(mut viewer) = Viewer::start() else { return };
    let report = sample::compared();
    let other = &report.comparison.as_ref().unwrap().other;
    let denied = number(other.denied.requests);
    let text = viewer.text(&report);
    assert_has(
        &text,
        &[
            &*format!("strict.yaml would have denied {denied} ("),
            " %). It denies 41,762 requests that shop.yaml lets pass, and lets ",
            " pass that shop.yaml denies.",
            "Rules of shop.yamlRules of strict.yamlWhat was read",
            "41,762 requests (4.76 %) of 402 keys pass with shop.yaml and are denied with",
        ],
    );
    assert_has(
        &viewer.text(&sample::days()),
        &[
            "Worst minute14:13 UTC on 2026-12-01, ",
            "worst minute 2026-12-01 14:13 UTC: ",
            "From 2026-11-22 08:00 to 2026-12-07 07:59 UTC",
        ],
    );
}

#[test]
fn rules_have_their_limits_and_a_shadow_denies_nothing() {
    let Some(mut viewer) = Viewer::start() else { return };
    let text = viewer.text(&sample::plain());
    assert_has(
        &text,
        &["gcra 10/s, burst 20shop.yaml:4", " would be denied, 57 keys", " would be 41 bans"],
    );
    let place = |name: &str| text.find(name).unwrap();
    assert!(place("shop.user_agent") < place("shop.path_/login.remote_address"));
    let hostile = viewer.text(&sample::hostile());
    let expected = [
        "30 more rules with requests",
        "and 40 more",
        r"a\u{200b}b\u{feff}\u{e0041}",
        r"a\u202egpj",
    ];
    assert_has(&hostile, &expected);
}

#[test]
fn times_and_numbers_beside_plots_are_round() {
    let Some(mut viewer) = Viewer::start() else { return };
    let mut labels = |start: u64, bucket: u64, count: usize| -> Vec<String> {
        let mut report = sample::brief();
        let (start, requests) = (stamp(start * 1_000_000), vec![7; count]);
        report.series = RequestSeries { start, bucket_seconds: bucket, requests };
        viewer.open(&report, View { width: 1280, dark: false });
        let texts = "[...document.querySelectorAll('.tall .xs span, .tall .ys span')].map(span => [...span.childNodes].map(node => node.textContent).join(' '))";
        serde_json::from_value(viewer.browser.evaluate(texts)).unwrap()
    };
    // 2026-11-22 10:05:00 UTC.
    let at = 1_795_341_900;
    for (bucket, count, expected) in [
        (1, 1, "10:05:00 Nov 22, 10:05:01"),
        (60, 60, "10:10 Nov 22, 10:20, 10:30, 10:40, 10:50, 11:00"),
        (300, 288, "12:00 Nov 22, 18:00, 00:00 Nov 23, 06:00"),
        (3_600, 120, "Nov 23, Nov 24, Nov 25, Nov 26, Nov 27"),
        (86_400, 150, "Dec 1, Jan 1, Feb 1, Mar 1, Apr 1"),
        (2_419_200, 100, "Jan 2028, Jan 2030, Jan 2032, Jan 2034"),
    ] {
        let expected = format!("0, 2, 4, 6, 8, {expected}");
        assert_eq!(labels(at / bucket * bucket, bucket, count).join(", "), expected);
    }
}

#[test]
fn arrow_keys_read_a_plot() {
    let Some(mut viewer) = Viewer::start() else { return };
    viewer.open(&sample::plain(), View { width: 1280, dark: false });
    viewer.browser.evaluate("document.querySelector('.tall .area').focus()");
    viewer.browser.press("ArrowLeft");
    let read = viewer.browser.evaluate("document.querySelector('.tall .readout').textContent");
    let read = read.as_str().unwrap();
    assert!(read.starts_with("2026-11-22 13:58: ") && read.ends_with(" denied"), "{read}");
}

#[test]
fn hostile_text_stays_text_and_the_page_small() {
    let page = page(&sample::hostile());
    let data = json(&page);
    assert!(!data.contains('<'));
    for tag in ["<script", "</script"] {
        assert_eq!(page.matches(tag).count(), 2, "{tag}");
    }
    assert!(!page.contains(|c: char| c.is_control() && c != '\n'), "no control characters");
    assert!(!page.contains('\u{202e}'));
    assert!(page.len() < 4_000_000, "{}", page.len());
    // A report that is not too large is far from the bound.
    assert!(self::page(&sample::compared()).len() < 100_000);
}

#[test]
fn long_text_loses_its_middle() {
    let whole = "é".repeat(MAX_CHARS);
    assert_eq!(shown(&whole), whole);
    let text = format!("{}{}", "a".repeat(65_000), "z".repeat(536));
    let expected = format!("{}…(65276 more characters)…{}", "a".repeat(200), "z".repeat(60));
    assert_eq!(shown(&text), expected);
}

proptest! {
    #[test]
    fn no_text_leaves_its_place(text in any::<String>(), repeat in 1..100_usize) {
        let mut report = sample::empty();
        report.traffic.name = text.repeat(repeat);
        let page = page(&report);
        let data = json(&page);
        prop_assert!(!data.contains(['<', '\n', '\u{202e}']), "{}", data);
        let data: Value = serde_json::from_str(data).unwrap();
        prop_assert_eq!(&data["traffic"]["name"], &shown(&report.traffic.name));
    }
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
  for (const element of document.querySelectorAll('h1, h2, h3, dd, table, figure, svg, .bar i, path[d]:not([d=""])')) {
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
  for (const svg of document.querySelectorAll('svg[role=img]'))
    if (!svg.querySelector('title')?.textContent) problems.push('a plot without a title');
  for (const svg of document.querySelectorAll('svg:not([role=img])'))
    if (!svg.closest('[role=slider]').ariaLabel) problems.push('a plot without a label');
  const foreign = document.querySelectorAll('img, script:not([nonce], #data), iframe, object, embed, form, [onload], [onerror]').length;
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
    let Some(mut viewer) = Viewer::start() else { return };
    for width in [390, 1280] {
        viewer.open(&sample::plain(), View { width, dark: false });
        let tree =
            viewer.browser.call("Accessibility.getFullAXTree", Value::Object(Default::default()));
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
        let plots = [named("image"), named("slider")].concat();
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
