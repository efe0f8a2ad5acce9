//! Checks resources against the schemas in tests/schemas, and Kubernetes' own with kubernetes-validate.

#![allow(dead_code, reason = "not every test uses all")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::tools::kubernetes_validate;

const VALIDATE: &str = "\
import json, sys, jsonschema
schema, value = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
validator = jsonschema.validators.validator_for(schema)
validator.check_schema(schema)
errors = sorted(validator(schema).iter_errors(value), key=lambda error: error.json_path)
print('\\n'.join(f'{error.json_path}: {error.message}' for error in errors))
sys.exit(bool(errors))
";

/// Checks a value against `tests/schemas/NAME.json`.
pub fn check(name: &str, value: &Value) -> Result<(), String> {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas").join(name);
    check_by(&fs::read_to_string(schema.with_extension("json")).expect("a schema"), value)
}

/// Checks a value against a schema.
pub fn check_by(schema: &str, value: &Value) -> Result<(), String> {
    let Some(python) = kubernetes_validate() else { return Ok(()) };
    let mut file = tempfile::NamedTempFile::with_suffix(".json").expect("a file");
    file.write_all(schema.as_bytes()).expect("a file");
    run(Command::new(python).args(["-c", VALIDATE]).arg(file.path()), value)
}

/// Checks a resource of Kubernetes itself.
pub fn check_kubernetes(resource: &Value) -> Result<(), String> {
    let Some(python) = kubernetes_validate() else { return Ok(()) };
    run(Command::new(python).args(["-m", "kubernetes_validate", "--strict"]), resource)
}

/// Runs a command with a file that has this value.
fn run(command: &mut Command, value: &Value) -> Result<(), String> {
    let mut file = tempfile::NamedTempFile::with_suffix(".json").expect("a file");
    file.write_all(value.to_string().as_bytes()).expect("a file");
    let output = command.arg(file.path()).output().expect("it starts");
    let printed = [output.stdout, output.stderr].concat();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&printed).into_owned()),
    }
}
