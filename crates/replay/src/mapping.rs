//! How the lines of a log become requests: flags, and the file of `--mapping`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::format::{CLIENT, Format, Pattern, parse_log_format};
use super::rows::Fields;
use super::template::Template;
use weir_common::duration::{MAX_DURATION, read_duration};
use weir_common::number::whole;
use weir_limit::Micros;
use weir_rules::source::{FileKind, Selection};
use weir_rules::tree::Node;
use weir_rules::values::{Reader, Section, is_null};
use weir_rules::{
    DEFAULT_MAX_PROBLEMS, Document, Loaded, OverlayReport, Problem, Problems, RuleSet, Severity,
};

static MAPPING: Section = Section {
    what: "a mapping",
    keys: &[
        "domain",
        "descriptors",
        "time",
        "hits",
        "format",
        "log_format",
        "trusted_hops",
        "reorder",
    ],
};

static SECTIONS: &[&Section] = &[&MAPPING];

/// The field with the time, unless another is named.
const TIME: &str = "time";

/// The numbers of trusted proxies: Envoy's are of 32 bits.
const HOPS: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// How long lines wait for earlier ones.
const REORDER: Micros = 10_000_000;

/// How lines become requests.
#[derive(Debug)]
pub struct Mapping {
    pub(super) domain: String,
    pub(super) descriptors: Vec<Template>,
    pub(super) fields: Fields,
    /// The index of the field with the time.
    pub(super) time: usize,
    /// The index of the field with the hits.
    pub(super) hits: Option<usize>,
    /// Guessed if none.
    pub(super) format: Option<Format>,
    /// A format of its own, in place of `format`.
    pub(super) log_format: Option<Pattern>,
    /// The trusted proxies before the one that wrote the log.
    pub(super) trusted_hops: Option<usize>,
    pub(super) reorder: Micros,
}

/// The flags that say how lines become requests.
#[derive(Debug, Args)]
pub struct MappingArgs {
    /// The domain of all requests.
    #[arg(short, long)]
    domain: Option<String>,
    /// A descriptor of each request, such as `path={path}`, where {FIELD} is a field of the log; can be repeated.
    /// A request whose line lacks the field is sent without the descriptor.
    #[arg(long, value_name = "DESCRIPTOR")]
    descriptor: Vec<String>,
    /// The field with the time of a request. Default: time.
    #[arg(long, value_name = "FIELD")]
    time: Option<String>,
    /// The field with the number of hits. Default: 1 hit per request.
    #[arg(long, value_name = "FIELD")]
    hits: Option<String>,
    /// Format of the log. Default: by its name and first line.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// The format of each line, with Envoy's operators, such as `%REQ(:PATH)%`, or Apache's letters, such as `%h`.
    #[arg(long, value_name = "STRING", conflicts_with = "format")]
    log_format: Option<String>,
    /// Trusted proxies before the one that wrote the log, for {client_address}: xff_num_trusted_hops of Envoy.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(HOPS), allow_negative_numbers = true)]
    trusted_hops: Option<usize>,
    /// A YAML file with `domain`, `descriptors`, `time`, `hits`, `format`, `log_format`, `trusted_hops` and `reorder`;
    /// flags win.
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// How far out of order lines may be. Default: 10s.
    #[arg(long, value_name = "DURATION", value_parser = parse_reorder)]
    #[arg(allow_hyphen_values = true)]
    reorder: Option<Micros>,
}

/// The values of flags, or of a file.
#[derive(Debug, Default)]
struct Given {
    domain: Option<String>,
    descriptors: Vec<String>,
    time: Option<String>,
    hits: Option<String>,
    format: Option<Format>,
    log_format: Option<String>,
    trusted_hops: Option<usize>,
    reorder: Option<Micros>,
}

impl Mapping {
    /// The domain of all requests.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Reads the mapping of the arguments. A flag replaces a key of the file.
    ///
    /// # Errors
    ///
    /// What is invalid or missing.
    pub fn read(args: &MappingArgs) -> Result<Mapping, Failure> {
        let file = match &args.mapping {
            Some(path) => read_file(path)?,
            None => Given::default(),
        };
        let missing = |flag: &str, key: &str, example: &str| {
            Failure::Usage(format!(
                "error: no {flag}: write --{flag} {example}, or `{key}` in a file for --mapping\n"
            ))
        };
        let domain = args.domain.clone().or(file.domain);
        let domain = domain.ok_or_else(|| missing("domain", "domain", "NAME"))?;
        let descriptors = match args.descriptor.is_empty() {
            true => file.descriptors,
            false => args.descriptor.clone(),
        };
        if descriptors.len() > weir_limiter::Options::default().max_descriptors {
            return Err(Failure::Usage(format!("error: {}\n", too_many(descriptors.len()))));
        }
        if descriptors.is_empty() {
            return Err(missing("descriptor", "descriptors", "'path={path}'"));
        }
        let log_format = match args.format {
            Some(_) => None,
            None => args.log_format.clone().or(file.log_format),
        };
        let format = match &log_format {
            Some(_) => None,
            None => args.format.or(file.format),
        };
        let log_format = log_format.map(|text| {
            parse_log_format(&text).map_err(|error| {
                Failure::Usage(format!("error: invalid log format '{text}': {error}\n"))
            })
        });
        let log_format = log_format.transpose()?;
        let trusted_hops = args.trusted_hops.or(file.trusted_hops);
        let mut fields = Fields::with_aliases(format.map_or(&[], Format::aliases));
        let time = args.time.clone().or(file.time);
        // The first fields have room.
        let time = fields.add(time.as_deref().unwrap_or(TIME)).unwrap_or_default();
        let hits = args.hits.clone().or(file.hits).and_then(|name| fields.add(&name));
        let descriptors = descriptors
            .iter()
            .map(|text| {
                Template::parse(text, &mut fields).map_err(|error| {
                    Failure::Usage(format!("error: invalid descriptor '{text}': {error}\n"))
                })
            })
            .collect::<Result<_, _>>()?;
        check_fields(&fields, format, log_format.as_ref(), trusted_hops)
            .map_err(|error| Failure::Usage(format!("error: {error}\n")))?;
        if fields.index(CLIENT.as_bytes()).is_some() {
            for source in format.and_then(Format::client_sources).into_iter().flatten() {
                fields.add(source);
            }
        }
        Ok(Mapping {
            domain,
            descriptors,
            fields,
            time,
            hits,
            format,
            log_format,
            trusted_hops,
            reorder: args.reorder.or(file.reorder).unwrap_or(REORDER),
        })
    }
}

