//! Limits in tokens as Envoy AI Gateway (QuotaPolicy) and Envoy Gateway (`cost`) generate them, from
//! `tests/gateway_policies`: over xDS, and behind a real Envoy with the filter that they inject.

mod policies;
mod reserved;

use self::policies::Policy;
use crate::support::backend::Backend;
use crate::support::envoy::{self, Envoy};
use crate::support::files::read;
use crate::support::management::{Management, any, config};
use crate::support::weir::{Setup, Weir};
use crate::support::{http, wait_for};

/// weir with rules of a gateway, and an Envoy that the gateway configures.
struct Gateway {
    weir: Weir,
    envoy: Envoy,
    domain: String,
    _server: Management,
}

impl Gateway {
    fn start(policy: &Policy) -> Gateway {
        Gateway::start_with(policy, None)
    }

    /// Starts weir with the variables that the gateways document for the rate-limit service.
    fn start_with(policy: &Policy, overlay: Option<&str>) -> Gateway {
        let server = Management::start();
        let setup = Setup::new()
            .arg("serve")
            .env("CONFIG_TYPE", "GRPC_XDS_SOTW")
            .env("CONFIG_GRPC_XDS_NODE_ID", policy.node_id())
            .env("CONFIG_GRPC_XDS_SERVER_URL", server.address.to_string())
            .env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true");
        let setup = overlay.into_iter().fold(setup, |setup, text| {
            let setup = setup.file("quota.overlay.yaml", text);
            let path = setup.path("quota.overlay.yaml");
            setup.env("WEIR__RULES__OVERLAY", path)
        });
        let weir = setup.start_unhealthy();
        // The snapshot is that of the node.
        assert_eq!(server.sotw.next().node.expect("a node").id, policy.node_id());
        server.set("1", vec![any(&config(&policy.rules))]);
        wait_for("weir is healthy", || weir.is_healthy().then_some(()));
        let domain = policy.rules["domain"].as_str().expect("a domain").to_owned();
        Gateway { envoy: start_envoy(policy, &weir), weir, domain, _server: server }
    }

    /// Sends a request whose response costs `tokens`. Returns its status.
    fn ask(&self, tokens: u32, headers: &[(&str, &str)]) -> u16 {
        self.ask_backend("default/openai", tokens, headers)
    }

    /// As [`Self::ask`], where the gateway chooses this backend.
    fn ask_backend(&self, backend: &str, tokens: u32, headers: &[(&str, &str)]) -> u16 {
        self.ask_chosen(backend, "gpt-4o", tokens, headers)
    }

    /// As [`Self::ask`], where the gateway chooses this model.
    fn ask_model(&self, model: &str, tokens: u32) -> u16 {
        self.ask_chosen("default/openai", model, tokens, &[])
    }

    fn ask_chosen(&self, backend: &str, model: &str, tokens: u32, more: &[(&str, &str)]) -> u16 {
        let chosen = [("x-backend", backend), ("x-model", model)];
        self.get(&format!("/tokens/{tokens}"), &[&chosen, more].concat())
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        http::get_with(self.envoy.address, path, headers).status
    }

    /// Waits until the rule below the model has counted `hits`: Envoy charges costs after the response.
    fn wait_until_charged(&self, rule: &str, hits: u64) {
        let labels = format!("{{domain=\"{}\",rule=\"{rule}\"}}", self.domain);
        wait_for(&format!("{hits} hits of {rule}"), || {
            (self.weir.metric(&format!("weir_rule_hits_total{labels}")) == hits).then_some(())
        });
    }
}

fn start_envoy(policy: &Policy, weir: &Weir) -> Envoy {
    let backend = Backend::start();
    let config = include_str!("gateway_costs/envoy.yaml")
        .replace("{filter}", policy.filter())
        .replace("{domain}", policy.rules["domain"].as_str().expect("a domain"))
        .replace("{route}", &policy.route.to_string())
        .replace("{weir}", &weir.grpc.port().to_string())
        .replace("{backend}", &backend.address.port().to_string());
    envoy::run(&config, backend, "ingress")
}

const OPENAI: &str = "backend_name_default/openai.model_name_override_gpt-4o";
const AZURE: &str = "backend_name_default/azure.model_name_override_gpt-4o";

/// Returns the name of a rule below the model whose value repeats its key.
fn bucket(key: &str) -> String {
    format!("{OPENAI}.{key}_{key}")
}

