//! Converts RateLimitPolicy resources of Kuadrant.
//!
//! Its conditions and counters are expressions over Envoy's attributes (CEL), which Envoy can send as entries: a
//! condition is an entry with the value `true`. The first entry names the limit.

use std::borrow::Cow;

use super::Converted;
use super::actions::{Item, Route, expression, fixed};
use super::domain::{Algorithm, Domain, Limit, PathEntry};
use super::fields::{entries, get, list, number, path, period, period_of, place, text};
use weir_rules::tree::Node;
use weir_rules::yaml::Documents;

const NOTE: &str = "envoy-actions.yaml sends the descriptors for all routes: put each limit on the routes of its \
                    policy's targetRef";

/// Converts the policies of a file.
///
/// # Errors
///
/// The text is not YAML, or has no policy.
pub(super) fn convert(name: &str, text: &str, domain: &str) -> Result<Converted, String> {
    let mut rules = Domain::new(domain);
    let (mut items, mut left_out, mut has_policy) = (Vec::new(), Vec::new(), false);
    for document in Documents::new(text) {
        let root = document.map_err(|error| {
            format!("error: {name}:{}:{}: {}", error.line, error.column, error.message)
        })?;
        let Some(root) = root else { continue };
        let resources = match self::text(&root, "kind") {
            Some("List" | "RateLimitPolicyList") => list(&root, "items").iter().collect(),
            _ => vec![&root],
        };
        for policy in
            resources.into_iter().filter(|it| self::text(it, "kind") == Some("RateLimitPolicy"))
        {
            has_policy = true;
            convert_policy(name, policy, &mut rules, &mut items, &mut left_out);
        }
    }
    if !has_policy {
        return Err(format!("error: {name}: there is no resource of the kind RateLimitPolicy"));
    }
    let mut converted = Converted::with_envoy(domain, &rules, &[Route::all(items)]);
    converted.left_out = left_out;
    if !rules.is_empty() {
        converted.notes.push(NOTE);
    }
    Ok(converted)
}

fn convert_policy(
    file: &str,
    policy: &Node<'_>,
    rules: &mut Domain,
    items: &mut Vec<Item>,
    left_out: &mut Vec<String>,
) {
    let metadata = |key| get(policy, "metadata").and_then(|it| text(it, key));
    let policy_name = match (metadata("namespace"), metadata("name").unwrap_or("policy")) {
        (Some(namespace), name) => format!("{namespace}/{name}"),
        (None, name) => name.to_owned(),
    };
    for fields in [&["spec"][..], &["spec", "defaults"], &["spec", "overrides"]] {
        let Some(spec) = path(policy, fields) else { continue };
        for (name, limit) in entries(spec, "limits") {
            let name = format!("{policy_name}/{}", name.text().unwrap_or_default());
            match convert_limit(&name, spec, limit, rules) {
                Ok(item) => items.push(item),
                Err((node, error)) => left_out.push(format!("{}: {error}", place(file, node))),
            }
        }
    }
}

/// An error, and the node that has it.
type Failure<'n> = (&'n Node<'n>, String);

fn convert_limit<'n>(
    name: &str,
    spec: &'n Node<'n>,
    limit: &'n Node<'n>,
    rules: &mut Domain,
) -> Result<Item, Failure<'n>> {
    if let Some(selectors) = get(limit, "routeSelectors") {
        let error = "`routeSelectors` choose routes of the HTTPRoute: write a condition in `when`, such as \
                     `request.method == 'POST'`";
        return Err((selectors, error.to_owned()));
    }
    let mut entries: Vec<PathEntry> = vec![("limit".to_owned(), Some(name.to_owned()))];
    let mut actions = vec![fixed("limit", name)];
    let conditions = list(spec, "when").iter().chain(list(limit, "when"));
    for (at, condition) in conditions.enumerate() {
        let text = match text(condition, "predicate") {
            Some(predicate) => predicate.to_owned(),
            None => selector(condition).ok_or_else(|| {
                (
                    condition,
                    "a condition has a `predicate`, or a `selector` with the operator `eq`"
                        .to_owned(),
                )
            })?,
        };
        check_expression(&text).map_err(|error| (condition, error))?;
        let key = format!("when_{}", at + 1);
        actions.push(expression(&key, &text));
        entries.push((key, Some("true".to_owned())));
    }
    for (at, counter) in list(limit, "counters").iter().enumerate() {
        let text = counter.text().or_else(|| text(counter, "expression"));
        let text = text.ok_or_else(|| (counter, "a counter has an `expression`".to_owned()))?;
        check_expression(text).map_err(|error| (counter, error))?;
        let key = format!("counter_{}", at + 1);
        actions.push(expression(&key, &attribute(text)));
        entries.push((key, None));
    }
    let rates = list(limit, "rates");
    if rates.is_empty() {
        return Err((limit, "it has no `rates`".to_owned()));
    }
    // All of them, or none: a part of a limit would be another one.
    let limits: Vec<Limit> = rates
        .iter()
        .map(|rate| convert_rate(rate).map_err(|error| (rate, error)))
        .collect::<Result<_, _>>()?;
    for (rate, limit) in rates.iter().zip(limits) {
        rules.add(entries.clone(), limit).map_err(|error| (rate, error))?;
    }
    Ok(Item::new(actions))
}