/// Checks that the format has the fields, as far as that is known before the log is read.
fn check_fields(
    fields: &Fields,
    format: Option<Format>,
    log_format: Option<&Pattern>,
    trusted_hops: Option<usize>,
) -> Result<(), String> {
    if let Some(format) = log_format {
        let is_missing = |name: &&String| !format.has_field(name);
        if let Some(name) = fields.names().iter().find(is_missing) {
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
        Some(format) if trusted_hops.is_some() && !format.has_client() => {
            Err("this format has no client_address, which --trusted-hops is for: write {FIELD|hop:N} with the \
                 field of the header X-Forwarded-For"
                .to_owned())
        }
        _ => Ok(()),
    }
}

/// Parses the argument of `--reorder`.
pub(super) fn parse_reorder(text: &str) -> Result<Micros, String> {
    let duration = read_duration(text).and_then(|time| Micros::try_from(time.as_micros()).ok());
    duration.ok_or_else(|| format!("write a duration such as 500ms or 10s, up to {MAX_DURATION}"))
}

fn read_file(path: &Path) -> Result<Given, Failure> {
    let (files, found) = Selection::of(path).read_kind(FileKind::Rules);
    let mut problems = Problems::new(DEFAULT_MAX_PROBLEMS);
    problems.of_files(found);
    let mut given = Given::default();
    for file in &files {
        // A second document would be ignored.
        let mut further = Vec::new();
        let tree = file.tree(&mut |problem| further.push(problem));
        for problem in further {
            problems.push(Problem { severity: Severity::Error, ..problem });
        }
        match tree {
            Ok(Some(root)) if !is_null(&root) => {
                let mut reader =
                    Reader { file: &file.name, problems: &mut problems, sections: SECTIONS };
                given = read(&mut reader, &root);
            }
            Ok(_) => {}
            Err(problem) => problems.push(problem),
        }
    }
    if problems.has_errors() {
        problems.sort_file();
        let (problems, omitted) = problems.into_parts();
        let (rules, overlay) = (RuleSet::default(), OverlayReport::default());
        let lists = Vec::new();
        let loaded = Loaded { rules, problems, omitted, files, overlay, lists };
        return Err(Failure::File(loaded.render_errors()));
    }
    Ok(given)
}

fn too_many(descriptors: usize) -> String {
    let max = weir_limiter::Options::default().max_descriptors;
    format!("there are {descriptors} descriptors: a request has up to {max}")
}

fn read(reader: &mut Reader<'_>, root: &Node<'_>) -> Given {
    let mut given = Given::default();
    for (key, value) in reader.fields(root, &MAPPING) {
        match key {
            "domain" => given.domain = reader.name(value, key).map(str::to_owned),
            "descriptors" => {
                let items = reader.list(value, key, "descriptors, such as 'path={path}'");
                if items.len() > weir_limiter::Options::default().max_descriptors {
                    let help = "write those that one request has";
                    reader.error(value.position, "", too_many(items.len()), help);
                    continue;
                }
                let mut fields = Fields::default();
                for item in items {
                    let Some(text) = reader.name(item, key) else { continue };
                    match Template::parse(text, &mut fields) {
                        Ok(_) => given.descriptors.push(text.to_owned()),
                        Err(error) => reader.invalid(item, key, &error),
                    }
                }
            }
            "time" => given.time = reader.name(value, key).map(str::to_owned),
            "hits" => given.hits = reader.name(value, key).map(str::to_owned),
            "format" => {
                let words = [
                    ("jsonl", Format::Jsonl),
                    ("csv", Format::Csv),
                    ("envoy", Format::Envoy),
                    ("istio", Format::Istio),
                    ("envoy-gateway", Format::EnvoyGateway),
                    ("combined", Format::Combined),
                ];
                given.format = reader.choice(value, key, &words);
            }
            "log_format" => {
                let text = reader.name(value, key);
                if let Some(Err(error)) = text.map(parse_log_format) {
                    reader.invalid(value, key, &error);
                }
                given.log_format = text.map(str::to_owned);
            }
            "trusted_hops" => {
                let hops = whole(HOPS)(value.text().unwrap_or_default());
                given.trusted_hops = hops.map_err(|help| reader.invalid(value, key, &help)).ok();
            }
            _ => given.reorder = reader.duration(value, key),
        }
    }
    given
}
