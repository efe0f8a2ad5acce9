//! The Rust types generated from the protobuf files in `proto/` (the gRPC APIs), in modules named as their packages.

#![allow(clippy::all, missing_docs, rustdoc::all)]

/// The protobuf files of the services of weir, with their imports, as an encoded `FileDescriptorSet` (for reflection).
pub const DESCRIPTORS: &[u8] = include_bytes!("../../../proto/generated/descriptors.bin");

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                include!("../../../proto/generated/envoy.config.core.v3.rs");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    include!("../../../proto/generated/envoy.extensions.common.ratelimit.v3.rs");
                }
            }
        }
    }
    pub mod service {
        pub mod discovery {
            pub mod v3 {
                include!("../../../proto/generated/envoy.service.discovery.v3.rs");
            }
        }
        pub mod rate_limit_quota {
            pub mod v3 {
                include!("../../../proto/generated/envoy.service.rate_limit_quota.v3.rs");
            }
        }
        pub mod ratelimit {
            pub mod v3 {
                include!("../../../proto/generated/envoy.service.ratelimit.v3.rs");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            include!("../../../proto/generated/envoy.r#type.v3.rs");
        }
    }
}

pub mod google {
    pub mod rpc {
        include!("../../../proto/generated/google.rpc.rs");
    }
}

pub mod weir {
    pub mod budget {
        pub mod v1 {
            /// An entry of a descriptor. Its value is text for clients, but may be any bytes, as in requests of Envoy.
            #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
            pub struct Entry {
                #[prost(string, tag = "1")]
                pub key: String,
                #[prost(bytes = "vec", tag = "2")]
                pub value: Vec<u8>,
            }

            include!("../../../proto/generated/weir.budget.v1.rs");
        }
    }
}