#[test]
fn a_budget_is_asked_for_one_hit_at_the_start_and_charged_at_the_end() {
    let gateway = Gateway::start(&Policy::read("quota-default-bucket"));
    assert_eq!(gateway.ask(20, &[]), 200);
    gateway.wait_until_charged(OPENAI, 21);
    // A denied request counts, too, but has no cost.
    assert_eq!(gateway.ask(5, &[]), 429);
    gateway.wait_until_charged(OPENAI, 22);
    assert_eq!(gateway.ask(5, &[]), 429);
    gateway.wait_until_charged(OPENAI, 23);
    assert_eq!(gateway.envoy.backend.seen(), 1);
}

#[test]
fn a_request_passes_while_any_of_its_buckets_has_room() {
    let gateway = Gateway::start(&Policy::read("quota-bucket-rules"));
    let acme = [("x-tenant-id", "acme"), ("x-plan", "gold-1")];
    assert_eq!(gateway.ask(45, &acme), 200);
    for rule in ["rule-0-x-tenant-id|acme-match-0", "rule-1-x-plan|^(gold|silver)-.*$-match-0"] {
        gateway.wait_until_charged(&bucket(rule), 46);
    }
    gateway.wait_until_charged(&bucket("rule-4-match--1"), 46);
    // Only the bucket of the tenant has room, then none.
    assert_eq!(gateway.ask(5, &acme), 200);
    gateway.wait_until_charged(&bucket("rule-0-x-tenant-id|acme-match-0"), 52);
    assert_eq!(gateway.ask(1, &acme), 429);
    // The headers of a rule must all match.
    let (trial, elsewhere) = ([("x-plan", "trial"), ("x-region", "eu")], [("x-plan", "trial")]);
    assert_eq!(gateway.ask(1, &elsewhere), 429);
    assert_eq!(gateway.ask(1, &trial), 200);
    let nested = "rule-2-x-plan|trial-match-0_rule-2-x-plan|trial-match-0.\
                  rule-2-x-region|eu-match-1_rule-2-x-region|eu-match-1";
    gateway.wait_until_charged(&format!("{OPENAI}.{nested}"), 2);
}

#[test]
fn with_the_overlay_of_the_example_each_bucket_denies_by_itself() {
    let overlay = read("examples/envoy-ai-gateway/quota.overlay.yaml");
    let gateway = Gateway::start_with(&Policy::read("quota-bucket-rules"), Some(&overlay));
    let acme = [("x-tenant-id", "acme")];
    assert_eq!(gateway.ask(15, &acme), 200);
    gateway.wait_until_charged(&bucket("rule-4-match--1"), 16);
    // The tenant has 34 left.
    assert_eq!(gateway.ask(1, &acme), 429);
}

#[test]
fn costs_of_distinct_values_are_pooled_unless_the_end_has_the_action_of_the_start() {
    let mut policy = Policy::read("quota-distinct");
    let rule = "rule-0-x-tenant-id-match-0";
    let (ann, bob, pool) =
        ([("x-tenant-id", "ann")], [("x-tenant-id", "bob")], [("x-tenant-id", rule)]);
    let path = format!("{OPENAI}.{rule}");
    let gateway = Gateway::start(&policy);
    assert_eq!(gateway.ask(100, &ann), 200);
    gateway.wait_until_charged(&path, 101);
    assert_eq!(gateway.ask(1, &ann), 200);
    assert_eq!(gateway.ask(1, &pool), 429);

    let [start, end] = [0, 1].map(|item| format!("/rate_limits/{item}/actions/2"));
    let action = policy.route.pointer(&start).expect("an action").clone();
    *policy.route.pointer_mut(&end).expect("an action") = action;
    let gateway = Gateway::start(&policy);
    assert_eq!(gateway.ask(100, &ann), 200);
    gateway.wait_until_charged(&path, 101);
    assert_eq!(gateway.ask(1, &ann), 429);
    assert_eq!(gateway.ask(1, &bob), 200);
}

#[test]
fn a_bucket_in_shadow_mode_always_has_room() {
    let gateway = Gateway::start(&Policy::read("quota-shadow"));
    let acme = [("x-tenant-id", "acme")];
    assert_eq!(gateway.ask(30, &acme), 200);
    let shadow = bucket("rule-0-x-tenant-id|acme-match-0");
    gateway.wait_until_charged(&shadow, 31);
    gateway.wait_until_charged(&bucket("rule-1-match--1"), 31);
    // So the other bucket denies only requests without it.
    assert_eq!(gateway.ask(1, &acme), 200);
    assert_eq!(gateway.ask(1, &[("x-tenant-id", "other")]), 429);
    let labels = format!("{{domain=\"ai-gateway-quota\",rule=\"{shadow}\"}}");
    assert!(gateway.weir.metric(&format!("weir_rule_shadow_mode_total{labels}")) > 0);
}

