//! A domain and descriptors as arguments.

use weir_common::descriptor::DescriptorArg;

/// Reads a domain and descriptors.
///
/// # Errors
///
/// The cause, and what to write instead.
pub(super) fn parse_request(args: &[String]) -> Result<(&str, Vec<DescriptorArg>), String> {
    let (domain, descriptors) = args.split_first().ok_or("no domain")?;
    // The service refuses it too.
    if domain.is_empty() {
        return Err("the domain is empty: write -d DOMAIN key=value".to_owned());
    }
    let parsed = |text: &String| {
        let parsed = text.parse::<DescriptorArg>();
        parsed.map_err(|error| format!("invalid descriptor '{text}': {error}"))
    };
    Ok((domain, descriptors.iter().map(parsed).collect::<Result<_, _>>()?))
}

/// Reads a domain and, optionally, a descriptor.
///
/// # Errors
///
/// The cause, and what to write instead.
pub(super) fn parse_match(args: &[String]) -> Result<(&str, DescriptorArg), String> {
    let (domain, descriptors) = parse_request(args)?;
    Ok((domain, descriptors.into_iter().next().unwrap_or_default()))
}
