//! Controls that one build makes and the other applies.

use serde_json::{Value, json};

use super::{Answer, Build, ask, hit, stop};
use crate::support::redis::Server;
use crate::support::wait_for;
use crate::support::weir::Weir;

pub(super) const RULES: &str = "domain: shop
descriptors:
  - key: user
    rate_limit: { name: yearly, unit: year, requests_per_unit: 2 }
";

/// A control of a user: its id, and its other members.
fn control(id: &str, user: &str, members: &Value) -> (String, Value) {
    let mut control = json!({
        "domain": "shop", "entries": [{ "key": "user", "value": user }], "by": "ann", "reason": id,
    });
    for (name, value) in members.as_object().expect("members") {
        control[name] = value.clone();
    }
    (id.to_owned(), control)
}

/// A control of each kind, whose ids and users begin with a name.
fn of_each_kind(name: &str) -> Vec<(String, Value)> {
    let kind = |kind: &str, members| {
        let id = format!("{name}-{kind}");
        control(&id, &id, &members)
    };
    vec![
        kind("block", json!({ "action": "block", "for": "1h" })),
        kind("forever", json!({ "action": "block", "for": "forever", "exact": true })),
        kind("allow", json!({ "action": "allow", "for": "30d", "count": false })),
        kind(
            "limit",
            json!({ "action": "limit", "for": "1h", "limit": { "n": 1, "name": "yearly" } }),
        ),
    ]
}

/// Makes a control of each kind.
pub(super) fn put_each_kind(weir: &Weir, name: &str) {
    for (id, body) in of_each_kind(name) {
        ask(weir, "PUT", &format!("/v1/controls/{id}"), &body);
    }
}

/// Asserts that controls of these names are applied.
pub(super) fn assert_applied(weir: &Weir, names: &[&str]) {
    for name in names {
        let hit = |kind: &str| hit(weir, &[("user", &format!("{name}-{kind}"))]);
        assert_eq!(hit("block"), Answer::Denied, "{name}");
        assert_eq!(hit("forever"), Answer::Denied, "{name}");
        // More than the limit.
        for _ in 0..4 {
            assert!(matches!(hit("allow"), Answer::Ok(_)), "{name}");
        }
    }
}

/// Returns the controls without the time that is left.
fn controls(weir: &Weir) -> Vec<Value> {
    let mut list = ask(weir, "GET", "/v1/controls", &Value::Null);
    assert_eq!(list["share_error"], Value::Null);
    let mut controls = list["controls"].as_array_mut().expect("a list").split_off(0);
    for control in &mut controls {
        control.as_object_mut().expect("members").remove("left_ms");
    }
    controls.sort_by_key(|control| control["id"].to_string());
    controls
}

/// Returns the members that the controls of either build have.
fn common(controls: Vec<Value>, other: &[Value]) -> Vec<Value> {
    let known = |control: &Value, name: &String| {
        let same = other.iter().find(|it| it["id"] == control["id"]);
        same.is_some_and(|it| it.get(name).is_some())
    };
    let reduce = |control: Value| {
        let members = control.as_object().expect("members").clone();
        members.into_iter().filter(|(name, _)| known(&control, name)).collect()
    };
    controls.into_iter().map(reduce).collect()
}

/// Waits until both have the same controls, this many.
fn wait_until_same(a: &Weir, b: &Weir, count: usize) {
    wait_for(&format!("both have the same {count} controls"), || {
        let (of_a, of_b) = (controls(a), controls(b));
        let is_same = common(of_a.clone(), &of_b) == common(of_b.clone(), &of_a);
        (is_same && of_a.len() == count && of_b.len() == count).then_some(())
    });
}

fn assert_no_warnings(weir: &Weir) {
    let said = weir.said();
    // The addresses are logged as the reference logs them.
    let is_warning = |line: &&str| {
        (line.contains(" WARN ") || line.contains("ERROR")) && !line.contains("Listening for")
    };
    assert_eq!(said.lines().find(is_warning), None, "{said}");
}

#[test]
fn controls_of_each_build_apply_at_the_other() {
    let redis = Server::start();
    let [old, new] = [Build::Old, Build::New].map(|it| it.on(&redis, RULES).start());
    put_each_kind(&old, "old");
    put_each_kind(&new, "new");
    wait_until_same(&old, &new, 8);
    for weir in [&old, &new] {
        assert_applied(weir, &["old", "new"]);
    }
    // A limit of one, counted together.
    for name in ["old-limit", "new-limit"] {
        assert_eq!(hit(&old, &[("user", name)]), Answer::Ok(0));
        assert_eq!(hit(&new, &[("user", name)]), Answer::Denied);
    }
    // Each replaces and deletes a control of the other.
    for (weir, other, name) in [(&old, &new, "new"), (&new, &old, "old")] {
        let (id, body) = control(&format!("{name}-block"), "bob", &json!({ "action": "block" }));
        ask(weir, "PUT", &format!("/v1/controls/{id}"), &body);
        wait_for("the other replaces it", || {
            let bob = hit(other, &[("user", "bob")]) == Answer::Denied;
            (bob && hit(other, &[("user", &id)]) != Answer::Denied).then_some(())
        });
        ask(weir, "DELETE", &format!("/v1/controls/{id}"), &Value::Null);
        wait_for("the other deletes it", || {
            (!controls(other).iter().any(|control| control["id"] == id.as_str())).then_some(())
        });
    }
    wait_until_same(&old, &new, 6);
    assert_no_warnings(&old);
    assert_no_warnings(&new);
}

#[test]
fn no_control_is_lost_in_an_upgrade_and_a_rollback() {
    let redis = Server::start();
    let start = |build: Build| build.on(&redis, RULES).start();
    let old = start(Build::Old);
    put_each_kind(&old, "first");
    let new = start(Build::New);
    // Applied from the first request on.
    assert_applied(&new, &["first"]);
    stop(old);
    put_each_kind(&new, "second");
    ask(&new, "DELETE", "/v1/controls/first-limit", &Value::Null);
    let back = start(Build::Old);
    assert_applied(&back, &["first", "second"]);
    wait_until_same(&back, &new, 7);
    stop(new);
    let again = start(Build::New);
    wait_until_same(&back, &again, 7);
    assert_applied(&again, &["first", "second"]);
    assert_no_warnings(&back);
    assert_no_warnings(&again);
}