#[test]
fn requests_are_denied_when_the_budgets_of_all_backends_are_used_up() {
    let gateway = Gateway::start(&Policy::read("quota-backends"));
    assert_eq!(gateway.ask(20, &[]), 200);
    gateway.wait_until_charged(OPENAI, 21);
    // Both were asked for one hit.
    gateway.wait_until_charged(AZURE, 1);
    assert_eq!(gateway.ask_backend("default/azure", 20, &[]), 200);
    gateway.wait_until_charged(AZURE, 22);
    assert_eq!(gateway.ask(1, &[]), 429);
}

#[test]
fn a_model_is_used_beyond_its_budget_while_another_one_has_room() {
    let gateway = Gateway::start(&Policy::read("quota-models"));
    let mini = format!("{OPENAI}-mini");
    assert_eq!(gateway.ask_model("gpt-4o", 20), 200);
    gateway.wait_until_charged(OPENAI, 21);
    // Both were asked for one hit.
    gateway.wait_until_charged(&mini, 1);
    assert_eq!(gateway.ask_model("gpt-4o", 5), 200);
    gateway.wait_until_charged(OPENAI, 27);
    assert_eq!(gateway.ask_model("gpt-4o-mini", 20), 200);
    gateway.wait_until_charged(&mini, 23);
    assert_eq!(gateway.ask_model("gpt-4o", 1), 429);
    assert_eq!(gateway.ask_model("gpt-4o-mini", 1), 429);
}

#[test]
fn the_budget_of_a_service_is_charged_for_models_without_one_but_never_asked() {
    let gateway = Gateway::start(&Policy::read("quota-service"));
    let service = "backend_name_default/openai.model_name_override";
    assert_eq!(gateway.ask_model("gpt-4o-mini", 20), 200);
    gateway.wait_until_charged(service, 20);
    gateway.wait_until_charged(OPENAI, 1);
    assert_eq!(gateway.ask_model("gpt-4o-mini", 20), 200);
    gateway.wait_until_charged(service, 40);
    // All requests of the route ask about the model that has a budget.
    assert_eq!(gateway.ask_model("gpt-4o", 20), 200);
    gateway.wait_until_charged(OPENAI, 23);
    assert_eq!(gateway.ask_model("gpt-4o-mini", 1), 429);
}

#[test]
fn costs_of_distinct_values_are_pooled_for_the_requests_with_another_header() {
    let gateway = Gateway::start(&Policy::read("quota-exact-distinct"));
    let pool = "rule-0-x-tenant-id-match-1";
    let headers_of = |plan, tenant| [("x-plan", plan), ("x-tenant-id", tenant)];
    assert_eq!(gateway.ask(100, &headers_of("gold", "ann")), 200);
    let rule = format!("{}.{pool}", bucket("rule-0-x-plan|gold-match-0"));
    gateway.wait_until_charged(&rule, 101);
    assert_eq!(gateway.ask(1, &headers_of("gold", "ann")), 200);
    assert_eq!(gateway.ask(1, &headers_of("gold", pool)), 429);
    assert_eq!(gateway.ask(1, &headers_of("silver", pool)), 200);
}

#[test]
fn an_inverted_header_charges_the_requests_that_its_rule_excludes() {
    let gateway = Gateway::start(&Policy::read("quota-inverted"));
    let (acme, other) = ([("x-tenant-id", "acme")], [("x-tenant-id", "other")]);
    let rule = bucket("rule-0-x-tenant-id|acme-match-0");
    assert_eq!(gateway.ask(50, &other), 200);
    assert_eq!(gateway.ask(50, &acme), 200);
    gateway.wait_until_charged(&rule, 51);
    assert_eq!(gateway.ask(1, &other), 429);
    assert_eq!(gateway.ask(1, &acme), 200);
}

#[test]
fn the_cost_of_a_backend_traffic_policy_is_charged_to_each_value() {
    let gateway = Gateway::start(&Policy::read("cost"));
    let route = "httproute/default/backend/rule/0/match/0/www_example_com";
    let (ann, bob) = ([("x-tenant-id", "ann")], [("x-tenant-id", "bob")]);
    let rule = format!("{route}_{route}.rule-0-match-0");
    assert_eq!(gateway.ask(4, &ann), 200);
    // The start only looks.
    gateway.wait_until_charged(&rule, 4);
    assert_eq!(gateway.ask(8, &ann), 200);
    gateway.wait_until_charged(&rule, 12);
    assert_eq!(gateway.ask(1, &ann), 429);
    assert_eq!(gateway.ask(1, &bob), 200);
}
