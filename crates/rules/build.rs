//! Compiles the messages in which a management server sends rules.

const RULES: &str = "ratelimit/config/ratelimit/v3/rls_conf.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    println!("cargo:rerun-if-changed={root}");
    prost_build::Config::new().compile_fds(protox::compile([RULES], [root])?)?;
    Ok(())
}
