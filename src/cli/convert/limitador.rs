//! Converts limits of Limitador.
//!
//! One of its limits applies to every request that has all entries of its conditions and variables. A
//! rule of weir applies to a descriptor with exactly its entries, in their order: the conditions become
//! entries with a value, the variables entries without one.

mod expression;

use std::collections::HashMap;

use self::expression::{condition, variable};
use super::Converted;
use super::domain::{Algorithm, Domain, Limit, PathEntry};
use super::fields::{get, items, number, period, text};
use weir_rules::tree::{Content, Node};
use weir_rules::yaml;

/// The most entries of a descriptor: each is a level of a rule file.
const MAX_ENTRIES: usize = 200;

const NOTE: &str = "Limitador applies every limit whose conditions a request meets. weir applies the \
                    one rule that a descriptor matches, so send a descriptor for each rule, with its \
                    entries in their order";

/// Converts a list of limits, or a Kubernetes resource of the kind `Limitador` with one.
///
/// # Errors
///
/// The text is not YAML, or has no list of limits.
pub(super) fn convert(name: &str, text: &str) -> Result<Converted, String> {
    let root = yaml::parse(text).map_err(|error| {
        format!("error: {name}:{}:{}: {}", error.line, error.column, error.message)
    })?;
    let limits = root.as_ref().and_then(limits).ok_or_else(|| {
        format!("error: {name}: there is no list of limits, each with namespace and max_value")
    })?;
    let mut converted = Converted::default();
    let mut domains = Domains::default();
    for limit in limits {
        if let Err(error) = add(&mut domains, limit) {
            let line = limit.position.line().unwrap_or_default();
            converted.left_out.push(format!("{name}:{line}: {error}"));
        }
    }
    converted.rules =
        domains.list.iter().filter(|domain| !domain.is_empty()).map(Domain::text).collect();
    if !converted.rules.is_empty() {
        converted.notes.push(NOTE);
    }
    Ok(converted)
}

/// Finds the list of limits.
fn limits<'n>(root: &'n Node<'n>) -> Option<&'n [Node<'n>]> {
    match root.content() {
        Content::List(limits) => Some(limits),
        Content::Map(_) => {
            let limits =
                get(root, "spec").map_or_else(|| get(root, "limits"), |it| get(it, "limits"));
            limits.and_then(items)
        }
        Content::Scalar(_) => None,
    }
}

/// Adds a limit to its domain, unless anything in it has no equivalent.
fn add(domains: &mut Domains, limit: &Node<'_>) -> Result<(), String> {
    let Content::Map(entries) = limit.content() else { return Err("it is not a map".to_owned()) };
    let known =
        ["namespace", "max_value", "seconds", "name", "id", "conditions", "variables", "policy"];
    for (key, _) in entries {
        let key = key.text().unwrap_or_default();
        // Its own Kubernetes resource has camelCase.
        if !known.contains(&key) && key != "maxValue" {
            return Err(format!("unknown key `{key}`"));
        }
    }
    if text(limit, "policy").is_some_and(|policy| policy != "default") {
        return Err("`policy` has no equivalent".to_owned());
    }
    let namespace = text(limit, "namespace").filter(|namespace| !namespace.is_empty());
    let namespace = namespace.ok_or("`namespace` is missing")?;
    let max_value = number(limit, "max_value").or_else(|| number(limit, "maxValue"));
    let requests_per_unit = max_value.and_then(|value| u32::try_from(value).ok());
    let requests_per_unit =
        requests_per_unit.ok_or("`max_value` is not a number from 0 to 4294967295")?;
    let (unit, multiplier) = number(limit, "seconds")
        .and_then(period)
        .ok_or("`seconds` is not a number from a second to 100 years")?;
    let mut path: Vec<PathEntry> = Vec::new();
    let mut descriptor = None;
    for text in texts(limit, "conditions")? {
        let (place, value) = condition(text)
            .ok_or_else(|| format!("condition {text:?}: only key == 'value' has an equivalent"))?;
        push(&mut path, &mut descriptor, place, Some(value.to_owned()))?;
    }
    for text in texts(limit, "variables")? {
        let place = variable(text)
            .ok_or_else(|| format!("variable {text:?}: only a key has an equivalent"))?;
        push(&mut path, &mut descriptor, place, None)?;
    }
    let name = text(limit, "name").unwrap_or_default().to_owned();
    let algorithm = Algorithm::FixedWindow;
    let limit = Limit { name, requests_per_unit, unit, multiplier, algorithm };
    domains.named(namespace).map_or(Ok(()), |domain| domain.add(path, limit))
}

/// Domains in the order of their first limits.
#[derive(Default)]
struct Domains {
    list: Vec<Domain>,
    index: HashMap<String, usize>,
}

impl Domains {
    /// Returns the domain with this name, which it adds if it is new.
    fn named(&mut self, name: &str) -> Option<&mut Domain> {
        let at = *self.index.entry(name.to_owned()).or_insert(self.list.len());
        if at == self.list.len() {
            self.list.push(Domain::new(name));
        }
        self.list.get_mut(at)
    }
}

