use super::super::table::StoreKind;
use super::super::tests::inputs;
use super::*;
use weir_client::tls::{ClientFiles, PemFile};
use weir_redis::ClockSource;

fn load(env: &[(&str, &str)]) -> Settings {
    Settings::load(&inputs(env)).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn redis(env: &[(&str, &str)]) -> RedisOptions {
    load(env).redis_options().unwrap().0
}

fn per_second(env: &[(&str, &str)]) -> Option<RedisOptions> {
    load(env).redis_options().unwrap().1
}

fn errors_of(env: &[(&str, &str)]) -> Vec<String> {
    let errors = Settings::load(&inputs(env)).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp(host.into(), port)
}

fn server(options: &RedisOptions) -> Endpoint {
    match &options.topology {
        Topology::Single(server) => server.clone(),
        other => panic!("{other:?}"),
    }
}

fn pem_file(setting: &'static str, path: &str) -> Option<PemFile> {
    Some(PemFile { setting, path: path.into() })
}

const URL: &str = "WEIR__STORE__REDIS__URL";

#[test]
fn memory_is_the_store_until_redis_is_named() {
    assert!(load(&[]).redis_options().is_none());
    for env in [&[(URL, "redis:6379")][..], &[("REDIS_URL", "redis:6379")]] {
        assert_eq!(server(&redis(env)), tcp("redis", 6379));
        let kind = load(env).store.kind;
        assert_eq!((kind.value, kind.origin.as_str()), (StoreKind::Redis, env[0].0));
    }
    let memory = [("REDIS_URL", "no address"), ("WEIR__STORE__KIND", "memory")];
    let settings = load(&memory);
    assert!(settings.redis_options().is_none());
    let warning = "counters are in this process's memory, as WEIR__STORE__KIND sets store.kind: \
                   REDIS_URL has no effect";
    assert_eq!(settings.warnings, [warning]);
    let two = [("REDIS_SOCKET_TYPE", "tcp"), memory[0], memory[1]];
    let warnings = load(&two).warnings;
    assert!(warnings[0].ends_with("REDIS_URL, REDIS_SOCKET_TYPE have no effect"), "{warnings:?}");
    let own = [(URL, "h:1"), ("WEIR__STORE__KIND", "memory")];
    let warnings = load(&own).warnings;
    assert!(warnings[0].ends_with("store.redis.url (WEIR__STORE__REDIS__URL) has no effect"));
    let nowhere = errors_of(&[("WEIR__STORE__KIND", "redis")]);
    assert!(nowhere.len() == 1 && nowhere[0].contains("store.redis.url is not set"), "{nowhere:?}");
}

#[test]
fn without_a_url_redis_has_the_references_address() {
    for named in [("BACKEND_TYPE", "redis"), ("REDIS_TYPE", "single"), ("REDIS_TLS", "false")] {
        let socket = Endpoint::Unix("/var/run/nutcracker/ratelimit.sock".into());
        assert_eq!(server(&redis(&[named])), socket);
        assert_eq!(load(&[named]).store.redis.server.url.origin, named.0);
    }
    assert_eq!(server(&redis(&[("BACKEND_TYPE", "redis"), (URL, "h:1")])), tcp("h", 1));
}

#[test]
fn defaults_are_weirs_own() {
    let env = [(URL, "rediss://ann:p%40w@h")];
    let store = load(&env).store;
    assert_eq!((*store.replicas, store.on_failure.name()), (1, "error"));
    assert_eq!(*store.deny_locally_for, Duration::from_millis(250));
    assert_eq!(*store.leases_for, Duration::from_millis(100));
    assert!(per_second(&env).is_none());
    let redis = redis(&env);
    assert_eq!(server(&redis), tcp("h", 6379));
    assert_eq!(redis.clock, ClockSource::Server);
    assert_eq!((redis.access.db, redis.prefix.as_str()), (0, "weir:"));
    assert_eq!(redis.access.timeout, Duration::from_secs(1));
    assert_eq!(redis.access.login.username.as_deref(), Some("ann"));
    assert_eq!(redis.access.login.password.as_deref(), Some("p@w"));
    let tls = redis.access.tls.unwrap();
    assert_eq!(*tls.certificates.files(), ClientFiles::default());
    assert!(!tls.skip_hostname_verification);
}

#[test]
fn the_budget_and_the_threshold_are_two_numbers() {
    const SLOW_AFTER: &str = "WEIR__STORE__REDIS__SLOW_AFTER";
    let times = |env: &[(&str, &str)]| (*load(env).store.budget, redis(env).slow_after);
    let ms = Duration::from_millis;
    assert_eq!(times(&[(URL, "h:1")]), (None, ms(20)));
    let set = [(URL, "h:1"), ("WEIR__STORE__BUDGET", "8ms"), (SLOW_AFTER, "1s")];
    assert_eq!(times(&set), (Some(ms(8)), ms(1_000)));
    let second = ("WEIR__STORE__REDIS__PER_SECOND__URL", "i:1");
    let per_second = per_second(&[(URL, "h:1"), (SLOW_AFTER, "1s"), second]).unwrap();
    assert_eq!(per_second.slow_after, ms(1_000), "one for both");
    let zero = errors_of(&[(URL, "h:1"), (SLOW_AFTER, "0")]);
    assert!(zero.len() == 1 && zero[0].contains("store.redis.slow_after is 0"), "{zero:?}");
    let word = errors_of(&[(URL, "h:1"), ("WEIR__STORE__BUDGET", "soon")]);
    assert!(word.len() == 1 && word[0].contains("auto, or a duration"), "{word:?}");
}

#[test]
fn leases_last_up_to_a_second() {
    const LEASES_FOR: &str = "WEIR__STORE__LEASES_FOR";
    for (text, lease) in [("0", 0), ("400ms", 400), ("1s", 1_000)] {
        let store = load(&[(URL, "h:1"), (LEASES_FOR, text)]).store;
        assert_eq!(*store.leases_for, Duration::from_millis(lease));
    }
    let wanted = "WEIR__STORE__LEASES_FOR: store.leases_for is 1s1ms; \
                  write a duration up to 1s, or 0 for no leases";
    assert_eq!(errors_of(&[(URL, "h:1"), (LEASES_FOR, "1s1ms")]), [wanted]);
    // Also where it has no effect.
    assert_eq!(errors_of(&[(LEASES_FOR, "1s1ms")]), [wanted]);
}

#[test]
fn the_references_variables_have_the_references_meaning() {
    let redis = redis(&[
        ("REDIS_TYPE", "Sentinel"),
        ("REDIS_URL", "mymaster,redis://a:26379/2,redis://b:26379/2"),
        ("REDIS_AUTH", "ann:p:w"),
        ("REDIS_SENTINEL_AUTH", "watch"),
        ("REDIS_TLS", "1"),
        ("REDIS_TLS_CACERT", "/ca"),
        ("REDIS_TLS_CLIENT_CERT", "/cert"),
        ("REDIS_TLS_CLIENT_KEY", "/key"),
        ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true"),
        ("REDIS_TIMEOUT", "3s"),
        ("CACHE_KEY_PREFIX", "limits:"),
    ]);
    let Topology::Sentinel { master, sentinels } = &redis.topology else { panic!("{redis:?}") };
    assert_eq!(master, "mymaster");
    assert_eq!(sentinels[..], [tcp("a", 26379), tcp("b", 26379)]);
    assert_eq!(redis.access.db, 2);
    assert_eq!(redis.access.login.username.as_deref(), Some("ann"));
    assert_eq!(redis.access.login.password.as_deref(), Some("p:w"));
    assert_eq!(redis.sentinel_access.login.username, None);
    assert_eq!(redis.sentinel_access.login.password.as_deref(), Some("watch"));
    let tls = redis.access.tls.unwrap();
    let files = ClientFiles {
        ca: pem_file("store.redis.tls.ca", "/ca"),
        cert: pem_file("store.redis.tls.cert", "/cert"),
        key: pem_file("store.redis.tls.key", "/key"),
    };
    assert_eq!(*tls.certificates.files(), files);
    assert!(tls.skip_hostname_verification);
    assert_eq!(redis.access.timeout, Duration::from_secs(3));
    assert_eq!(redis.prefix, "limits:");
}

#[test]
fn a_cluster_has_several_nodes() {
    let cluster =
        redis(&[("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", "a:1,b:2"), ("REDIS_TIMEOUT", "0")]);
    let Topology::Cluster(nodes) = &cluster.topology else { panic!("{cluster:?}") };
    assert_eq!(nodes[..], [tcp("a", 1), tcp("b", 2)]);
    assert_eq!(cluster.access.timeout, Duration::from_secs(1));
}

#[test]
fn a_proxy_has_one_address_and_shares_no_top_lists() {
    let proxy = redis(&[("REDIS_TYPE", "PROXY"), ("REDIS_URL", "/run/nutcracker.sock")]);
    let Topology::Proxy(Endpoint::Unix(path)) = &proxy.topology else { panic!("{proxy:?}") };
    assert_eq!(path.to_str(), Some("/run/nutcracker.sock"));
    let warnings = load(&[("REDIS_TYPE", "proxy"), ("WEIR__TOP__SHARE", "true")]).warnings;
    let wanted = "top.share (WEIR__TOP__SHARE) has no effect: store.redis.topology is proxy";
    assert_eq!(warnings, [wanted]);
}

#[test]
fn limits_per_second_have_their_own_store_if_enabled() {
    let url = ("REDIS_PERSECOND_URL", "second:1");
    let tls = [("REDIS_URL", "main:1"), ("REDIS_TLS_CACERT", "/ca")];
    assert!(per_second(&[tls[0], url]).is_none());
    let on = ("REDIS_PERSECOND", "true");
    let auth = ("REDIS_PERSECOND_AUTH", "pw");
    let both = [tls[0], tls[1], on, url, auth, ("REDIS_PERSECOND_TLS", "true")];
    let (main, second) = (redis(&both), per_second(&both).unwrap());
    assert!(main.access.tls.is_none() && main.access.login.password.is_none());
    assert_eq!(server(&second), tcp("second", 1));
    assert_eq!(second.access.login.password.as_deref(), Some("pw"));
    let certificates = second.access.tls.unwrap().certificates;
    assert_eq!(certificates.files().ca, pem_file("store.redis.tls.ca", "/ca"));
    assert_eq!(second.prefix, "weir:");
    let socket = Endpoint::Unix("/var/run/nutcracker/ratelimitpersecond.sock".into());
    assert_eq!(server(&per_second(&[tls[0], on]).unwrap()), socket);
    let own = [(URL, "h:1"), ("WEIR__STORE__REDIS__PER_SECOND__URL", "i:2")];
    assert_eq!(server(&per_second(&own).unwrap()), tcp("i", 2));
}

#[test]
fn contradictions_are_errors() {
    for (env, wanted) in [
        (&[("URL", "redis")][..], "has \"redis\": it is not an address"),
        (&[("URL", "ann:hunter2@h:1")], "has \"***@h:1\": it has a login without a scheme"),
        (&[("URL", "h:1,i:2")], "names several servers, but the topology is single"),
        (
            &[("URL", "h:1,i:2"), ("TOPOLOGY", "proxy")],
            "names several servers, but the topology is proxy",
        ),
        (&[("URL", "redis://h/2"), ("TOPOLOGY", "proxy")], "names database 2"),
        (&[("URL", "/s"), ("TOPOLOGY", "cluster")], "names a Unix socket"),
        (&[("URL", "h:1"), ("TOPOLOGY", "sentinel")], "sentinel.master_name is not set"),
        (&[("URL", "redis://h/2"), ("TOPOLOGY", "cluster")], "names database 2"),
        (
            &[("URL", "redis://h/0,redis://i"), ("TOPOLOGY", "cluster")],
            "has different logins or databases",
        ),
        (
            &[("URL", "redis://:pw@h"), ("TOPOLOGY", "sentinel"), ("SENTINEL__MASTER_NAME", "m")],
            "has a login in the address of a sentinel",
        ),
        (&[("URL", "h:1"), ("PASSWORD", "x"), ("PASSWORD_FILE", "/x")], "and so is the password"),
        (&[("URL", "redis://:x@h"), ("PASSWORD", "y")], "has a login, and there is another"),
        (&[("URL", "h:1"), ("KEY_PREFIX", "{a}")], "key_prefix is \"{a}\", and has braces"),
        (&[("URL", "rediss://h"), ("TLS__ENABLED", "false")], "is false, but the URL is rediss://"),
        (&[("URL", "/s"), ("TLS__ENABLED", "true")], "is true on a Unix socket"),
        (&[("URL", "rediss://h,i:1"), ("TOPOLOGY", "cluster")], "asks for TLS to some servers"),
        (&[("URL", "h:1"), ("TLS__CERT", "/c")], "tls.cert is set without store.redis.tls.key"),
        (&[("URL", "h:1"), ("CONNECT_TIMEOUT", "0")], "connect_timeout is 0"),
    ] {
        let env: Vec<_> =
            env.iter().map(|(name, text)| (format!("WEIR__STORE__REDIS__{name}"), *text)).collect();
        let env: Vec<_> = env.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let messages = errors_of(&env);
        assert!(messages.len() == 1 && messages[0].contains(wanted), "{wanted:?}: {messages:#?}");
        assert!(
            messages[0].starts_with("WEIR__STORE__REDIS__") || wanted.contains("is not set"),
            "{messages:#?}"
        );
        assert!(!messages[0].contains("hunter2"), "{messages:#?}");
    }
    let sentinel = [("REDIS_TYPE", "sentinel"), ("REDIS_URL", "mymaster")];
    assert!(errors_of(&sentinel)[0].starts_with("REDIS_URL: it names no sentinels; "));
    let all = errors_of(&[(URL, "x"), ("WEIR__STORE__REDIS__KEY_PREFIX", "{"), ("GRPC_PORT", "y")]);
    assert_eq!(all.len(), 3, "{all:#?}");
}

#[test]
fn the_sentinels_password_may_be_in_a_file() {
    let file = "WEIR__STORE__REDIS__SENTINEL__PASSWORD_FILE";
    let sentinel = [("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m,h:1")];
    let redis = redis(&[sentinel[0], sentinel[1], (file, "/f")]);
    let path_of = |login: Login| login.password_file.map(|file| file.path().clone());
    assert_eq!(path_of(redis.sentinel_access.login), Some("/f".into()));
    assert_eq!(path_of(redis.access.login), None);
    let both = [sentinel[0], sentinel[1], (file, "/f"), ("REDIS_SENTINEL_AUTH", "p")];
    let messages = errors_of(&both);
    let wanted = "store.redis.sentinel.password_file is set, and so is the password";
    assert!(messages.len() == 1 && messages[0].contains(wanted), "{messages:#?}");
    assert!(messages[0].starts_with(file), "{messages:#?}");
}

#[test]
fn lists_are_shared_in_a_redis() {
    let share = ("WEIR__TOP__SHARE", "true");
    let shares = |env: &[(&str, &str)]| load(env).top_options().share;
    assert!(shares(&[(URL, "h:1"), share]) && !shares(&[(URL, "h:1")]));
    let warnings = &load(&[share]).warnings;
    assert_eq!(warnings, &["top.share (WEIR__TOP__SHARE) has no effect: store.kind is memory"]);
}

#[test]
fn passwords_are_never_shown() {
    let env = [("REDIS_URL", "redis://ann:hunter2@h:1"), ("REDIS_SENTINEL_AUTH", "hunter2")];
    let settings = Settings::load(&inputs(&env)).unwrap();
    let shows = |settings: &Settings| {
        settings.list().iter().any(|entry| entry.shown.contains("hunter2"))
            || format!("{settings:?} {:?}", settings.redis_options()).contains("hunter2")
    };
    assert!(!shows(&settings));
    let settings = Settings::load(&inputs(&[("REDIS_URL", "redis://hunter2@h:1")])).unwrap();
    assert!(!shows(&settings));
}

#[test]
fn a_redis_url_is_encrypted_if_the_variable_is_true() {
    let redis = redis(&[("REDIS_URL", "redis://h:1"), ("REDIS_TLS", "true")]);
    assert!(redis.access.tls.is_some());
}

#[test]
fn a_timeout_of_zero_is_the_default_however_it_is_written() {
    for zero in ["0", "0s", "0ms"] {
        let redis = redis(&[("REDIS_URL", "h:1"), ("REDIS_TIMEOUT", zero)]);
        assert_eq!(redis.access.timeout, Duration::from_secs(1), "{zero}");
    }
}

#[test]
fn errors_about_urls_show_no_passwords() {
    for url in [
        "redis://ann:hunter,2secret@h:1",
        "redis://h:1?password=hunter",
        "redis://h:1?password=hunter,2secret",
        "h:1?password=hunter",
        "redis://hunter@h:99999",
        "http://hunter@h:1",
        "hunter@h:1",
    ] {
        for name in ["REDIS_URL", URL] {
            let messages = errors_of(&[(name, url)]);
            assert!(!messages.is_empty(), "{url}");
            let shows = |text: &str| text.contains("hunter") || text.contains("secret");
            assert!(!messages.iter().any(|messages| shows(messages)), "{messages:?}");
        }
    }
}
