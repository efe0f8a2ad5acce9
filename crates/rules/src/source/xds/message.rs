//! The Protobuf messages of rules, to decode one level at a time: nested messages are left encoded, as `bytes`. Names
//! and numbers are those of `rls_conf.proto` and of Protobuf's `Struct`.

use bytes::Bytes;

use crate::model::proto::{RateLimitBan, RateLimitGroup, RateLimitPolicy, RateLimitReserve};

/// The name of a `RateLimitConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A `RateLimitConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Config {
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub descriptors: Vec<Bytes>,
    #[prost(string, tag = "1001")]
    pub charge: String,
    #[prost(string, tag = "1002")]
    pub on_store_failure: String,
}

/// A `RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Descriptor {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<RateLimitPolicy>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub descriptors: Vec<Bytes>,
    #[prost(bool, tag = "5")]
    pub shadow_mode: bool,
    #[prost(bool, tag = "6")]
    pub detailed_metric: bool,
    #[prost(bool, tag = "7")]
    pub quota_mode: bool,
    /// One message, or several that are merged.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub metadata: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "1001")]
    pub rate_limits: Vec<Bytes>,
    #[prost(bool, tag = "1002")]
    pub value_to_metric: bool,
    #[prost(bool, tag = "1003")]
    pub share_threshold: bool,
    #[prost(message, optional, tag = "1005")]
    pub reserve: Option<RateLimitReserve>,
    #[prost(string, repeated, tag = "1008")]
    pub network: Vec<String>,
    #[prost(string, tag = "1009")]
    pub values_file: String,
    #[prost(message, optional, tag = "1010")]
    pub group: Option<RateLimitGroup>,
    #[prost(message, optional, tag = "1011")]
    pub lease: Option<bool>,
    #[prost(string, repeated, tag = "1012")]
    pub values: Vec<String>,
    #[prost(message, optional, tag = "1013")]
    pub ban: Option<RateLimitBan>,
}

/// A `google.protobuf.Struct` with its fields, or a `google.protobuf.ListValue` with its values.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Items {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub items: Vec<Bytes>,
}

/// A field of a `google.protobuf.Struct`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MetadataField {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// A `google.protobuf.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Value {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<ValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum ValueKind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(bytes = "bytes", tag = "5")]
    Struct(Bytes),
    #[prost(bytes = "bytes", tag = "6")]
    List(Bytes),
}
