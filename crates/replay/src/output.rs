//! Prints the report of `weir replay`, in the form that `--output` names.

use std::io::{self, Write};

use clap::ValueEnum;

use crate::report::Report;
use crate::{html, text};
use weir_common::escape::escape;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ReplayOutput {
    Text,
    Json,
    /// One page with plots, for a browser.
    Html,
}

impl Report {
    pub fn print(&self, output: ReplayOutput, out: &mut impl Write) -> io::Result<()> {
        let mut out = io::BufWriter::new(out);
        match output {
            ReplayOutput::Text => text::print(self, &mut out)?,
            ReplayOutput::Json => {
                // Without any control character.
                let json = format!("{:#}", serde_json::to_value(self)?);
                json.lines().try_for_each(|line| writeln!(out, "{}", escape(line)))?;
            }
            ReplayOutput::Html => html::print(self, &mut out)?,
        }
        out.flush()
    }
}
