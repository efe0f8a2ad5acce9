//! `weir hit`: sends requests to a rate-limit service, as Envoy does.

mod address;
mod arguments;
mod latencies;
pub(super) mod reference_flags;
mod report;
mod request;
mod server;
mod session;
mod summary;
mod wait;

use std::io::{self, Write};
use std::process::ExitCode;

pub use self::arguments::HitArgs;
use self::arguments::Output;
use self::report::{JsonReport, Report, TextReport};
use self::session::Session;
use self::summary::Summary;
use super::USAGE;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir_common::escape::escape;
use weir_common::terminal;

/// Sends the requests. Exits 3 if one stays over its limit, and 1 if one fails.
pub fn run(args: &HitArgs) -> ExitCode {
    let request = match request::build(args) {
        Ok(request) => request,
        Err(error) => return fail(USAGE, &error),
    };
    let mut summary = Summary::default();
    match send(args, &request, &mut summary) {
        Ok(()) => summary.exit_code(),
        Err(error) => fail(1, &error),
    }
}

fn fail(code: u8, error: &str) -> ExitCode {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "error: {}", escape(error));
    ExitCode::from(code)
}

/// Connects, and sends requests until the last one or Ctrl-C.
fn send(args: &HitArgs, request: &RateLimitRequest, summary: &mut Summary) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let sent = runtime.block_on(async {
        tokio::select! {
            sent = connect_and_send(args, request, summary) => sent,
            // What was counted so far is the result.
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    });
    // A thread that resolves a name may still run.
    runtime.shutdown_background();
    sent?;
    if args.repeat.get() > 1 || !summary.is_complete(args.repeat) {
        // The reader may have closed the pipe.
        let _ = match args.output {
            Output::Text => write!(io::stdout(), "{summary}"),
            Output::Json => write!(io::stderr(), "{summary}"),
        };
    }
    Ok(())
}

async fn connect_and_send(
    args: &HitArgs,
    request: &RateLimitRequest,
    summary: &mut Summary,
) -> Result<(), String> {
    let channel = server::connect(args).await?;
    let client = RateLimitServiceClient::new(channel);
    let ask = async || {
        let answer = client.clone().should_rate_limit(request.clone()).await;
        answer.map(tonic::Response::into_inner).map_err(|error| server::explain(error, args))
    };
    let is_single = args.repeat.get() == 1;
    let report: &mut dyn Report = match args.output {
        Output::Text => {
            let colors = terminal::has_colors(&io::stdout());
            &mut TextReport { request, is_single, is_quiet: args.quiet, colors }
        }
        Output::Json => &mut JsonReport { is_quiet: args.quiet },
    };
    let session = Session {
        repeat: args.repeat,
        parallel: args.parallel,
        interval: args.rate.map(|rate| rate.interval()),
        max_wait: args.wait.map(|max| max.unwrap_or(wait::UNBOUNDED)),
    };
    match session.run(&ask, report, summary).await {
        // Nobody reads the rest, as with `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| format!("cannot write: {error}")),
    }
}
