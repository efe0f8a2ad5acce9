//! The code in `proto/generated` is what the files of `proto/` say. It is committed, so that who builds weir need not
//! build the generator; `UPDATE_DOCS=1 cargo test --test repository generated` writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use prost::Message;

use crate::support::files::root;

/// What weir serves, and the rules that it reads.
const SERVED: [&str; 4] = [
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "envoy/service/ratelimit/v3/rls.proto",
    "ratelimit/config/ratelimit/v3/rls_conf.proto",
    "weir/budget/v1/budget.proto",
];
/// The services that server and commands speak: what is served, and what weir calls on a management server.
const SPOKEN: [&str; 4] = [
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "envoy/service/ratelimit/v3/rls.proto",
    "weir/budget/v1/budget.proto",
    "envoy/service/discovery/v3/ads.proto",
];
/// Of this only the messages are used.
const RULES: [&str; 1] = ["ratelimit/config/ratelimit/v3/rls_conf.proto"];

/// Reads the files of a directory, by their names.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
    let named = entries.map(|entry| {
        let name = entry.file_name().into_string().expect("text");
        (name, fs::read(entry.path()).expect("a file"))
    });
    named.collect()
}

#[test]
fn the_generated_code_is_up_to_date() {
    let proto = root().join("proto");
    let compile = |files: &[&str]| protox::compile(files, [&proto]).expect("a set of files");
    let directory = tempfile::tempdir().unwrap();
    let mut messages = prost_build::Config::new();
    messages.out_dir(directory.path()).compile_fds(compile(&RULES)).unwrap();
    let services = tonic_prost_build::configure().build_transport(false).out_dir(directory.path());
    // It is in `weir_api::proto`: its values may be any bytes.
    let services = services.extern_path(".weir.budget.v1.Entry", "Entry");
    let bucket_entry = ".envoy.service.rate_limit_quota.v3.BucketId.BucketEntry";
    let services = services.extern_path(bucket_entry, "crate::proto::weir::budget::v1::Entry");
    services.compile_fds(compile(&SPOKEN)).unwrap();
    // For gRPC reflection, which is to list no service that is only called, and for the JSON form of messages.
    let served = compile(&SERVED).encode_to_vec();
    fs::write(directory.path().join("descriptors.bin"), served).unwrap();

    let committed = proto.join("generated");
    let wanted = contents(directory.path());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::remove_dir_all(&committed).unwrap();
        fs::create_dir(&committed).unwrap();
        for (name, bytes) in &wanted {
            fs::write(committed.join(name), bytes).unwrap();
        }
    }
    let found = contents(&committed);
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&wanted));
    let stale: Vec<_> = wanted.keys().filter(|name| found[*name] != wanted[*name]).collect();
    let command = "run UPDATE_DOCS=1 cargo test --test repository generated";
    assert!(stale.is_empty(), "{stale:?} of proto/generated are out of date: {command}");
}
