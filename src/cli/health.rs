//! `weir health`: checks whether a running weir is ready.
//!
//! For container images without a shell: their health check, and probes that run in the container.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};

use crate::settings::{Inputs, Settings};
use weir_client::http::Target;
use weir_tools::http_client::{self, Answer, Call, TlsFiles, parse_timeout};
use weir_tools::print::on_stderr;
use weir_tools::{environment, path_of_server};

/// An answer of weir has a few lines.
const MAX_ANSWER_BYTES: usize = 16 << 10;

const EXAMPLES: &str = "\
Examples:
  weir health
  weir health --server http://weir:6070
  weir health --url https://weir.example:8080/readyz --ca ca.crt

Exits 0 if weir is ready, 1 if it is not or does not answer in time.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HealthArgs {
    /// URL of the debug port, whose /readyz is asked. Default: WEIR_SERVER, else the port that the settings in the
    /// environment name, else http://127.0.0.1:6070.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// URL of another health endpoint: /readyz, /livez or /healthcheck, over http or https.
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    url: Option<Target>,
    /// Timeout of the whole call.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsFiles,
}

/// Exits 0 if weir is ready. Else prints the reasons, one a line, and exits 1.
pub fn run(args: &HealthArgs) -> ExitCode {
    match check(args) {
        // The reader may have closed the pipe.
        Ok(()) => {
            let _ = writeln!(io::stdout(), "ok");
            ExitCode::SUCCESS
        }
        Err(reasons) => {
            reasons.lines().for_each(on_stderr);
            ExitCode::FAILURE
        }
    }
}

fn check(args: &HealthArgs) -> Result<(), String> {
    let target = match &args.url {
        Some(target) => target.clone(),
        None => path_of_server(args.server.as_deref(), "/readyz")?.map_or_else(local_target, Ok)?,
    };
    let answer = http_client::send(Call {
        method: Method::GET,
        target: &target,
        headers: Vec::new(),
        body: String::new(),
        tls: &args.tls,
        timeout: args.timeout,
        max_answer_bytes: MAX_ANSWER_BYTES,
    });
    let start = match &args.url {
        Some(_) => "start weir, or name another URL",
        None => "start weir, or name its debug port with --server",
    };
    check_answer(&target, &answer.map_err(|error| error.explain(&target, start))?)
}

/// Returns `/readyz` of the debug port, which is never encrypted.
fn local_target() -> Result<Target, String> {
    let inputs = Inputs { env: environment(), ..Inputs::default() };
    let address = Settings::debug_address(&inputs).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    Target::local(&address)
}

/// Reads an answer. The debug port answers unknown paths with a list of its pages, so the status alone
/// does not show that weir is ready.
fn check_answer(target: &Target, answer: &Answer) -> Result<(), String> {
    let body = answer.body.trim();
    match answer.status {
        StatusCode::OK if body.eq_ignore_ascii_case("ok") => Ok(()),
        StatusCode::OK => Err(format!(
            "{target} is not a health endpoint: use the path /readyz, /livez or /healthcheck"
        )),
        StatusCode::SERVICE_UNAVAILABLE if !body.is_empty() => Err(body.to_owned()),
        status if status.is_redirection() => {
            Err(format!("{target} answered {status}: name the URL that it redirects to"))
        }
        status => Err(format!("{target} answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(status: u16, body: &str) -> Result<(), String> {
        let target: Target = "http://weir:8080/readyz".parse().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        check_answer(&target, &Answer { status, body: body.to_owned() })
    }

    #[test]
    fn only_the_answer_of_a_health_endpoint_is_ready() {
        assert_eq!(checked(200, "ok\n"), Ok(()));
        assert_eq!(checked(200, "OK"), Ok(()));
        assert_eq!(checked(503, "draining\n\n"), Err("draining".to_owned()));
        let url = "http://weir:8080/readyz";
        for (status, body, error) in [
            (200, "/livez: ok\n", " is not a health endpoint: use the path /readyz, "),
            (200, "", " is not a health endpoint: use the path /readyz, "),
            (503, "", " answered 503 Service Unavailable"),
            (500, "", " answered 500 Internal Server Error"),
            (404, "ok", " answered 404 Not Found"),
            (302, "ok", " answered 302 Found: name the URL that it redirects to"),
            (204, "", " answered 204 No Content"),
        ] {
            let shown = checked(status, body).unwrap_err();
            assert!(shown.starts_with(&format!("{url}{error}")), "{status}: {shown}");
        }
    }
}
