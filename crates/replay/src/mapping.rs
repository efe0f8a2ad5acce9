//! The options of `weir replay` that say how a line of an access log becomes a rate-limit request.

use std::ops::RangeInclusive;

use clap::Args;

use crate::format::InputFormat;
use crate::format::client::CLIENT;
use crate::format::log_format;
use crate::format::pattern::Pattern;
use crate::rows::Fields;
use crate::template::Template;
use weir_common::duration::{MAX_DURATION, read_duration};
use weir_common::number::whole;
use weir_limit::Micros;

/// The valid numbers of trusted proxies: Envoy's `xff_num_trusted_hops` has 32 bits.
const HOPS: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// How lines become requests.
#[derive(Debug)]
pub struct Mapping {
    pub domain: String,
    pub(super) descriptors: Vec<Template>,
    pub(super) fields: Fields,
    /// The index of the field with the time.
    pub(super) time: usize,
    /// The index of the field with the hits.
    pub(super) hits: Option<usize>,
    /// Guessed if none.
    pub(super) format: Option<InputFormat>,
    /// The format of `--log-format`, in place of `format`.
    pub(super) log_format: Option<Pattern>,
    /// The trusted proxies before the one that wrote the log.
    pub(super) trusted_hops: Option<usize>,
    /// How far out of order lines may be.
    pub(super) reorder: Micros,
}

/// The flags that say how lines become requests.
#[derive(Debug, Args)]
pub struct MappingArgs {
    /// The domain of all requests.
    #[arg(short, long, required = true)]
    domain: String,
    /// A descriptor of each request, such as `path={path}`, where {FIELD} is a field of the log; can be repeated.
    /// A request whose line lacks the field is sent without the descriptor.
    #[arg(long, value_name = "DESCRIPTOR", required = true)]
    descriptor: Vec<String>,
    /// The field with the time of a request.
    #[arg(long, value_name = "FIELD", default_value = "time")]
    time: String,
    /// The field with the number of hits. Default: 1 hit per request.
    #[arg(long, value_name = "FIELD")]
    hits: Option<String>,
    /// Format of the log. Default: by its name and first line.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<InputFormat>,
    /// The format of each line, with Envoy's operators, such as `%REQ(:PATH)%`.
    #[arg(long, value_name = "STRING", conflicts_with = "format")]
    log_format: Option<String>,
    /// Trusted proxies before the one that wrote the log, for {client_address}: xff_num_trusted_hops of Envoy.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(HOPS), allow_negative_numbers = true)]
    trusted_hops: Option<usize>,
    /// How far out of order lines may be.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_reorder)]
    #[arg(allow_hyphen_values = true)]
    reorder: Micros,
}

impl Mapping {
    pub fn read(args: &MappingArgs) -> Result<Mapping, String> {
        let (count, max) =
            (args.descriptor.len(), weir_limiter::LimiterOptions::default().max_descriptors);
        if count > max {
            return Err(format!("there are {count} descriptors: a request has up to {max}"));
        }
        let log_format = args.log_format.as_ref().map(|text| {
            log_format::parse(text).map_err(|error| format!("invalid log format '{text}': {error}"))
        });
        let (format, log_format, trusted_hops) =
            (args.format, log_format.transpose()?, args.trusted_hops);
        let mut fields = Fields::with_aliases(format.map_or(&[], InputFormat::aliases));
        // The first fields have room.
        let time = fields.add(&args.time).unwrap_or_default();
        let hits = args.hits.as_ref().and_then(|name| fields.add(name));
        let descriptors = args.descriptor.iter().map(|text| {
            let template = Template::parse(text, &mut fields);
            template.map_err(|error| format!("invalid descriptor '{text}': {error}"))
        });
        let descriptors = descriptors.collect::<Result<_, _>>()?;
        check_fields(&fields, format, log_format.as_ref(), trusted_hops)?;
        if fields.index(CLIENT.as_bytes()).is_some() {
            for source in format.and_then(InputFormat::client_sources).into_iter().flatten() {
                fields.add(source);
            }
        }
        Ok(Mapping {
            domain: args.domain.clone(),
            descriptors,
            fields,
            time,
            hits,
            format,
            log_format,
            trusted_hops,
            reorder: args.reorder,
        })
    }
}

/// Checks that the format has the fields, as far as that is known before the log is read.
fn check_fields(
    fields: &Fields,
    format: Option<InputFormat>,
    log_format: Option<&Pattern>,
    trusted_hops: Option<usize>,
) -> Result<(), String> {
    if let Some(format) = log_format {
        let is_missing = |name: &&String| !format.has_field(name);
        if let Some(name) = fields.names.iter().find(is_missing) {
            let names = format.names().join(", ");
            return Err(format!("the log format has no field `{name}`: its fields are {names}"));
        }
        if trusted_hops.is_some() && !format.has_field("x_forwarded_for") {
            return Err("the log format has no header X-Forwarded-For, in which --trusted-hops counts: add it, \
                        or leave out --trusted-hops"
                .to_owned());
        }
    }
    match format {
        Some(InputFormat::Jsonl | InputFormat::Csv) if trusted_hops.is_some() => {
            Err("this format has no client_address, which --trusted-hops is for: write {FIELD|hop:N} with the \
                 field of the header X-Forwarded-For"
                .to_owned())
        }
        _ => Ok(()),
    }
}

pub(super) fn parse_reorder(text: &str) -> Result<Micros, String> {
    let duration = read_duration(text).and_then(|time| Micros::try_from(time.as_micros()).ok());
    duration.ok_or_else(|| format!("write a duration such as 500ms or 10s, up to {MAX_DURATION}"))
}
