//! The files of the repository: documents and their examples, dashboards, workflows, dependencies, and what is
//! generated.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests wait for other processes, and a poisoned lock fails them"
)]

mod architecture;
mod book;
mod chart_files;
mod console;
mod dashboards;
mod dependencies;
mod docs;
mod first_hour;
mod generated;
mod install;
mod plots;
mod readme;
mod release;
mod security;
mod support;
mod wire;
