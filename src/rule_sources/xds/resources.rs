//! Decodes and checks the resources of an xDS response. Each has the rules of a domain.

use prost::Message;
use prost_types::Any;

use crate::proto::envoy::service::discovery::v3::Resource;
use weir_common::truncate::truncated;
use weir_rules::{Problem, xds};

pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
/// The message that may wrap a resource, to give it a version.
const WRAPPER: &str = "envoy.service.discovery.v3.Resource";
/// The maximum number of resources. Each is a domain.
const MAX_RESOURCES: usize = 100_000;
/// The maximum length of a resource's name, which each of its problems repeats.
const MAX_NAME_BYTES: usize = 256;

/// Decodes a resource, wrapped or not. `name` is for one without a name of its own.
pub fn decode(resource: Any, name: &str) -> Result<xds::Resource, Problem> {
    let mut name = truncated(name, MAX_NAME_BYTES);
    if message(&resource.type_url) != WRAPPER {
        return unwrapped(resource, &name);
    }
    let mut wrapper = Resource::decode(&*resource.value).map_err(|error| {
        let help = "send the resource itself, or a valid wrapper";
        Problem::of_file(&name, format!("the resource's wrapper cannot be read: {error}"), help)
    })?;
    drop(resource);
    if !wrapper.name.is_empty() {
        name = truncated(wrapper.name, MAX_NAME_BYTES);
    }
    match wrapper.resource.take() {
        Some(resource) => unwrapped(resource, &name),
        None => Err(Problem::of_file(&name, "the wrapper is empty", "put the resource into it")),
    }
}

fn unwrapped(resource: Any, name: &str) -> Result<xds::Resource, Problem> {
    let wanted = message(TYPE_URL);
    if message(&resource.type_url) != wanted {
        let message = format!("the resource is a {:?}", resource.type_url);
        return Err(Problem::of_file(name, message, format!("send resources of {TYPE_URL}")));
    }
    let mut resource =
        xds::Resource::decode(resource.value.into(), name).map_err(|error| error.problem(name))?;
    resource.name = truncated(resource.name, MAX_NAME_BYTES);
    Ok(resource)
}

/// Reports a response of another type than requested. No type is accepted, because the types of the
/// resources are checked too.
pub fn wrong_type(type_url: &str) -> Option<Problem> {
    let wrong = !type_url.is_empty() && message(type_url) != message(TYPE_URL);
    wrong.then(|| {
        let message = format!("the type of the response is {type_url:?}");
        Problem::of_file("response", message, format!("answer with the requested type, {TYPE_URL}"))
    })
}

pub fn too_many(resources: usize) -> Option<Problem> {
    (resources > MAX_RESOURCES).then(|| {
        let message = format!("there are {resources} resources");
        let help = format!("send at most {MAX_RESOURCES}, each with more rules");
        Problem::of_file("response", message, help)
    })
}

/// The name of the message in an [`Any`]; the rest of its URL is ignored.
fn message(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rules::proto::RateLimitConfig;

    fn any(type_url: &str, message: &impl Message) -> Any {
        Any { type_url: type_url.to_owned(), value: message.encode_to_vec() }
    }

    fn config(name: &str) -> Any {
        let config =
            RateLimitConfig { name: name.into(), domain: "shop".into(), ..Default::default() };
        any(TYPE_URL, &config)
    }

    fn wrapped(name: &str, resource: Option<Any>) -> Any {
        let wrapper = Resource { name: name.into(), resource, ..Default::default() };
        any(&format!("type.googleapis.com/{WRAPPER}"), &wrapper)
    }

    #[test]
    fn resources_are_decoded_wrapped_or_not() {
        let name = |any| decode(any, "resource 1").unwrap().name;
        assert_eq!(name(config("a")), "a");
        assert_eq!(name(config("")), "resource 1");
        assert_eq!(name(wrapped("w", Some(config("a")))), "a");
        assert_eq!(name(wrapped("w", Some(config("")))), "w");
        let other_prefix = Any { type_url: TYPE_URL.replace("type.", "x."), ..config("a") };
        assert_eq!(name(other_prefix), "a");
    }

    #[test]
    fn resources_that_cannot_be_decoded_are_reported() {
        let reported = |any| decode(any, "resource 1").unwrap_err().to_string();
        let cluster = Any { type_url: "type.googleapis.com/x.Cluster".into(), value: vec![] };
        assert_eq!(
            reported(cluster.clone()),
            "resource 1: error: the resource is a \"type.googleapis.com/x.Cluster\""
        );
        assert!(reported(wrapped("w", Some(cluster))).starts_with("w: error: the resource is a "));
        assert_eq!(reported(wrapped("w", None)), "w: error: the wrapper is empty");
        let twice = wrapped("w", Some(wrapped("v", Some(config("a")))));
        assert!(reported(twice).starts_with("w: error: the resource is a "));
        let garbage = Any { value: b"\xff\xff\xff".to_vec(), ..config("a") };
        assert!(reported(garbage).contains("cannot be read as ratelimit.config"));
        let garbage = Any { value: b"\xff".to_vec(), ..wrapped("w", None) };
        assert!(reported(garbage).contains("wrapper cannot be read"));
    }

    #[test]
    fn resources_are_limited_in_number() {
        assert_eq!(too_many(MAX_RESOURCES), None);
        assert!(too_many(MAX_RESOURCES + 1).unwrap().to_string().contains("100001 resources"));
    }

    #[test]
    fn responses_must_have_the_requested_type() {
        assert_eq!(wrong_type(""), None);
        assert_eq!(wrong_type(TYPE_URL), None);
        let wrong = wrong_type("type.googleapis.com/envoy.config.cluster.v3.Cluster").unwrap();
        assert!(wrong.to_string().contains("v3.Cluster"));
    }
}
