//! The formats of a report.

use std::io::{self, Write};

use clap::ValueEnum;

use super::report::Report;
use super::{html, json, text};

/// A format of the report.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Output {
    Text,
    Json,
    /// One page with plots, for a browser.
    Html,
}

impl Report {
    /// Writes the report.
    ///
    /// # Errors
    ///
    /// It cannot be written.
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
