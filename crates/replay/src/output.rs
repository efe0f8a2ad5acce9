//! The forms in which a report is printed.

use std::io::{self, Write};

use clap::ValueEnum;

use crate::report::Report;
use crate::{html, json, text};

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
