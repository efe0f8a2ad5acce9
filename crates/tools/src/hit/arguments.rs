//! The arguments of `weir hit`, and the request that they describe.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;

use super::address::ServerAddress;
use crate::http_client::{TlsFiles, parse_timeout};
use crate::print::Output;
use weir_api::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_api::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir_api::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_common::descriptor::DescriptorArg;
use weir_common::number::whole_u32;
use weir_common::value::is_encoded;

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
    pub(super) address: ServerAddress,
    /// The domain, and the descriptors of each request, each as `key=value,key2=value2`. Write it last.
    #[arg(short, long, required = true, num_args = 1.., value_names = ["DOMAIN", "DESCRIPTOR"])]
    pub(super) domain: Vec<String>,
    /// Hits of each request; 0 reads the limits without counting.
    #[arg(long, value_name = "N", value_parser = whole_u32(), allow_negative_numbers = true)]
    pub(super) hits: Option<u32>,
    /// Refund the hits instead of counting them.
    #[arg(long)]
    pub(super) refund: bool,
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

pub(super) fn request(args: &HitArgs) -> Result<RateLimitRequest, String> {
    let mut request = from_arguments(&args.domain)?;
    request.hits_addend = args.hits.unwrap_or_default();
    for descriptor in &mut request.descriptors {
        // The request's own 0 means one hit.
        descriptor.hits_addend = (args.hits == Some(0)).then_some(0);
        descriptor.is_negative_hits = args.refund;
    }
    Ok(request)
}

fn from_arguments(domain: &[String]) -> Result<RateLimitRequest, String> {
    let (domain, descriptors) = domain.split_first().ok_or("there is no domain")?;
    if descriptors.is_empty() {
        return Err(format!("there is no descriptor: write -d {domain} key=value"));
    }
    let descriptors = descriptors.iter().map(|text| match text.parse::<DescriptorArg>() {
        Ok(descriptor) if descriptor.0.iter().any(|(_, value)| is_encoded(value)) => {
            Err(format!("invalid descriptor '{text}': weir hit sends text, no other bytes"))
        }
        Ok(descriptor) => Ok(encode(descriptor)),
        // Probably it is meant as the address of the server.
        Err(_) if !text.contains('=') && text.parse::<ServerAddress>().is_ok() => {
            Err(format!("invalid descriptor '{text}': write an address before -d"))
        }
        Err(error) => Err(format!("invalid descriptor '{text}': {error}")),
    });
    let descriptors = descriptors.collect::<Result<_, _>>()?;
    Ok(RateLimitRequest { domain: domain.clone(), descriptors, hits_addend: 0 })
}

fn encode(descriptor: DescriptorArg) -> RateLimitDescriptor {
    let entries = descriptor.0.into_iter().map(|(key, value)| Entry { key, value });
    RateLimitDescriptor { entries: entries.collect(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        hit: HitArgs,
    }

    fn built(args: &[&str]) -> Result<RateLimitRequest, String> {
        let args = ["hit"].iter().chain(args);
        request(&Cli::try_parse_from(args).map_err(|error| error.to_string())?.hit)
    }

    #[test]
    fn arguments_give_a_request() {
        let request =
            built(&["h:1", "-d", "shop", "user=ann,path=/a", "b=", "--hits", "3"]).unwrap();
        let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
        let entries: Vec<_> = request.descriptors.iter().map(|it| it.entries.clone()).collect();
        assert_eq!(
            entries,
            [vec![entry("user", "ann"), entry("path", "/a")], vec![entry("b", "")]]
        );
        assert_eq!((request.domain.as_str(), request.hits_addend), ("shop", 3));
    }

    #[test]
    fn no_hits_are_a_look_of_each_descriptor() {
        let request = built(&["--hits", "0", "-d", "shop", "a=1", "b=2"]).unwrap();
        assert!(request.descriptors.iter().all(|it| it.hits_addend == Some(0)));
        assert_eq!(request.hits_addend, 0);
    }

    #[test]
    fn errors_say_what_to_write() {
        for (args, wanted) in [
            (&["-d", "shop"][..], "write -d shop key=value"),
            (&["-d", "shop", "=a"], "write key=value"),
            (&["-d", "shop", "user"], "write user=VALUE, or user= for the empty value"),
            (&["-d", "shop", "user=ann", "localhost:8081"], "write an address before -d"),
            (&["-d", "shop", r"user=\xff"], "weir hit sends text"),
            (&["-d", "shop", "unix:/a"], "write an address before -d"),
            (&[], "--domain"),
            (
                &["--repeat", "0", "-d", "a", "b=c"],
                "'--repeat <N>': write a whole number from 1 to 18446744073709551615",
            ),
            (&["--repeat", "-1", "-d", "a", "b=c"], "from 1 to 18446744073709551615"),
            (
                &["--hits", "-1", "-d", "a", "b=c"],
                "invalid value '-1' for '--hits <N>': write a whole number from 0 to 4294967295",
            ),
            (&["--hits", "many", "-d", "a", "b=c"], "from 0 to 4294967295"),
            (&["--timeout", "0", "-d", "a", "b=c"], "above zero"),
            (&["--cert", "c.pem", "-d", "a", "b=c"], "--key"),
        ] {
            let error = built(args).unwrap_err();
            assert!(error.contains(wanted), "{args:?}: {error}");
            assert!(!error.contains("tip:"), "{args:?}: {error}");
        }
    }
}
