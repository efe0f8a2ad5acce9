//! `weir hit`: sends requests to a rate-limit service, as Envoy does.

mod address;
mod arguments;
pub mod reference_flags;
mod report;
mod server;

use std::io::{self, Write};
use std::process::ExitCode;

use tonic::{Response, Status};

pub use self::arguments::HitArgs;
use self::report::{Results, TextReport, print_error, print_json};
use super::api_client::ClientError;
use super::print::Output;
use weir_api::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_api::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir_common::escape::has_colors;

/// Sends the requests. Exits 3 if one is over its limit, and 1 if one fails.
pub fn run(args: &HitArgs) -> ExitCode {
    let request = match arguments::request(args) {
        Ok(request) => request,
        Err(error) => return ClientError::Usage(error).report(),
    };
    let mut results = Results::default();
    match send(args, &request, &mut results) {
        Ok(()) => results.exit_code(),
        Err(error) => ClientError::Connection(error).report(),
    }
}

/// Connects, and sends requests until the last one or Ctrl-C.
fn send(args: &HitArgs, request: &RateLimitRequest, results: &mut Results) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let sent = runtime.block_on(async {
        tokio::select! {
            sent = connect_and_send(args, request, results) => sent,
            // What was counted so far is the result.
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    });
    // A thread that resolves a name may still run.
    runtime.shutdown_background();
    sent?;
    if args.repeat.get() > 1 || results.requests() < args.repeat.get() {
        // The reader may have closed the pipe.
        let _ = match args.output {
            Output::Text => writeln!(io::stdout(), "{results}"),
            Output::Json => writeln!(io::stderr(), "{results}"),
        };
    }
    Ok(())
}

async fn connect_and_send(
    args: &HitArgs,
    request: &RateLimitRequest,
    results: &mut Results,
) -> Result<(), String> {
    let mut client = RateLimitServiceClient::new(server::connect(args).await?);
    let colors = has_colors(&io::stdout());
    let report = TextReport { request, is_single: args.repeat.get() == 1, colors };
    for number in 1..=args.repeat.get() {
        let answer = client.should_rate_limit(request.clone()).await.map(Response::into_inner);
        results.count(&answer);
        let printed = match (&answer, args.output) {
            (Err(error), output) => {
                let error: Status = server::explain(error.clone(), args);
                let is_numbered = !report.is_single || output == Output::Json;
                print_error(is_numbered.then_some(number), &error);
                Ok(())
            }
            (Ok(response), Output::Text) => report.print(number, response),
            (Ok(response), Output::Json) => print_json(response),
        };
        match printed {
            // Nobody reads the rest, as with `head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            result => result.map_err(|error| format!("cannot write: {error}"))?,
        }
    }
    Ok(())
}
