//! The arguments of `weir hit`.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;

use super::address::Address;
use crate::http_client::TlsFiles;
use crate::print::Output;
use weir_common::duration::{MAX_DURATION, read_duration};
use weir_common::number::whole_u32;

const EXAMPLES: &str = "\
Examples:
  weir hit -d shop user=ann
  weir hit ratelimit.example:8081 -d shop user=ann,path=/login remote_address=192.0.2.7
  weir hit --repeat 10 -d shop user=ann
  weir hit --tls --ca ca.pem weir.example:8081 -d shop user=ann

The flags of envoyproxy/ratelimit's client are accepted too:
  weir hit -dial_string localhost:8081 -domain shop -descriptors user=ann

Exits 0 if every request is OK, 3 if one is over its limit, 1 if one fails.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "weir hit [OPTIONS] [ADDRESS] -d <DOMAIN> <DESCRIPTOR>...")]
pub struct HitArgs {
    /// The server: `host:port`, or `unix:` and a path. `https://` before it enables TLS.
    #[arg(default_value = "127.0.0.1:8081")]
    pub(super) address: Address,
    /// The domain, and the descriptors of each request, each as `key=value,key2=value2`. Write it last.
    #[arg(short, long, required = true, num_args = 1.., value_names = ["DOMAIN", "DESCRIPTOR"])]
    pub(super) domain: Vec<String>,
    /// Hits of each request; 0 reads the limits without counting.
    #[arg(long, value_name = "N", value_parser = whole_u32(), allow_negative_numbers = true)]
    pub(super) hits: Option<u32>,
    /// Send N requests, one after the other, and print how many had each result.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_repeat)]
    #[arg(allow_negative_numbers = true)]
    pub(super) repeat: NonZeroU64,
    /// Timeout of connecting, and of each request.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    pub(super) timeout: Duration,
    /// How to print responses: as text, or each as `/json` writes it, one a line.
    #[arg(long, value_enum, default_value = "text")]
    pub(super) output: Output,
    /// Use TLS. Each of the following options implies it.
    #[arg(long)]
    pub(super) tls: bool,
    #[command(flatten)]
    pub(super) files: TlsFiles,
    /// The name in the server's certificate. Default: the host of the address.
    #[arg(long, value_name = "NAME")]
    pub(super) server_name: Option<String>,
}

fn parse_repeat(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| format!("write a whole number from 1 to {}", u64::MAX))
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let help =
        || format!("write a duration above zero, such as 500ms, 10s or 5m, up to {MAX_DURATION}");
    read_duration(text).filter(|timeout| !timeout.is_zero()).ok_or_else(help)
}
