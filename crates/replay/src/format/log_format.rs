//! Parses access-log formats that are written with Envoy's operators (`%REQ(:PATH)%`), for `weir replay`.

use super::pattern::{Column, Content, Pattern};
use weir_common::suggest::nearest;

/// Envoy's default text format: what its access log writes if no format is configured.
pub(crate) const ENVOY: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" \
     %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
     %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \
     \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\"";

pub(crate) const ISTIO: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" \
     %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \
     \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
     %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \
     \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% \
     %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%";

const MAX_COLUMNS: usize = 200;

/// Envoy's operators that have no list in parentheses.
const OPERATORS: &str = "\
    START_TIME RESPONSE_CODE RESPONSE_FLAGS RESPONSE_FLAGS_LONG RESPONSE_CODE_DETAILS \
    CONNECTION_TERMINATION_DETAILS PROTOCOL UPSTREAM_PROTOCOL BYTES_RECEIVED BYTES_SENT UPSTREAM_WIRE_BYTES_SENT \
    UPSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DOWNSTREAM_WIRE_BYTES_RECEIVED DURATION \
    REQUEST_DURATION RESPONSE_DURATION RESPONSE_TX_DURATION ROUNDTRIP_DURATION EMIT_TIME UPSTREAM_HOST \
    UPSTREAM_HOST_NAME UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_LOCAL_ADDRESS UPSTREAM_REMOTE_ADDRESS \
    UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT UPSTREAM_REMOTE_PORT UPSTREAM_TRANSPORT_FAILURE_REASON \
    UPSTREAM_REQUEST_ATTEMPT_COUNT DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT \
    DOWNSTREAM_REMOTE_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT \
    DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT \
    DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_PEER_DNS_SAN \
    DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_FINGERPRINT_256 \
    DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_VERSION REQUESTED_SERVER_NAME ROUTE_NAME \
    VIRTUAL_CLUSTER_NAME CONNECTION_ID STREAM_ID HOSTNAME FILTER_CHAIN_NAME TRACE_ID ACCESS_LOG_TYPE GRPC_STATUS";

/// The operators whose fields are not named as they are, in lower case.
const FIELDS: [(&str, &str); 4] = [
    ("START_TIME", "time"),
    ("RESPONSE_CODE", "status"),
    ("RESPONSE_FLAGS", "flags"),
    ("UPSTREAM_CLUSTER_RAW", "upstream_cluster"),
];

/// Envoy's operators with the name of a field in parentheses.
const WITH_NAMES: &str = "\
    REQ RESP TRAILER REQ_WITHOUT_QUERY DYNAMIC_METADATA CLUSTER_METADATA UPSTREAM_METADATA FILTER_STATE \
    ENVIRONMENT COMMON_DURATION METADATA";

pub(crate) fn parse(format: &str) -> Result<Pattern, String> {
    let mut pattern = Pattern { before: String::new(), columns: Vec::new(), escapes: false };
    let mut rest = format.trim_end_matches(['\n', '\r']);
    let format = rest;
    while let Some(at) = rest.find('%') {
        let (text, from) = rest.split_at(at);
        push(&mut pattern, text);
        let place = format.len() - from.len();
        let error =
            |error: String| format!("character {}: {error}", format[..place].chars().count() + 1);
        if let Some(after) = from.strip_prefix("%%") {
            push(&mut pattern, "%");
            rest = after;
            continue;
        }
        let (column, after) = operator(from).map_err(error)?;
        if pattern.columns.last().is_some_and(|last| last.after.is_empty()) {
            let message =
                "there is no text between this value and the one before it, so neither has an end";
            return Err(error(message.to_owned()));
        }
        if pattern.columns.len() >= MAX_COLUMNS {
            return Err(error(format!("there are over {MAX_COLUMNS} values")));
        }
        pattern.columns.push(column);
        rest = after;
    }
    push(&mut pattern, rest);
    if pattern.columns.is_empty() {
        let error = "there is no value in it: write Envoy's operators, such as `%REQ(:PATH)%`";
        return Err(error.to_owned());
    }
    Ok(pattern)
}

/// Adds text after the values so far.
fn push(pattern: &mut Pattern, text: &str) {
    match pattern.columns.last_mut() {
        Some(column) => column.after.push_str(text),
        None => pattern.before.push_str(text),
    }
}

