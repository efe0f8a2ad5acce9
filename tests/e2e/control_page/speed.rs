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
  const paint = () => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 1e6;
  setTimeout(() => resolve([paint(), longest]), 3000);
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
        // What takes long each time is the page's, not that of another process.
        let mut least = [f64::INFINITY; 2];
        for _ in 0..3 {
            page.browser.visit("about:blank", DESK);
            page.browser.visit(&format!("{base}{view}"), DESK);
            page.wait_for("document.querySelector('#live').textContent == 'Live'");
            let times = page.browser.evaluate(TIMES);
            for (least, time) in least.iter_mut().zip(times.as_array().unwrap()) {
                *least = least.min(time.as_f64().unwrap());
            }
        }
        let [paint, task] = least;
        println!("{view:60} first paint {paint} ms, longest task {task} ms");
        assert!(paint <= 300.0, "{view}: first paint after {paint} ms");
        assert!(task <= 50.0, "{view}: a task of {task} ms");
    }
}
