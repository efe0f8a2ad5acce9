//! Networks in the values of controls.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_network_is_blocked_allowed_and_limited_by_the_most_specific_control() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        let put = |value: &str, members: Value| {
            let (status, written) = api.post("", &of_user(value, &members));
            assert_eq!((status, &written["warnings"]), (200, &json!([])), "{written}");
            assert_eq!(written["control"]["text"], false);
            written["control"]["id"].as_str().unwrap().to_owned()
        };
        let blocked = put("10.0.0.0/8", json!({ "action": "block", "for": "1h" }));
        for value in ["10.1.2.3", "10.1.2.3:80", "::ffff:10.1.2.3", "10.0.0.0/8", "10.1.0.0/16"] {
            assert_eq!(codes(grpc, "user", value).await, [OVER], "{value}");
        }
        for value in ["11.0.0.1", "10.1.2", "ann", "::10.1.2.3"] {
            assert_eq!(codes(grpc, "user", value).await, [OK], "{value}");
        }
        let explained = api.good("/v1/explain?domain=shop&descriptor=user%3D10.1.2.3");
        assert_eq!(explained["descriptors"][0]["control"]["id"], blocked);
        api.delete(&format!("/v1/controls/{blocked}"));

        put("10.0.0.0/8", json!({ "action": "limit", "limit": { "n": 0 } }));
        put("10.1.2.3", json!({ "action": "limit", "limit": { "n": 3 } }));
        put("10.1.0.0/16", json!({ "action": "limit", "limit": { "n": 1 } }));
        assert_eq!(codes(grpc, "user", "10.2.0.1").await, [OVER]);
        assert_eq!(codes(grpc, "user", "10.1.0.1").await, [OK, OVER]);
        assert_eq!(codes(grpc, "user", "10.1.2.3").await, [OK, OK, OK, OVER]);
        put("10.0.0.0/8", json!({ "action": "allow" }));
        assert_eq!(codes(grpc, "user", "10.1.2.3").await, [OK]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_matches_itself_alone_and_what_is_nearly_a_network_gets_a_warning() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        let block = |value: &str, text: bool| {
            of_user(value, &json!({ "action": "block", "for": "1h", "text": text }))
        };
        let written = api.put_good("b", &block("10.0.0.0/8", true));
        assert_eq!(written["control"]["text"], true);
        assert_eq!(codes(grpc, "user", "10.0.0.0/8").await, [OVER]);
        assert_eq!(codes(grpc, "user", "10.1.2.3").await, [OK]);
        let changed = api.put_good("b", &block("10.0.0.0/8", false));
        let warning = "it replaces b: block shop user=10.0.0.0/8 (text)";
        assert_eq!(changed["warnings"], json!([warning]));
        assert_eq!(codes(grpc, "user", "10.1.2.3").await, [OVER]);

        let (_, written) = api.post("", &block("192.0.2.7/24", false));
        let warning = written["warnings"][0].as_str().unwrap();
        assert!(warning.ends_with("did you mean '192.0.2.0/24'?"), "{warning}");
        assert_eq!(codes(grpc, "user", "192.0.2.7/24").await, [OVER]);
        assert_eq!(codes(grpc, "user", "192.0.2.7").await, [OK]);

        let (status, error) = api.post("", &block("0.0.0.0/0", false));
        assert_eq!((status, &error["kind"]), (409, &json!("needs_force")), "{error}");
        let (status, error) =
            api.put("b", &of_user("ann", &json!({ "action": "block", "text": null })));
        assert_eq!(status, 400, "{error}");
    }
}
