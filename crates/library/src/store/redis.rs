//! Counters in Redis, which programs share: re-exports of the Redis store and its options, with examples.

/// The certificates of TLS to Redis, which may change while the program runs.
///
/// ```
/// use weir_library::store::redis::{ClientCertificates, ClientFiles, PemFile};
///
/// let ca = PemFile { setting: "redis.ca", path: "no.pem".into() };
/// let files = ClientFiles { ca: Some(ca), ..ClientFiles::default() };
/// let error = ClientCertificates::new(files).read().unwrap_err();
/// assert!(error.to_string().starts_with("redis.ca names no.pem: "), "{error}");
/// ```
#[doc(inline)]
pub use weir_client::tls::ClientCertificates;

/// Where the certificates of TLS to Redis are.
///
/// ```
/// use weir_library::store::redis::{ClientFiles, PemFile};
///
/// let of_file = |setting, path: &str| Some(PemFile { setting, path: path.into() });
/// let (cert, key) = (of_file("redis.cert", "shop.pem"), of_file("redis.key", "shop-key.pem"));
/// // The servers' certificates are checked by the roots of the system.
/// let files = ClientFiles { cert, key, ..ClientFiles::default() };
/// assert_eq!(files.ca, None);
/// ```
#[doc(inline)]
pub use weir_client::tls::ClientFiles;

/// A file of certificates, or of a key.
///
/// ```
/// use weir_library::store::redis::PemFile;
///
/// let ca = PemFile { setting: "redis.ca", path: "/etc/redis/ca.pem".into() };
/// assert!(ca.path.is_absolute());
/// ```
#[doc(inline)]
pub use weir_client::tls::PemFile;

/// How to reach a Redis.
///
/// ```
/// use std::time::Duration;
///
/// use weir_library::store::redis::{RedisAccess, Endpoint, Login, RedisOptions, Topology};
///
/// let login = Login { password: Some("secret".to_owned()), ..Login::default() };
/// let access = RedisAccess { login, tls: None, db: 3, timeout: Duration::from_secs(1) };
/// let server = Topology::Single(Endpoint::Tcp("redis".to_owned(), 6379));
/// let options = RedisOptions { access, ..RedisOptions::new(server) };
/// assert_eq!(options.access.db, 3);
/// ```
#[doc(inline)]
pub use weir_redis::RedisAccess;

/// Whether limits go by the time of Redis or of the program.
///
/// ```
/// use weir_library::store::redis::{ClockSource, Endpoint, RedisOptions, Topology};
///
/// let server = Topology::Single(Endpoint::Tcp("redis".to_owned(), 6379));
/// assert_eq!(RedisOptions::new(server).clock, ClockSource::Server);
/// ```
#[doc(inline)]
pub use weir_redis::ClockSource;

/// The address of a Redis.
///
/// ```
/// use weir_library::store::redis::Endpoint;
///
/// assert_eq!(Endpoint::Tcp("::1".to_owned(), 6379).to_string(), "[::1]:6379");
/// assert_eq!(Endpoint::Unix("/run/redis.sock".into()).to_string(), "/run/redis.sock");
/// ```
#[doc(inline)]
pub use weir_redis::Endpoint;

/// A user of Redis.
///
/// ```
/// use weir_library::store::redis::Login;
///
/// let username = Some("shop".to_owned());
/// let login = Login { username, password: Some("secret".to_owned()), password_file: None };
/// // Neither name nor password is shown.
/// assert_eq!(format!("{login:?}"), "Login { .. }");
/// ```
#[doc(inline)]
pub use weir_redis::Login;

/// What a [`RedisStore`] is made with.
///
/// ```
/// use weir_library::store::redis::{Endpoint, RedisOptions, Topology};
///
/// let server = Topology::Single(Endpoint::Tcp("redis".to_owned(), 6379));
/// let options = RedisOptions { prefix: "shop:".to_owned(), ..RedisOptions::new(server) };
/// // Without TLS there are no certificates to check.
/// assert!(options.check().is_ok());
/// ```
#[doc(inline)]
pub use weir_redis::RedisOptions;

/// A password that may change while the program runs.
///
/// ```
/// use weir_library::store::redis::{Login, PasswordFile};
///
/// let file = PasswordFile::new("/run/secrets/redis".into());
/// assert_eq!(file.path().as_os_str(), "/run/secrets/redis");
/// let login = Login { password_file: Some(file), ..Login::default() };
/// ```
#[doc(inline)]
pub use weir_redis::PasswordFile;

/// Counters that programs, and every weir with the same rules, share.
///
/// ```
#[doc = include_str!("../scene.txt")]
/// use weir_library::RequestError;
/// use weir_library::store::redis::{self, Endpoint, RedisStore, Topology};
///
/// // No Redis listens there. `store.answered().await` would wait for one.
/// let server = Topology::Single(Endpoint::Unix("no.sock".into()));
/// let store = RedisStore::new(redis::RedisOptions::new(server));
/// let limiter = Limiter::new(store, LimiterOptions::default());
/// let error = limiter.decide(Some(&rules), &request, timeout, &mut holds).await.unwrap_err();
/// assert!(matches!(error, RequestError::Store(_)), "{error}");
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_redis::RedisStore;

/// TLS to Redis.
///
/// ```
/// use std::sync::Arc;
///
/// use weir_library::store::redis::{ClientCertificates, ClientFiles, PemFile, Tls};
///
/// let ca = PemFile { setting: "redis.ca", path: "/etc/redis/ca.pem".into() };
/// let files = ClientFiles { ca: Some(ca), ..ClientFiles::default() };
/// let certificates = Arc::new(ClientCertificates::new(files));
/// let tls = Tls { certificates, skip_hostname_verification: false };
/// // Files are read when the store connects, and when options are checked.
/// assert!(tls.certificates.in_use().is_none());
/// ```
#[doc(inline)]
pub use weir_redis::Tls;

/// One Redis or many.
///
/// ```
/// use weir_library::store::redis::{Endpoint, Topology};
///
/// let node = |host: &str| Endpoint::Tcp(host.to_owned(), 6379);
/// let cluster = Topology::Cluster(vec![node("redis-0"), node("redis-1")]);
/// assert_eq!(cluster.to_string(), "the cluster of redis-0:6379, redis-1:6379");
/// ```
#[doc(inline)]
pub use weir_redis::Topology;
