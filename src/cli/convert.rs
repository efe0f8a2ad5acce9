//! `weir convert`: converts limits of other programs into weir's rules.

mod actions;
mod domain;
mod envoy_local;
mod fields;
mod kong;
mod kuadrant;
mod limitador;
mod nginx;
mod rates;
mod reference_json;
mod yaml;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use self::actions::Route;
use self::domain::{Domain, RuleText};
use weir_common::descriptor::RuleDescriptorArg;
use weir_common::escape::escape;

/// The largest input.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// The files of `--out`, if there are actions.
const RULES: &str = "rules.yaml";
const ACTIONS: &str = "envoy-actions.yaml";

/// How a rate is written.
const RATES: &str = "write a number and a unit (s, m, h, d, w, mo or y), such as 10/s";

const EXAMPLES: &str = "\
Examples:
  weir convert '10/s, 200/m burst 50' -d shop --descriptor user
  weir convert limits.yaml --out rules/
  weir convert --from reference-json config.json > rules.yaml
  weir convert nginx.conf -d shop --out converted/

Exits 0 if all is converted. Else it lists on standard error what has no equivalent, and exits 1.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConvertArgs {
    /// A file, `-` for standard input, or rates: `10/s, 200/m burst 50`.
    input: String,
    /// Format of the input. Default: detected.
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<Format>,
    /// Directory to write to: a file for each domain; from nginx, Envoy, Kong and Kuadrant, rules.yaml and
    /// envoy-actions.yaml with what Envoy sends. Default: standard output, rules only.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Domain of the rules, if the input has none.
    #[arg(short, long, value_name = "DOMAIN", default_value = "example")]
    domain: String,
    /// Descriptor of the rule, if the input is rates; an entry without a value matches every value.
    #[arg(long, value_name = "DESCRIPTOR", default_value = "remote_address")]
    descriptor: RuleDescriptorArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A list of limits of Limitador, or its Kubernetes resource.
    Limitador,
    /// RateLimitConfig messages of envoyproxy/ratelimit in Protobuf's JSON form.
    ReferenceJson,
    /// A configuration of nginx with limit_req or limit_conn.
    Nginx,
    /// A configuration of Envoy with its local rate limit.
    EnvoyLocal,
    /// A configuration of Kong, or its Kubernetes resources, with rate-limiting or rate-limiting-advanced.
    Kong,
    /// RateLimitPolicy resources of Kuadrant.
    Kuadrant,
    /// Rates, separated by commas or newlines: `10/s, 200/m burst 50`.
    Shorthand,
}

/// Rules, and what is not in them.
#[derive(Debug, Default)]
struct Converted {
    rules: Vec<RuleText>,
    /// The configuration of Envoy for the rules.
    envoy: Option<String>,
    /// What has no equivalent, each with its place.
    left_out: Vec<String>,
    /// What differs.
    notes: Vec<&'static str>,
}

impl Converted {
    /// Rules of one domain, with what Envoy sends for them.
    fn with_envoy(name: &str, rules: &Domain, routes: &[Route]) -> Converted {
        let mut converted = Converted::default();
        if !rules.is_empty() {
            converted.rules = vec![RuleText { file: RULES.to_owned(), ..rules.text() }];
            converted.envoy = actions::write(name, routes);
        }
        converted
    }
}

