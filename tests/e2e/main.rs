//! The whole program from outside: the real binary on real sockets, with a real Envoy in front.
//!
//! No test waits for a window to end or fails when one does: limits are per day or longer. Only leases and
//! quotas are examined for several windows.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests wait for other processes, and a poisoned lock fails them"
)]

mod address_families;
mod agentgateway;
mod bad_input;
mod budget_api;
mod budgets;
mod byte_values;
mod changes;
mod clock;
mod compose;
mod connections;
mod control_access;
mod control_api;
mod control_page;
mod control_replicas;
mod debug_port;
mod diff;
mod direct_clients;
mod disk;
mod documents;
mod drain;
mod envoy;
mod envoy_docs;
mod envoy_filters;
mod envoy_gateway;
mod gateway_costs;
mod health;
mod health_command;
mod history;
mod hit;
mod holds;
mod http_connections;
mod istio;
mod library;
mod lists;
mod log;
mod metrics;
mod migrating;
mod operator_commands;
mod overlay;
mod quotas;
mod quotas_exam;
mod redis;
mod reference_metrics;
mod reload;
mod resp;
mod rolling_restart;
mod scarce;
mod secrets;
mod sell_tokens;
mod service;
mod settings;
mod start;
mod start_errors;
mod starvation;
mod statsd;
mod support;
mod systemd;
mod tls;
mod top_replicas;
mod traces;
mod unix_socket;
mod upgrade;
mod ways;
mod xds;