/// Parses `%NAME%`, `%NAME(ARGUMENTS)%` and `%NAME(ARGUMENTS):LENGTH%`. Returns what follows too.
fn operator(text: &str) -> Result<(Column, &str), String> {
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let end = text[1..].find(|c| !is_name(c)).map_or(text.len(), |at| at + 1);
    let (name, mut rest) = (&text[1..end], &text[end..]);
    if name.is_empty() {
        return Err(
            "`%` starts no operator: write one of Envoy's, such as `%REQ(:PATH)%`, or `%%` for a \
                    percent sign"
                .to_owned(),
        );
    }
    let mut argument = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let (inside, after) = inner
            .split_once(')')
            .ok_or_else(|| format!("`%{name}(` has no `)`: write `%{name}(…)%`"))?;
        (argument, rest) = (Some(inside), after);
    }
    let length = rest.strip_prefix(':').unwrap_or(rest);
    let length = length.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest =
        length.strip_prefix('%').ok_or_else(|| format!("`%{name}` has no `%` at its end"))?;
    let [known, with_names] = [OPERATORS, WITH_NAMES].map(str::split_whitespace);
    let names: Vec<String> = if known.clone().any(|known| known == name) {
        let field = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
        field.map(str::to_owned).into_iter().chain([name.to_ascii_lowercase()]).collect()
    } else if with_names.clone().any(|known| known == name) {
        argument.unwrap_or_default().split('?').flat_map(field_names).collect()
    } else {
        return Err(match nearest(name, known.chain(with_names)) {
            Some(near) => format!("unknown operator `%{name}%`: did you mean `%{near}%`?"),
            None => format!(
                "unknown operator `%{name}%`: leave it out of the format, or replace it by one of Envoy's that \
                 has the same shape"
            ),
        });
    };
    match names.is_empty() {
        true => Err(format!("`%{name}%` needs a name: write `%{name}(NAME)%`")),
        false => Ok((column(names), rest)),
    }
}

/// Returns the combined format of Apache and nginx; nginx's default configuration adds the header of proxies.
pub(crate) fn combined(has_forwarded: bool) -> Pattern {
    let mut columns: Vec<Column> = [
        ("remote_host", " "),
        ("ident", " "),
        ("user", " ["),
        ("time", "] \""),
        ("request", "\" "),
        ("status", " "),
        ("bytes_sent", " \""),
        ("referer", "\" \""),
        ("user_agent", "\" \""),
        ("x_forwarded_for", "\""),
    ]
    .map(|(name, after)| Column { after: after.to_owned(), ..column(vec![name.to_owned()]) })
    .into();
    columns.truncate(if has_forwarded { 10 } else { 9 });
    if let Some(last) = columns.last_mut() {
        last.after = "\"".to_owned();
    }
    Pattern { before: String::new(), columns, escapes: true }
}

fn column(names: Vec<String>) -> Column {
    let content = match names.first().map(String::as_str) {
        Some("request") => Content::Request,
        Some("path") => Content::Path,
        Some("user_agent" | "referer") => Content::Text,
        _ => Content::Value,
    };
    Column { names, content, after: String::new() }
}

/// The names of the field of a header, or of the last part of a path in metadata; none if it is empty.
fn field_names(text: &str) -> Vec<String> {
    let text = text.trim();
    let name = match text.strip_prefix(':') {
        Some(pseudo_header) => pseudo_header,
        None => text.rsplit(':').next().unwrap_or(text),
    };
    let name = name.to_ascii_lowercase().replace('-', "_");
    let names: &[&str] = match name.as_str() {
        "" => &[],
        "x_envoy_original_path" => &["path"],
        "x_request_id" => &["request_id"],
        "host" => &["authority"],
        "x_envoy_upstream_service_time" => &["upstream_time", "upstream_service_time"],
        name => &[name],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_fields_by_the_names_of_other_formats() {
        let names = |format: &str| {
            let pattern = parse(format).unwrap();
            pattern.names().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            names("%START_TIME(%s.%3f)% %REQ(X-Envoy-Original-Path?:PATH):90% 100%%"),
            ["time", "path"]
        );
        assert_eq!(
            names("%DYNAMIC_METADATA(envoy.lb:tenant)% %REQ(X-Api-Key)% %GRPC_STATUS%"),
            ["tenant", "x_api_key", "grpc_status"]
        );
        assert!(parse(ISTIO).unwrap().has_field("client_address"));
        for name in ["method", "path", "protocol", "client_address"] {
            assert!(combined(false).has_field(name), "{name}");
        }
        let after = |pattern: &Pattern| pattern.columns.last().unwrap().after.clone();
        assert_eq!([false, true].map(|forwarded| after(&combined(forwarded))), ["\"", "\""]);
    }

    #[test]
    fn errors_have_a_place() {
        for (format, wanted) in [
            ("a %h", "character 3: `%` starts no operator: write one of Envoy's"),
            (
                "é %STRAT_TIME%",
                "character 3: unknown operator `%STRAT_TIME%`: did you mean `%START_TIME%`?",
            ),
            ("%REQ(:PATH", "character 1: `%REQ(` has no `)`"),
            ("%REQ(:PATH) x", "character 1: `%REQ` has no `%` at its end"),
            ("%REQ%", "character 1: `%REQ%` needs a name"),
            ("%REQ()%", "character 1: `%REQ%` needs a name"),
            ("%REQ(?)%", "character 1: `%REQ%` needs a name"),
            ("%{User-Agent}i", "character 1: `%` starts no operator"),
            ("%PROTOCOL%%DURATION%", "character 11: there is no text between this value"),
            ("%PROTOCOL% %", "character 12: `%` starts no operator"),
            ("$remote_addr", "there is no value in it"),
        ] {
            let error = parse(format).unwrap_err();
            assert!(error.starts_with(wanted), "{format}: {error}");
        }
    }
}
