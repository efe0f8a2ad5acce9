//! Reads the steps of a test in a file of `weir test`: when to send which requests. A step may also reserve hits, which
//! a later step settles (charges the real number) or cancels.

use std::rc::Rc;

use super::super::file::{DescriptorSpec, Step};
use super::super::report::duration_text;
use super::expect;
use weir_common::descriptor::DescriptorArg;
use weir_limit::{Micros, SECOND, Unit};
use weir_limiter::{Override, ReservationStep};
use weir_rules::rate::Rate;
use weir_rules::tree::{Content, Node};
use weir_rules::values::{Reader, Section};

#[rustfmt::skip]
pub(super) static STEP: Section = Section {
    what: "a step",
    keys: &["at", "repeat", "every", "domain", "hits", "descriptors", "reserve", "settle", "cancel", "expect"],
};
pub(super) static RESERVE: Section = Section { what: "`reserve`", keys: &["id", "hits"] };
pub(super) static SETTLE: Section = Section { what: "`settle`", keys: &["id", "hits"] };
pub(super) static CANCEL: Section = Section { what: "`cancel`", keys: &["id"] };
pub(super) static DESCRIPTOR: Section =
    Section { what: "a descriptor", keys: &["entries", "hits", "refund", "limit"] };
pub(super) static ENTRY: Section = Section { what: "an entry", keys: &["key", "value"] };
pub(super) static LIMIT: Section = Section {
    what: "`limit` of a descriptor",
    keys: &["rate", "requests_per_unit", "unit", "unit_multiplier"],
};

/// The most requests of a file, so that a typing error does not run for hours.
const MAX_REQUESTS: u64 = 10_000_000;

const MAX_REPEAT: u32 = 1_000_000;

/// The longest simulated time of a test. If more passes, the memory store forgets keys earlier.
const MAX_TIME: Micros = 50 * 365 * 86_400 * SECOND;

/// Reads the steps of a test. `requests` counts those of the file.
pub(super) fn read(
    reader: &mut Reader<'_>,
    list: &Node<'_>,
    test_domain: Option<&Rc<str>>,
    requests: &mut u64,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut now = 0;
    for item in reader.list(list, "steps", "requests, such as `{at: 0s, descriptors: ['path=/a']}`")
    {
        let Some(step) = read_step(reader, item, test_domain, now) else { continue };
        now = step.at + step.every * Micros::from(step.repeat - 1);
        let before = *requests;
        *requests += u64::from(step.repeat);
        if before <= MAX_REQUESTS && *requests > MAX_REQUESTS {
            let message = format_args!("the tests of this file send over {MAX_REQUESTS} requests");
            reader.error(item.position, "", message, "repeat less, or split the file");
        }
        steps.push(step);
    }
    steps
}