/// Prints the rules. Exits 1 if anything is omitted.
pub fn run(args: &ConvertArgs) -> ExitCode {
    let converted = read(&args.input, args.from).and_then(|(name, text, format)| match format {
        Format::Limitador => limitador::convert(&name, &text),
        Format::ReferenceJson => reference_json::convert(&name, &text),
        Format::Nginx => nginx::convert(&name, &text, &args.domain),
        Format::EnvoyLocal => envoy_local::convert(&name, &text, &args.domain),
        Format::Kong => kong::convert(&name, &text, &args.domain),
        Format::Kuadrant => kuadrant::convert(&name, &text, &args.domain),
        Format::Shorthand => Ok(rates::convert(&text, &args.domain, &args.descriptor)),
    });
    let mut is_whole = true;
    let result = converted.and_then(|converted| {
        let mut stderr = io::stderr().lock();
        // Standard error may be closed.
        for left_out in &converted.left_out {
            let _ = writeln!(stderr, "not converted: {}", escape(left_out));
        }
        for note in &converted.notes {
            let _ = writeln!(stderr, "note: {note}");
        }
        is_whole = converted.left_out.is_empty();
        let mut files = converted.rules;
        match (&args.out, converted.envoy) {
            (Some(_), Some(text)) => files.push(RuleText { file: ACTIONS.to_owned(), text }),
            (None, Some(_)) => {
                let _ = writeln!(
                    stderr,
                    "note: --out DIR writes what Envoy sends for them too, as {ACTIONS}"
                );
            }
            _ => {}
        }
        write(&files, args.out.as_deref())
    });
    match result {
        Ok(()) if is_whole => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            for line in error.lines() {
                let _ = writeln!(io::stderr(), "{}", escape(line));
            }
            ExitCode::FAILURE
        }
    }
}

/// Reads the input. Returns its name, its text and its format.
fn read(input: &str, from: Option<Format>) -> Result<(String, String, Format), String> {
    let (name, text) = if input == "-" {
        let name = "standard input".to_owned();
        let text = read_text(io::stdin().lock());
        (name.clone(), text.map_err(|error| format!("error: cannot read {name}: {error}"))?)
    } else {
        let opened = match Path::new(input).is_file() {
            true => fs::File::open(input).and_then(read_text),
            // Rates contain a slash, and are no file.
            false if from == Some(Format::Shorthand) || rates::have_rate(input) => {
                return Ok((String::new(), input.to_owned(), Format::Shorthand));
            }
            false if input.is_empty() => {
                return Err("error: the input is empty: name a file, or write rates such as 10/s"
                    .to_owned());
            }
            false => fs::metadata(input).and_then(|_| Err(io::Error::other("it is no file"))),
        };
        let starts_like_a_rate = input.starts_with(|c: char| c.is_ascii_digit());
        let text = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if starts_like_a_rate => {
                format!("error: {input} is neither a file nor a rate: {RATES}")
            }
            _ => format!("error: cannot read {input}: {error}; name a file, or {RATES}"),
        })?;
        (input.to_owned(), text)
    };
    let format = match from {
        Some(format) => format,
        None => detect(&text).ok_or_else(|| match is_rule_file(&text) {
            true => format!(
                "error: {name} is a rule file of weir or envoyproxy/ratelimit already: \
                 it needs no conversion"
            ),
            false => {
                let formats = Format::value_variants().iter().filter_map(Format::to_possible_value);
                let formats: Vec<String> = formats.map(|it| it.get_name().to_owned()).collect();
                let formats = formats.join(", ");
                format!("error: {name}: the format is not known; write --from and one of {formats}")
            }
        })?,
    };
    Ok((name, text, format))
}

fn read_text(file: impl Read) -> io::Result<String> {
    let mut text = String::new();
    let length = file.take(MAX_INPUT_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_INPUT_BYTES {
        return Err(io::Error::other(format!("larger than {MAX_INPUT_BYTES} bytes")));
    }
    Ok(text)
}

/// Finds the format of a text.
fn detect(text: &str) -> Option<Format> {
    if rates::are_rates(text) {
        return Some(Format::Shorthand);
    }
    for (word, format) in [
        ("limit_req", Format::Nginx),
        ("limit_conn", Format::Nginx),
        ("filters.http.local_ratelimit", Format::EnvoyLocal),
        ("RateLimitPolicy", Format::Kuadrant),
        ("_format_version", Format::Kong),
        ("KongPlugin", Format::Kong),
        ("KongClusterPlugin", Format::Kong),
    ] {
        if text.contains(word) {
            return Some(format);
        }
    }
    if text.contains("max_value") || text.contains("maxValue") {
        return Some(Format::Limitador);
    }
    text.trim_start().starts_with(['{', '[']).then_some(Format::ReferenceJson)
}

/// Whether a text has the first key of a rule file.
fn is_rule_file(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("domain:"))
}

