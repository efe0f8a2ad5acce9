//! The client of `/v1`, the HTTP API of a running weir for operators: `weir block`, `state`, `top` and others call it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http_client::{self, Answer, Call, TlsFiles, parse_timeout};
use crate::print::{self, Output, USAGE, finish, on_stderr};
use weir_api::messages::{AdviceKind, ErrorAnswer};
use weir_client::http::Target;
use weir_common::secret::{shown_path, without_login};

/// The server (the debug port on this machine) if neither `--server` nor `WEIR_SERVER` names one.
const DEFAULT_SERVER: &str = "http://127.0.0.1:6070";

const SERVER_VARIABLE: &str = "WEIR_SERVER";

const TOKEN_VARIABLE: &str = "WEIR_TOKEN";

/// The largest answer: 10 000 controls (blocks, allows and limits of operators) with long texts fit.
const MAX_ANSWER_BYTES: usize = 64 << 20;

const MAX_TOKEN_BYTES: u64 = 8 << 10;

/// Which weir to ask, and how.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// URL of the debug port. Default: WEIR_SERVER, else http://127.0.0.1:6070.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How to ask a weir.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// File with the token of the API. Default: the variable WEIR_TOKEN, if it is set.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Timeout of the whole call.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsFiles,
}

impl Output {
    /// Prints an answer as JSON, or as `print` does. Returns the exit code.
    pub fn show<T: DeserializeOwned>(
        self,
        answer: Result<Value, ClientError>,
        print: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> ExitCode {
        let mut out = io::stdout().lock();
        let printed = answer.and_then(|answer| match self {
            Output::Json => Ok(print::json(&answer, &mut out)),
            Output::Text => read(&answer).map(|answer| print(&answer, &mut out)),
        });
        match printed {
            Ok(printed) => finish(printed, ExitCode::SUCCESS),
            Err(error) => error.report(),
        }
    }
}

/// Reads what a command needs of an answer. Other members are ignored.
pub(crate) fn read<T: DeserializeOwned>(answer: &Value) -> Result<T, ClientError> {
    T::deserialize(answer).map_err(|error| {
        ClientError::Connection(format!(
            "the answer of the server cannot be read: {error}; use the weir of its version, or --output json"
        ))
    })
}

#[derive(Debug, PartialEq, Eq)]
pub enum ClientError {
    /// An argument or a variable is invalid.
    Usage(String),
    /// The server cannot be reached, or does not answer as weir does.
    Connection(String),
    /// The server answers with an error: why, and what to do instead. `names` are those of the limits of which one
    /// must be named.
    Rejected { error: String, help: String, names: Vec<String> },
}

impl ClientError {
    /// Prints the error on standard error. Returns the exit code.
    pub fn report(&self) -> ExitCode {
        let (error, help, code) = match self {
            ClientError::Usage(error) => (error, "", ExitCode::from(USAGE)),
            ClientError::Connection(error) => (error, "", ExitCode::FAILURE),
            ClientError::Rejected { error, help, .. } => (error, help.as_str(), ExitCode::FAILURE),
        };
        on_stderr(&format!("error: {error}"));
        if !help.is_empty() {
            on_stderr(&format!("help: {help}"));
        }
        code
    }
}

/// A connection to the API. Each request uses a connection of its own.
pub(crate) struct ApiClient<'a> {
    base: String,
    /// The URL as it may be shown: a password may end up in the path.
    pub shown: String,
    token: Option<HeaderValue>,
    args: &'a ConnectionArgs,
}

