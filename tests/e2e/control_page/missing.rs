//! Damage of controls.file, which may have lost controls.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::support::control_api::of_user;

#[test]
fn a_damaged_file_is_reported_until_somebody_has_looked() {
    let setup = serving(RULES);
    let file = setup.path("controls.json");
    let copy = setup.path("controls.json.copy");
    let block = |user: &str| of_user(user, &json!({ "action": "block", "for": "forever" }));
    let setup = setup.env("WEIR__CONTROLS__FILE", &file);
    let mut weir = setup.start();
    let api = ControlApi::new(&weir);
    for user in ["ann", "bob", "cid"] {
        assert_eq!(api.put_good(user, &block(user))["kept"], true);
    }
    weir.kill();
    let mut text = std::fs::read(&file).unwrap();
    let bob = text.windows(3).position(|bytes| bytes == b"bob").unwrap();
    text[bob] = b'B';
    std::fs::write(&file, text).unwrap();
    std::fs::write(&copy, "").unwrap();

    let weir = serving(RULES).env("WEIR__CONTROLS__FILE", &file).start();
    let denied = ["ann", "bob", "cid"].map(|user| decide(&weir, "user", user) == Code::OverLimit);
    assert_eq!(denied, [false; 3]);
    weir.has_said("controls.file is damaged");
    let status: Value = serde_json::from_str(&http::get(weir.debug, "/status").body).unwrap();
    assert_eq!(status["controls"]["missing"], 2, "{status}");
    let problems = status["problems"].as_array().unwrap().iter();
    let files: Vec<_> = problems.map(|problem| problem["file"].as_str().unwrap()).collect();
    let kept = [&file, &copy].map(|path| format!("{}.damaged", path.display()));
    assert_eq!(files, kept, "{status}");
    assert_eq!(weir.metric("weir_controls_missing"), 2);
    if let Some(mut page) = Page::open(weir, DESK) {
        page.wait_until_live();
        page.wait_for("document.querySelectorAll('#problem-rows li').length == 2");
        assert!(page.text("#problem-rows").contains("Controls may be missing: "));
        for width in [360, 1280] {
            page.browser.show_as(View { width, dark: width == 360 });
            assert_eq!(page.browser.evaluate(CHECK), json!([]), "{width}");
            if let Some(directory) = std::env::var_os("WEIR_SCREENSHOTS") {
                let file = std::path::Path::new(&directory).join(format!("missing-{width}.png"));
                let png = STANDARD.decode(page.browser.screenshot()).unwrap();
                std::fs::write(file, png).unwrap();
            }
        }
        kept.iter().for_each(|file| std::fs::remove_file(file).unwrap());
        page.wait_for("!document.querySelector('#problems').checkVisibility()");
        page.check();
    }
}
