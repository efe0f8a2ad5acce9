//! Checks who may use `/v1` and change the log level: by token, or by an address of the same machine.
//!
//! Browsers are the danger: the debug port listens on loopback, and any web page can make a browser
//! send requests there. So before the caller's token or address counts, a request
//!
//! 1. has no token in its URL, which would end up in logs and histories;
//! 2. names a known host: a page of another site can point its own name to 127.0.0.1 (DNS rebinding);
//! 3. does not come from a page of another origin.
//!
//! Cookies, which browsers add by themselves, mean nothing. The pages for probes and Prometheus, which
//! name the address of a pod, are not checked.

mod origin;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, StatusCode};

use super::change_log::ChangeLog;
use super::error::ApiError;
use super::query::parameters;
use crate::http::Peer;
use crate::net::token_file::{SecretKind, TokenFile};
use weir_api::messages::AdviceKind;
use weir_common::error::SetupError;
use weir_common::threads::repeat_blocking;
use weir_common::throttle::Throttle;
use weir_common::truncate::truncated;

/// How often the token files are read. Polling finds every change, also of links (Kubernetes replaces `..data`).
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The longest text of a change in the log, in bytes.
const MAX_AUDIT_BYTES: usize = 512;

#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    pub read_token_file: Option<PathBuf>,
    /// The file of the token that may read and write.
    pub write_token_file: Option<PathBuf>,
    /// Whether clients on this machine need a token too.
    pub require_token: bool,
    /// Hosts by which clients may reach the port, besides localhost and loopback addresses.
    pub allowed_hosts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    Read,
    /// Reading, too.
    Write,
}

#[derive(Debug)]
pub struct Access {
    /// The files of the tokens that are valid now.
    tokens: Vec<(TokenKind, TokenFile)>,
    require_token: bool,
    allowed_hosts: Vec<String>,
    refusals: Throttle,
}

/// Who sent a request that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// `loopback`, or the kind of the token.
    pub name: &'static str,
    pub peer: Peer,
}

impl Access {
    pub fn load(options: AccessOptions) -> Result<Access, SetupError> {
        let AccessOptions { read_token_file, write_token_file, require_token, allowed_hosts } =
            options;
        let tokens = [
            (TokenKind::Write, "debug.write_token_file", write_token_file),
            (TokenKind::Read, "debug.read_token_file", read_token_file),
        ];
        let tokens = tokens.into_iter().filter_map(|(kind, setting, path)| {
            path.map(|path| Ok((kind, TokenFile::load(setting, SecretKind::Token, path)?)))
        });
        let tokens = tokens.collect::<Result<_, SetupError>>()?;
        Ok(Access { tokens, require_token, allowed_hosts, refusals: Throttle::default() })
    }

    /// Reads the token files again when they change. Ends only if there are none.
    pub async fn follow(self: Arc<Self>) {
        if !self.tokens.is_empty() {
            // A file system may not respond.
            repeat_blocking(POLL_INTERVAL, move || self.poll(), || ()).await;
        }
    }

    fn poll(&self) {
        self.tokens.iter().for_each(|(_, file)| file.poll());
    }

    pub(in crate::http) fn has_write_token(&self, headers: &HeaderMap) -> bool {
        let token = headers.get(AUTHORIZATION).map(|header| bearer(header.as_bytes()));
        token.is_some_and(|token| self.kind_of(token) == Some(TokenKind::Write))
    }

    /// Returns what a token allows; none if it is not valid.
    fn kind_of(&self, token: &[u8]) -> Option<TokenKind> {
        self.tokens.iter().find(|(_, file)| file.has(token)).map(|(kind, _)| *kind)
    }

