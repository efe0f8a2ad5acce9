//! Reads the CEL expression of a format, as far as to see where it fails and which of its numbers have bounds.
//!
//! What is checked must stand before what is read, anywhere in the text: which branch it is in is not followed.

use std::collections::HashSet;
use std::ops::Range;

/// The maps whose keys may be absent.
const MAPS: [&[&str]; 5] = [
    &["request", "headers"],
    &["response", "headers"],
    &["response", "trailers"],
    &["metadata", "filter_metadata"],
    &["filter_state"],
];

/// The attributes that may be absent.
const OPTIONAL: [&[&str]; 3] =
    [&["response", "code"], &["response", "code_details"], &["response", "grpc_status"]];

/// The header that Envoy lets pass only as a number.
const CONTENT_LENGTH: [&str; 3] = ["request", "headers", "content-length"];

const COMPARISONS: [&str; 4] = ["<", "<=", ">", ">="];

/// What ends an operand of a comparison.
const BOUNDARIES: [&str; 11] = ["&&", "||", "?", ":", ",", "<", "<=", ">", ">=", "==", "!="];

/// An expression, as its tokens and the paths in it.
pub(super) struct Expression<'e> {
    text: &'e str,
    tokens: Vec<Token<'e>>,
    paths: Vec<Path<'e>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Number,
    /// A text, without its quotes.
    Text,
    Symbol,
}

#[derive(Clone, Copy)]
struct Token<'e> {
    kind: Kind,
    text: &'e str,
    /// Where the token starts and ends in the text, with quotes.
    start: usize,
    end: usize,
}

/// A path such as `metadata.filter_metadata['llm'].tokens`.
struct Path<'e> {
    segments: Vec<&'e str>,
    /// Where each segment ends in the text.
    ends: Vec<usize>,
    tokens: Range<usize>,
    /// The method that is called on the path.
    method: Option<&'e str>,
    /// The key that `in` looks for in the path.
    wanted: Option<&'e str>,
    /// The function that the path is the first argument of.
    function: Option<&'e str>,
    /// Whether the path is part of a comparison.
    is_compared: bool,
    /// The numbers that the path is compared with.
    numbers: Vec<f64>,
}

