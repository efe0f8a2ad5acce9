//! Values that the chart refuses, with a message that says what to write instead.

use crate::helm::Helm;

/// Values, and words of the message, in which each `/` is a dot: Helm 3 writes `store.kind`, and Helm 4 `/store/kind`. `|` separates
/// the words of Helm 3 and of Helm 4, where their schema checks differ otherwise.
const REFUSED: &[(&str, &[&str])] = &[
    // Wrong types.
    ("replicaCount: two", &["replicaCount"]),
    ("replicaCount: -1", &["replicaCount"]),
    ("replicaCount: 1.5", &["replicaCount"]),
    ("replicaCount: '2'", &["replicaCount"]),
    ("image: weir:latest", &["image"]),
    ("image: { pullPolicy: Sometimes }", &["pullPolicy"]),
    ("image: { digest: latest }", &["digest"]),
    ("service: { ports: { grpc: 70000 } }", &["grpc"]),
    ("service: { type: Proxy }", &["type"]),
    ("podLabels: [a]", &["podLabels"]),
    ("extraEnv: { A: b }", &["extraEnv"]),
    ("rules: { files: [domain] }", &["files"]),
    ("rules: { files: { a.yaml: { domain: shop } } }", &["a.yaml"]),
    ("rules: { overlay: [a.overlay.yaml] }", &["overlay"]),
    ("rules: { overlay: { files: { a.overlay.yaml: { patches: [] } } } }", &["a.overlay.yaml"]),
    ("store: { memory: { maxKeys: 0 } }", &["maxKeys"]),
    ("autoscaling: { enabled: 'yes' }", &["autoscaling"]),
    // Unknown keys.
    ("replicas: 3", &["replicas"]),
    ("image: { registry: docker.io }", &["registry"]),
    ("store: { redis: { password: secret } }", &["password"]),
    ("store: { redis: { tls: { skipVerify: true } } }", &["skipVerify"]),
    ("rules: { inline: {} }", &["inline"]),
    ("rules: { overlay: { source: inline } }", &["source"]),
    ("rules: { overlay: { files: { a.json: '{}' } } }", &["a.json"]),
    ("tls: { grpc: { mtls: true } }", &["mtls"]),
    ("drain: { period: 5s }", &["period"]),
    ("metrics: { grafana: {} }", &["grafana"]),
    // Monitoring.
    (
        "metrics: { monitor: { kind: Probe } }",
        &["metrics.monitor.kind", "ServiceMonitor", "PodMonitor"],
    ),
    (
        "metrics: { prometheusRule: { disabled: [WeirAbsnt] } }",
        &["metrics.prometheusRule.disabled.0", "WeirAbsent"],
    ),
    ("metrics: { monitor: { scrapeTimeout: 5 seconds } }", &["scrapeTimeout"]),
    ("metrics: { monitor: { relabelings: { a: b } } }", &["relabelings"]),
    // Unknown values.
    ("store: { kind: memcached }", &["kind"]),
    ("store: { onFailure: ignore }", &["onFailure"]),
    ("store: { redis: { topology: ring } }", &["topology"]),
    ("rules: { source: git }", &["source"]),
    // Unknown settings, and settings that the chart sets.
    ("settings: { logs: { level: debug } }", &["logs"]),
    ("settings: { log: { levle: debug } }", &["levle"]),
    ("settings: { log: { level: verbose } }", &["settings.log.level"]),
    ("settings: { log: { level: 'info,h2=loud' } }", &["settings.log.level"]),
    ("settings: [log]", &["settings"]),
    ("settings: { grpc: { address: ':1' } }", &["settings.grpc.address", "service.ports.grpc"]),
    ("settings: { store: { kind: redis } }", &["settings.store.kind", "store.kind"]),
    ("settings: { store: { replicas: 9 } }", &["settings.store.replicas", "replicaCount is null"]),
    ("settings: { drain: { delay: 9s } }", &["settings.drain.delay", "drain.delay"]),
    ("settings: { rules: { paths: [/a] } }", &["settings.rules.paths", "rules.files"]),
    ("settings: { rules: { overlay: [/a] } }", &["settings.rules.overlay", "rules.overlay.files"]),
    (
        "settings: { store: { redis: { password: a } } }",
        &["store.redis.password", "existingSecret"],
    ),
    // Settings of each type.
    ("settings: { grpc: { max_connection_age: -5 } }", &["max_connection_age"]),
    ("settings: { grpc: { max_connection_age: soon } }", &["max_connection_age"]),
    ("settings: { grpc: { max_message: much } }", &["max_message"]),
    ("settings: { grpc: { max_streams: '9' } }", &["max_streams"]),
    ("settings: { metrics: { near_limit_ratio: 2 } }", &["near_limit_ratio"]),
    ("settings: { metrics: { statsd: { address: statsd } } }", &["statsd", "address"]),
    ("settings: { rules: { xds: { node_metadata: { a: b } } } }", &["node_metadata"]),
    // Variables and volumes that would undo what the chart sets, or occur twice.
    (
        "extraEnv: [{ name: WEIR__STORE__KIND, value: memory }]",
        &["extraEnv.0.name", "unset: use the value store.kind"],
    ),
    (
        "extraEnv: [{ name: WEIR__STORE__REDIS__PASSWORD, value: a }]",
        &["extraEnv.0.name", "store.redis.existingSecret"],
    ),
    (
        "extraEnv: [{ name: WEIR__GRPC__TLS__CERT, value: a }]",
        &["extraEnv.0.name", "tls.grpc.secret"],
    ),
    (
        "extraEnv: [{ name: WEIR__RULES__OVERLAY, value: /a }]",
        &["extraEnv.0.name", "rules.overlay.existingConfigMap"],
    ),
    (
        "extraEnv: [{ name: WEIR__OTLP__HEADERS, value: 'token:a' }]",
        &["extraEnv.0.name", "from a secret"],
    ),
    (
        "extraEnv: [{ name: A, value: a }, { name: A, value: b }]",
        &["extraEnv: the name A is there twice"],
    ),
    ("extraVolumes: [{ name: rules, emptyDir: {} }]", &["extraVolumes: the name rules"]),
    ("service: { ports: { grpc: 8080 } }", &["one port twice (8080, 8080)", "different ports"]),
    (
        "store: { kind: redis, redis: { url: 'https://redis:1' } }",
        &["store.redis.url", "redis:..host:port"],
    ),
    // Sizes without a unit, of another unit, or none.
    ("resources: { limits: { memory: 64 } }", &["resources.limits.memory", "such as 512Mi"]),
    ("resources: { limits: { memory: '64' } }", &["resources.limits.memory", "such as 512Mi"]),
    ("resources: { requests: { memory: lots } }", &["resources.requests.memory", "512Mi"]),
    ("resources: { requests: { memory: 64m } }", &["resources.requests.memory", "512Mi"]),
    ("resources: { limits: { memory: 1GB } }", &["resources.limits.memory", "512Mi"]),
    (
        "replicaCount: 1\nstore: { kind: disk, disk: { size: '10' } }",
        &["store.disk.size", "such as 512Mi"],
    ),
    // Bad durations.
    ("drain: { delay: 5 }", &["delay"]),
    ("drain: { delay: 5 seconds }", &["delay"]),
    ("drain: { timeout: soon }", &["timeout"]),
    ("drain: { delay: -5s }", &["delay"]),
    ("drain: { delay: 30s, timeout: 30s }", &["drain.timeout (30s)", "drain.delay (30s)"]),
    // Values that contradict each other.
    ("store: { kind: memory }", &["store.kind=memory", "multiply the limits", "replicaCount=1"]),
    ("store: { kind: disk }", &["store.kind=disk", "multiply the limits", "replicaCount=1"]),
    ("store: { disk: { existingClaim: a } }", &["store.kind", "must be 'disk'|match: \"disk\""]),
    (
        "replicaCount: 1\nstore: { kind: disk, disk: { existingClaim: a, storageClass: b } }",
        &["store.disk.storageClass", "unset: the volume of store.disk.existingClaim has one"],
    ),
    (
        "replicaCount: 1\nstore: { kind: disk }\ncontrols: { existingClaim: a }",
        &["controls.existingClaim", "unset:", "with store.kind=disk its volume"],
    ),
    (
        "replicaCount: 1\nstore: { kind: memory }\nautoscaling: { enabled: true }",
        &["store.kind=memory", "autoscaling.enabled=false"],
    ),
    (
        "autoscaling: { enabled: true, minReplicas: 5, maxReplicas: 4 }",
        &["minReplicas (5)", "write 4 or less"],
    ),
    ("store: { kind: redis }", &["store.redis.url", "host:port"]),
    ("store: { kind: redis, redis: { url: 'redis://me:secret@redis:6379' } }", &["existingSecret"]),
    (
        "store: { redis: { url: 'redis:6379' } }",
        &["store.kind", "must be 'redis'|match: \"redis\""],
    ),
    (
        "store: { kind: redis, redis: { url: 's:26379', topology: sentinel } }",
        &["store.redis.sentinel.masterName"],
    ),
    (
        "store: { kind: redis, redis: { url: 'a:1,b:2' } }",
        &["store.redis.topology", "'sentinel', 'cluster'|\"sentinel\", \"cluster\""],
    ),
    (
        "store: { kind: redis, redis: { url: 'a:1', tls: { caSecret: ca } } }",
        &["store.redis.tls.enabled", "true"],
    ),
    ("rules: { source: configMap }", &["rules.existingConfigMap"]),
    ("rules: { source: xds }", &["rules.xds.url", "host:port"]),
    ("rules: { existingConfigMap: team }", &["rules.source", "configMap"]),
    ("rules: { xds: { url: 'a:1' } }", &["rules.source", "xds"]),
    (
        "rules: { overlay: { existingConfigMap: a, files: { a.overlay.yaml: '' } } }",
        &["rules.overlay.files", "unset:", "rules.overlay.existingConfigMap"],
    ),
    // Names by which weir would not read them.
    (
        "rules: { overlay: { files: { a.yml: '' } } }",
        &["rules.overlay.files.a.yml", ".overlay.yaml"],
    ),
    ("rules: { files: { shop: '', b.txt: '' } }", &["rules.files", "ends in .yaml"]),
    ("rules: { files: { lists/b.txt: '' } }", &["lists.b.txt"]),
    ("rules: { files: { a.overlay.yaml: '' } }", &["a.overlay.yaml", "rules.overlay.files"]),
    ("controls: { existingClaim: a }", &["controls.existingClaim", "Redis keeps controls"]),
    ("debug: { readTokenKey: a }", &["debug.existingSecret", "NAME of the secret"]),
    (
        "debug: { existingSecret: a, writeTokenKey: '' }",
        &["debug.writeTokenKey", "KEY, or one in debug.readTokenKey"],
    ),
    ("debug: { existingSecret: a, readTokenKey: token }", &["are both token"]),
    ("settings: { debug: { require_token: true } }", &["debug.existingSecret"]),
    ("settings: { controls: { file: /a } }", &["controls.existingClaim"]),
    ("settings: { resp: { address: ':1' } }", &["resp.enabled", "service.ports.resp"]),
    ("settings: { resp: { password_file: /a } }", &["resp.existingSecret"]),
    ("settings: { resp: { max_connections: 8 } }", &["resp.enabled", "true"]),
    (
        "{ resp: { enabled: true }, service: { ports: { resp: 8081 } } }",
        &["service.ports has one port twice", "8081"],
    ),
    ("resp: { existingSecret: a }", &["resp.enabled", "true"]),
    ("resp: { enabled: true, existingSecret: a, passwordKey: '' }", &["resp.passwordKey"]),
    ("resp: { enabled: true }\nservice: { ports: { resp: 8080 } }", &["8080", "different ports"]),
    ("tls: { resp: { enabled: true, secret: a } }", &["resp.enabled", "true"]),
    ("resp: { enabled: true }\ntls: { resp: { enabled: true } }", &["tls.resp.secret"]),
    ("tls: { grpc: { enabled: true } }", &["tls.grpc.secret"]),
    ("tls: { http: { secret: a } }", &["tls.http.enabled", "true"]),
    (
        "tls: { grpc: { enabled: true, secret: a } }\n\
         settings: { grpc: { tls: { client_sans: [b] } } }",
        &["tls.grpc.clientCaSecret"],
    ),
    (
        "tls: { grpc: { enabled: true }, certManager: { issuerRef: { kind: Issuer } } }",
        &["tls.certManager.issuerRef", "name"],
    ),
    ("tls: { certManager: { issuerRef: { name: a } } }", &["tls.grpc.enabled", "true"]),
];

