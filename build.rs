//! Compiles `proto/` in pure Rust: no `protoc` is needed.

use std::{env, fs, path::PathBuf};

use prost::Message;

/// What weir serves, and the rules it reads.
const SERVED: [&str; 2] =
    ["envoy/service/ratelimit/v3/rls.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];
/// What it asks a management server.
const ASKED: &str = "envoy/service/discovery/v3/ads.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    // Served by gRPC reflection, which is to list no service that is only asked, and used to read
    // and write the API's JSON form.
    let served = protox::compile(SERVED, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(out, served.encode_to_vec())?;
    let all = protox::compile(SERVED.into_iter().chain([ASKED]), ["proto"])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(all)?;
    Ok(())
}