/// Writes rules to standard output, or to a file for each domain.
fn write(rules: &[RuleText], directory: Option<&Path>) -> Result<(), String> {
    let Some(directory) = directory else {
        return match rules {
            [] => Ok(()),
            [rules] => {
                let mut out = io::stdout().lock();
                let written = out.write_all(rules.text.as_bytes()).and_then(|()| out.flush());
                match written {
                    // The reader closed the pipe, as `head` does.
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                        Err(format!("error: cannot write: {error}"))
                    }
                    _ => Ok(()),
                }
            }
            _ => Err(format!(
                "error: there are {} domains, and a rule file has one: name a directory with --out",
                rules.len()
            )),
        };
    };
    let error = |path: &Path, error| format!("error: cannot write {}: {error}", path.display());
    fs::create_dir_all(directory).map_err(|cause| error(directory, cause))?;
    for rules in rules {
        let path = directory.join(&rules.file);
        // Never replaces a file that somebody wrote.
        let mut file = fs::File::create_new(&path).map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "error: {} exists and is not overwritten: name another directory, or delete it",
                path.display()
            ),
            _ => error(&path, cause),
        })?;
        file.write_all(rules.text.as_bytes()).map_err(|cause| error(&path, cause))?;
        let _ = writeln!(io::stdout(), "{}", escape(&path.to_string_lossy()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_content() {
        for (text, wanted) in [
            ("10/s\n200/m burst 50\n", Some(Format::Shorthand)),
            ("- namespace: a\n  max_value: 1\n", Some(Format::Limitador)),
            ("[{\"namespace\": \"a\", \"max_value\": 1}]", Some(Format::Limitador)),
            ("{\"domain\": \"a\"}", Some(Format::ReferenceJson)),
            ("limit_req_zone $host zone=a:1m rate=1r/s;", Some(Format::Nginx)),
            ("kind: RateLimitPolicy\n", Some(Format::Kuadrant)),
            ("_format_version: '3.0'\n", Some(Format::Kong)),
            ("domain: a\n", None),
            ("", None),
        ] {
            assert_eq!(detect(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_file_that_does_not_exist_is_an_error() {
        let error = read("/none.yaml", None).unwrap_err();
        assert!(error.starts_with("error: cannot read /none.yaml: No such file"), "{error}");
        let error = read("/", None).unwrap_err();
        assert!(error.starts_with("error: cannot read /: it is no file"), "{error}");
        let error = read("10/x", None).unwrap_err();
        assert!(error.starts_with("error: 10/x is neither a file nor a rate: "), "{error}");
        assert!(read("", None).unwrap_err().starts_with("error: the input is empty: "));
    }

    #[test]
    fn a_rule_file_needs_no_conversion() {
        let directory = tempfile::tempdir().unwrap();
        for (text, wanted) in [
            ("# Limits\ndomain: a\ndescriptors: []\n", "it needs no conversion"),
            ("rules: []\n", "the format is not known"),
        ] {
            let path = directory.path().join("a.yaml").display().to_string();
            fs::write(&path, text).unwrap();
            let error = read(&path, None).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn files_are_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let rules = || [RuleText { file: "a.yaml".to_owned(), text: "new".to_owned() }];
        fs::write(directory.path().join("a.yaml"), "old").unwrap();
        let error = write(&rules(), Some(directory.path())).unwrap_err();
        assert!(error.contains("a.yaml exists and is not overwritten"), "{error}");
        assert_eq!(fs::read_to_string(directory.path().join("a.yaml")).unwrap(), "old");
    }
}
