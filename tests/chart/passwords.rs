//! Passwords that something else than a secret brings, and the second Redis with a password of its own.

use std::fs;

use crate::helm::Helm;
use crate::kubelet::Node;
use crate::manifests::Read;
use crate::start::{RULES, allows, assert_limits, wait_until_ready};
use crate::support::redis::Server;
use crate::support::redis::sentinel::{MASTER, Sentinels};

/// A pause of a busy machine must not count as an outage of Redis.
const PATIENT: &str = "slow_after: 10s";

#[test]
fn a_sidecar_writes_the_passwords() {
    let Some(helm) = Helm::newest() else { return };
    let sentinels = Sentinels::start();
    for sentinel in &sentinels.sentinels {
        sentinel.command(&["ACL", "SETUSER", "default", "resetpass", ">sentinel-pass"]);
    }
    let login = ["ACL", "SETUSER", "limits", "on", ">token-1", "~*", "&*", "+@all"];
    sentinels.master.command(&login);
    let values = format!(
        "{RULES}settings: {{ store: {{ budget: 10s, redis: {{ {PATIENT} }} }} }}
store: {{ redis: {{ sentinel: {{ masterName: {MASTER} }} }} }}"
    );
    let release = helm.chart().file("sidecar").values(&values).render();
    let node = Node::new(&release).address("sentinel:26379", &sentinels.addresses().join(","));
    let directory = node.path("/var/run/redis-login");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("password"), "token-1").unwrap();
    fs::write(directory.join("sentinel-password"), "sentinel-pass").unwrap();
    assert_limits(&node.start());
    assert_ne!(sentinels.master.command(&["DBSIZE"]).int(), 0, "weir counts in Redis");
}

#[test]
fn sidecars_are_in_the_pod_whatever_its_kind() {
    let Some(helm) = Helm::newest() else { return };
    for (kind, values) in
        [("Deployment", ""), ("StatefulSet", "replicaCount: 1\nstore: { kind: disk }")]
    {
        let containers = "\ninitContainers: [{ name: first, image: a, restartPolicy: Always }]\n\
                          extraContainers: [{ name: second, image: b }]";
        let release = helm.render(&format!("{values}{containers}"));
        assert_eq!(release.workload()["kind"], kind);
        let pod = release.pod();
        let first = pod["initContainers"].named("first");
        assert_eq!((first["image"].text(), first["restartPolicy"].text()), ("a", "Always"));
        let names: Vec<&str> =
            pod["containers"].list().iter().map(|it| it["name"].text()).collect();
        // The first container is that of `kubectl logs` and `kubectl exec`.
        assert_eq!(names, ["weir", "second"], "{kind}");
    }
}

#[test]
fn a_password_file_must_be_mounted_and_be_the_only_password() {
    let redis = "store: { kind: redis, redis: { url: 'a:1' } }\n";
    let sentinel = "store: { kind: redis, redis: { url: 'a:1', topology: sentinel, sentinel: { masterName: m } } }\n";
    let mount = "extraVolumes: [{ name: a, emptyDir: {} }]\nextraVolumeMounts: [{ name: a, mountPath: /run/a }]\n";
    let file =
        |path: &str| format!("settings: {{ store: {{ redis: {{ password_file: {path} }} }} }}\n");
    let of_sentinel = |path: &str| {
        format!("settings: {{ store: {{ redis: {{ sentinel: {{ password_file: {path} }} }} }} }}\n")
    };
    let both = "store: { kind: redis, redis: { url: 'a:1', existingSecret: b } }\n";
    let both_of_sentinel = "store: { kind: redis, redis: { url: 'a:1', topology: sentinel, \
                            sentinel: { masterName: m, existingSecret: b } } }\n";
    for helm in Helm::all() {
        for accepted in [
            format!("{redis}{mount}{}", file("/run/a/password")),
            format!("{redis}{mount}{}", file("/run/a/b/password")),
            format!("{sentinel}{mount}{}", of_sentinel("/run/a/password")),
        ] {
            helm.render(&accepted);
        }
        for (values, words) in [
            (format!("{redis}{}", file("/run/a/b")), "mountPath of extraVolumeMounts"),
            (format!("{redis}{mount}{}", file("/run/ab")), "mountPath of extraVolumeMounts"),
            (format!("{redis}{mount}{}", file("/run/a/../b")), "mountPath of extraVolumeMounts"),
            (format!("{sentinel}{}", of_sentinel("/run/a/b")), "mountPath of extraVolumeMounts"),
            (
                format!("{both}{mount}{}", file("/run/a/b")),
                "store.redis.existingSecret has the password",
            ),
            (
                format!("{both_of_sentinel}{mount}{}", of_sentinel("/run/a/b")),
                "store.redis.sentinel.existingSecret has the password",
            ),
            (format!("{mount}{}", file("/run/a/b")), "store.kind=redis"),
            (
                format!("{redis}{mount}{}", of_sentinel("/run/a/b")),
                "value must be 'sentinel'|match: \"sentinel\"",
            ),
            (
                format!(
                    "{redis}{mount}extraEnv: [{{ name: WEIR__STORE__REDIS__PASSWORD_FILE, value: /run/a/b }}]"
                ),
                "settings.store.redis.password_file",
            ),
        ] {
            let message = helm.chart().values(&values).try_render().expect_err(&values);
            assert!(words.split('|').any(|it| message.contains(it)), "{words} in {message}");
        }
    }
}

