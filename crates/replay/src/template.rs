//! Parses `--descriptor` of `weir replay`, such as `remote_address={x_forwarded_for|last}` with a field of the log.

mod filter;

use smallvec::SmallVec;

pub(super) use self::filter::{Filter, host};
use super::rows::Fields;
use weir_common::descriptor::DescriptorArg;

/// A descriptor whose values have fields of the log in them.
#[derive(Debug)]
pub(super) struct Template {
    pub text: String,
    pub entries: Vec<EntryTemplate>,
}

#[derive(Debug)]
pub(super) struct EntryTemplate {
    pub key: String,
    pub parts: SmallVec<[Part; 1]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    /// The index of a field, and the filters that take a part of its value.
    Field(usize, Box<[Filter]>),
}

impl Part {
    pub fn field(&self) -> Option<usize> {
        match self {
            Part::Text(_) => None,
            Part::Field(field, _) => Some(*field),
        }
    }

    /// The text of the part, given the values of fields; none if there is no such value.
    #[inline]
    pub fn text<'r>(&'r self, get: impl Fn(usize) -> Option<&'r str>) -> Option<&'r str> {
        match self {
            Part::Text(text) => Some(text),
            Part::Field(field, filters) => {
                filters.iter().try_fold(get(*field)?, |value, filter| filter.apply(value))
            }
        }
    }
}

impl Template {
    /// Parses a descriptor. `{name}` is the value of a field, `{name|filter}` a part of it; `{{` and `}}` are braces.
    pub fn parse(text: &str, fields: &mut Fields) -> Result<Template, String> {
        let DescriptorArg(entries) = text.parse()?;
        let entries = entries.into_iter().map(|(key, value)| {
            let parts = parse_value(&value, fields)?;
            Ok(EntryTemplate { key, parts })
        });
        Ok(Template { text: text.to_owned(), entries: entries.collect::<Result<_, String>>()? })
    }
}

fn parse_value(value: &str, fields: &mut Fields) -> Result<SmallVec<[Part; 1]>, String> {
    let (mut parts, mut text) = (SmallVec::new(), String::new());
    let mut rest = value;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            text.push_str(&from[..1]);
            rest = after;
            continue;
        }
        let Some((name, after)) = from[1..].split_once('}').filter(|_| from.starts_with('{'))
        else {
            return Err(format!(
                "`{value}` has a brace without its partner: write {{field}} for a field of the log, \
                 {{{{ or }}}} for a brace"
            ));
        };
        if name.is_empty() || name.starts_with('|') {
            return Err("`{}` names no field: write {field}".to_owned());
        }
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        let (name, filters) = match name.split_once('|') {
            Some((name, filters)) => (name, Filter::parse_all(filters)?),
            None => (name, Vec::new()),
        };
        let field = fields.add(name).ok_or_else(|| {
            format!("there are over {} fields: write fewer different ones", Fields::MAX)
        })?;
        parts.push(Part::Field(field, filters.into()));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Template, Fields), String> {
        let mut fields = Fields::default();
        Template::parse(text, &mut fields).map(|template| (template, fields))
    }

    #[test]
    fn values_have_fields_and_text() {
        let (template, fields) = parsed("a={x},b=p-{y}{x}/{{z}},c=,d=1").unwrap();
        let text = |text: &str| Part::Text(text.to_owned());
        let field = |field| Part::Field(field, Box::default());
        let parts: Vec<&[Part]> = template.entries.iter().map(|entry| &*entry.parts).collect();
        assert_eq!(parts[0], [field(0)]);
        assert_eq!(parts[1], [text("p-"), field(1), field(0), text("/{z}")]);
        assert_eq!(parts[2], [text("")]);
        assert_eq!(parts[3], [text("1")]);
        assert_eq!(fields.names, ["x", "y"]);
        let (template, fields) = parsed("a={x|last|host},b={x}").unwrap();
        let filters = [Filter::Hop(0), Filter::Host];
        assert_eq!(template.entries[0].parts[0], Part::Field(0, filters.into()));
        assert_eq!(fields.names, ["x"]);
    }

    #[test]
    fn errors_name_the_cause() {
        for (text, cause) in [
            ("a={x", "partner"),
            ("a=x}", "partner"),
            ("a={}", "no field"),
            ("={x}", "no key"),
            ("a={x|lst}", "no filter `lst`"),
            ("a={|last}", "no field"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(cause), "{text}: {error}");
        }
    }
}
