//! What a management server sends, turned into rule files.

use prost::Message;
use prost_types::Any;

use crate::proto::envoy::service::discovery::v3::Resource;
use crate::rules::source::RuleFile;
use crate::rules::{Problem, truncate, xds};

/// What is asked for.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
/// What a resource may be wrapped in, so that it has a version of its own.
const WRAPPER: &str = "envoy.service.discovery.v3.Resource";
/// How many resources there may be: each is a domain.
const MAX_RESOURCES: usize = 100_000;
/// Bytes kept of a resource's name, which every problem of it repeats.
const MAX_NAME_BYTES: usize = 256;

/// The rule file that a resource is, or what is wrong with it. `name` is for one that tells none.
pub fn rule_file(resource: Any, name: &str) -> Result<RuleFile, Problem> {
    let mut name = name.to_owned();
    truncate(&mut name, MAX_NAME_BYTES);
    if message(&resource.type_url) != WRAPPER {
        return unwrapped(resource, &name);
    }
    let mut wrapper = Resource::decode(&*resource.value).map_err(|error| {
        let help = "send the resource itself, or a whole wrapper";
        Problem::of_file(&name, format!("the resource's wrapper cannot be read: {error}"), help)
    })?;
    drop(resource);
    if !wrapper.name.is_empty() {
        name = wrapper.name;
        truncate(&mut name, MAX_NAME_BYTES);
    }
    match wrapper.resource.take() {
        Some(resource) => unwrapped(resource, &name),
        None => Err(Problem::of_file(&name, "the wrapper is empty", "put the resource into it")),
    }
}

fn unwrapped(resource: Any, name: &str) -> Result<RuleFile, Problem> {
    let wanted = message(TYPE_URL);
    if message(&resource.type_url) != wanted {
        let message = format!("the resource is a {:?}", resource.type_url);
        return Err(Problem::of_file(name, message, format!("send resources of {TYPE_URL}")));
    }
    let mut file = xds::rule_file(resource.value.into(), name).map_err(|error| {
        let help = "send the message as Protobuf encodes it, of no more than 100 levels, or split \
                    it into several";
        Problem::of_file(name, format!("the resource cannot be read as {wanted}: {error}"), help)
    })?;
    truncate(&mut file.name, MAX_NAME_BYTES);
    Ok(file)
}

/// What is wrong with a response of another type than was asked for. One that tells no type is
/// good: what its resources are is looked at too.
pub fn wrong_type(type_url: &str) -> Option<Problem> {
    let wrong = !type_url.is_empty() && message(type_url) != message(TYPE_URL);
    wrong.then(|| {
        let message = format!("the type of the response is {type_url:?}");
        Problem::of_file("response", message, format!("answer with what was asked for, {TYPE_URL}"))
    })
}

/// What is wrong with a set of so many resources.
pub fn too_many(resources: usize) -> Option<Problem> {
    (resources > MAX_RESOURCES).then(|| {
        let message = format!("there are {resources} resources");
        let help = format!("send at most {MAX_RESOURCES}, each with more rules");
        Problem::of_file("response", message, help)
    })
}

/// The message's name, which alone says what is in an [`Any`].
fn message(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;

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
    fn a_resource_is_a_rule_file_wrapped_or_not() {
        let name = |any| rule_file(any, "resource 1").unwrap().name;
        assert_eq!(name(config("a")), "a");
        assert_eq!(name(config("")), "resource 1");
        assert_eq!(name(wrapped("w", Some(config("a")))), "a");
        assert_eq!(name(wrapped("w", Some(config("")))), "w");
        assert_eq!(rule_file(config("a"), "").unwrap().text, "domain: \"shop\"\n");
        let other_prefix = Any { type_url: TYPE_URL.replace("type.", "x."), ..config("a") };
        assert_eq!(name(other_prefix), "a");
    }

    #[test]
    fn what_is_no_rule_file_is_told() {
        let told = |any| rule_file(any, "resource 1").unwrap_err().to_string();
        let cluster = Any { type_url: "type.googleapis.com/x.Cluster".into(), value: vec![] };
        assert_eq!(
            told(cluster.clone()),
            "resource 1: error: the resource is a \"type.googleapis.com/x.Cluster\""
        );
        assert!(told(wrapped("w", Some(cluster))).starts_with("w: error: the resource is a "));
        assert_eq!(told(wrapped("w", None)), "w: error: the wrapper is empty");
        let twice = wrapped("w", Some(wrapped("v", Some(config("a")))));
        assert!(told(twice).starts_with("w: error: the resource is a "));
        let garbage = Any { value: b"\xff\xff\xff".to_vec(), ..config("a") };
        assert!(told(garbage).contains("cannot be read as ratelimit.config"));
        let garbage = Any { value: b"\xff".to_vec(), ..wrapped("w", None) };
        assert!(told(garbage).contains("wrapper cannot be read"));
    }

    #[test]
    fn resources_are_limited_in_number() {
        assert_eq!(too_many(MAX_RESOURCES), None);
        assert!(too_many(MAX_RESOURCES + 1).unwrap().to_string().contains("100001 resources"));
    }

    #[test]
    fn a_response_is_of_the_type_that_was_asked_for() {
        assert_eq!(wrong_type(""), None);
        assert_eq!(wrong_type(TYPE_URL), None);
        let wrong = wrong_type("type.googleapis.com/envoy.config.cluster.v3.Cluster").unwrap();
        assert!(wrong.to_string().contains("v3.Cluster"));
    }
}
