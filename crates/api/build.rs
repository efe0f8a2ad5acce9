//! Compiles `proto/` in pure Rust, so no `protoc` is needed.

use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

/// The directory of the files.
const PROTO: &str = "../../proto";

/// The services whose messages have a JSON form.
const WITH_JSON: [&str; 2] =
    ["envoy/service/ratelimit/v3/rls.proto", "weir/budget/v1/budget.proto"];
/// The service that weir calls on a management server.
const ASKED: &str = "envoy/service/discovery/v3/ads.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let described = protox::compile(WITH_JSON, [PROTO])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(out, described.encode_to_vec())?;
    let all = protox::compile(WITH_JSON.into_iter().chain([ASKED]), [PROTO])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(all)?;
    Ok(())
}
