//! Names and tags in DogStatsD. A mogrifier is a pattern that gives a name and tags to statistics that match, as in
//! envoyproxy/ratelimit.

use regex::Regex;

use crate::mapper::cause;

/// How names and tags are written.
#[derive(Clone, Debug)]
pub enum Dialect {
    StatsD,
    /// Tags are separate from names, and the first mogrifier that matches a name replaces it.
    DogStatsD(Vec<Mogrifier>),
}

#[derive(Clone, Debug)]
pub struct Mogrifier {
    pattern: Regex,
    name: String,
    tags: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MogrifierError {
    /// The part: `PATTERN`, `NAME` or `TAGS`.
    pub part: &'static str,
    pub message: String,
    pub help: &'static str,
}

impl Mogrifier {
    /// Creates a mogrifier. `$0` to `$n` in the name and in values of tags are the match of `pattern` and its groups.
    pub fn new(
        pattern: &str,
        name: &str,
        tags: &[(String, String)],
    ) -> Result<Mogrifier, MogrifierError> {
        let error =
            |part, message: &str, help| MogrifierError { part, message: message.to_owned(), help };
        if pattern.is_empty() {
            return Err(error("PATTERN", "it is missing", "write a regular expression"));
        }
        let compiled = Regex::new(pattern).map_err(|invalid| {
            let message = format!("it is {pattern:?}: {}", cause(&invalid));
            MogrifierError { part: "PATTERN", message, help: "write a regular expression" }
        })?;
        if name.is_empty() {
            return Err(error("NAME", "it is missing", "write the name of the metric"));
        }
        if tags.iter().any(|(name, value)| name.is_empty() || value.is_empty()) {
            let help = "write name:value, with commas between several";
            return Err(error("TAGS", "a tag has no name or no value", help));
        }
        Ok(Mogrifier { pattern: compiled, name: name.to_owned(), tags: tags.to_vec() })
    }

    /// Returns the new name and tags of a name that matches.
    fn apply(&self, name: &str) -> Option<(String, Vec<(String, String)>)> {
        let captures = self.pattern.captures(name)?;
        let group = |index: usize| {
            let group = (index < captures.len()).then(|| captures.get(index));
            group.map(|group| group.map_or("", |group| group.as_str()))
        };
        let tags = self.tags.iter().map(|(name, value)| (name.clone(), fill(value, group)));
        Some((fill(&self.name, group), tags.collect()))
    }
}

/// Replaces `$` and a number by the group of that number, if there is one.
fn fill<'g>(template: &str, group: impl Fn(usize) -> Option<&'g str>) -> String {
    let mut parts = template.split('$');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[..digits].parse().ok().and_then(&group) {
            Some(text) => filled += text,
            None => {
                filled.push('$');
                filled += &part[..digits];
            }
        }
        filled += &part[digits..];
    }
    filled
}

/// A name as it is sent, and its tags.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    /// `|#name:value,…`, or empty.
    pub tags: String,
}

/// Returns a statistic's name and tags; in StatsD, its name.
pub fn mogrify(name: &str, dialect: &Dialect) -> Identity {
    let Dialect::DogStatsD(mogrifiers) = dialect else {
        return Identity { name: name.to_owned(), tags: String::new() };
    };
    let mut parts = name.split(".__");
    let name = parts.next().unwrap_or_default();
    let mut tags: Vec<(String, String)> = parts
        .filter_map(|tag| tag.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mogrified = mogrifiers.iter().find_map(|mogrifier| mogrifier.apply(name));
    let (name, more) = mogrified.unwrap_or_else(|| (name.to_owned(), Vec::new()));
    tags.extend(more);
    let mut text = String::new();
    for (index, (tag, value)) in tags.iter().enumerate() {
        text.push_str(if index == 0 { "|#" } else { "," });
        // These separate tags, and lines.
        let clean = |text: &str| text.replace(['|', ',', '\n'], "_");
        text += &format!("{}:{}", clean(tag), clean(value));
    }
    Identity { name: name.replace(['|', ':', '\n'], "_"), tags: text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mogrifier(pattern: &str, name: &str, tags: &[(&str, &str)]) -> Mogrifier {
        let tags: Vec<_> = tags.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Mogrifier::new(pattern, name, &tags).unwrap()
    }

    fn shown(name: &str, mogrifiers: &[Mogrifier]) -> String {
        let Identity { name, tags } = mogrify(name, &Dialect::DogStatsD(mogrifiers.to_vec()));
        name + &tags
    }

    #[test]
    fn the_first_that_matches_replaces_the_whole_name() {
        let all = [
            mogrifier(r"rule\.(\w+)\.hits$", "hits", &[("rule", "$1")]),
            mogrifier(r"^a\.rule\.(.*)\.(.*)$", "r.$2", &[("d", "$1"), ("all", "$0")]),
        ];
        assert_eq!(shown("a.rule.x.hits", &all), "hits|#rule:x");
        assert_eq!(shown("a.rule.x.over", &all), "r.over|#d:x,all:a.rule.x.over");
        assert_eq!(shown("b.rule.x.over", &all), "b.rule.x.over");
        assert_eq!(shown("b.rule.x.over", &[]), "b.rule.x.over");
    }

    #[test]
    fn groups_out_of_range_stay_as_they_are() {
        let one = [mogrifier("(a)|(b)", "x$2y$3$", &[("t", "$1-$10-$a")])];
        assert_eq!(shown("a", &one), "xy$3$|#t:a-$10-$a");
        assert_eq!(shown("b", &one), "xby$3$|#t:-$10-$a");
    }

    #[test]
    fn tags_at_the_end_of_a_name_come_first_and_are_not_matched() {
        let one = [mogrifier("hits$", "h", &[("x", "y")])];
        assert_eq!(shown("hits.__a=b=c.__bad.__d=e", &one), "h|#a:b=c,d:e,x:y");
    }

    #[test]
    fn nothing_in_a_name_ends_its_line() {
        let one = [mogrifier("(.*)", "n|$1", &[("t", "$1,|\n")])];
        assert_eq!(shown("a", &one), "n_a|#t:a___");
    }

    #[test]
    fn errors_name_the_part() {
        let part = |pattern, name, tags: &[(&str, &str)]| {
            let tags: Vec<_> = tags.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            Mogrifier::new(pattern, name, &tags).unwrap_err().part
        };
        assert_eq!(part("", "n", &[]), "PATTERN");
        assert_eq!(part("(", "n", &[]), "PATTERN");
        assert_eq!(part("a", "", &[]), "NAME");
        assert_eq!(part("a", "n", &[("", "v")]), "TAGS");
        assert_eq!(part("a", "n", &[("t", "")]), "TAGS");
    }
}