    /// Checks whether a request may read, or write if its method is not GET or HEAD. Logs refusals.
    pub(super) fn check(&self, request: &Request) -> Result<Caller, ApiError> {
        let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Unknown);
        let checked = self.check_request(request, peer);
        if let Err(refusal) = &checked
            && let Some(suppressed) = self.refusals.pass()
        {
            let (method, error) = (request.method(), &refusal.error);
            tracing::warn!(from = %peer, %method, error, suppressed, "request to the debug port refused");
        }
        checked
    }

    fn check_request(&self, request: &Request, peer: Peer) -> Result<Caller, ApiError> {
        let (uri, headers) = (request.uri(), request.headers());
        let is_token = |name: &str| ["token", "access_token"].contains(&name);
        if parameters(uri).any(|(name, _)| is_token(&name.to_ascii_lowercase())) {
            let help = "send it in the header `Authorization: Bearer …`, and replace this token: \
                        URLs are kept in logs and histories";
            return Err(ApiError::bad_request("there is a token in the URL", help));
        }
        origin::check(uri, headers, &self.allowed_hosts)?;
        self.caller(request.method(), headers, peer)
    }

    fn caller(&self, method: &Method, headers: &HeaderMap, peer: Peer) -> Result<Caller, ApiError> {
        let named = |name| Ok(Caller { name, peer });
        let unauthorized = |error, help| {
            let error = ApiError::new(StatusCode::UNAUTHORIZED, error, help);
            Err(error.with_kind(AdviceKind::NeedsToken))
        };
        if self.tokens.is_empty() {
            if peer.is_local() && !self.require_token {
                return named("loopback");
            }
            let help = "use it from the same machine, by 127.0.0.1, or set debug.read_token_file and \
                        debug.write_token_file";
            let error = "only clients on the same machine may use this";
            return Err(ApiError::new(StatusCode::FORBIDDEN, error, help));
        }
        match headers.get(AUTHORIZATION) {
            Some(header) => match self.kind_of(bearer(header.as_bytes())) {
                Some(TokenKind::Read) if is_write(method) => {
                    let error = "the token may only read";
                    let help = "use the token of debug.write_token_file";
                    Err(ApiError::new(StatusCode::FORBIDDEN, error, help))
                }
                Some(TokenKind::Read) => named("read token"),
                Some(TokenKind::Write) => named("write token"),
                None => {
                    let help = "send `Authorization: Bearer TOKEN` with the content of the file that \
                                debug.write_token_file or debug.read_token_file names";
                    unauthorized("the token is wrong", help)
                }
            },
            None if peer.is_local() && !self.require_token => named("loopback"),
            None => unauthorized("a token is needed", "send `Authorization: Bearer TOKEN`"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OperatorChange<'a> {
    /// Who made it, as the client says; empty if it does not.
    pub by: &'a str,
    /// What was done, such as `put control`.
    pub action: &'a str,
    /// What was changed, in words.
    pub subject: &'a str,
    /// The subject with hashes in place of secret values.
    pub shown: &'a str,
}

impl Caller {
    /// Returns who makes a change: `by`, as the client says, or the name of the caller.
    pub fn who(&self, by: &str) -> String {
        truncated(if by.is_empty() { self.name } else { by }, MAX_AUDIT_BYTES)
    }

    /// Logs a change, and adds it to the log of changes.
    pub fn audit(&self, log: &ChangeLog, change: &OperatorChange<'_>) {
        let OperatorChange { by, action, subject, shown } = *change;
        let short = |text: &str| truncated(text, MAX_AUDIT_BYTES);
        let (who, subject) = (self.who(by), short(subject));
        let from = self.peer.to_string();
        // By this target, `weir::controls` has it in the levels of the log.
        tracing::info!(target: "weir::controls", who, from, action, subject, "operator change");
        log.add_operator_change(&who, &from, action, &short(shown));
    }
}

pub(super) fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Returns the token of the header `Authorization`; empty, which is no token, for another scheme.
fn bearer(header: &[u8]) -> &[u8] {
    match header.split_at_checked(b"Bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => token.trim_ascii(),
        _ => b"",
    }
}
