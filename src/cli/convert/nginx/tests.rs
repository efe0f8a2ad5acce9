use super::*;
use crate::cli::convert::domain::tests::errors;

const CONF: &str = "\
http {
  limit_req_zone $binary_remote_addr zone=address:10m rate=10r/s;
  limit_req_zone $http_x_api_key$request_method zone=key:10m rate=30r/m;
  limit_req_zone $cookie_session zone=session:10m rate=1r/s;
  limit_conn_zone $server_name zone=host:10m;
  limit_req zone=address burst=20 nodelay;
  server {
    server_name shop.example .shop.test;
    location / { proxy_pass http://a; }
    location /login { limit_req zone=key burst=5; limit_conn host 10; }
    location ~ \\.php$ { limit_req zone=session; }
    location = /health { limit_req_dry_run on; }
    include more.conf;
  }
}
";

#[test]
fn zones_become_rules() {
    let converted = convert("n.conf", CONF, "shop").unwrap();
    assert_eq!(
        converted.left_out,
        [
            "n.conf:4: Envoy has no action for the variable `$cookie_session`: use an address, a header, an \
                 argument or the path",
            "n.conf:10: nginx delays requests of the burst without `nodelay`; weir lets them pass at once and \
                 denies those after them",
            "n.conf:11: the zone `session` is not known or not converted",
            "n.conf:12: `limit_req_dry_run`: write `shadow_mode: true` into the rule",
            "n.conf:13: `include` is not followed: convert the output of `nginx -T`",
        ]
    );
    let [rules] = converted.rules.as_slice() else { panic!() };
    assert_eq!(errors(rules), "");
    assert_eq!(
        rules.text,
        "\
domain: shop
descriptors:
  - key: zone
    value: address
    descriptors:
      - key: remote_address
        rate_limit:
          algorithm: gcra
          unit: second
          requests_per_unit: 10
          burst: 21
  - key: zone
    value: key
    descriptors:
      - key: x_api_key
        descriptors:
          - key: method
            rate_limit:
              algorithm: gcra
              unit: minute
              requests_per_unit: 30
              burst: 6
  - key: zone
    value: host
    descriptors:
      - key: host
        rate_limit:
          algorithm: concurrency
          requests_per_unit: 10
"
    );
    let envoy = converted.envoy.unwrap();
    assert!(envoy.contains("domains: [shop.example, shop.test, \"*.shop.test\"]"), "{envoy}");
    let places = ["{ path: /health }", "safe_regex", "{ prefix: /login }", "{ prefix: / }"];
    let places = places.map(|text| envoy.find(text).unwrap());
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn servers_of_other_protocols_are_no_routes() {
    let stream = "\
stream {
  limit_conn_zone $binary_remote_addr zone=a:10m;
  server { listen 5432; limit_conn a 3; proxy_pass db; }
}
mail { server { listen 25; } }
";
    let converted = convert("n", stream, "d").unwrap();
    let listed =
        "n:1: `stream` has connections, not requests: Envoy's HTTP filter does not count them";
    assert_eq!(converted.left_out, [listed]);
    assert!(converted.rules.is_empty() && converted.envoy.is_none());
    // A zone of the same name is another one.
    let both = format!("{stream}http {{ server {{ limit_conn a 5; }} }}\n");
    let converted = convert("n", &both, "d").unwrap();
    assert_eq!(converted.left_out, [listed, "n:6: the zone `a` is not known or not converted"]);
}

#[test]
fn a_zone_with_several_bursts_has_several_rules() {
    let text = "limit_req_zone $host zone=a:1m rate=1r/s;\nserver {\n location /a { limit_req zone=a; }\n \
                    location /b { limit_req zone=a burst=2 nodelay; }\n}\n";
    let converted = convert("n", text, "d").unwrap();
    assert_eq!(converted.left_out.len(), 1, "{:?}", converted.left_out);
    assert!(converted.rules[0].text.contains("value: a-burst-2"));
    assert!(convert("n", "a {", "d").unwrap_err().starts_with("error: n:1: a block has no"));
}