/// Reads a step; none if its times are invalid. `now` is when the step before it ends.
fn read_step(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    test_domain: Option<&Rc<str>>,
    now: Micros,
) -> Option<Step> {
    let mut domain = test_domain.cloned();
    // A request without a number of hits says 0, which counts as 1 unless a rule has an estimate.
    let (mut at, mut repeat, mut every, mut hits) = (now, 1, 0, 0);
    let (mut list, mut expected, mut reservations) = (None, None, Vec::new());
    for (key, value) in reader.fields(node, &STEP) {
        match key {
            "at" => {
                at = reader.duration(value, key).unwrap_or(now);
                if at < now {
                    let message = format_args!(
                        "`at` is {}, before the last request at {}",
                        value.shown(),
                        duration_text(now)
                    );
                    let help = "time does not go back: `at` counts from the start of the test";
                    reader.error(value.position, &value.shown(), message, help);
                    return None;
                }
            }
            "repeat" => repeat = reader.number(value, key, 1..=MAX_REPEAT).unwrap_or(1),
            "every" => every = reader.duration(value, key).unwrap_or_default(),
            "domain" => domain = Some(reader.name(value, key).unwrap_or_default().into()),
            "hits" => {
                if value.text() == Some("0") {
                    let help = "0 hits of a request count as 1: to read a limit without counting, write \
                                `{entries: 'key=value', hits: 0}` as descriptor";
                    reader.invalid(value, key, help);
                } else {
                    hits = reader.number(value, key, 1..=u32::MAX).unwrap_or(1);
                }
            }
            "descriptors" => list = Some(value),
            "reserve" | "settle" | "cancel" => reservations.push((key, value)),
            _ => expected = Some(value),
        }
    }
    let end = every.checked_mul(Micros::from(repeat - 1)).and_then(|time| time.checked_add(at));
    if end.is_none_or(|end| end > MAX_TIME) {
        let help = "shorten `at` or `every`: a test takes up to 50 years";
        reader.error(node.position, "", "the step ends too late", help);
        return None;
    }
    if domain.is_none() {
        let help = "write `domain: NAME` in the file, the test or the step";
        reader.missing(node, &STEP, "domain", help);
    }
    let descriptors = match list {
        Some(list) => descriptors(reader, list),
        None => {
            let help = "write `descriptors: ['key=value']`";
            reader.missing(node, &STEP, "descriptors", help);
            Vec::new()
        }
    };
    let reservation = reservation(reader, &reservations);
    let count = descriptors.len();
    let expect = expected.map(|value| expect::read(reader, value, repeat, count));
    Some(Step {
        position: node.position,
        at,
        repeat,
        every,
        domain: domain.unwrap_or_default(),
        hits,
        descriptors,
        reservation,
        expect: expect.unwrap_or_default(),
    })
}