#[test]
fn limits_per_second_have_their_own_redis() {
    let Some(helm) = Helm::newest() else { return };
    let rules = "
rules:
  files:
    shop.yaml: |
      domain: shop
      descriptors:
        - key: user
          rate_limit: { unit: year, requests_per_unit: 1 }
        - key: user
          value: fast
          rate_limit: { unit: second, requests_per_unit: 100 }
";
    let values = format!("{rules}settings: {{ store: {{ budget: 10s, redis: {{ {PATIENT} }} }} }}");
    let release = helm.chart().file("per-second").values(&values).render();
    let slow = Server::configured(&[]);
    let fast = Server::configured(&["user weir on >fast-pass ~* +@all"]);
    let counts =
        |redis: &Server| redis.command(&["INFO", "commandstats"]).text().contains("cmdstat_eval");
    let node = Node::new(&release)
        .address("fast-redis.data.svc.cluster.local:6379", &fast.addr())
        .address("redis.data.svc.cluster.local:6379", &slow.addr())
        .secret("fast-redis-login", &[("username", "weir"), ("password", "fast-pass")]);
    let running = node.start();
    wait_until_ready(&running);
    fast.command(&["CONFIG", "RESETSTAT"]);
    assert!(allows(running.http, "fast"));
    assert!(counts(&fast));
    // Connecting is a script call, too.
    for redis in [&fast, &slow] {
        redis.command(&["CONFIG", "RESETSTAT"]);
    }
    assert!(allows(running.http, "ann") && !allows(running.http, "ann"));
    assert!(!counts(&fast) && counts(&slow));
}

#[test]
fn the_second_redis_has_settings_without_passwords() {
    let Some(helm) = Helm::newest() else { return };
    let setting = |text: &str| {
        format!(
            "store: {{ kind: redis, redis: {{ url: 'a:1' }} }}\n\
             settings: {{ store: {{ redis: {{ per_second: {{ {text} }} }} }} }}"
        )
    };
    for (text, words) in [
        ("url: 'me:secret@b:1'", "password_file"),
        ("url: 'https://b:1'", "rediss://host:port"),
        ("url: 'b:1', password: secret", "settings.store.redis.per_second.password_file"),
        ("url: 'b:1', password_file: /run/a", "mountPath of extraVolumeMounts"),
        (
            "url: 'b:1', topology: sentinel, sentinel: { master_name: a, password_file: /run/a }",
            "settings.store.redis.per_second.sentinel.password_file is /run/a",
        ),
    ] {
        let values = setting(text);
        let message = helm.chart().values(&values).try_render().expect_err(&values);
        assert!(message.contains(words) && !message.contains("secret@"), "{words} in {message}");
    }
    helm.render(&setting("url: 'b:1', connect_timeout: 2s, tls: { enabled: true }"));
}
