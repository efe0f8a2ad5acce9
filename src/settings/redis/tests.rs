use super::super::tests::inputs;
use super::super::{Settings, Store};
use super::*;

fn store(env: &[(&str, &str)]) -> Store {
    Settings::load(&inputs(env)).unwrap_or_else(|errors| panic!("{errors:#?}")).store
}

fn told(env: &[(&str, &str)]) -> Vec<String> {
    let errors = Settings::load(&inputs(env)).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

fn origin(env: &[(&str, &str)], name: &str) -> String {
    let settings = Settings::load(&inputs(env)).unwrap();
    settings.list().find(|(setting, ..)| setting.name == name).unwrap().2.to_owned()
}

fn tcp(host: &str, port: u16) -> Server {
    Server::Tcp(host.into(), port)
}

const URL: &str = "WEIR__STORE__REDIS__URL";

#[test]
fn memory_is_the_store_until_redis_is_named() {
    assert!(store(&[]).redis.is_none());
    for env in [&[(URL, "redis:6379")][..], &[("REDIS_URL", "redis:6379")]] {
        let store = store(env);
        assert_eq!(store.kind, "redis");
        assert_eq!(store.redis.unwrap().servers, [tcp("redis", 6379)]);
        assert_eq!(origin(env, "store.kind"), env[0].0);
    }
    let memory = [("REDIS_URL", "no address"), ("WEIR__STORE__KIND", "memory")];
    let settings = Settings::load(&inputs(&memory)).unwrap();
    assert!(settings.store.redis.is_none());
    let note = "counters live in this process's memory, since WEIR__STORE__KIND says so: \
                REDIS_URL has no effect";
    assert_eq!(settings.warnings, [note]);
    let two = [("REDIS_SOCKET_TYPE", "tcp"), memory[0], memory[1]];
    let warnings = Settings::load(&inputs(&two)).unwrap().warnings;
    assert!(warnings[0].ends_with("REDIS_SOCKET_TYPE, REDIS_URL have no effect"), "{warnings:?}");
    let own = [(URL, "h:1"), ("WEIR__STORE__KIND", "memory")];
    let warnings = Settings::load(&inputs(&own)).unwrap().warnings;
    assert!(warnings[0].ends_with("store.redis.url (WEIR__STORE__REDIS__URL) has no effect"));
    let nowhere = told(&[("WEIR__STORE__KIND", "redis")]);
    assert!(nowhere.len() == 1 && nowhere[0].contains("store.redis.url is not set"), "{nowhere:?}");
}

#[test]
fn without_a_url_redis_is_where_the_reference_looks() {
    for named in [("BACKEND_TYPE", "redis"), ("REDIS_TYPE", "single"), ("REDIS_TLS", "false")] {
        let socket = Server::Unix("/var/run/nutcracker/ratelimit.sock".into());
        assert_eq!(store(&[named]).redis.unwrap().servers, [socket]);
        assert_eq!(origin(&[named], "store.redis.url"), named.0);
    }
    let own = [("BACKEND_TYPE", "redis"), (URL, "h:1")];
    assert_eq!(store(&own).redis.unwrap().servers, [tcp("h", 1)]);
}

#[test]
fn defaults_are_weirs_own() {
    let store = store(&[(URL, "rediss://ann:p%40w@h")]);
    assert_eq!((store.replicas, store.on_failure.name()), (1, "error"));
    assert_eq!(store.deny_locally_for, Duration::from_millis(250));
    assert!(store.per_second.is_none());
    let redis = store.redis.unwrap();
    assert_eq!(
        (redis.topology, redis.layout, redis.clock),
        (Topology::Single, Layout::Weir, Clock::Server)
    );
    assert_eq!((redis.db, redis.key_prefix.as_str()), (0, "weir:"));
    assert_eq!(redis.connect_timeout, Duration::from_secs(1));
    assert_eq!(redis.probe_max, Duration::from_millis(500));
    assert_eq!(redis.login.username.as_deref(), Some("ann"));
    assert_eq!(redis.login.password.as_deref(), Some("p@w"));
    let tls = Tls { ca: None, client: None, skip_hostname_verification: false };
    assert_eq!(redis.tls, Some(tls));
}

#[test]
fn the_budget_and_the_threshold_are_two_numbers() {
    const SLOW_AFTER: &str = "WEIR__STORE__REDIS__SLOW_AFTER";
    let of = |env: &[(&str, &str)]| {
        let store = store(env);
        (store.budget, store.redis.unwrap().slow_after)
    };
    let ms = Duration::from_millis;
    assert_eq!(of(&[(URL, "h:1")]), (None, ms(20)));
    let set = [(URL, "h:1"), ("WEIR__STORE__BUDGET", "8ms"), (SLOW_AFTER, "1s")];
    assert_eq!(of(&set), (Some(ms(8)), ms(1_000)));
    let second = ("WEIR__STORE__REDIS__PER_SECOND__URL", "i:1");
    let per_second = store(&[(URL, "h:1"), (SLOW_AFTER, "1s"), second]).per_second.unwrap();
    assert_eq!(per_second.slow_after, ms(1_000), "one for both");
    let zero = told(&[(URL, "h:1"), (SLOW_AFTER, "0")]);
    assert!(zero.len() == 1 && zero[0].contains("store.redis.slow_after is 0"), "{zero:?}");
    let word = told(&[(URL, "h:1"), ("WEIR__STORE__BUDGET", "soon")]);
    assert!(word.len() == 1 && word[0].contains("auto, or a duration"), "{word:?}");
}

#[test]
fn the_references_variables_mean_what_they_mean_there() {
    let redis = store(&[
        ("REDIS_TYPE", "Sentinel"),
        ("REDIS_URL", "mymaster,a:26379,b:26379"),
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
    let redis = redis.redis.unwrap();
    assert_eq!((redis.topology, redis.master_name.as_str()), (Topology::Sentinel, "mymaster"));
    assert_eq!(redis.servers, [tcp("a", 26379), tcp("b", 26379)]);
    assert_eq!(redis.login.username.as_deref(), Some("ann"));
    assert_eq!(redis.login.password.as_deref(), Some("p:w"));
    assert_eq!(redis.sentinel_login.username, None);
    assert_eq!(redis.sentinel_login.password.as_deref(), Some("watch"));
    let client = Some(("/cert".into(), "/key".into()));
    let tls = Tls { ca: Some("/ca".into()), client, skip_hostname_verification: true };
    assert_eq!(redis.tls, Some(tls));
    assert_eq!(redis.connect_timeout, Duration::from_secs(3));
    assert_eq!(redis.key_prefix, "limits:");
    let cluster =
        store(&[("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", "a:1,b:2"), ("REDIS_TIMEOUT", "0")]);
    let cluster = cluster.redis.unwrap();
    assert_eq!((cluster.topology, cluster.servers.len()), (Topology::Cluster, 2));
    assert_eq!(cluster.connect_timeout, Duration::from_secs(1));
}

#[test]
fn limits_of_one_second_have_a_store_where_that_is_on() {
    let url = ("REDIS_PERSECOND_URL", "second:1");
    let tls = [("REDIS_URL", "main:1"), ("REDIS_TLS_CACERT", "/ca")];
    assert!(store(&[tls[0], url]).per_second.is_none());
    let on = ("REDIS_PERSECOND", "true");
    let auth = ("REDIS_PERSECOND_AUTH", "pw");
    let both = store(&[tls[0], tls[1], on, url, auth, ("REDIS_PERSECOND_TLS", "true")]);
    let (main, second) = (both.redis.unwrap(), both.per_second.unwrap());
    assert_eq!((main.tls, main.login.password), (None, None));
    assert_eq!(second.servers, [tcp("second", 1)]);
    assert_eq!(second.login.password.as_deref(), Some("pw"));
    assert_eq!(second.tls.unwrap().ca, Some("/ca".into()));
    assert_eq!(second.key_prefix, "weir:");
    let socket = Server::Unix("/var/run/nutcracker/ratelimitpersecond.sock".into());
    assert_eq!(store(&[tls[0], on]).per_second.unwrap().servers, [socket]);
    let own = store(&[(URL, "h:1"), ("WEIR__STORE__REDIS__PER_SECOND__URL", "i:2")]);
    assert_eq!(own.per_second.unwrap().servers, [tcp("i", 2)]);
}

#[test]
fn the_references_layout_has_the_references_prefix() {
    let layout = ("WEIR__STORE__REDIS__LAYOUT", "reference");
    let prefix = |env: &[(&str, &str)]| store(env).redis.unwrap().key_prefix;
    assert_eq!(prefix(&[(URL, "h:1"), layout]), "");
    assert_eq!(prefix(&[(URL, "h:1"), layout, ("CACHE_KEY_PREFIX", "x")]), "x");
    assert_eq!(prefix(&[(URL, "h:1"), ("CACHE_KEY_PREFIX", "")]), "weir:");
}

#[test]
fn what_contradicts_itself_is_told() {
    for (env, wanted) in [
        (&[("URL", "redis")][..], "has \"redis\": it is no address"),
        (&[("URL", "ann:hunter2@h:1")], "has \"***@h:1\": it has a login without a scheme"),
        (&[("URL", "h:1,i:2")], "names several servers, but the topology is single"),
        (&[("URL", "/s"), ("TOPOLOGY", "cluster")], "names a Unix socket"),
        (&[("URL", "h:1"), ("TOPOLOGY", "sentinel")], "sentinel.master_name is not set"),
        (&[("URL", "h:1"), ("TOPOLOGY", "cluster"), ("DB", "2")], "asks for database 2"),
        (&[("URL", "redis://h/2"), ("DB", "3")], "db differs from the database in the URL"),
        (&[("URL", "h:1"), ("PASSWORD", "x"), ("PASSWORD_FILE", "/x")], "and so is the password"),
        (&[("URL", "redis://:x@h"), ("PASSWORD", "y")], "has a login, and there is another"),
        (&[("URL", "h:1"), ("KEY_PREFIX", "{a}")], "key_prefix is \"{a}\", and has braces"),
        (&[("URL", "rediss://h"), ("TLS__ENABLED", "false")], "is false, but the URL is rediss://"),
        (&[("URL", "/s"), ("TLS__ENABLED", "true")], "is true on a Unix socket"),
        (&[("URL", "rediss://h,i:1"), ("TOPOLOGY", "cluster")], "asks for TLS to some servers"),
        (&[("URL", "h:1"), ("TLS__CERT", "/c")], "tls.cert is set without its other half"),
        (&[("URL", "h:1"), ("CONNECT_TIMEOUT", "0")], "connect_timeout is 0"),
    ] {
        let env: Vec<_> =
            env.iter().map(|(name, text)| (format!("WEIR__STORE__REDIS__{name}"), *text)).collect();
        let env: Vec<_> = env.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let told = told(&env);
        assert!(told.len() == 1 && told[0].contains(wanted), "{wanted:?}: {told:#?}");
        assert!(
            told[0].starts_with("WEIR__STORE__REDIS__") || wanted.contains("is not set"),
            "{told:#?}"
        );
        assert!(!told[0].contains("hunter2"), "{told:#?}");
    }
    let sentinel = [("REDIS_TYPE", "sentinel"), ("REDIS_URL", "mymaster")];
    assert!(told(&sentinel)[0].starts_with("REDIS_URL: it names no sentinels; "));
    let all = told(&[(URL, "x"), ("WEIR__STORE__REDIS__KEY_PREFIX", "{"), ("GRPC_PORT", "y")]);
    assert_eq!(all.len(), 3, "{all:#?}");
}

#[test]
fn the_sentinels_password_may_be_in_a_file() {
    let file = "WEIR__STORE__REDIS__SENTINEL__PASSWORD_FILE";
    let sentinel = [("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m,h:1")];
    let redis = store(&[sentinel[0], sentinel[1], (file, "/f")]).redis.unwrap();
    assert_eq!(redis.sentinel_login.password_file, Some("/f".into()));
    assert_eq!(redis.login.password_file, None);
    let both = [sentinel[0], sentinel[1], (file, "/f"), ("REDIS_SENTINEL_AUTH", "p")];
    let told = told(&both);
    let wanted = "store.redis.sentinel.password_file is set, and so is the password";
    assert!(told.len() == 1 && told[0].contains(wanted), "{told:#?}");
    assert!(told[0].starts_with(file), "{told:#?}");
}

#[test]
fn passwords_are_never_shown() {
    let env = [("REDIS_URL", "redis://ann:hunter2@h:1"), ("REDIS_SENTINEL_AUTH", "hunter2")];
    let settings = Settings::load(&inputs(&env)).unwrap();
    let shown: Vec<_> = settings.list().map(|(_, shown, _)| shown).collect();
    assert!(!shown.iter().any(|shown| shown.contains("hunter2")), "{shown:#?}");
    assert!(!format!("{:?}", settings.store).contains("hunter2"));
    let settings = Settings::load(&inputs(&[("REDIS_URL", "redis://hunter2@h:1")])).unwrap();
    assert!(!settings.list().any(|(_, shown, _)| shown.contains("hunter2")));
    assert!(!format!("{:?}", settings.store).contains("hunter2"));
}

#[test]
fn a_url_of_redis_is_encrypted_where_the_variable_says_so() {
    let redis = store(&[("REDIS_URL", "redis://h:1"), ("REDIS_TLS", "true")]).redis.unwrap();
    assert!(redis.tls.is_some());
}

#[test]
fn no_time_is_no_end_of_it_however_it_is_written() {
    for zero in ["0", "0s", "0ms"] {
        let redis = store(&[("REDIS_URL", "h:1"), ("REDIS_TIMEOUT", zero)]).redis.unwrap();
        assert_eq!(redis.connect_timeout, Duration::from_secs(1), "{zero}");
    }
}

#[test]
fn passwords_are_not_shown_by_errors_about_urls() {
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
            let told = told(&[(name, url)]);
            assert!(!told.is_empty(), "{url}");
            let shows = |text: &str| text.contains("hunter") || text.contains("secret");
            assert!(!told.iter().any(|told| shows(told)), "{told:?}");
        }
    }
}
