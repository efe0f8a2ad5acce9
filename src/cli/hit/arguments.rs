//! The arguments of `weir hit`.

use std::num::{NonZeroU16, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::address::Address;
use crate::cli::shorthand::Rate;
use weir_common::duration::{MAX_DURATION, read_duration};
use weir_common::number::whole_u32;

const EXAMPLES: &str = "\
Examples:
  weir hit -d shop user=ann
  weir hit ratelimit.example:8081 -d shop user=ann,path=/login remote_address=192.0.2.7
  weir hit --repeat 100 --rate 10/s --wait -d shop user=ann
  weir hit --repeat 100000 --parallel 64 --quiet -d shop user=ann
  weir hit --tls --ca ca.pem weir.example:8081 -d shop user=ann

The flags of envoyproxy/ratelimit's client are accepted too:
  weir hit -dial_string localhost:8081 -domain shop -descriptors user=ann

Exits 0 if every request is OK, 3 if one stays over its limit, 1 if one fails.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "weir hit [OPTIONS] [ADDRESS] -d <DOMAIN> <DESCRIPTOR>...")]
pub struct HitArgs {
    /// The server: `host:port`, or `unix:` and a path. `https://` before it enables TLS.
    #[arg(default_value = "127.0.0.1:8081")]
    pub(super) address: Address,
    /// The domain, and the descriptors of each request, each as `key=value,key2=value2`. Write it last.
    #[arg(short, long, num_args = 1.., value_names = ["DOMAIN", "DESCRIPTOR"])]
    #[arg(required_unless_present = "json")]
    pub(super) domain: Vec<String>,
    /// Instead of -d: the request as the body of `/json`; `-` reads it from standard input.
    #[arg(long, value_name = "BODY", conflicts_with = "domain")]
    pub(super) json: Option<String>,
    /// Hits of each request; 0 reads the limits without counting.
    #[arg(long, value_name = "N", value_parser = whole_u32(), allow_negative_numbers = true)]
    pub(super) hits: Option<u32>,
    /// Send N requests, and print a summary.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_repeat)]
    #[arg(allow_negative_numbers = true)]
    pub(super) repeat: NonZeroU64,
    /// Keep up to N requests in flight; 1 sends one after the other.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_parallel)]
    #[arg(allow_negative_numbers = true)]
    pub(super) parallel: NonZeroU16,
    /// Send at most this many requests: `10/s`, `200/m`.
    #[arg(long, allow_hyphen_values = true)]
    pub(super) rate: Option<Rate>,
    /// Retry a request that is over its limit after the wait that the server advertises, for up to MAX
    /// per request.
    #[arg(long, value_name = "MAX", num_args = 0..=1, value_parser = parse_duration)]
    #[arg(allow_negative_numbers = true)]
    pub(super) wait: Option<Option<Duration>>,
    /// Timeout of connecting, and of each request.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    pub(super) timeout: Duration,
    /// How to print responses.
    #[arg(long, value_enum, default_value = "text")]
    pub(super) output: Output,
    /// Print errors and the summary only.
    #[arg(short, long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}

#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Use TLS. Each of the following options implies it.
    #[arg(long)]
    pub(super) tls: bool,
    /// CA certificates to verify the server with. Default: the system's.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Client certificate, for a server that requires one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// The name in the server's certificate. Default: the host of the address.
    #[arg(long, value_name = "NAME")]
    pub(super) server_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    /// Each response as `/json` writes it, one a line; the summary on standard error.
    Json,
}

fn parse_repeat(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| format!("write a whole number from 1 to {}", u64::MAX))
}

fn parse_parallel(text: &str) -> Result<NonZeroU16, String> {
    text.parse().map_err(|_| format!("write a whole number from 1 to {}", u16::MAX))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let help = || format!("write a duration such as 500ms, 10s or 5m, up to {MAX_DURATION}");
    read_duration(text).ok_or_else(help)
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    if timeout.is_zero() { Err("write a duration above zero".to_owned()) } else { Ok(timeout) }
}
