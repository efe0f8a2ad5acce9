//! The messages have the members that docs/reference/openapi.json has.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use weir_controls::{Draft, LimitChange};
use weir_limiter::explain::{Explained, ExplainedCandidate, ExplainedStep, LiveDescriptor};
use weir_limiter::{
    GrantedState, HoldState, InspectedBan, InspectedLimit, LeasedState, ReadState, ReservationState,
};
use weir_rules::LimitDescription;
use weir_top::TopList;

/// Reads a message and writes it again.
fn again<T: DeserializeOwned + Serialize>(json: &Value) -> Result<Value, String> {
    let message = T::deserialize(json).map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(message).unwrap())
}

type Reread = fn(&Value) -> Result<Value, String>;

/// The message of each schema of an object.
const MESSAGES: [(&str, Reread); 33] = [
    ("Error", again::<ErrorAnswer>),
    ("Entry", again::<OwnedEntry>),
    ("Draft", again::<Draft>),
    ("LimitChange", again::<LimitChange>),
    ("Control", again::<ShownControl>),
    ("Controls", again::<ControlList>),
    ("Written", again::<WrittenControl>),
    ("Deleted", again::<ChangedControl>),
    ("State", again::<ReadState>),
    ("Explained", again::<Explained<LiveDescriptor>>),
    ("ExplainedDescriptor", again::<LiveDescriptor>),
    ("ExplainedStep", again::<ExplainedStep>),
    ("Candidate", again::<ExplainedCandidate>),
    ("LimitState", again::<InspectedLimit>),
    ("BanState", again::<InspectedBan>),
    ("Holds", again::<HoldState>),
    ("Leased", again::<LeasedState>),
    ("Granted", again::<GrantedState>),
    ("Reservation", again::<ReservationState>),
    ("Counts", again::<Counts>),
    ("Count", again::<CountedSpan>),
    ("Reset", again::<Reset>),
    ("TopList", again::<TopList>),
    ("TopRow", again::<TopRow>),
    ("Quotas", again::<QuotaList>),
    ("QuotaBucket", again::<ListedBucket>),
    ("Audit", again::<AuditList>),
    ("AuditRecord", again::<AuditRecord>),
    ("History", again::<HistoryAnswer>),
    ("HistorySeries", again::<HistorySeries>),
    ("HistoryRule", again::<HistoryRule>),
    ("Rule", again::<RuleDescription>),
    ("RuleLimit", again::<LimitDescription>),
];

struct Document(Value);

impl Document {
    fn read() -> Document {
        Document(
            serde_json::from_str(include_str!("../../../../docs/reference/openapi.json")).unwrap(),
        )
    }

    fn schema(&self, name: &str) -> &Value {
        &self.0["components"]["schemas"][name]
    }

    /// Returns a value with every member of a schema.
    fn sample(&self, schema: &Value) -> Value {
        if let Some(pointer) = schema["$ref"].as_str() {
            return self.sample(self.0.pointer(pointer.trim_start_matches('#')).unwrap());
        }
        if let Some(schemas) = schema["anyOf"].as_array() {
            return self.sample(&schemas[0]);
        }
        if let Some(example) = schema["examples"].get(0) {
            return example.clone();
        }
        if let Some(values) = schema["enum"].as_array() {
            return values.last().unwrap().clone();
        }
        let types = &schema["type"];
        match types.as_str().or_else(|| types[0].as_str()).unwrap() {
            "object" => {
                let members = schema["properties"].as_object().into_iter().flatten();
                members.map(|(name, schema)| (name.clone(), self.sample(schema))).collect()
            }
            "array" => json!([self.sample(&schema["items"])]),
            // Some are times.
            "string" => "2030-01-31T08:00:00Z".into(),
            "integer" => 1.into(),
            "number" => 0.5.into(),
            "boolean" => true.into(),
            "null" => Value::Null,
            other => panic!("{other}"),
        }
    }

    fn is_nullable(&self, schema: &Value) -> bool {
        let any =
            schema["anyOf"].as_array().is_some_and(|any| any.contains(&json!({ "type": "null" })));
        any || schema["type"] == "null" || schema["type"][1] == "null"
    }
}