#[test]
fn hostile_values_are_refused() {
    for helm in Helm::all() {
        let mut accepted = String::new();
        for (values, words) in REFUSED {
            match helm.chart().values(values).try_render() {
                Ok(_) => accepted += &format!("accepted: {values}\n"),
                Err(message) => {
                    let message = message.replace('/', ".");
                    for word in *words {
                        if !word.split('|').any(|word| message.contains(word)) {
                            accepted += &format!("no {word:?} for {values}: {message}\n");
                        }
                    }
                }
            }
        }
        assert_eq!(accepted, "", "{helm:?}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let Some(helm) = Helm::newest() else { return };
    let values = "store: { kind: redis }\nrules: { source: xds }\ntls: { grpc: { enabled: true } }";
    let message = helm.chart().values(values).try_render().expect_err("refused");
    for word in ["store.redis.url", "rules.xds.url", "tls.grpc.secret"] {
        assert!(message.replace('/', ".").contains(word), "{word} in {message}");
    }
    let values = "service: { ports: { grpc: 8080 } }\ndrain: { delay: 30s, timeout: 30s }";
    let message = helm.chart().values(values).try_render().expect_err("refused");
    assert!(message.contains("different ports") && message.contains("drain.delay"), "{message}");
}

#[test]
fn a_password_is_never_in_a_message() {
    for helm in Helm::all() {
        for values in [
            "store: { kind: redis, redis: { url: 'redis://me:hunter2@redis:6379' } }",
            "settings: { store: { redis: { per_second: { url: 'redis://me:hunter2@redis:6379' } } } }",
            "settings: { store: { redis: { password: hunter2 } } }",
        ] {
            let message = helm.chart().values(values).try_render().expect_err("refused");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
