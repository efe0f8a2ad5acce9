//! How long the page takes with many rules and keys.

use super::views::with_many_rules;
use super::*;
use crate::support::api::{ask, request};

/// Returns the first paint and the longest task, in milliseconds.
const TIMES: &str = r"new Promise(resolve => {
  let longest = 0;
  new PerformanceObserver(list => {
    for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
  }).observe({ type: 'longtask', buffered: true });
  const paint = performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? Infinity;
  setTimeout(() => resolve([paint, longest]), 3000);
})";

#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn many_rules_and_keys_are_shown_without_a_wait() {
    const KEYS: usize = 10_000;
    let Some(browser) = Browser::start() else { return };
    let mut page = Page { browser, weir: with_many_rules() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for first in (0..KEYS).step_by(50) {
            let value = |i: usize| format!("client-{}", first + i);
            let values: Vec<String> = (0..50).map(value).collect();
            let domain = format!("team{:02}", first / 50 % 30);
            let mut many = request(&domain, &[]);
            many.descriptors = values
                .iter()
                .map(|value| crate::support::api::descriptor(&[("plan01", value)]))
                .collect();
            ask(page.weir.grpc, many).await.unwrap();
        }
    });
    let base = format!("http://{}/", page.weir.debug);
    for view in [
        "",
        "#/rules?sort=hits",
        "#/search?text=client-77",
        "#/key?domain=team01&descriptor=plan01%3Dclient-77",
    ] {
        page.browser.visit("about:blank", DESK);
        page.browser.visit(&format!("{base}{view}"), DESK);
        page.wait_for("document.querySelector('#live').textContent == 'Live'");
        let times = page.browser.evaluate(TIMES);
        println!("{view:50} first paint {} ms, longest task {} ms", times[0], times[1]);
        assert!(times[0].as_f64().unwrap() <= 300.0, "{view}: first paint after {} ms", times[0]);
        assert!(times[1].as_f64().unwrap() <= 50.0, "{view}: a task of {} ms", times[1]);
    }
}
