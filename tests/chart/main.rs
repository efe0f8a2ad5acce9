//! The Helm chart `helm/weir`, with Helm 3 and Helm 4: what it renders, what it refuses, and that the
//! real binary starts with it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests wait for other processes, and a poisoned lock fails them"
)]

mod api_server;
mod bundled;
mod checks;
mod controls;
mod disk;
mod disruption;
mod environment;
mod extra_objects;
mod first_request;
mod helm;
mod images;
mod kubelet;
mod manifests;
mod matrix;
mod monitoring;
mod names;
mod overlay;
mod package;
mod passwords;
mod pod;
mod refusals;
mod reload;
mod resp;
mod scaling;
mod services;
mod start;
mod support;
mod upgrade;
mod workload;
