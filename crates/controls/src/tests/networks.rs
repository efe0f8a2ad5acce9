//! Networks in the values of controls.

use super::super::index::{Index, Row};
use super::super::plans::ChangedPlans;
use super::*;

fn index(controls: impl IntoIterator<Item = Control>) -> Index {
    let mut index = Index::default();
    for control in controls {
        let control = Arc::new(control);
        index.insert(Row::new(control.clone(), control, ChangedPlans::default()));
    }
    index
}

/// Returns the id of the control that applies to an address.
fn found<'i>(index: &'i Index, address: &str) -> Option<&'i str> {
    let row = index.find("d", &[("ip", address)], || NOW, |_| true)?;
    Some(&row.control.id)
}

/// Returns an allowance of an address, with its value as its id.
fn allow(value: &str, at: Micros) -> Control {
    let action = Action::Allow { count: true };
    Control { id: value.into(), at, ..control(action, &[("ip", value)]) }
}

/// Puts a block of one value, and returns its warnings.
async fn warnings(value: &str, text: bool) -> Result<Vec<String>, ControlError> {
    let process = Process::new(ControlsOptions::default());
    let entries = format!(r#"[{{"key":"user","value":"{value}"}}]"#);
    let body = format!(
        r#"{{"domain":"d","entries":{entries},"action":"block","text":{text},"for":"1h"}}"#
    );
    let put = process.controls.put(None, draft(&body), PutOptions::default());
    put.await.map(|written| written.warnings)
}

#[test]
fn a_text_goes_before_a_network_a_longer_prefix_before_a_shorter_and_both_before_a_star() {
    // The newest would be the star.
    let values = ["10.1.2.3", "10.1.2.3/32", "10.1.2.0/24", "10.0.0.0/8", "0.0.0.0/0", "10.*"];
    let mut index = index(values.into_iter().zip(NOW..).map(|(value, at)| allow(value, at)));
    for value in values {
        assert_eq!(found(&index, "10.1.2.3"), Some(value));
        let row = index.find("d", &[("ip", "10.1.2.3")], || NOW, |_| true).unwrap();
        let row = Row::new(row.control.clone(), row.control.clone(), ChangedPlans::default());
        let row = index.insert(row);
        index.remove(&row);
    }
    assert_eq!((found(&index, "10.1.2.3"), index.most_compared()), (None, 0));
}

#[test]
fn a_network_is_found_among_many_without_comparing_them() {
    let networks = (0..10_000).map(|i| allow(&format!("10.{}.{}.0/24", i / 250, i % 250), NOW));
    let around = [allow("10.0.0.0/8", NOW), allow("2001:db8::/32", NOW)];
    let index = index(networks.chain(around));
    assert_eq!(index.most_compared(), 1);
    assert_eq!(found(&index, "10.7.3.255"), Some("10.7.3.0/24"));
    assert_eq!(found(&index, "[::ffff:10.7.3.1]:80"), Some("10.7.3.0/24"));
    assert_eq!(found(&index, "10.7.3.0/24"), Some("10.7.3.0/24"));
    assert_eq!(found(&index, "10.255.0.1"), Some("10.0.0.0/8"));
    assert_eq!(found(&index, "2001:db8::1"), Some("2001:db8::/32"));
    assert_eq!(found(&index, "11.0.0.1"), None);
    assert_eq!(found(&index, "ann"), None);
}

#[test]
fn a_network_beside_another_value_has_no_own_place() {
    let entries = [("path", "/login"), ("ip", "10.0.0.0/8")];
    let index = index([control(Action::Block, &entries)]);
    let find =
        |path, ip| index.find("d", &[("ip", ip), ("path", path)], || NOW, |_| true).is_some();
    assert!(find("/login", "10.1.2.3"));
    assert!(!find("/login", "11.1.2.3") && !find("/", "10.1.2.3"));
}

#[test]
fn as_a_text_a_network_matches_itself() {
    let mut text = allow("10.0.0.0/8", NOW);
    text.text = true;
    assert_eq!(text.match_text(), "d ip=10.0.0.0/8 (text)");
    assert_eq!(text.networks().count(), 0);
    let index = index([text]);
    assert_eq!(found(&index, "10.0.0.0/8"), Some("10.0.0.0/8"));
    assert_eq!((found(&index, "10.1.2.3"), found(&index, "10.1.0.0/16")), (None, None));
}

#[tokio::test]
async fn what_is_nearly_a_network_gets_a_warning() {
    let set = "'203.0.113.7/24' is not a network and matches this text alone: \
               it has bits set after its prefix: did you mean '203.0.113.0/24'?";
    assert_eq!(warnings("203.0.113.7/24", false).await.unwrap(), [set]);
    let long = "'10.0.0.0/33' is not a network and matches this text alone: \
                its prefix is longer than 32 bits";
    assert_eq!(warnings("10.0.0.0/33", false).await.unwrap(), [long]);
    for value in ["203.0.113.0/24", "203.0.113.7", "/a/b", "10.0.0/8"] {
        assert_eq!(warnings(value, false).await.unwrap(), [""; 0], "{value}");
    }
    assert_eq!(warnings("203.0.113.7/24", true).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_network_of_every_address_has_to_be_forced() {
    let error = warnings("0.0.0.0/0", false).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NeedsForce);
    assert!(error.error.ends_with("0.0.0.0/0 is any address"), "{error}");
    assert!(warnings("0.0.0.0/0", true).await.is_ok());
    assert!(warnings("0.0.0.0/1", false).await.is_ok());
}

#[tokio::test]
async fn a_network_and_its_text_are_two_controls() {
    let process = Process::new(ControlsOptions::default());
    let put = async |text: bool| {
        let draft = Draft { text, ..block("10.0.0.0/8") };
        process.controls.put(None, draft, PutOptions::default()).await.unwrap()
    };
    let network = put(false).await;
    assert_eq!(process.blocked(&["10.0.0.0/8", "10.1.2.3", "ann"]), ["10.0.0.0/8", "10.1.2.3"]);
    assert_ne!(network.control.id, put(true).await.control.id);
    process.controls.delete(&network.control.id).await.unwrap();
    assert_eq!(process.blocked(&["10.0.0.0/8", "10.1.2.3"]), ["10.0.0.0/8"]);
}