impl ApiClient<'_> {
    /// Reads the arguments, the variables and the token file.
    pub fn new(args: &ServerArgs) -> Result<ApiClient<'_>, ClientError> {
        ApiClient::of(args.server.as_deref(), &args.connection)
    }

    /// As [`new`](Self::new), of a server that an argument names, or the default one.
    pub fn of<'a>(
        server: Option<&str>,
        args: &'a ConnectionArgs,
    ) -> Result<ApiClient<'a>, ClientError> {
        let (base, target) = named_server(server)
            .unwrap_or_else(|| parse_server(DEFAULT_SERVER))
            .map_err(ClientError::Usage)?;
        let token = match (&args.token_file, variable(TOKEN_VARIABLE)) {
            (Some(path), _) => Some(read_token(path)?),
            (None, Some(token)) => Some(token_header(&token, TOKEN_VARIABLE)?),
            (None, None) => None,
        };
        if token.is_some() && !target.is_tls && !target.is_loopback() {
            on_stderr(&format!(
                "note: the token is sent to {} without encryption: use `kubectl port-forward`, or https",
                target.host
            ));
        }
        let shown = without_login(&base);
        Ok(ApiClient { base, shown, token, args })
    }

    /// Reads a resource. `path` is encoded.
    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.call(Method::GET, path, String::new())
    }

    pub fn delete(&self, path: &str) -> Result<Value, ClientError> {
        self.call(Method::DELETE, path, String::new())
    }

    /// Reads a resource that is text. `path` is encoded. The debug port answers unknown paths, so the caller
    /// checks that the text is what it asked for.
    pub fn get_text(&self, path: &str) -> Result<String, ClientError> {
        let answer = self.send(Method::GET, path, String::new())?;
        if !answer.status.is_success() {
            self.read_answer(&answer)?;
        }
        Ok(answer.body)
    }

    pub fn call(&self, method: Method, path: &str, body: String) -> Result<Value, ClientError> {
        self.read_answer(&self.send(method, path, body)?)
    }

    fn send(&self, method: Method, path: &str, body: String) -> Result<Answer, ClientError> {
        let url = format!("{}{path}", self.base);
        let target: Target = url.parse().map_err(ClientError::Usage)?;
        let mut headers = Vec::new();
        if method != Method::GET {
            headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        if let Some(token) = &self.token {
            headers.push((AUTHORIZATION, token.clone()));
        }
        let answer = http_client::send(Call {
            method,
            target: &target,
            headers,
            body,
            tls: &self.args.tls,
            timeout: self.args.timeout,
            max_answer_bytes: MAX_ANSWER_BYTES,
        });
        let start = "start weir, name its debug port with --server, or in Kubernetes run \
                     `kubectl port-forward deploy/weir 6070`";
        answer.map_err(|error| ClientError::Connection(error.explain(&self.shown, start)))
    }

    /// Returns the JSON of a good answer. The debug port answers unknown paths with a list of its pages,
    /// so a status alone does not show that the server has the API.
    fn read_answer(&self, Answer { status, body }: &Answer) -> Result<Value, ClientError> {
        let json: Option<Value> = serde_json::from_str(body).ok().filter(Value::is_object);
        let rejected = json.as_ref().and_then(|json| ErrorAnswer::deserialize(json).ok());
        match (json, rejected) {
            (Some(json), _) if status.is_success() => Ok(json),
            (_, Some(ErrorAnswer { error, help, kind, names })) => {
                let help = advice(kind).map_or(help, str::to_owned);
                Err(ClientError::Rejected { error, help, names })
            }
            _ => Err(self.is_not_weir(&format!(" {status}"))),
        }
    }

    /// Returns the error of an answer that is not weir's. `what` describes it, after a space.
    pub fn is_not_weir(&self, what: &str) -> ClientError {
        ClientError::Connection(format!(
            "{} answers{what}, but not as the API of weir: name its debug port, 6070 by default",
            self.shown
        ))
    }
}

/// Returns what to do about an error of the API, if that is a command instead of a request.
fn advice(kind: AdviceKind) -> Option<&'static str> {
    match kind {
        AdviceKind::NeedsForce => Some("write other entries, or --force"),
        AdviceKind::NoControl => Some("`weir controls` lists the ids; it may have ended"),
        AdviceKind::NotCounted => Some(
            "no rule with a limit matches it: `weir explain` with --server and the same -d shows why",
        ),
        AdviceKind::NoSpan => Some("`weir state` lists the limits of the key"),
        AdviceKind::UnknownName => {
            Some("`weir top` without -d and --rule lists the keys of all domains, with their rules")
        }
        AdviceKind::NeedsToken => Some(
            "write --token-file FILE, or set WEIR_TOKEN: the server's settings debug.write_token_file \
             and debug.read_token_file name the files of its tokens",
        ),
        AdviceKind::Other => None,
    }
}

