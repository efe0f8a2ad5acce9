//! Compiles `proto/` in pure Rust: no `protoc` is needed.

use std::{env, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(
        ["envoy/service/ratelimit/v3/rls.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"],
        ["proto"],
    )?;
    // Served by gRPC reflection, and used to read and write the API's JSON form.
    let out = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(out, files.encode_to_vec())?;
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    Ok(())
}