fn reservation(
    reader: &mut Reader<'_>,
    reservations: &[(&str, &Node<'_>)],
) -> Option<(String, ReservationStep)> {
    let (first, others) = reservations.split_first()?;
    if let Some((key, node)) = others.first() {
        let message = format_args!("a step has `{}` and `{key}`", first.0);
        reader.error(node.position, "", message, "write a step for each");
    }
    let (key, node) = *first;
    let section = match key {
        "reserve" => &RESERVE,
        "settle" => &SETTLE,
        _ => &CANCEL,
    };
    let (mut id, mut hits) = (None, None);
    for (field, value) in reader.fields(node, section) {
        match field {
            "id" => id = reader.name(value, field).map(str::to_owned),
            _ => hits = reader.number(value, field, 0..=u32::MAX),
        }
    }
    if id.is_none() {
        reader.missing(node, section, "id", "write `id: TEXT`, which names the reservation");
    }
    let step = match key {
        "reserve" => ReservationStep::Reserve(hits.unwrap_or(0)),
        "settle" => match hits {
            Some(hits) => ReservationStep::Settle(hits),
            None => {
                reader.missing(node, section, "hits", "write `hits: NUMBER`, those that were used");
                return None;
            }
        },
        _ => ReservationStep::Cancel,
    };
    Some((id?, step))
}

fn descriptors(reader: &mut Reader<'_>, list: &Node<'_>) -> Vec<DescriptorSpec> {
    let items = reader.list(list, "descriptors", "descriptors, such as ['path=/a']");
    let max = weir_limiter::LimiterOptions::default().max_descriptors;
    if items.len() > max {
        let message = format_args!("{} descriptors in one request", items.len());
        let help = format!("write up to {max}: the service refuses more");
        reader.error(list.position, "", message, &help);
        return Vec::new();
    }
    items.iter().map(|item| descriptor(reader, item)).collect()
}

fn descriptor(reader: &mut Reader<'_>, node: &Node<'_>) -> DescriptorSpec {
    let mut read = DescriptorSpec::default();
    if !matches!(node.content(), Content::Map(_)) {
        read.entries = entries(reader, node);
        return read;
    }
    let mut has_entries = false;
    for (key, value) in reader.fields(node, &DESCRIPTOR) {
        match key {
            "entries" => {
                has_entries = true;
                read.entries = entries(reader, value);
            }
            "hits" => read.hits = reader.number(value, key, 0..=u32::MAX).map(u64::from),
            "refund" => read.refund = reader.bool(value, key).unwrap_or_default(),
            _ => read.limit = limit(reader, value),
        }
    }
    if !has_entries {
        let help = "write `entries: 'key=value,key2=value2'`";
        reader.missing(node, &DESCRIPTOR, "entries", help);
    }
    read
}

/// Reads entries as text or as a list of maps.
fn entries(reader: &mut Reader<'_>, node: &Node<'_>) -> DescriptorArg {
    if let Content::List(items) = node.content() {
        return DescriptorArg(items.iter().map(|item| entry(reader, item)).collect());
    }
    let Some(text) = reader.text(node, "entries") else { return DescriptorArg::default() };
    text.parse().unwrap_or_else(|error: String| {
        let message = format_args!("invalid descriptor '{}'", node.shown());
        reader.error(node.position, &node.shown(), message, &error);
        DescriptorArg::default()
    })
}

fn entry(reader: &mut Reader<'_>, node: &Node<'_>) -> (String, String) {
    let (mut name, mut text) = (None, String::new());
    for (key, value) in reader.fields(node, &ENTRY) {
        match key {
            "key" => name = Some(reader.name(value, key).unwrap_or_default().to_owned()),
            _ => text = reader.text(value, key).unwrap_or_default().to_owned(),
        }
    }
    if name.is_none() {
        reader.missing(node, &ENTRY, "key", "write `{key: NAME, value: TEXT}`");
    }
    (name.unwrap_or_default(), text)
}

fn limit(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Override> {
    // In the order of their numbers in `envoy.type.v3.RateLimitUnit`, which start with 1.
    use Unit::{Day, Hour, Minute, Month, Second, Week, Year};
    let units = [Second, Minute, Hour, Day, Month, Year, Week].map(Unit::name);
    let units: Vec<(&str, i32)> = units.into_iter().zip(1..).collect();
    let (mut requests_per_unit, mut unit, mut unit_multiplier) = (None, None, None);
    let fields = reader.fields(node, &LIMIT);
    if let Some((_, value)) = fields.iter().find(|(key, _)| *key == "rate") {
        let rate = value.text().unwrap_or_default().parse::<Rate>();
        let rate = rate.map_err(|help| reader.invalid(value, "rate", &help)).ok()?;
        if let Some((other, _)) = fields.iter().find(|(key, _)| *key != "rate") {
            let message = format_args!("both `rate` and `{other}`");
            let help = "remove one of the two: a rate is the number and the period";
            reader.error(value.position, &value.shown(), message, help);
        }
        let (unit, multiplier) = Unit::of_seconds(rate.per.seconds())?;
        let unit =
            units.iter().find(|(name, _)| *name == unit.name()).map(|(_, number)| *number)?;
        return Some(Override {
            requests_per_unit: rate.n,
            unit,
            unit_multiplier: Some(multiplier),
        });
    }
    for (key, value) in fields {
        match key {
            "requests_per_unit" => {
                requests_per_unit = Some(reader.number(value, key, 0..=u32::MAX)?);
            }
            "unit" => unit = Some(reader.choice(value, key, &units)?),
            _ => unit_multiplier = Some(reader.number(value, key, 1..=u32::MAX)?),
        }
    }
    match (requests_per_unit, unit) {
        (Some(requests_per_unit), Some(unit)) => {
            Some(Override { requests_per_unit, unit, unit_multiplier })
        }
        (requests_per_unit, _) => {
            let key = if requests_per_unit.is_none() { "requests_per_unit" } else { "unit" };
            let help = "write `{rate: 10/m}`";
            reader.missing(node, &LIMIT, key, help);
            None
        }
    }
}
