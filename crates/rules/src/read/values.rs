//! Reads the values of keys in rule files: text, numbers, lists, maps, metadata. An invalid value is reported in the
//! words of envoyproxy/ratelimit, and treated as absent.

use super::descriptor::Field;
use super::reader::Reader;
use super::rule_memory::{FIELD_BYTES, MAP_BYTES, VALUE_BYTES};
use crate::model::key::{Key, Section, ValueType};
use crate::model::keys::suggestion;
use crate::model::rule::Metadata;
use crate::model::value_set::{RESERVED, RESERVED_HELP};
use crate::syntax::problem::Severity;
use crate::syntax::tree::{Content, Node, Value};
use weir_common::duration::read_duration;
use weir_common::failure::OnStoreFailure;
use weir_common::value::is_reserved;
use weir_limit::{MAX_PERIOD_SECONDS, Micros, SECOND};

impl Reader<'_> {
    /// Returns the keys of a map that belong in the section, with their values, in order.
    pub(super) fn fields<'n>(&mut self, node: &'n Node<'n>, section: Section) -> Vec<Field<'n>> {
        let mut fields = Vec::new();
        for (key, value) in self.entries(node) {
            let Some(name) = self.key(key) else { continue };
            let Some(known) = Key::find(&name) else {
                self.unknown_key(&name, key, section);
                continue;
            };
            if known.sections.contains(&section) {
                fields.push((known.name, value));
            } else if !known.is_ignored(section) {
                let message = format!("config error, '{name}' does not belong here");
                self.error(key.position, message, &name, &known.belongs());
            } else {
                let is_shadow = section == Section::Limit && known.name == "shadow_mode";
                if is_shadow && self.options.rejects_ignored_shadow_mode {
                    let message = "config error, 'shadow_mode' in `rate_limit` has no effect";
                    let help = "write it beside `key`, for the whole rule, or in an item of \
                                `rate_limits`; files of the reference load as they are with `--reference`";
                    self.error(key.position, message, &name, help);
                // Envoy Gateway's dumps name each file.
                } else if known.name != "name" || section != Section::Root {
                    let message = format!("'{name}' has no effect here");
                    self.warn(key.position, message, &name, &known.belongs());
                }
                self.ignored(&name, value, section);
            }
        }
        fields
    }

    fn unknown_key(&mut self, name: &str, key: &Node<'_>, section: Section) {
        // To find a suggestion takes longer than everything else.
        if !self.problems.has_room(Severity::Error) {
            return self.problems.omit(Severity::Error);
        }
        let message = format!("config error, unknown key '{name}'");
        self.error(key.position, message, name, &suggestion(name, section));
    }

    /// Returns the keys and values of a map in order, with those of maps that `<<` merges in its place.
    /// Of equal keys the last counts, as in the reference, even if it is merged.
    pub(super) fn entries<'n>(&mut self, node: &'n Node<'n>) -> Vec<(&'n Node<'n>, &'n Node<'n>)> {
        let Content::Map(items) = node.content() else {
            if !node.is_null() {
                let message =
                    format!("error loading config file: cannot use {} as a map", node.described());
                self.error(node.position, message, &node.shown(), "write `key: value` pairs here");
            }
            return Vec::new();
        };
        self.lint_repeated(items);
        let mut entries = Vec::with_capacity(items.len());
        for (key, value) in items.iter() {
            match value.content() {
                _ if !key.is_merge_key() => entries.push((key, value)),
                Content::List(maps) => {
                    maps.iter().rev().for_each(|map| entries.extend(self.entries(map)));
                }
                _ => entries.extend(self.entries(value)),
            }
        }
        entries
    }

    pub(super) fn key(&mut self, node: &Node<'_>) -> Option<String> {
        if let Some(Value::Text(text)) = node.value() {
            return Some(text.to_owned());
        }
        let text = node.shown();
        let message = format!("config error, key is not of type string: {text}");
        let help = format!("put it in quotes (\"{text}\"), or write a known key");
        self.error(node.position, message, &text, &help);
        None
    }

    /// Checks an ignored value as the reference does: its keys, lists and numbers, except in metadata.
    fn ignored(&mut self, field: &str, node: &Node<'_>, section: Section) {
        match node.content() {
            _ if field == "metadata" => {}
            Content::Scalar(_) => _ = self.scalar_is_allowed(node, field),
            Content::List(_) => {
                for map in self.maps(node, field) {
                    self.ignored(field, map, section);
                }
            }
            Content::Map(_) => {
                for (key, value) in self.entries(node) {
                    let Some(name) = self.key(key) else { continue };
                    if Key::find(&name).is_none() {
                        self.unknown_key(&name, key, section);
                    }
                    self.ignored(&name, value, section);
                }
            }
        }
    }

    /// Reports a fraction or an integer beyond 64 bits; returns whether the scalar is neither.
    fn scalar_is_allowed(&mut self, node: &Node<'_>, field: &str) -> bool {
        let is_other = node.value() == Some(Value::Other);
        if is_other {
            let text = node.shown();
            let message = format!("error checking config: `{field}` is {text}");
            self.error(node.position, message, &text, &format!("put it in quotes: \"{text}\""));
        }
        !is_other
    }

    pub(super) fn maps<'n>(&mut self, node: &'n Node<'n>, field: &str) -> Vec<&'n Node<'n>> {
        match node.content() {
            _ if node.is_null() => Vec::new(),
            Content::List(items) => {
                let is_map = |item: &&Node<'_>| matches!(item.content(), Content::Map(_));
                let (maps, others): (Vec<_>, Vec<_>) = items.iter().partition(is_map);
                for item in others {
                    let text = item.shown();
                    let message = format!(
                        "config error, yaml file contains list of type other than map: {text}"
                    );
                    let help = match field {
                        "replaces" if item.text().is_some() => format!("write `- name: {text}`"),
                        "rate_limits" => {
                            "write each item as `- rate: 10/s`, or `rates: [10/s]` instead".into()
                        }
                        _ => format!("write each item of `{field}` as `- key: value`"),
                    };
                    self.error(item.position, message, &text, &help);
                }
                maps
            }
            _ => {
                let message = format!(
                    "error loading config file: cannot use {} as the list `{field}`",
                    node.described()
                );
                let help = format!("write each item of `{field}` after a `-`");
                self.error(node.position, message, &node.shown(), &help);
                Vec::new()
            }
        }
    }

    /// Reads text; an unquoted integer or boolean is used as written.
    pub(super) fn string(&mut self, node: &Node<'_>, field: &str) -> String {
        let Some(text) = node.text() else {
            let message =
                format!("error loading config file: cannot use {} as text", node.described());
            let help = format!("write text after `{field}:`");
            self.error(node.position, message, &node.shown(), &help);
            return String::new();
        };
        if !self.scalar_is_allowed(node, field) {
            return String::new();
        }
        if text.chars().any(is_reserved) {
            self.error(node.position, RESERVED, &node.shown(), RESERVED_HELP);
        }
        self.lint_text(node, field);
        if node.is_null() { String::new() } else { text.to_owned() }
    }

    pub(super) fn bool(&mut self, node: &Node<'_>, field: &str) -> bool {
        match node.value() {
            Some(Value::Null) => return false,
            Some(Value::Bool(value)) => return value,
            _ if !self.scalar_is_allowed(node, field) => return false,
            _ => {}
        }
        let text = node.shown();
        let message =
            format!("error loading config file: cannot use {text} as a boolean for `{field}`");
        self.error(node.position, message, &text, "write true or false, without quotes");
        false
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        node: &Node<'_>,
        field: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = self.string(node, field);
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("config error, `{field}` is '{text}'");
            let help = format!("write one of {}", words.join(", "));
            self.error(node.position, message, &text, &help);
        }
        found
    }

    /// Reads `charge`: whether descriptors are charged together.
    pub(super) fn charge(&mut self, node: &Node<'_>) -> Option<bool> {
        self.choice(node, "charge", &[("each", false), ("together", true)])
    }

    pub(super) fn failure_policy(&mut self, node: &Node<'_>) -> Option<OnStoreFailure> {
        let words = OnStoreFailure::ALL.map(|policy| (policy.name(), policy));
        self.choice(node, "on_store_failure", &words)
    }

    pub(super) fn u32(&mut self, node: &Node<'_>, field: &str) -> u32 {
        let step = match node.value() {
            Some(Value::Null) => return 0,
            Some(Value::Int(number)) if (0..=i64::from(u32::MAX)).contains(&number) => {
                self.lint_number(node);
                return number as u32;
            }
            Some(Value::Other) => "error checking config",
            _ => "error loading config file",
        };
        let text = node.shown();
        let message = format!("{step}: cannot use {text} as a number for `{field}`");
        let help = "write a whole number from 0 to 4294967295, without quotes";
        self.error(node.position, message, &text, help);
        0
    }

    /// Reads a number that the key may have.
    pub(super) fn number(&mut self, node: &Node<'_>, field: &str) -> Option<u32> {
        let number = self.u32(node, field);
        match Key::find(field).map(|key| key.value) {
            Some(ValueType::Number(min, max)) if !(min..=max).contains(&number) => {
                let message = format!("config error, `{field}` is {number}");
                let help = format!("write {min} to {max}");
                self.error(node.position, message, &number.to_string(), &help);
                None
            }
            _ => Some(number),
        }
    }

    /// Reads a duration from one microsecond to 100 years.
    pub(super) fn duration(&mut self, node: &Node<'_>, field: &str) -> Option<Micros> {
        let text = self.string(node, field);
        let micros = read_duration(&text).and_then(|time| Micros::try_from(time.as_micros()).ok());
        let micros = micros.filter(|micros| (1..=MAX_PERIOD_SECONDS * SECOND).contains(micros));
        if micros.is_none() {
            let message = format!("config error, `{field}` is '{text}'");
            let help = "write a duration up to 100 years, such as 100ms, 30s or 1h";
            self.error(node.position, message, &text, help);
        }
        micros
    }

    /// Checks the value of a key by its type. A value that has a reader of its own is not checked.
    pub(super) fn check_value(&mut self, node: &Node<'_>, field: &str) {
        let value = Key::find(field).map_or(ValueType::Other, |key| key.value);
        match value {
            ValueType::Text => _ = self.string(node, field),
            ValueType::Flag => _ = self.bool(node, field),
            ValueType::Number(..) => _ = self.number(node, field),
            ValueType::Duration => _ = self.duration(node, field),
            // A test finds keys whose callers forget them.
            ValueType::Other => {}
        }
    }

    pub(super) fn metadata(&mut self, node: &Node<'_>) -> Option<Metadata> {
        if node.is_null() {
            return None;
        }
        if !matches!(node.content(), Content::Map(_)) {
            let message = "error parsing metadata: it is not a map";
            self.error(node.position, message, &node.shown(), "write `key: value` pairs");
            return None;
        }
        // The reference uses the keys of the outermost map as written, and those of inner maps as it
        // prints their values.
        let map = self.object(node, |_, text| text.to_owned());
        (!map.is_empty()).then_some(map)
    }

    fn object(&mut self, node: &Node<'_>, name: fn(Value<'_>, &str) -> String) -> Metadata {
        self.spend(node.position, MAP_BYTES);
        let mut map = Metadata::new();
        for (key, value) in self.entries(node) {
            if let (Some(value_of_key), Some(text)) = (key.value(), key.text()) {
                self.spend(key.position, FIELD_BYTES + text.len());
                map.insert(name(value_of_key, text), self.json(value));
            } else {
                let message = "error parsing metadata: a key is a list or a map";
                self.error(key.position, message, &key.shown(), "write text before the `:`");
            }
        }
        map
    }

    fn json(&mut self, node: &Node<'_>) -> serde_json::Value {
        use serde_json::Value as Json;
        match node.content() {
            // The rest of a file that exceeds its memory is not built.
            _ if self.memory.is_spent() => Json::Null,
            Content::Scalar(text) => {
                self.spend(node.position, VALUE_BYTES + text.len());
                self.lint_metadata(node);
                match node.value() {
                    None | Some(Value::Null) => Json::Null,
                    Some(Value::Bool(value)) => value.into(),
                    Some(Value::Int(number)) => number.into(),
                    Some(Value::Text(text)) => text.into(),
                    Some(Value::Other) => match text.parse::<f64>() {
                        Ok(number) if number.is_finite() => number.into(),
                        _ => text.as_ref().into(),
                    },
                }
            }
            Content::List(items) => {
                self.spend(node.position, VALUE_BYTES);
                items.iter().map(|item| self.json(item)).collect()
            }
            Content::Map(_) => self.object(node, printed).into(),
        }
    }
}

/// Formats a scalar as the reference prints its value.
fn printed(value: Value<'_>, text: &str) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Text(_) | Value::Other => text.to_owned(),
    }
}
