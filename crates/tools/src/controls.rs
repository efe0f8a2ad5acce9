//! `weir controls`: lists the controls of a running weir: what operators have blocked, allowed and limited.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::api_client::{ApiClient, ServerArgs, read};
use super::describe::{COLUMNS, row};
use crate::print::{Output, line, on_stderr, table};
use weir_api::messages::ControlList;

const EXAMPLES: &str = "\
Examples:
  weir controls
  weir controls --output json

Those that end first are listed first.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ControlsArgs {
    /// Format of the list.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &ControlsArgs) -> ExitCode {
    let answer = ApiClient::new(&args.server).and_then(|client| client.get("/v1/controls"));
    if let Ok(Ok(ControlList { share_error: Some(error), .. })) = answer.as_ref().map(read) {
        on_stderr(&format!("warning: controls of other replicas may be missing: {error}"));
    }
    args.output.show(answer, print_list)
}

fn print_list(answer: &ControlList, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<Vec<String>> = answer.controls.iter().map(row).collect();
    if rows.is_empty() { line(out, "no controls") } else { table(out, 0, &COLUMNS, &rows) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn controls_are_listed_with_the_time_left() {
        let control = |id: &str, action: &str, left_ms: Value| {
            json!({
                "id": id, "domain": "shop", "entries": [{ "key": "user", "value": id }],
                "exact": false, "action": action, "until": null, "left_ms": left_ms, "reason": "",
                "by": "ann", "at": "2026-01-01T00:00:00Z", "limit": { "n": 5, "burst": null, "name": "" },
            })
        };
        let printed = |controls: Value| {
            let list = serde_json::from_value(json!({ "controls": controls, "share_error": null }));
            let mut out = Vec::new();
            print_list(&list.unwrap(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let mut long = control("c", "block", Value::Null);
        long["domain"] = "d".repeat(80).into();
        let list = json!([
            control("a", "block", 3_598_000.into()),
            control("b", "limit", 97_200_000.into()),
            long,
        ]);
        let wanted = format!(
            "   LEFT  ACTION   MATCHES{:55}BY   ID\n\
             \x2059m58s  block    shop user=a{:51}ann  a\n\
             \x20  1d3h  limit 5  shop user=b{:51}ann  b\n\
             forever  block    {}…  ann  c\n",
            "",
            "",
            "",
            "d".repeat(59)
        );
        assert_eq!(printed(list), wanted);
        assert_eq!(printed(json!([])), "no controls\n");
    }
}
