//! The arguments `-d DOMAIN DESCRIPTOR` that say which requests a command such as `weir block` or `weir why` is about.

use clap::Args;

use crate::api_client::{ClientError, with_query};
use weir_common::descriptor::{DescriptorArg, descriptor_text, parse_match};

#[derive(Debug, Args)]
pub(crate) struct MatchArgs {
    /// The domain, if several have rules, and a descriptor as `key=value,key2=value2`, which may also stand elsewhere.
    #[arg(short, long, num_args = 1..=2, value_names = ["DOMAIN", "DESCRIPTOR"])]
    domain: Vec<String>,
    /// The descriptor, if it does not follow the domain.
    #[arg(value_name = "DESCRIPTOR", hide = true)]
    descriptor: Option<String>,
}

impl MatchArgs {
    /// Returns the domain, empty if there is none, and the descriptor, empty if there is only a domain.
    pub fn parse(&self) -> Result<(&str, DescriptorArg), ClientError> {
        parse_match(&self.domain, self.descriptor.as_deref()).map_err(ClientError::Usage)
    }

    /// Returns the path with a query that has the domain, the descriptor and `others`.
    pub fn path(&self, path: &str, others: &[(&str, &str)]) -> Result<String, ClientError> {
        let (domain, descriptor) = self.parse()?;
        if descriptor.0.is_empty() {
            let error = format!("--domain has no descriptor: write -d {domain} key=value");
            return Err(ClientError::Usage(error));
        }
        let descriptor = descriptor_text(&descriptor.entries());
        let mut query = vec![("descriptor", descriptor.as_str())];
        query.extend(Some(("domain", domain)).filter(|_| !domain.is_empty()));
        query.extend(others);
        Ok(with_query(path, &query))
    }
}
