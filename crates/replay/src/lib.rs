//! What rules would have decided about recorded traffic.
//!
//! A [`Mapping`] says how the lines of a log become requests, a [`Replay`] sends them through one set of
//! rules or two, in the time of the log, and a [`Report`] has the result.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod distinct;
mod format;
mod html;
mod input;
mod json;
mod mapping;
mod progress;
mod report;
mod rows;
mod run;
mod side;
mod tally;
mod template;
mod text;
mod time;

pub use self::input::Input;
pub use self::mapping::{Mapping, MappingArgs};
pub use self::report::Report;
pub use self::run::Replay;

use std::io::{self, Write};

use clap::ValueEnum;

/// What prevents a replay, as lines for standard error.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are invalid.
    Usage(String),
    /// A file is invalid or cannot be read.
    File(String),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Output {
    Text,
    Json,
    /// One page with plots, for a browser.
    Html,
}

impl Report {
    pub fn print(&self, output: Output, out: &mut impl Write) -> io::Result<()> {
        let mut out = io::BufWriter::new(out);
        match output {
            Output::Text => text::print(self, &mut out)?,
            Output::Json => json::print(self, &mut out)?,
            Output::Html => html::print(self, &mut out)?,
        }
        out.flush()
    }
}