/// Removes what controls have only in some answers, `left_ms`, and only if they allow, `count`.
fn without_options(json: &mut Value) {
    if let Value::Object(members) = json {
        if members.contains_key("action") {
            members.retain(|name, _| name != "left_ms" && name != "count");
        }
        // Only values that are not UTF-8 have it.
        members.remove("escaped");
        members.values_mut().for_each(without_options);
    } else if let Value::Array(items) = json {
        items.iter_mut().for_each(without_options);
    }
}

/// Adds a member to each object.
fn with_newer(json: &Value) -> Value {
    match json {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), with_newer(value)));
            members.chain([("newer".to_owned(), json!([{}]))]).collect()
        }
        Value::Array(items) => items.iter().map(with_newer).collect(),
        other => other.clone(),
    }
}

#[test]
fn every_schema_of_an_object_has_a_message() {
    let document = Document::read();
    let schemas = document.0["components"]["schemas"].as_object().unwrap();
    let lists = ["Entries"];
    let names = schemas.keys().map(String::as_str).filter(|name| !lists.contains(name));
    let mut messages: Vec<&str> = MESSAGES.iter().map(|(name, _)| *name).collect();
    messages.sort_unstable();
    assert_eq!(names.collect::<Vec<_>>(), messages);
}

/// Returns all kinds but [`Other`](AdviceKind::Other). The compiler finds one that is forgotten.
fn kinds() -> impl Iterator<Item = AdviceKind> {
    use AdviceKind::*;
    std::iter::successors(Some(NeedsForce), |kind| match kind {
        NeedsForce => Some(NoControl),
        NoControl => Some(NotCounted),
        NotCounted => Some(NoSpan),
        NoSpan => Some(UnknownName),
        UnknownName => Some(NeedsToken),
        NeedsToken | Other => None,
    })
}

#[test]
fn the_kinds_of_errors_are_documented() {
    let document = Document::read();
    let kinds = json!(kinds().collect::<Vec<_>>());
    assert_eq!(document.schema("Error")["properties"]["kind"]["enum"], kinds);
    assert_eq!(AdviceKind::deserialize(json!("newer")).unwrap(), AdviceKind::Other);
}

#[test]
fn messages_have_all_members_of_their_schemas() {
    let document = Document::read();
    for (name, again) in MESSAGES {
        let mut sample = document.sample(document.schema(name));
        let mut read = again(&sample).unwrap_or_else(|error| panic!("{name}: {error}: {sample:#}"));
        without_options(&mut sample);
        without_options(&mut read);
        assert_eq!(read, sample, "{name}");
    }
    let mut control = document.sample(document.schema("Control"));
    control.as_object_mut().unwrap().remove("limit");
    control["entries"][0].as_object_mut().unwrap().remove("escaped");
    control["except"][0].as_object_mut().unwrap().remove("escaped");
    (control["action"], control["count"]) = ("allow".into(), false.into());
    assert_eq!(again::<ShownControl>(&control), Ok(control));
    let failed = json!({ "span_ms": 1, "error": "too long" });
    assert_eq!(again::<CountedSpan>(&failed), Ok(failed));
}

#[test]
fn only_a_required_member_that_is_missing_is_an_error() {
    let document = Document::read();
    for (name, again) in MESSAGES {
        let schema = document.schema(name);
        let sample = document.sample(schema);
        let newer = again(&with_newer(&sample));
        assert!(newer.is_ok(), "{name}: {newer:?}");
        for (member, of_member) in schema["properties"].as_object().into_iter().flatten() {
            let mut sample = sample.clone();
            sample.as_object_mut().unwrap().remove(member);
            let is_required = schema["required"].as_array().unwrap().contains(&json!(member));
            let is_of_action = matches!((name, &**member), ("Draft" | "Control", "limit"));
            // Rows of controls need not have them.
            let has_default =
                matches!((name, &**member), ("Control", "exact" | "text" | "reason" | "by"));
            let is_needed = is_required && !has_default && !document.is_nullable(of_member);
            let read = again(&sample);
            match is_needed || is_of_action {
                true => assert_eq!(read, Err(format!("missing field `{member}`")), "{name}"),
                false => assert!(read.is_ok(), "{name} without {member}: {read:?}"),
            }
        }
    }
}
