//! `weir explain --envoy-actions`: generates Envoy's `rate_limits` for a rule with `reserve`. One item reserves hits at
//! the start of a request, the other settles them (charges the real number) at its end.

use weir_common::suggest::nearest;
use weir_rules::{Reserve, Rule, RuleSet};

const ID_HEADER: &str = "x-reservation-id";

/// Returns the items of the rule with a name, or with its path (the name without the domain), as YAML.
pub(super) fn items_of(rules: &RuleSet, path: &str) -> Result<String, String> {
    let reserving = || rules.rules().filter_map(|rule| Some((rule, rule.reserve.as_deref()?)));
    let named = reserving().filter(|(rule, _)| [rule.path(), &rule.name].contains(&path));
    let items: Vec<String> = named.map(|(rule, reserve)| items(rule, reserve)).collect();
    match nearest(path, reserving().map(|(rule, _)| rule.path())) {
        _ if !items.is_empty() => Ok(items.join("\n")),
        Some(near) => Err(format!("no rule '{path}' has `reserve`: did you mean '{near}'?")),
        None => Err(format!("no rule '{path}' has `reserve`: name one as `weir check` lists it")),
    }
}

fn items(rule: &Rule, reserve: &Reserve) -> String {
    let mut entries: Vec<_> = rule.entries().collect();
    if reserve.has_own_id {
        entries.pop();
    }
    let mut actions: String = entries.into_iter().map(|(key, value)| action(key, value)).collect();
    actions += &header(ID_HEADER, &reserve.id);
    let estimate = reserve.estimate.unwrap_or(reserve.at_least);
    let (hits, mark) = match &reserve.settle {
        Some(key) => ("", constant(key, "1")),
        // Without `settle`, a start has no hits.
        None => ("    hits_addend: { number: 0 }\n", String::new()),
    };
    format!(
        "\
# For `rate_limits` of the filter envoy.filters.http.ratelimit with the domain {domain}, or of its
# `typed_per_filter_config`. The filter envoy.filters.http.header_mutation before it sets the id:
#   append: {{ header: {{ key: {ID_HEADER}, value: \"%UNIQUE_ID%\" }}, append_action: OVERWRITE_IF_EXISTS_OR_ADD }}
# Where an entry comes from is a guess: change it in both items.
rate_limits:
  # At the start of a request: reserves {estimate}.
  - actions:
{actions}{hits}  # At its end: nothing for a request that weir has denied, 0 for an error, the number `tokens` in the metadata
  # `llm` of an answer, or {estimate} without it.
  - actions:
{actions}{mark}    apply_on_stream_done: true
    hits_addend:
      format: \"%CEL(has(response.code_details) && response.code_details == 'request_rate_limited' ? ''
        : (has(response.code) && response.code >= 400 ? 0
        : ('llm' in metadata.filter_metadata && 'tokens' in metadata.filter_metadata['llm']
        ? int(metadata.filter_metadata['llm'].tokens) : {estimate})))%\"
",
        domain = quoted(rule.domain()),
    )
}

fn action(key: &str, value: &str) -> String {
    match key {
        "remote_address" | "masked_remote_address" | "source_cluster" | "destination_cluster" => {
            format!("      - {key}: {{}}\n")
        }
        // A wildcard, a list or a network.
        _ if value.is_empty() || value.starts_with('@') || value.contains(['*', '/']) => {
            match key {
                "path" | "method" => header(&format!(":{key}"), key),
                _ => header(&format!("x-{}", key.replace('_', "-")), key),
            }
        }
        _ => constant(key, value),
    }
}

fn header(name: &str, key: &str) -> String {
    let (name, key) = (quoted(name), quoted(key));
    format!("      - request_headers: {{ header_name: {name}, descriptor_key: {key} }}\n")
}

fn constant(key: &str, value: &str) -> String {
    let (key, value) = (quoted(key), quoted(value));
    format!("      - generic_key: {{ descriptor_key: {key}, descriptor_value: {value} }}\n")
}

/// A text as JSON has it, which YAML reads too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
