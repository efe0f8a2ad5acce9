//! Warns about single keys and values that are valid but probably not meant, while rules are read for `weir check`.

use std::collections::HashMap;

use super::limits::LimitFields;
use super::reader::{Reader, ReplacedName};
use crate::model::key::{Key, ValueType};
use crate::syntax::position::{Origin, Position};
use crate::syntax::tree::{Node, Value};
use weir_common::network::{Network, NetworkError};

/// The key under which Envoy sends networks: its values are compared as text, as they should be.
const NETWORK_KEY: &str = "masked_remote_address";

impl Reader<'_> {
    /// Warns about text without quotes that YAML 1.1 reads as a number, a boolean or null: other readers of the file
    /// may do so, and people expect it.
    pub(super) fn lint_text(&mut self, node: &Node<'_>, field: &str) {
        let Some((text, value)) = self.linted(node) else { return };
        if Key::find(field).is_none_or(|key| key.value != ValueType::Text) {
            return;
        }
        if value == Value::Null && !matches!(text, "" | "~") {
            let message = format!("YAML reads `{text}` as nothing: `{field}` is empty");
            let help = format!("put it in quotes if it is text: \"{text}\"; else remove it");
            return self.warn(node.position, message, text, &help);
        }
        let (meaning, printed) = match value {
            Value::Bool(value) => ("boolean", value.to_string()),
            Value::Int(value) => ("number", value.to_string()),
            _ => return,
        };
        if printed != text {
            let message = format!(
                "YAML 1.1 reads `{text}` as the {meaning} {printed}; here it is the text '{text}'"
            );
            self.warn(node.position, message, text, &format!("put it in quotes: \"{text}\""));
        }
    }

    /// Returns the text and the value of a scalar, if there are to be warnings.
    fn linted<'n>(&self, node: &'n Node<'_>) -> Option<(&'n str, Value<'n>)> {
        node.text().zip(node.value()).filter(|_| self.lint)
    }

    /// Warns about a number with a leading zero, which is octal.
    pub(super) fn lint_number(&mut self, node: &Node<'_>) {
        let Some((text, Value::Int(value))) = self.linted(node) else { return };
        let digits = text.trim_start_matches(['+', '-']).replace('_', "");
        if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
        {
            let message = format!("YAML 1.1 reads `{text}` as the octal number {value}");
            let decimal = match digits.trim_start_matches('0') {
                "" => "0",
                decimal => decimal,
            };
            let help = match decimal == value.to_string() {
                true => format!("write `{value}`"),
                false => format!("write `{decimal}`, or `{value}` if it is meant to be octal"),
            };
            self.warn(node.position, message, text, &help);
        }
    }

    /// Warns about metadata that may be meant as text.
    pub(super) fn lint_metadata(&mut self, node: &Node<'_>) {
        let Some((text, Value::Bool(value))) = self.linted(node) else {
            return self.lint_number(node);
        };
        if !text.eq_ignore_ascii_case("true") && !text.eq_ignore_ascii_case("false") {
            let message = format!("YAML 1.1 reads `{text}` as the boolean {value}");
            let help = format!("write `{value}`, or put it in quotes if it is text: \"{text}\"");
            self.warn(node.position, message, text, &help);
        }
    }

    /// Warns about a value that is a network, such as `10.0.0.0/8`. One that repeats its key is a constant, which
    /// gateways generate and send as it is written.
    pub(super) fn lint_value(&mut self, key: &str, value: &str, position: Position) {
        if !self.lint || value == key || key == NETWORK_KEY || !value.contains('/') {
            return;
        }
        if let Ok(network) | Err(NetworkError::HostBits { meant: network, .. }) =
            Network::parse(value)
        {
            let message = "this value is a network, but it is compared as text".to_owned();
            let help = format!("write `network: {network}`, which matches the addresses in it");
            self.warn(position, message, value, &help);
        }
    }

    /// Warns about a name with characters that Envoy's header does not escape.
    pub(super) fn lint_limit_name(&mut self, name: &str, position: Position) {
        let is_raw = |c: char| c.is_control() || matches!(c, '"' | '\\');
        if self.lint && name.contains(is_raw) {
            let message = "Envoy writes this name into x-ratelimit-limit as it is".to_owned();
            let help = "leave out quotes, backslashes and control characters";
            self.warn(position, message, name, help);
        }
    }

    /// Warns about limits of a rule that deny everything, and notes its `replaces`. Patches may
    /// come from elsewhere: the warnings about a rule with any are at `patched`.
    pub(super) fn lint_limits(&mut self, fields: &LimitFields, patched: Option<Position>) {
        if !self.lint {
            return;
        }
        for place in fields.places.iter().filter(|place| !place.has_number) {
            let message = "no `requests_per_unit`: this limit denies everything".to_owned();
            let help = "write `requests_per_unit: N`, or 0 to deny everything";
            self.warn(patched.unwrap_or(place.position), message, "", help);
        }
        let replaced = fields.replaces.iter().filter(|item| !item.name.is_empty());
        self.replaced.extend(replaced.map(|item| ReplacedName {
            name: item.name.clone(),
            position: patched.unwrap_or(item.position),
        }));
    }

    /// Warns about keys that occur twice in a map. Unknown ones are errors.
    pub(super) fn lint_repeated(&mut self, items: &[(Node<'_>, Node<'_>)]) {
        if !self.lint {
            return;
        }
        let mut first = HashMap::new();
        for (key, _) in items.iter().filter(|(key, _)| !key.is_merge_key()) {
            let Some(text) = key.text().filter(|text| Key::find(text).is_some()) else { continue };
            let Some(position) = first.get(text).copied() else {
                first.insert(text, key.position);
                continue;
            };
            let (message, help) = match text {
                "rate_limit" => (
                    "'rate_limit' is repeated: the two become one limit".to_owned(),
                    "write several limits as a list: `rate_limits`",
                ),
                _ => (
                    format!("'{text}' is repeated: only the last one counts"),
                    "remove one of the two",
                ),
            };
            let first = Origin { file: self.file.clone(), position };
            let problem = self.problem(key.position, message, text, help);
            self.problems.push(problem.warning().with_first(first));
        }
    }
}