/// Why an expression may fail.
#[derive(Debug, PartialEq)]
pub(super) enum Failure<'e> {
    /// The path may be absent; `check` is an expression that tests for it.
    Absent { path: &'e str, check: String },
    /// The text of the header at the path may be no number.
    NoNumber { path: &'e str },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Upper,
    Lower,
}

impl<'e> Expression<'e> {
    /// Reads an expression, in time that grows with the square of its length.
    pub fn read(text: &'e str) -> Expression<'e> {
        let tokens = tokens(text);
        let paths = (0..tokens.len()).filter_map(|i| path(&tokens, i)).collect();
        let mut expression = Expression { text, tokens, paths };
        expression.compare();
        expression
    }

    /// Returns the first part that may fail.
    pub fn failure(&self) -> Option<Failure<'e>> {
        let mut checked: HashSet<Vec<&str>> = HashSet::new();
        let mut matched: HashSet<&[&str]> = HashSet::new();
        for path in &self.paths {
            let is_has = path.function == Some("has") && path.method.is_none();
            for length in 1..=path.segments.len() {
                let part = &path.segments[..length];
                let is_asked = is_has && length == path.segments.len();
                if may_be_absent(part) && !is_asked && !checked.contains(part) {
                    return Some(self.absent(path, length));
                }
            }
            if is_has {
                checked.insert(path.segments.clone());
            }
            if let Some(key) = path.wanted {
                checked.insert(path.segments.iter().copied().chain([key]).collect());
            }
            match path.method {
                Some("matches") => {
                    matched.insert(&path.segments);
                }
                None if path.is_text_of_client() && !matched.contains(&*path.segments) => {
                    return Some(Failure::NoNumber { path: self.shown(path, path.segments.len()) });
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the first number of a client or of metadata that is sent without a bound.
    pub fn unbounded(&self) -> Option<(&'e str, Bound)> {
        let sent = self.paths.iter().filter(|path| self.is_sent(path));
        for path in sent.filter(|path| path.is_of_client()) {
            let same = || self.paths.iter().filter(|other| other.segments == path.segments);
            if same().any(|other| other.method == Some("matches")) {
                continue;
            }
            let numbers: Vec<f64> =
                same().flat_map(|other| other.numbers.iter().copied()).collect();
            let has_upper = numbers.iter().any(|number| *number > 1.0);
            let has_lower = numbers.iter().any(|number| *number <= 1.0)
                || numbers.iter().any(|number| Some(number) != numbers.first())
                || path.segments == CONTENT_LENGTH;
            let shown = self.shown(path, path.segments.len());
            match (has_upper, has_lower) {
                (false, _) => return Some((shown, Bound::Upper)),
                (true, false) => return Some((shown, Bound::Lower)),
                (true, true) => {}
            }
        }
        None
    }

    /// Whether the value of a path is part of the result, and not only of a condition.
    fn is_sent(&self, path: &Path<'_>) -> bool {
        let is_condition = self.tokens.get(path.tokens.end).is_some_and(|next| {
            matches!(next.text, "?" | "&&" | "||") && next.kind == Kind::Symbol
        });
        let is_asked = path.function == Some("has") || path.wanted.is_some();
        !is_condition && !is_asked && !path.is_compared && path.method.is_none()
    }

    /// Notes what is compared with which numbers.
    fn compare(&mut self) {
        for (i, token) in self.tokens.iter().enumerate() {
            let is_order = COMPARISONS.contains(&token.text);
            if token.kind != Kind::Symbol || !(is_order || matches!(token.text, "==" | "!=")) {
                continue;
            }
            let sides = [operand_before(&self.tokens, i), operand_after(&self.tokens, i)];
            let numbers = sides.clone().map(|side| {
                let numbers = self.tokens[side].iter().filter(|token| token.kind == Kind::Number);
                numbers.filter_map(|it| it.text.trim_end_matches('u').parse().ok()).collect()
            });
            let [left, right]: [Vec<f64>; 2] = numbers;
            for (side, numbers) in sides.iter().zip([right, left]) {
                let is_in = |path: &&mut Path<'_>| side.contains(&path.tokens.start);
                for path in self.paths.iter_mut().filter(is_in) {
                    path.is_compared = true;
                    path.numbers.extend(numbers.iter().filter(|_| is_order));
                }
            }
        }
    }

    fn shown(&self, path: &Path<'_>, length: usize) -> &'e str {
        let start = self.tokens[path.tokens.start].start;
        self.text.get(start..path.ends[length - 1]).unwrap_or_default()
    }

    fn absent(&self, path: &Path<'e>, length: usize) -> Failure<'e> {
        let shown = self.shown(path, length);
        let key = path.segments[length - 1];
        let check = match OPTIONAL.contains(&&path.segments[..length]) {
            true => format!("has({shown})"),
            false => format!("'{key}' in {}", self.shown(path, length - 1)),
        };
        Failure::Absent { path: shown, check }
    }
}

impl Path<'_> {
    /// Whether a client may send its value, or a filter reads it from what a client sends.
    fn is_of_client(&self) -> bool {
        let starts =
            |map: &[&str]| self.segments.len() > map.len() && self.segments.starts_with(map);
        starts(&["request", "headers"]) || starts(&["metadata", "filter_metadata"])
    }

    /// Whether it is a header of the request that is read as a number, and may be none.
    fn is_text_of_client(&self) -> bool {
        self.segments.starts_with(&["request", "headers"])
            && self.segments != CONTENT_LENGTH
            && matches!(self.function, Some("int" | "uint" | "double"))
    }
}

fn may_be_absent(part: &[&str]) -> bool {
    let is_key = |map: &&[&str]| part.len() > map.len() && part.starts_with(map);
    OPTIONAL.contains(&part) || MAPS.iter().any(is_key)
}

/// The operand before a token.
fn operand_before(tokens: &[Token<'_>], end: usize) -> Range<usize> {
    let mut depth = 0_usize;
    let start = tokens[..end].iter().rposition(|token| ends_operand(token, "(", ")", &mut depth));
    start.map_or(0, |start| start + 1)..end
}

/// The operand after a token.
fn operand_after(tokens: &[Token<'_>], at: usize) -> Range<usize> {
    let mut depth = 0_usize;
    let rest = &tokens[at + 1..];
    let length = rest.iter().position(|token| ends_operand(token, ")", "(", &mut depth));
    at + 1..at + 1 + length.unwrap_or(rest.len())
}

/// Whether a token ends an operand: a boundary outside of parentheses, or the parenthesis that the operand is in.
fn ends_operand(token: &Token<'_>, outer: &str, inner: &str, depth: &mut usize) -> bool {
    if token.kind != Kind::Symbol {
        return false;
    }
    if token.text == inner {
        *depth += 1;
    } else if token.text == outer {
        match depth.checked_sub(1) {
            Some(less) => *depth = less,
            None => return true,
        }
    }
    *depth == 0 && BOUNDARIES.contains(&token.text)
}

/// Returns the path that starts at a token, if one does.
fn path<'e>(tokens: &[Token<'e>], at: usize) -> Option<Path<'e>> {
    let symbol = |i: usize, text| {
        tokens.get(i).is_some_and(|token| token.kind == Kind::Symbol && token.text == text)
    };
    let of_kind = |i: usize, kind| tokens.get(i).filter(|token| token.kind == kind);
    let first = of_kind(at, Kind::Name)?;
    let before = |back: usize| at.checked_sub(back);
    let is_word = matches!(first.text, "in" | "true" | "false" | "null");
    if is_word || before(1).is_some_and(|i| symbol(i, ".")) {
        return None;
    }
    let (mut segments, mut ends, mut end) = (vec![first.text], vec![first.end], at + 1);
    loop {
        let (segment, segment_end, next) = if symbol(end, ".")
            && let Some(name) = of_kind(end + 1, Kind::Name)
        {
            (name.text, name.end, end + 2)
        } else if symbol(end, "[")
            && let Some(key) = of_kind(end + 1, Kind::Text)
            && symbol(end + 2, "]")
        {
            (key.text, key.end + 1, end + 3)
        } else {
            break;
        };
        segments.push(segment);
        ends.push(segment_end);
        end = next;
    }
    let mut method = None;
    if symbol(end, "(") {
        method = segments.pop();
        ends.pop();
        end = end.saturating_sub(2);
        if segments.is_empty() {
            return None;
        }
    }
    let name = |back| before(back).and_then(|i| of_kind(i, Kind::Name)).map(|name| name.text);
    let function = name(2).filter(|_| before(1).is_some_and(|i| symbol(i, "(")));
    let key = before(2).and_then(|i| of_kind(i, Kind::Text)).map(|key| key.text);
    let wanted = key.filter(|_| name(1) == Some("in"));
    let (is_compared, numbers) = (false, Vec::new());
    Some(Path { segments, ends, tokens: at..end, method, wanted, function, is_compared, numbers })
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &text[at..];
        let while_is = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let (kind, length) = match first {
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            '\'' | '"' => (Kind::Text, quoted(rest, first)),
            _ if first.is_ascii_digit() => {
                (Kind::Number, while_is(|c| c.is_ascii_alphanumeric() || c == '.'))
            }
            _ if first.is_ascii_alphabetic() || first == '_' => {
                (Kind::Name, while_is(|c| c.is_ascii_alphanumeric() || c == '_'))
            }
            _ => {
                let two =
                    ["&&", "||", "==", "!=", "<=", ">="].iter().any(|it| rest.starts_with(it));
                (Kind::Symbol, if two { 2 } else { first.len_utf8() })
            }
        };
        let (start, end) = (at, at + length);
        let whole = &text[start..end];
        let text = match kind {
            Kind::Text => whole.trim_matches(first),
            _ => whole,
        };
        tokens.push(Token { kind, text, start, end });
        at = end;
    }
    tokens
}

/// The length of the text that starts here, with its quotes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: &str = "metadata.filter_metadata['llm']";

    /// Replaces `M` by the metadata, and reads.
    fn with<T>(text: &str, check: impl Fn(&Expression<'_>) -> T) -> T {
        check(&Expression::read(&text.replace('M', M)))
    }

    #[test]
    fn what_may_be_absent_is_checked_first() {
        let guarded = "'llm' in metadata.filter_metadata && 'tokens' in M ? int(M.tokens) : 1";
        for text in [
            guarded,
            "1",
            "request.size / 4",
            "'content-length' in request.headers ? int(request.headers['content-length']) : 1",
            "\"content-length\" in request.headers ? int(request.headers[\"content-length\"]) : 1",
            "'a' in request.headers && request.headers['a'].matches('^[0-9]{1,9}$') ? int(request.headers['a']) : 1",
            "'a' in request.headers && request.headers['a'] == 'big' ? 100 : 1",
            "has(response.code) && response.code >= 400 ? 0 : 1",
            "'llm' in metadata.filter_metadata && has(M.tokens) ? int(M.tokens) : 1",
            "'llm' in metadata.filter_metadata && 'tokens' in M ? int(M['tokens']) : 1",
        ] {
            let found = with(text, |it| it.failure().map(|failure| format!("{failure:?}")));
            assert_eq!(found, None, "{text}");
        }
        for (text, absent, check) in [
            (
                "int(request.headers['content-length'])",
                "request.headers['content-length']",
                "'content-length' in request.headers",
            ),
            ("response.code >= 400 ? 0 : 1", "response.code", "has(response.code)"),
            ("int(M.tokens)", "M", "'llm' in metadata.filter_metadata"),
            ("'tokens' in M ? 1 : 2", "M", "'llm' in metadata.filter_metadata"),
            ("has(M.tokens) ? 1 : 2", "M", "'llm' in metadata.filter_metadata"),
            ("'llm' in metadata.filter_metadata ? int(M.tokens) : 1", "M.tokens", "'tokens' in M"),
            (
                "'llm' in metadata.filter_metadata && 'usage' in M ? int(M.usage.all) : 1",
                "M.usage.all",
                "'all' in M.usage",
            ),
            ("int(response.trailers['a'])", "response.trailers['a']", "'a' in response.trailers"),
        ] {
            with(text, |it| {
                let (path, check) = (absent.replace('M', M), check.replace('M', M));
                assert_eq!(it.failure(), Some(Failure::Absent { path: &path, check }), "{text}");
            });
        }
        let text = "'a' in request.headers ? int(request.headers['a']) : 1";
        let failure = Expression::read(text).failure();
        assert_eq!(failure, Some(Failure::NoNumber { path: "request.headers['a']" }));
    }

    #[test]
    fn numbers_of_clients_have_bounds() {
        for text in [
            "1",
            "request.size / 4",
            "M.a >= 1.0 && M.a <= 20000.0 ? int(M.a) : 4000",
            "M.a < 1.0 || 20000.0 < M.a ? 4000 : int(M.a)",
            "M.a >= 1000.0 && M.a <= 20000.0 ? int(M.a) : 4000",
            "M.model == 'big' ? 4000 : 1000",
            "M.is_big ? 4000 : 1000",
            "int(request.headers['content-length']) <= 1000000 ? int(request.headers['content-length']) : 1",
            "(M.a > 0.0 && M.b > 0.0 && M.a + M.b < 20000.0) ? int(M.a + M.b) : 1",
            "request.headers['a'].matches('^[0-9]{1,9}$') ? int(request.headers['a']) : 1",
        ] {
            assert_eq!(with(text, |it| it.unbounded().map(|found| found.1)), None, "{text}");
        }
        for (text, path, bound) in [
            ("int(M.a)", "M.a", Bound::Upper),
            ("M.a >= 1.0 ? int(M.a) : 1", "M.a", Bound::Upper),
            ("M.a <= 20000.0 ? int(M.a) : 1", "M.a", Bound::Lower),
            ("M.b >= 1.0 && M.b <= 20000.0 ? int(M.a) : 1", "M.a", Bound::Upper),
            (
                "int(request.headers['content-length']) / 4",
                "request.headers['content-length']",
                Bound::Upper,
            ),
        ] {
            let found =
                with(text, |it| it.unbounded().map(|(path, bound)| (path.to_owned(), bound)));
            assert_eq!(found, Some((path.replace('M', M), bound)), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_expressions_are_read() {
        for text in [
            "", "'", "\"\\", "((((", "a.", "a['", "a[", "< < <", "é.ü", "in", "a(b(c(", ")<)(",
            "1.2.3u",
        ] {
            let expression = Expression::read(text);
            expression.failure();
            expression.unbounded();
        }
    }
}