/// Adds an entry. All entries of a limit must be of one descriptor.
fn push(
    path: &mut Vec<PathEntry>,
    descriptor: &mut Option<usize>,
    place: expression::Place<'_>,
    value: Option<String>,
) -> Result<(), String> {
    if *descriptor.get_or_insert(place.descriptor) != place.descriptor {
        return Err("it needs entries of several descriptors".to_owned());
    }
    if path.len() >= MAX_ENTRIES {
        return Err(format!("it has over {MAX_ENTRIES} conditions and variables"));
    }
    if path.iter().any(|(key, _)| key == place.key) {
        return Err(format!("the key {:?} is repeated", place.key));
    }
    path.push((place.key.to_owned(), value));
    Ok(())
}

/// Returns the texts of a list; none if it is absent.
fn texts<'n>(map: &'n Node<'n>, key: &str) -> Result<Vec<&'n str>, String> {
    let Some(list) = get(map, key) else { return Ok(Vec::new()) };
    let texts = items(list).and_then(|items| items.iter().map(Node::text).collect());
    texts.ok_or_else(|| format!("`{key}` is not a list of strings"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::convert::domain::tests::errors;

    const LIMITS: &str = "\
- namespace: shop
  max_value: 10
  seconds: 60
  name: writes
  conditions:
    - \"descriptors[0]['req.method'] == 'POST'\"
  variables: ['descriptors[0].user']
- namespace: shop
  max_value: 500
  seconds: 86400
  conditions: [\"req.method == 'POST'\"]
  variables: [user]
- {namespace: other, max_value: 1, seconds: 90, variables: ['descriptors[1].a_b']}
- {namespace: shop, max_value: 1, seconds: 1}
- {namespace: shop, max_value: 1, seconds: 1, conditions: [\"a != 'b'\"]}
- {namespace: shop, max_value: 1, seconds: 0, variables: [a]}
- {namespace: shop, max_value: -1, seconds: 1, variables: [a]}
- {namespace: shop, max_value: 1, seconds: 1, variables: ['descriptors[0].a', 'descriptors[1].b']}
- {namespace: shop, max_value: 1, seconds: 1, variables: [a], color: red}
- {namespace: shop, max_value: 1, seconds: 1, conditions: [\"a == 'x*'\"]}
- text
";

    #[test]
    fn what_has_an_equivalent_is_converted_and_the_rest_is_listed() {
        let converted = convert("l.yaml", LIMITS).unwrap();
        let lines: Vec<&str> = converted.left_out.iter().map(String::as_str).collect();
        assert_eq!(
            lines,
            [
                "l.yaml:14: it applies to every request, but a rule needs an entry",
                "l.yaml:15: condition \"a != 'b'\": only key == 'value' has an equivalent",
                "l.yaml:16: `seconds` is not a number from a second to 100 years",
                "l.yaml:17: `max_value` is not a number from 0 to 4294967295",
                "l.yaml:18: it needs entries of several descriptors",
                "l.yaml:19: unknown key `color`",
                "l.yaml:20: \"x*\": `*` matches anything in weir's rules",
                "l.yaml:21: it is not a map",
            ]
        );
        let [shop, other] = converted.rules.as_slice() else { panic!("{converted:?}") };
        assert_eq!(
            shop.text,
            "\
domain: shop
descriptors:
  - key: req.method
    value: POST
    descriptors:
      - key: user
        rate_limits:
          - name: writes
            unit: minute
            requests_per_unit: 10
          - unit: day
            requests_per_unit: 500
"
        );
        assert!(other.text.contains("key: a_b\n") && other.text.contains("unit_multiplier: 90\n"));
        assert_eq!(errors(shop) + &errors(other), "");
    }

    #[test]
    fn a_resource_of_kubernetes_has_them_in_its_specification() {
        let text = "kind: Limitador\nspec:\n  limits:\n  - {namespace: a, maxValue: 1, seconds: 1, \
                    variables: [k]}\n";
        assert_eq!(convert("l", text).unwrap().rules.len(), 1);
        for text in ["", "a", "a: b", "limits: 1"] {
            assert!(convert("l", text).unwrap_err().contains("no list of limits"), "{text}");
        }
        assert!(convert("l", "[").unwrap_err().starts_with("error: l:1:"));
    }

    proptest! {
        #[test]
        fn what_is_converted_loads(
            limits in prop::collection::vec(
                ("[ab]|.{1,3}", 0..5_000_000_000i64, 0..200_000i64, "[ab_*]{0,3}|.{0,3}", "[a-c_]{1,3}"),
                0..20
            )
        ) {
            let limits: Vec<serde_json::Value> = limits.into_iter()
                .map(|(namespace, max_value, seconds, value, key)| serde_json::json!({
                    "namespace": namespace, "max_value": max_value, "seconds": seconds,
                    "conditions": [format!("{key} == '{value}'")], "variables": ["user"],
                }))
                .collect();
            let text = serde_json::Value::from(limits).to_string();
            for rules in convert("l", &text).map(|converted| converted.rules).unwrap_or_default() {
                prop_assert_eq!(errors(&rules), "");
            }
        }
    }
}