fn convert_rate(rate: &Node<'_>) -> Result<Limit, String> {
    let requests = number(rate, "limit").and_then(|limit| u32::try_from(limit).ok());
    let requests = requests.ok_or("`limit` is not a number from 0 to 4294967295")?;
    let window = match (text(rate, "window"), text(rate, "unit")) {
        (Some(window), _) => period_of(window).filter(|(_, _, factor)| *factor == 1),
        (None, Some(unit)) => {
            let seconds = match unit {
                "second" => 1,
                "minute" => 60,
                "hour" => 3_600,
                "day" => 86_400,
                _ => return Err(format!("unknown unit `{unit}`")),
            };
            let length = number(rate, "duration").unwrap_or(1);
            length
                .checked_mul(seconds)
                .and_then(period)
                .map(|(unit, multiplier)| (unit, multiplier, 1))
        }
        _ => None,
    };
    let (unit, multiplier, _) =
        window.ok_or("`window` is not a duration of whole seconds, such as 10s")?;
    let name = String::new();
    Ok(Limit {
        name,
        requests_per_unit: requests,
        unit,
        multiplier,
        algorithm: Algorithm::FixedWindow,
    })
}

/// The expression of a condition in the older form.
fn selector(condition: &Node<'_>) -> Option<String> {
    let (selector, value) = (text(condition, "selector")?, text(condition, "value")?);
    (text(condition, "operator")? == "eq" && !value.contains(['\'', '\\']))
        .then(|| format!("{} == '{value}'", attribute(selector)))
}

/// Writes an attribute in the older form as an expression, in which a `-` in the name of a header subtracts.
fn attribute(text: &str) -> Cow<'_, str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match text.strip_prefix("request.headers.") {
        Some(name) if name.chars().all(is_name) => format!("request.headers['{name}']").into(),
        _ => text.into(),
    }
}

/// Checks that Envoy knows the attributes of an expression.
fn check_expression(text: &str) -> Result<(), String> {
    const OTHERS: [&str; 4] = ["auth.", "descriptors[", "requestBodyJSON", "responseBodyJSON"];
    match OTHERS.into_iter().find(|other| text.contains(other)) {
        Some(other) => {
            let other = other.trim_end_matches(['.', '[']);
            Err(format!(
                "`{text}`: Envoy has no `{other}`; send it as a header, and count `request.headers['NAME']`"
            ))
        }
        // It would be read as an operator of the access log.
        None if text.contains('%') => Err(format!("`{text}`: a `%` has no equivalent")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::convert::domain::tests::errors;

    const POLICY: &str = "\
apiVersion: kuadrant.io/v1
kind: RateLimitPolicy
metadata: { name: toys, namespace: shop }
spec:
  targetRef: { group: gateway.networking.k8s.io, kind: HTTPRoute, name: toys }
  limits:
    writes:
      rates: [{ limit: 5, window: 10s }, { limit: 100, window: 1h }]
      when: [{ predicate: \"request.method == 'POST'\" }]
      counters: [{ expression: source.address }]
    users:
      rates: [{ limit: 5, window: 1m }]
      counters: [{ expression: auth.identity.userid }]
    short: { rates: [{ limit: 5, window: 100ms }] }
";

    #[test]
    fn limits_become_rules() {
        let converted = convert("p.yaml", POLICY, "d").unwrap();
        assert_eq!(
            converted.left_out,
            [
                "p.yaml:13: `auth.identity.userid`: Envoy has no `auth`; send it as a header, and count \
                 `request.headers['NAME']`",
                "p.yaml:14: `window` is not a duration of whole seconds, such as 10s",
            ]
        );
        assert_eq!(errors(&converted.rules[0]), "");
        assert_eq!(
            converted.rules[0].text,
            "\
domain: d
descriptors:
  - key: limit
    value: shop/toys/writes
    descriptors:
      - key: when_1
        value: \"true\"
        descriptors:
          - key: counter_1
            rate_limits:
              - unit: second
                unit_multiplier: 10
                requests_per_unit: 5
              - unit: hour
                requests_per_unit: 100
"
        );
        let older = POLICY.replace("window: 1h", "duration: 1, unit: hour").replace(
            "{ predicate: \"request.method == 'POST'\" }",
            "{ selector: request.method, operator: eq, value: POST }",
        );
        let older = convert("p.yaml", &older, "d").unwrap();
        assert_eq!(
            (older.rules[0].text.as_str(), older.envoy),
            (converted.rules[0].text.as_str(), converted.envoy)
        );
        assert!(convert("p", "kind: Other", "d").unwrap_err().contains("no resource of the kind"));
    }
    #[test]
    fn the_older_form_names_headers_by_dots_and_routes_by_selectors() {
        let policy = "\
kind: RateLimitPolicy
metadata: { name: toys }
spec:
  limits:
    users:
      rates: [{ limit: 5, duration: 10, unit: second }]
      when: [{ selector: request.headers.x-plan, operator: eq, value: gold }]
      counters: [request.headers.x-user, source.address]
    posts:
      rates: [{ limit: 5, duration: 10, unit: second }]
      routeSelectors: [{ matches: [{ method: POST }] }]
";
        let converted = convert("p", policy, "d").unwrap();
        assert_eq!(
            converted.left_out,
            [
                "p:11: `routeSelectors` choose routes of the HTTPRoute: write a condition in `when`, such as \
              `request.method == 'POST'`"
            ]
        );
        assert!(!converted.rules[0].text.contains("toys/posts"));
        let envoy = converted.envoy.unwrap();
        for text in
            ["request.headers['x-plan'] == 'gold'", "request.headers['x-user']", "source.address"]
        {
            assert!(envoy.contains(text), "{text}: {envoy}");
        }
    }
}
