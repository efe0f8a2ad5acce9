//! The hits that are reserved and settled: `hits_addend` that is ignored, that can fail, or that has no bound.

use super::super::Findings;
use super::super::nodes::get;
use super::Used;
use super::expression::{Bound, Expression, Failure};
use weir_rules::Reserve;
use weir_rules::tree::Node;

/// The operators of Envoy's formats whose values clients send, or filters read from what clients send.
const OF_CLIENTS: [&str; 5] =
    ["%REQ(", "%REQUEST_HEADER(", "%QUERY_PARAM(", "%DYNAMIC_METADATA(", "%FILTER_STATE("];

/// The operators whose values are absent where there is no proper response.
const OF_RESPONSES: [&str; 5] =
    ["%RESP(", "%RESPONSE_HEADER(", "%TRAILER(", "%DYNAMIC_METADATA(", "%FILTER_STATE("];

const NO_START: &str = "Envoy then sends no start, and the request passes unreserved";
const NO_END: &str = "Envoy then sends no end, and what is reserved stays charged";

pub(super) fn check_start(reserve: &Reserve, used: &Used<'_, '_>, findings: &mut Findings) {
    let Some(format) = format(used, findings) else { return };
    let estimate = reserve.estimate.unwrap_or(reserve.at_least);
    let Some(expression) = expression(format, findings) else {
        if let Some(operator) = operator(format, &OF_CLIENTS) {
            let message = format!(
                "the estimate has no bound: where {operator}…% is no number from 0 to 1000000000, Envoy sends no \
                 start, and the request passes unreserved"
            );
            let path = metadata_path(format).unwrap_or_else(|| "VALUE".to_owned());
            let bounded = bounded(&path, reserve, estimate);
            let help =
                format!("write `%CEL(… {bounded})%`, and check first with `in` what may be absent");
            findings.add(format.position, message, "", &help);
        }
        return;
    };
    if let Some(failure) = expression.failure() {
        return report_failure(&failure, format, NO_START, estimate, findings);
    }
    if let Some((path, bound)) = expression.unbounded() {
        let (bound, numbers) = match bound {
            Bound::Upper => ("upper", "above 1000000000"),
            Bound::Lower => ("lower", "below 0"),
        };
        let message = format!(
            "the estimate `{path}` has no {bound} bound: Envoy sends no start for numbers {numbers}, and the request \
             passes unreserved"
        );
        let help = format!("write `{}`", bounded(path, reserve, estimate));
        findings.add(format.position, message, "", &help);
    }
}

pub(super) fn check_end(reserve: &Reserve, used: &Used<'_, '_>, findings: &mut Findings) {
    let Some(format) = format(used, findings) else { return };
    let estimate = reserve.estimate.unwrap_or(reserve.at_least);
    if let Some(expression) = expression(format, findings) {
        if let Some(failure) = expression.failure() {
            report_failure(&failure, format, NO_END, estimate, findings);
        }
    } else if let Some(operator) = operator(format, &OF_RESPONSES) {
        let message = format!(
            "nothing settles what errors reserve: they have no {operator}…%, Envoy then sends no end, and what is \
             reserved stays charged"
        );
        let path = metadata_path(format).unwrap_or_else(|| "VALUE".to_owned());
        let help = format!(
            "write `%CEL(has(response.code) && response.code >= 400 ? 0 : (… ? int({path}) : {estimate}))%`, and \
             check first with `in` what may be absent"
        );
        findings.add(format.position, message, "", &help);
    }
}

/// The format of the hits of an item. Reports hits that Envoy ignores.
fn format<'n, 'a>(used: &Used<'n, 'a>, findings: &mut Findings) -> Option<&'n Node<'a>> {
    let hits = get(used.item, "hits_addend")?;
    if used.ignores_hits {
        let message = "Envoy ignores `hits_addend` on routes and virtual hosts: this item does not reserve or \
                       settle these hits";
        let help = "move both items into the filter, or into `typed_per_filter_config`";
        findings.add_error(hits.position, message.to_owned(), help);
        return None;
    }
    get(hits, "format")
}

/// The expression of a format; none if it has none.
fn expression<'n>(format: &'n Node<'_>, findings: &mut Findings) -> Option<Expression<'n>> {
    let text = format.text()?;
    let (_, rest) = text.split_once("CEL(")?;
    let (text, _) = rest.rsplit_once(")%").or(rest.rsplit_once(")"))?;
    let tokens = text.len() / 4;
    findings.spend(format.position, tokens.saturating_mul(tokens)).then(|| Expression::read(text))
}

/// Returns the first of these operators that a format has.
fn operator<'o>(format: &Node<'_>, operators: &[&'o str]) -> Option<&'o str> {
    let text = format.text()?;
    operators.iter().copied().find(|operator| text.contains(operator))
}

/// The path in an expression of the metadata of a format: `%DYNAMIC_METADATA(llm:tokens)%`.
fn metadata_path(format: &Node<'_>) -> Option<String> {
    let (_, rest) = format.text()?.split_once("%DYNAMIC_METADATA(")?;
    let (names, _) = rest.split_once(')')?;
    let (namespace, keys) = names.split_once(':')?;
    Some(format!("metadata.filter_metadata['{namespace}'].{}", keys.replace(':', ".")))
}

fn bounded(path: &str, reserve: &Reserve, estimate: u32) -> String {
    let most = reserve.at_most;
    match path.starts_with("request.headers") {
        true => format!("int({path}) >= 1 && int({path}) <= {most} ? int({path}) : {estimate}"),
        false => format!("{path} >= 1.0 && {path} <= {most}.0 ? int({path}) : {estimate}"),
    }
}

fn report_failure(
    failure: &Failure<'_>,
    format: &Node<'_>,
    consequence: &str,
    default: u32,
    findings: &mut Findings,
) {
    let (message, help) = match failure {
        Failure::Absent { path, check } => (
            format!("the expression fails where `{path}` is absent: {consequence}"),
            format!("check it first: `{check} ? … : {default}`"),
        ),
        Failure::NoNumber { path } => (
            format!(
                "the expression fails where a client sends no number in `{path}`: {consequence}"
            ),
            format!("check it first: `{path}.matches('^[0-9]{{1,9}}$') ? … : {default}`"),
        ),
    };
    findings.add(format.position, message, "", &help);
}
