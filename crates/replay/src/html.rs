//! `weir replay --output html`: prints the report as one self-contained page. A script in it draws the report.
//!
//! Names and keys come from clients and files. None of them can end the JSON or hide characters, the script makes
//! only texts of them, and the content security policy refuses any other script and any request. Every list and
//! every text has a bound, so that the page has one.

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use serde_json::Value;

use super::report::Report;
use weir_common::escape::escape;
use weir_common::random::random_bytes;

const START: &str = concat!(
    include_str!("html/head.html"),
    include_str!("html/style.css"),
    include_str!("html/page.css"),
    include_str!("html/body.html"),
    "<script type=\"application/json\" id=\"data\">",
);

const END: &str = concat!(
    "</script>\n<script type=\"module\" nonce=\"{nonce}\">\n",
    include_str!("html/elements.js"),
    include_str!("html/plot.js"),
    include_str!("html/report.js"),
    "</script>\n</body></html>\n",
);

const MAX_ITEMS: usize = 100;

/// Characters of a text, and of the start and the end of a longer one.
const MAX_CHARS: usize = 300;
const START_CHARS: usize = 200;
const END_CHARS: usize = 60;

pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut json = serde_json::to_value(report)?;
    bound(&mut json);
    // `<` is only in strings.
    let json = json.to_string().replace('<', r"\u003c");
    // No text in the page can name it.
    let nonce = format!("{:032x}", u128::from_be_bytes(random_bytes()));
    let [start, end] = [START, END].map(|part| part.replace("{nonce}", &nonce));
    let start = start.replace("{version}", env!("CARGO_PKG_VERSION"));
    write!(out, "{start}{json}{end}")
}

/// Shortens lists and texts, and adds the number of items that are missing from `name` as `more_name`.
fn bound(value: &mut Value) {
    match value {
        Value::String(text) => *text = shown(text),
        Value::Array(items) => items.iter_mut().for_each(bound),
        Value::Object(members) => {
            let mut more = Vec::new();
            for (name, member) in members.iter_mut() {
                // Series have a bound of their own.
                if let Value::Array(items) = member
                    && items.len() > MAX_ITEMS
                    && !items.iter().all(Value::is_number)
                {
                    more.push((format!("more_{name}"), (items.len() - MAX_ITEMS).into()));
                    items.truncate(MAX_ITEMS);
                }
                bound(member);
            }
            members.extend(more);
        }
        _ => {}
    }
}

/// Returns a text as one line. A long one loses its middle.
fn shown(text: &str) -> String {
    let chars: Vec<char> = escape(text).chars().collect();
    if chars.len() <= MAX_CHARS {
        return String::from_iter(chars);
    }
    let parts = [&chars[..START_CHARS], &chars[chars.len() - END_CHARS..]];
    let [start, end] = parts.map(String::from_iter);
    let missing = chars.len() - START_CHARS - END_CHARS;
    format!("{start}…({missing} more characters)…{end}")
}
