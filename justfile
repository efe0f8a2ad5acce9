# Short names for the commands of CONTRIBUTING.md: https://just.systems
# Everything works without just, too; .ci/run does not use it.

_default:
    @just --list --unsorted

# Run all tests; installs what they need on Debian
test *args:
    scripts/test {{ args }}

# Run everything that must pass before a change is merged
ci:
    .ci/run

# Format all workspaces
fmt:
    cargo fmt --all
    cargo fmt --manifest-path fuzz/Cargo.toml
    cargo fmt --manifest-path benches/load/Cargo.toml

# Run clippy as .ci/run does
lint:
    cargo clippy --locked --workspace --all-targets --features testsuite -- -D warnings

# Check licenses, duplicates, advisories and origins of dependencies (needs cargo-deny)
deny:
    cargo deny check

# Build the API documentation and open it
doc:
    cargo doc --workspace --no-deps --document-private-items --open

# Write the generated parts of docs/reference and of the chart
update-docs:
    UPDATE_DOCS=1 cargo test --workspace --features testsuite --lib docs
    UPDATE_DOCS=1 cargo test --workspace --features testsuite --test repository chart_files

# Draw the pictures of docs/semantics.md
update-pictures:
    cargo run --example plot_algorithms

# Build the book of docs/ into target/book
book:
    scripts/build-book

# Fuzz a target, or all: `just fuzz rules 60`
fuzz target="all" seconds="20":
    fuzz/run {{ target }} {{ seconds }}

# Compare the instruction counts of a request with benches/instructions.txt
instructions *args:
    cargo bench --package weir-benches --bench instructions -- {{ args }}

# Measure weir beside other servers: `just compare --quick cpu`
compare *args:
    python3 benches/compare {{ args }}

# Serve the example rules
serve *args:
    cargo run --release -- serve --rules examples/rules {{ args }}

# Start weir and Envoy with the examples
try-envoy:
    scripts/try-envoy

# Build the image of weir: `just image registry/weir:1.2`
image *args:
    scripts/build-image {{ args }}