/// Returns the variables of the environment. None of weir's is other than UTF-8.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
        .collect()
}

/// Returns a variable of the environment; none if it is not set, or empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    environment().into_iter().find_map(|(n, text)| (n == name && !text.is_empty()).then_some(text))
}

/// Returns the server that an argument or the variable names, if one does, or what is wrong with its URL.
fn named_server(argument: Option<&str>) -> Option<Result<(String, Target), String>> {
    let (from, url) = match argument {
        Some(url) => ("--server", url.to_owned()),
        None => (SERVER_VARIABLE, variable(SERVER_VARIABLE)?),
    };
    let parsed = parse_server(&url);
    Some(parsed.map_err(|error| format!("{from} is {:?}: {error}", without_login(&url))))
}

/// Returns a path of the server that `--server` or the variable names; none if neither does.
pub fn path_of_server(argument: Option<&str>, path: &str) -> Result<Option<Target>, String> {
    let named = named_server(argument).transpose()?;
    named.map(|(base, _)| format!("{base}{path}").parse()).transpose()
}

/// Returns the URL of a server without the slashes at its end, and what it means.
fn parse_server(url: &str) -> Result<(String, Target), String> {
    let base = url.trim_end_matches('/');
    if base.contains(['?', '#']) {
        return Err("write a URL without `?` and `#`, such as http://127.0.0.1:6070".to_owned());
    }
    let target = base.parse()?;
    Ok((base.to_owned(), target))
}

fn read_token(path: &Path) -> Result<HeaderValue, ClientError> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_TOKEN_BYTES).read_to_string(&mut text));
    let name = format!("--token-file {}", shown_path(path));
    match read {
        Ok(_) => token_header(text.trim(), &name),
        Err(error) => Err(ClientError::Usage(format!("{name} cannot be read: {error}"))),
    }
}

/// Returns the header with a token. Errors do not quote it.
fn token_header(token: &str, from: &str) -> Result<HeaderValue, ClientError> {
    let is_good = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| is_good);
    let mut header = header.ok_or_else(|| {
        ClientError::Usage(format!("{from} has no token: write one line of ASCII without spaces"))
    })?;
    header.set_sensitive(true);
    Ok(header)
}

/// Returns a path with a query, each value encoded.
pub(crate) fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut url = path.to_owned();
    for (i, (name, value)) in query.iter().enumerate() {
        url.push(if i == 0 { '?' } else { '&' });
        url += &format!("{name}={}", encode(value));
    }
    url
}

