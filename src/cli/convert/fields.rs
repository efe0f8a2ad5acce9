//! Reads the fields of resources and configurations.

use weir_limit::Unit;
use weir_rules::tree::{Content, Node, Value};

/// Returns the largest unit that a period is a multiple of.
pub(super) fn period(seconds: i64) -> Option<(Unit, u32)> {
    let seconds = u64::try_from(seconds).ok()?;
    let units = [Unit::Day, Unit::Hour, Unit::Minute, Unit::Second];
    let unit = units.into_iter().find(|unit| seconds.is_multiple_of(unit.seconds()))?;
    let multiplier = u32::try_from(seconds / unit.seconds()).ok()?;
    unit.period(multiplier).map(|_| (unit, multiplier))
}

pub(super) fn get<'n>(map: &'n Node<'n>, wanted: &str) -> Option<&'n Node<'n>> {
    let Content::Map(entries) = map.content() else { return None };
    entries.iter().find(|(key, _)| key.text() == Some(wanted)).map(|(_, value)| value)
}

pub(super) fn items<'n>(list: &'n Node<'n>) -> Option<&'n [Node<'n>]> {
    if let Content::List(items) = list.content() { Some(items) } else { None }
}

/// Returns the text of a key; none if it is null.
pub(super) fn text<'n>(map: &'n Node<'n>, key: &str) -> Option<&'n str> {
    let value = get(map, key)?;
    if value.value() == Some(Value::Null) { None } else { value.text() }
}

pub(super) fn number(map: &Node<'_>, key: &str) -> Option<i64> {
    match get(map, key)?.value()? {
        Value::Int(number) => Some(number),
        _ => None,
    }
}

/// Follows fields from map to map.
pub(super) fn path<'n>(map: &'n Node<'n>, fields: &[&str]) -> Option<&'n Node<'n>> {
    fields.iter().try_fold(map, |map, field| get(map, field))
}

/// The items of a list; none if the field is absent.
pub(super) fn list<'n>(map: &'n Node<'n>, field: &str) -> &'n [Node<'n>] {
    get(map, field).and_then(items).unwrap_or_default()
}

/// The entries of a map; none if the field is absent.
pub(super) fn entries<'n>(map: &'n Node<'n>, field: &str) -> &'n [(Node<'n>, Node<'n>)] {
    match get(map, field).map(Node::content) {
        Some(Content::Map(entries)) => entries,
        _ => &[],
    }
}

/// A place in a file, for what is not converted.
pub(super) fn place(name: &str, node: &Node<'_>) -> String {
    format!("{name}:{}", node.position.line().unwrap_or_default())
}

/// Returns a period of a length such as `10s`, `1m30s` or `0.5s`, and how often it goes into the unit if it is shorter
/// than a second.
pub(super) fn period_of(text: &str) -> Option<(Unit, u32, u32)> {
    let length = weir_common::duration::read_duration(text)?;
    let millis = u64::try_from(length.as_millis()).ok().filter(|millis| *millis > 0)?;
    match millis % 1_000 {
        0 => {
            let (unit, multiplier) = period(i64::try_from(millis / 1_000).ok()?)?;
            Some((unit, multiplier, 1))
        }
        _ if 1_000 % millis == 0 => Some((Unit::Second, 1, u32::try_from(1_000 / millis).ok()?)),
        _ => None,
    }
}
