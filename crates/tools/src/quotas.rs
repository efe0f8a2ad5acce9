//! `weir quotas`: lists what Envoys that count themselves were granted ahead of time.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::api_client::{ApiClient, ServerArgs, with_query};
use crate::print::Column::{self, Left, Right};
use crate::print::{Output, counted, entries, line, table};
use weir_api::messages::QuotaList;
use weir_common::descriptor::{DescriptorArg, descriptor_text};
use weir_common::duration::rounded;
use weir_common::number::whole;

const EXAMPLES: &str = "\
Examples:
  weir quotas
  weir quotas -d shop user=ann
  weir quotas -d shop 'user=a*' --rows 100 --output json

OUTSTANDING are the hits that an Envoy may still admit, or has admitted and not reported yet, SHARE their part of those
of all Envoys here, and DEMAND the requests of its last report. GRANTED, ADMITTED and RETURNED are counted since the
bucket is known. Each replica lists the Envoys with a stream to it. Exits 1 if quotas are off (setting rlqs.enabled).";

const COLUMNS: [Column; 11] = [
    Left("ORDER"),
    Right("ENDS IN"),
    Right("OUTSTANDING"),
    Right("SHARE"),
    Right("DEMAND"),
    Right("GRANTED"),
    Right("ADMITTED"),
    Right("RETURNED"),
    Left("ENVOY"),
    Left("DOMAIN"),
    Left("BUCKET"),
];

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct QuotasArgs {
    /// Only buckets of this domain.
    #[arg(short, long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Only buckets with these entries, alone or with others: `key=value,key2=value2`. In a value `*` is any text.
    #[arg(value_name = "DESCRIPTOR")]
    descriptor: Option<DescriptorArg>,
    /// The largest number of buckets.
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole::<u16>(1..=10_000))]
    #[arg(allow_negative_numbers = true)]
    rows: u16,
    /// Format of the list.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

impl QuotasArgs {
    fn path(&self) -> String {
        let rows = self.rows.to_string();
        let descriptor = self.descriptor.as_ref().map(|arg| descriptor_text(&arg.entries()));
        let mut query = vec![("limit", &*rows)];
        query.extend(self.domain.as_deref().map(|domain| ("domain", domain)));
        query.extend(descriptor.as_deref().map(|descriptor| ("descriptor", descriptor)));
        with_query("/v1/quotas", &query)
    }
}

pub fn run(args: &QuotasArgs) -> ExitCode {
    let answer = ApiClient::new(&args.server).and_then(|client| client.get(&args.path()));
    args.output.show(answer, print_list)
}

fn print_list(list: &QuotaList, out: &mut dyn Write) -> io::Result<()> {
    let rows = list.buckets.iter().map(|bucket| {
        let demand = bucket.demand.map(|demand| demand.to_string());
        vec![
            bucket.order.clone(),
            rounded(bucket.ends_ms),
            bucket.outstanding.to_string(),
            format!("{} %", bucket.share),
            demand.unwrap_or_default(),
            bucket.granted.to_string(),
            bucket.admitted.to_string(),
            bucket.returned.to_string(),
            bucket.client.clone(),
            bucket.domain.clone(),
            entries(&bucket.entries),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        table(out, 0, &COLUMNS, &rows)?;
    }
    let (found, streams) = (counted(list.found, "bucket"), counted(list.streams, "stream"));
    line(out, &format!("{} of {found} listed; {streams} of Envoys on this replica", rows.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn buckets_are_listed_with_what_their_envoy_was_granted() {
        let bucket = |value: &str, order: &str, demand: Option<u64>| {
            json!({
                "domain": "shop", "entries": [{ "key": "user", "value": value }], "client": "10.0.0.1:5",
                "order": order, "outstanding": 120, "share": 60, "ends_ms": 12_000, "demand": demand, "granted": 500,
                "admitted": 300, "returned": 80,
            })
        };
        let printed = |list: serde_json::Value| {
            let mut out = Vec::new();
            print_list(&serde_json::from_value(list).unwrap(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let buckets = [bucket("ann", "admit", Some(40)), bucket("bob", "", None)];
        let list = json!({ "buckets": buckets, "found": 7, "streams": 1 });
        let wanted = "\
ORDER  ENDS IN  OUTSTANDING  SHARE  DEMAND  GRANTED  ADMITTED  RETURNED  ENVOY       DOMAIN  BUCKET
admit      12s          120   60 %      40      500       300        80  10.0.0.1:5  shop    user=ann
           12s          120   60 %              500       300        80  10.0.0.1:5  shop    user=bob
2 of 7 buckets listed; 1 stream of Envoys on this replica
";
        assert_eq!(printed(list), wanted);
        let none = json!({ "buckets": [], "found": 0, "streams": 0 });
        assert_eq!(printed(none), "0 of 0 buckets listed; 0 streams of Envoys on this replica\n");
    }
}