/// What is encoded in a part of a path or a query: all but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn advice_is_of_commands_and_not_of_requests() {
        use AdviceKind::*;
        for kind in [NeedsForce, NoControl, NotCounted, NoSpan, UnknownName, NeedsToken] {
            let advice = advice(kind).unwrap();
            assert!(advice.contains("weir ") || advice.contains("--"), "{kind:?}: {advice}");
            for word in ["GET", "/v1", "Authorization"] {
                assert!(!advice.contains(word), "{kind:?}: {advice}");
            }
        }
        assert_eq!(advice(AdviceKind::Other), None);
    }

    #[test]
    fn servers_are_urls_with_or_without_a_path() {
        for (url, base, is_loopback) in [
            ("http://127.0.0.1:6070", "http://127.0.0.1:6070", true),
            ("http://localhost:6070/", "http://localhost:6070", true),
            ("http://[::1]:6070", "http://[::1]:6070", true),
            ("https://weir.example/ops//", "https://weir.example/ops", false),
            ("http://weir:6070", "http://weir:6070", false),
        ] {
            let (found, target) = parse_server(url).unwrap();
            assert_eq!((found.as_str(), target.is_loopback()), (base, is_loopback), "{url}");
        }
        for wrong in ["", "weir:6070", "http://weir?a=b", "http://weir/#a", "ftp://weir"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_in_the_path_of_a_server_is_not_shown() {
        // The first slash of the password ends the host and the port.
        let url = "http://127.0.0.1:1/S3cret@weir:6070";
        let server = Some(url.to_owned());
        let connection = ConnectionArgs {
            token_file: None,
            timeout: Duration::from_secs(10),
            tls: TlsFiles::default(),
        };
        let args = ServerArgs { server, connection };
        let client = ApiClient::new(&args).unwrap();
        let errors = [client.get("/v1/status").unwrap_err(), client.is_not_weir("")];
        for error in errors {
            let ClientError::Connection(error) = error else { panic!("{error:?}") };
            assert!(!error.contains("S3cret") && error.contains("***@weir:6070"), "{error}");
        }
        assert_eq!(client.shown, "http://***@weir:6070");
        let target: Target = url.parse().unwrap();
        assert_eq!(
            (target.to_string().as_str(), target.path()),
            ("http://***@weir:6070", "/S3cret@weir:6070")
        );
    }

    #[test]
    fn values_cannot_end_a_query_or_a_path() {
        let url = with_query("/v1/state", &[("domain", "a&b"), ("descriptor", "p=/x?y#z,u=%é ")]);
        assert_eq!(url, "/v1/state?domain=a%26b&descriptor=p%3D%2Fx%3Fy%23z%2Cu%3D%25%C3%A9%20");
        assert_eq!(encode("../a"), "..%2Fa");
        assert_eq!(with_query("/v1/top", &[]), "/v1/top");
    }

    #[test]
    fn tokens_are_one_word() {
        let header = token_header("s3cret", "WEIR_TOKEN").unwrap();
        assert_eq!(header, "Bearer s3cret");
        assert!(!format!("{header:?}").contains("s3cret"));
        for wrong in ["", "a b", "a\nb", "ä"] {
            let ClientError::Usage(error) = token_header(wrong, "WEIR_TOKEN").unwrap_err() else {
                panic!("{wrong}")
            };
            assert!(error.starts_with("WEIR_TOKEN has no token"), "{error}");
        }
    }

    #[test]
    fn an_answer_of_another_version_is_read_if_it_has_what_is_needed() {
        let known = r#""error":"no","help":"list""#;
        let parse = |json: &str| read::<ErrorAnswer>(&serde_json::from_str(json).unwrap());
        let answer = parse(&format!(r#"{{{known},"newer":[1]}}"#)).unwrap();
        assert_eq!((answer.error.as_str(), answer.help.as_str()), ("no", "list"));
        for (json, cause) in [
            (
                r#"{"error":"no","hlep":"list"}"#,
                "missing field `help`; use the weir of its version",
            ),
            (r#"{"error":"no","help":1}"#, "expected a string; use the weir of its version"),
        ] {
            let Err(ClientError::Connection(error)) = parse(json) else { panic!("{json}") };
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn only_json_of_the_api_is_an_answer() {
        let args = ServerArgs {
            server: Some("http://127.0.0.1:1".to_owned()),
            connection: ConnectionArgs {
                token_file: None,
                timeout: Duration::from_secs(1),
                tls: TlsFiles::default(),
            },
        };
        let client = ApiClient::new(&args).unwrap();
        let read = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            client.read_answer(&Answer { status, body: body.to_owned() })
        };
        assert_eq!(read(200, r#"{"a":1}"#).unwrap()["a"], 1);
        let Err(ClientError::Rejected { error, help, .. }) =
            read(404, r#"{"error":"no","help":"list"}"#)
        else {
            panic!("it is rejected")
        };
        assert_eq!((error.as_str(), help.as_str()), ("no", "list"));
        for (status, body) in [(200, "/livez: ok"), (404, "{}"), (500, "")] {
            let Err(ClientError::Connection(error)) = read(status, body) else {
                panic!("{status}")
            };
            assert!(error.starts_with("http://127.0.0.1:1 answers "), "{error}");
        }
    }
}
