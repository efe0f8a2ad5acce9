//! Reads the patches of an overlay file (changes of rules), and reports every problem that shows without the rules.

use super::descriptor::Field;
use super::limits::algorithm::OfRule;
use super::rate::LONG_KEYS;
use super::reader::Reader;
use crate::model::key::{Key, Section};
use crate::overlay::patch::{EntryPattern, KeyNodes, MAX_ENTRIES, MAX_PATCHES, Patch};
use crate::syntax::position::{Origin, Position};
use crate::syntax::problem::Severity;
use crate::syntax::tree::{Content, Node, Style, Value};
use weir_common::descriptor::RuleDescriptorArg;
use weir_common::glob::Glob;
use weir_common::suggest::nearest;

/// Keys that no patch can set: they identify a descriptor, or belong to the domain or to other descriptors.
const FIXED_KEYS: [&str; 7] =
    ["domain", "key", "value", "network", "values", "values_file", "descriptors"];

impl Reader<'_> {
    pub fn overlay(&mut self, node: Option<&Node<'_>>, patches: &mut Vec<Patch>) {
        let help = "write `patches:` and a list of patches; `patches: []` changes nothing";
        let Some(node) = node.filter(|node| !node.is_null()) else {
            return self.error(Position::default(), "the overlay is empty", "", help);
        };
        if !matches!(node.content(), Content::Map(_)) {
            let message = format!("the root of the overlay is {}, not a map", node.described());
            return self.error(node.position, message, &node.shown(), help);
        }
        let fields = self.overlay_fields(node, "an overlay", &["patches"]);
        let Some((key, list)) = fields.last() else {
            if is_empty(node) {
                self.error(node.position, "the overlay has no `patches`", "", help);
            }
            return;
        };
        for item in self.maps(list, key) {
            if patches.len() >= MAX_PATCHES {
                let message = format!("there are more than {MAX_PATCHES} patches");
                let help = "match more rules by each patch: `*` stands for any text";
                return self.error(item.position, message, "", help);
            }
            let patch = self.overlay_patch(item);
            patches.push(patch);
        }
    }

    /// Returns the known keys of a map with their values. Others are errors.
    fn overlay_fields<'n>(
        &mut self,
        node: &'n Node<'n>,
        what: &str,
        names: &'static [&'static str],
    ) -> Vec<Field<'n>> {
        let mut fields = Vec::new();
        for (key, value) in self.entries(node) {
            let Some(text) = self.key(key) else { continue };
            if let Some(name) = names.iter().find(|name| **name == text) {
                fields.push((*name, value));
                continue;
            }
            // To find a suggestion takes longer than everything else.
            if !self.problems.has_room(Severity::Error) {
                self.problems.omit(Severity::Error);
                continue;
            }
            let message = format!("unknown key '{text}' in {what}");
            let help = match nearest(&text, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if what == "a patch" && patched_key(&text).is_some() => {
                    format!("write `{text}` in `set`")
                }
                None => format!("the keys of {what} are: {}", names.join(", ")),
            };
            self.error(key.position, message, &text, &help);
        }
        fields
    }

    fn overlay_patch(&mut self, node: &Node<'_>) -> Patch {
        let mut patch = Patch::new(Origin { file: self.file.clone(), position: node.position });
        let (mut matched, mut set, mut set_domain) = (None, None, None);
        let keys = &["match", "limit", "set", "set_domain"];
        let fields = self.overlay_fields(node, "a patch", keys);
        // An unknown key may be a missing one, misspelled.
        let all_known = matches!(node.content(), Content::Map(map) if map.len() == fields.len());
        for (key, value) in fields {
            let value = Some(value).filter(|value| !value.is_null());
            match key {
                "match" => matched = value,
                "limit" => patch.limit = value.and_then(|value| self.limit_name(value)),
                "set" => set = value,
                _ => set_domain = value,
            }
        }
        let by_entries = matched.and_then(|value| self.patch_match(value, &mut patch));
        if matched.is_none() && all_known {
            let help = "write `match: {domain: …, entries: […]}`; `match: {domain: '*'}` \
                        matches all rules";
            self.error(node.position, "the patch has no `match`", "", help);
        }
        if let Some(value) = set {
            self.patch_set(value, &mut patch);
        }
        if let Some(value) = set_domain {
            self.patch_domain(value, &mut patch);
            if let Some(entries) = by_entries {
                let help = "`entries` select rules, and `set_domain` changes a whole domain: write \
                            two patches";
                self.error(entries, "`entries` beside `set_domain`", "", help);
            }
        }
        if set.is_none() && set_domain.is_none() && all_known {
            let help = "write `set: {…}` with keys of a rule, or `set_domain: {…}` with keys of a \
                        domain";
            self.error(node.position, "the patch sets nothing", "", help);
        }
        if let Some((_, position)) = patch.limit.as_ref().filter(|_| patch.limit_keys.is_empty()) {
            let help = "remove `limit`: it selects which limits `set` changes";
            self.error(*position, "`limit` without a key of a limit in `set`", "", help);
        }
        patch
    }

    fn limit_name(&mut self, node: &Node<'_>) -> Option<(Box<str>, Position)> {
        // As the `name` of a limit is read: a boolean or an integer is used as written.
        let is_text = matches!(node.value(), Some(Value::Text(_) | Value::Bool(_) | Value::Int(_)));
        let name = node.text().filter(|name| is_text && !name.is_empty());
        if name.is_none() {
            let message = format!("`limit` is {}", node.described());
            let help = "write the `name` of a limit; without `limit`, `set` changes all limits";
            self.error(node.position, message, &node.shown(), help);
        }
        name.map(|name| (name.into(), node.position))
    }

    /// Reads `match`; returns the position of its entries.
    fn patch_match(&mut self, node: &Node<'_>, patch: &mut Patch) -> Option<Position> {
        let mut position = None;
        for (key, value) in self.overlay_fields(node, "`match`", &["domain", "entries"]) {
            match key {
                _ if value.is_null() => {}
                "domain" => patch.domain = Glob::new(&self.string(value, key)),
                _ => {
                    position = Some(value.position);
                    patch.steps = self.steps(value);
                }
            }
        }
        position
    }

    fn steps(&mut self, list: &Node<'_>) -> Vec<EntryPattern> {
        let text = list.text().filter(|_| !list.is_null());
        let of_text = match text.map(str::parse::<RuleDescriptorArg>).transpose() {
            Ok(of_text) => of_text,
            Err(error) => {
                self.error(list.position, "invalid `entries`", &list.shown(), &error);
                return Vec::new();
            }
        };
        let count = match &of_text {
            Some(RuleDescriptorArg(entries)) => Some(entries.len()),
            None => list.items().map(<[_]>::len),
        };
        if let Some(count) = count.filter(|count| !(1..=MAX_ENTRIES).contains(count)) {
            let message = format!("{count} items in `entries`");
            let help =
                format!("write 1 to {MAX_ENTRIES}; without `entries`, the patch matches all rules");
            self.error(list.position, message, "", &help);
            return Vec::new();
        }
        match of_text {
            Some(RuleDescriptorArg(entries)) => {
                entries.into_iter().map(EntryPattern::of_text).collect()
            }
            None => self.maps(list, "entries").into_iter().map(|item| self.step(item)).collect(),
        }
    }

    fn step(&mut self, node: &Node<'_>) -> EntryPattern {
        let (mut key, mut value, mut any) = (String::new(), None, None);
        for (field, child) in self.overlay_fields(node, "an entry", &["key", "value", "any"]) {
            match field {
                "key" => key = self.string(child, field),
                "value" => {
                    value = (!child.is_null()).then(|| Glob::new(&self.string(child, field)));
                }
                _ => any = Some(self.bool(child, field)),
            }
        }
        match any {
            Some(true) if key.is_empty() && value.is_none() => EntryPattern::Any,
            Some(_) => {
                let help = "write `{any: true}` for any number of entries, or `{key: …, value: …}` \
                            for one";
                self.error(node.position, "`any` is not alone, or not true", "", help);
                EntryPattern::Any
            }
            None => {
                if key.is_empty() {
                    let help = "write `key: NAME`; `key: '*'` matches any";
                    self.error(node.position, "an entry of `match` has no key", "", help);
                }
                EntryPattern::Entry { key: Glob::new(&key), value }
            }
        }
    }

    fn patch_set(&mut self, node: &Node<'_>, patch: &mut Patch) {
        patch.has_set = true;
        let entries = self.entries(node);
        if is_empty(node) {
            self.error(node.position, "`set` is empty", "", "write keys of a rule or a limit");
        }
        let (mut limits, mut rate) = (Vec::new(), None);
        for (key, value) in entries {
            let Some(name) = self.key(key) else { continue };
            if name == "rate_limit" && is_part_of_limit(value) {
                let part = self.fields(value, Section::Limit);
                // Without a key of a limit, what it misses is reported below.
                let is_done = !part.is_empty() || self.problems.has_errors();
                part.iter().for_each(|(name, value)| replace(&mut patch.limit_keys, name, value));
                if is_done {
                    continue;
                }
            }
            if let Some(help) = Key::find(&name).and_then(place_of_misplaced) {
                self.error(key.position, format!("`{name}` in `set`"), &name, help);
                continue;
            }
            let (name, keys) = match patched_key(&name) {
                Some((name @ ("rate_limit" | "rate_limits" | "rates"), _)) => {
                    let is_short = name == "rates" && !value.is_null();
                    let limit = if is_short { self.rates(value) } else { Some(value.clone()) };
                    limits.retain(|(known, _, _)| *known != name);
                    limits.extend(limit.map(|limit| (name, key.position, limit)));
                    continue;
                }
                Some(("rate", _)) => {
                    rate = Some(value);
                    continue;
                }
                Some((name, Section::Descriptor))
                    if patch.limit.is_none() || name != "shadow_mode" =>
                {
                    self.check_rule_key(name, value);
                    (name, &mut patch.rule_keys)
                }
                Some((name, _)) => (name, &mut patch.limit_keys),
                None if !self.problems.has_room(Severity::Error) => {
                    self.problems.omit(Severity::Error);
                    continue;
                }
                None => {
                    let message = format!("unknown key '{name}' in `set`");
                    let names = Key::all().map(|key| key.name);
                    let names = names.filter(|name| patched_key(name).is_some());
                    let near = nearest(&name, names).map(|near| format!("did you mean `{near}`?"));
                    let help = near.unwrap_or_else(|| {
                        "write keys of a rule or of a limit, as in a rule file".to_owned()
                    });
                    self.error(key.position, message, &name, &help);
                    continue;
                }
            };
            replace(keys, name, value);
        }
        self.patch_rate(rate, patch);
        self.check_limit_keys(node.position, &patch.limit_keys);
        self.patch_limits(&limits, rate.map(|_| "rate"), patch);
    }

    /// Sets the keys of the long form for `rate`, and removes the others of it. `burst` beside it makes a limit without
    /// an algorithm one of gcra.
    fn patch_rate(&mut self, rate: Option<&Node<'_>>, patch: &mut Patch) {
        let Some(node) = rate else { return };
        let others = patch.limit_keys.iter().filter(|(_, node)| !node.is_null());
        let others: Vec<&str> = others.map(|(key, _)| *key).collect();
        let keys = if node.is_null() { Some(Vec::new()) } else { self.long_form(node, &others) };
        let Some(keys) = keys else { return };
        let unset: Vec<_> = LONG_KEYS.into_iter().filter(|key| !others.contains(key)).collect();
        for key in unset {
            replace(&mut patch.limit_keys, key, &Node::scalar(node.position, "null", Style::Plain));
        }
        for (key, node) in keys {
            match key {
                "algorithm" => patch.default_algorithm = Some((key, node)),
                _ => replace(&mut patch.limit_keys, key, &node),
            }
        }
    }

    /// Reads `rate_limit` and `rate_limits` of `set`, which replace all limits of a rule.
    fn patch_limits(
        &mut self,
        set: &[(&str, Position, Node<'_>)],
        rate: Option<&str>,
        patch: &mut Patch,
    ) {
        let Some(&(first, position, _)) = set.first() else { return };
        if let Some(other) = rate.or(patch.limit_keys.first().map(|(name, _)| *name)) {
            let message = format!("`{other}` beside `{first}`");
            let help = "`rate_limit` and `rate_limits` replace the limits of the rule: write the \
                        keys in their items";
            self.error(position, message, "", help);
        }
        let mut limits = set.iter().filter(|(_, _, node)| !node.is_null());
        let Some((name, _, node)) = limits.next() else {
            return patch.limits = Some(None);
        };
        if let Some((other, ..)) = limits.next() {
            let help = "each replaces the limits of the rule: remove one";
            let message = format!("both `{}` and `{}`", name.min(other), name.max(other));
            self.error(position, message, "", help);
        }
        let nodes = match *name {
            "rate_limit" => (vec![node], None),
            _ => (Vec::new(), Some(node)),
        };
        // What depends on the rule is checked with the rule.
        let key = hold_id(node).unwrap_or_default();
        let rule = OfRule { key, reserves: false, bans: false };
        self.rate_limit(&nodes.0, nodes.1, rule);
        patch.limits =
            Some(self.limit_maps(&nodes.0, nodes.1).map(|maps| maps.changed(Node::detached)));
    }

    fn check_rule_key(&mut self, key: &str, node: &Node<'_>) {
        match key {
            "metadata" => _ = self.metadata(node),
            "group" if !node.is_null() => _ = self.group(node),
            "reserve" if !node.is_null() => _ = self.reserve_fields(node),
            "ban" if !node.is_null() => _ = self.ban_fields(node),
            _ => self.check_value(node, key),
        }
    }

    fn patch_domain(&mut self, node: &Node<'_>, patch: &mut Patch) {
        let keys = &["charge", "on_store_failure"];
        let fields = self.overlay_fields(node, "`set_domain`", keys);
        if is_empty(node) {
            let help = "write `charge` or `on_store_failure`";
            self.error(node.position, "`set_domain` is empty", "", help);
        }
        for (key, value) in fields {
            match key {
                "charge" if value.is_null() => patch.charge = Some(false),
                "charge" => patch.charge = self.charge(value),
                _ if value.is_null() => patch.on_store_failure = Some(None),
                _ => patch.on_store_failure = self.failure_policy(value).map(Some),
            }
        }
    }
}

fn is_empty(node: &Node<'_>) -> bool {
    matches!(node.content(), Content::Map(map) if map.is_empty())
}

/// Returns whether a `rate_limit` of `set` cannot be a limit, so that it has keys to set in those of the rule.
fn is_part_of_limit(node: &Node<'_>) -> bool {
    let has = |key: &str| node.get(key).is_some_and(|value| !value.is_null());
    let of_whole = ["rate", "unit", "period", "unlimited", "<<"];
    let is_hold = node.get("algorithm").and_then(Node::text) == Some("concurrency");
    matches!(node.content(), Content::Map(_))
        && !is_empty(node)
        && !is_hold
        && !of_whole.into_iter().any(has)
}

/// Sets a key to a copy of a node.
fn replace(keys: &mut KeyNodes<'static>, name: &'static str, node: &Node<'_>) {
    keys.retain(|(known, _)| *known != name);
    keys.push((name, node.detached()));
}

/// Returns a key that a patch may set, and whether it is one of the descriptor or of a limit.
fn patched_key(name: &str) -> Option<(&'static str, Section)> {
    let key = Key::find(name).filter(|key| !FIXED_KEYS.contains(&key.name))?;
    // Keys that may stand beside the `rate` of a descriptor are those of a limit.
    let owners = [Section::Limit, Section::Descriptor, Section::ListedLimit];
    owners.into_iter().find(|owner| key.sections.contains(owner)).map(|owner| (key.name, owner))
}

/// Returns what to write instead of a key that cannot be in `set`.
fn place_of_misplaced(key: &Key) -> Option<&'static str> {
    Some(match key.sections {
        _ if FIXED_KEYS.contains(&key.name) => {
            "`match` selects rules by it; a patch changes other keys"
        }
        [Section::Group] => "it is a key of `group`: write `group: { v4: 24, v6: 64 }`",
        [Section::Reserve] => {
            "it is a key of `reserve`: write the whole `reserve: { id: …, settle: … }`"
        }
        [Section::Ban] => {
            "it is a key of `ban`: write the whole `ban: { after: …, within: …, for: … }`"
        }
        [Section::Root] => "it is a key of the domain: write it in `set_domain`",
        _ => return None,
    })
}

/// Returns the first `hold_id` of a limit, or of a list of limits.
fn hold_id<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    match node.content() {
        Content::List(items) => items.iter().find_map(hold_id),
        _ => node.get("hold_id")?.text(),
    }
}
