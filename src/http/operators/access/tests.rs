//! Each check refuses what it is for. What is allowed without it is what another request here shows.

use std::fs;

use axum::body::Body;
use axum::http::HeaderName;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};

use super::*;

const LOOPBACK: &str = "127.0.0.1:40000";
const REMOTE: &str = "10.0.0.9:40000";

/// A request from this machine that names this machine.
struct Sent {
    method: Method,
    uri: &'static str,
    headers: Vec<(HeaderName, &'static str)>,
    peer: Peer,
}

impl Sent {
    fn get() -> Sent {
        let headers = vec![(HOST, "localhost:6070")];
        Sent { method: Method::GET, uri: "/top", headers, peer: peer(LOOPBACK) }
    }

    fn put() -> Sent {
        Sent { method: Method::PUT, ..Sent::get() }
    }

    fn from(self, address: &str) -> Sent {
        Sent { peer: peer(address), ..self }
    }

    fn to(self, uri: &'static str) -> Sent {
        Sent { uri, ..self }
    }

    /// Sets a header.
    fn with(mut self, name: HeaderName, value: &'static str) -> Sent {
        self.headers.retain(|(known, _)| *known != name);
        self.and(name, value)
    }

    /// Adds a header.
    fn and(mut self, name: HeaderName, value: &'static str) -> Sent {
        self.headers.push((name, value));
        self
    }

    fn token(self, header: &'static str) -> Sent {
        self.with(AUTHORIZATION, header)
    }
}

fn peer(address: &str) -> Peer {
    Peer::Tcp(address.parse().unwrap(), None)
}

/// Returns the name of the caller, or the status of the refusal.
fn ask(access: &Access, sent: Sent) -> Result<&'static str, u16> {
    let mut request = Request::builder().method(sent.method).uri(sent.uri);
    for (name, value) in &sent.headers {
        request = request.header(name, *value);
    }
    let request = request.extension(sent.peer).body(Body::empty()).unwrap();
    let checked = access.check(&request);
    if let Err(refusal) = &checked {
        assert!(!refusal.error.is_empty() && !refusal.help.is_empty(), "{refusal:?}");
    }
    checked.map(|caller| caller.name).map_err(|refusal| refusal.status.as_u16())
}

fn without_tokens() -> Access {
    Access::load(AccessOptions::default()).unwrap()
}

/// The tokens are `r` and `w`.
fn with_tokens(require_token: bool) -> (Access, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (read, write) = (dir.path().join("read"), dir.path().join("write"));
    fs::write(&read, "r\n").unwrap();
    fs::write(&write, " w").unwrap();
    let options = AccessOptions {
        read_token_file: Some(read),
        write_token_file: Some(write),
        require_token,
        allowed_hosts: vec!["weir.example".to_owned()],
    };
    (Access::load(options).unwrap(), dir)
}

#[test]
fn without_tokens_loopback_may_read_and_write_and_others_nothing() {
    let access = without_tokens();
    for address in [LOOPBACK, "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(ask(&access, Sent::get().from(address)), Ok("loopback"), "{address}");
        assert_eq!(ask(&access, Sent::put().from(address)), Ok("loopback"), "{address}");
    }
    for peer in [Peer::Unix, Peer::Unknown] {
        let allowed = if peer == Peer::Unix { Ok("loopback") } else { Err(403) };
        assert_eq!(ask(&access, Sent { peer, ..Sent::put() }), allowed, "{peer}");
    }
    for address in [REMOTE, "[::ffff:10.0.0.9]:1", "[fd00::1]:1", "0.0.0.0:1"] {
        assert_eq!(ask(&access, Sent::get().from(address)), Err(403), "{address}");
        assert_eq!(ask(&access, Sent::put().from(address)), Err(403), "{address}");
        let guessed = Sent::get().from(address).token("Bearer ");
        assert_eq!(ask(&access, guessed), Err(403), "{address}");
    }
}

#[test]
fn tokens_allow_what_they_are_for_from_everywhere() {
    for require_token in [false, true] {
        let (access, _dir) = with_tokens(require_token);
        for address in [LOOPBACK, REMOTE] {
            let get = |header| ask(&access, Sent::get().from(address).token(header));
            let put = |header| ask(&access, Sent::put().from(address).token(header));
            assert_eq!([get("Bearer r"), put("Bearer r")], [Ok("read token"), Err(403)]);
            assert_eq!([get("Bearer w"), put("bearer w")], [Ok("write token"); 2]);
            for wrong in ["Bearer x", "Bearer ww", "Bearer ", "Bearer", "Basic dzp3", "w", ""] {
                assert_eq!([get(wrong), put(wrong)], [Err(401); 2], "{wrong:?} from {address}");
            }
        }
        let remote = |sent: Sent| ask(&access, sent.from(REMOTE));
        assert_eq!([remote(Sent::get()), remote(Sent::put())], [Err(401); 2]);
    }
}

#[test]
fn loopback_needs_a_token_only_if_it_is_required() {
    let (access, _dir) = with_tokens(false);
    assert_eq!([ask(&access, Sent::get()), ask(&access, Sent::put())], [Ok("loopback"); 2]);
    let (access, _dir) = with_tokens(true);
    assert_eq!([ask(&access, Sent::get()), ask(&access, Sent::put())], [Err(401); 2]);
    assert_eq!(ask(&access, Sent { peer: Peer::Unix, ..Sent::get() }), Err(401));
}

#[test]
fn every_method_but_get_and_head_is_a_write() {
    let (access, _dir) = with_tokens(false);
    for (method, allowed) in [
        (Method::GET, true),
        (Method::HEAD, true),
        (Method::PUT, false),
        (Method::DELETE, false),
        (Method::POST, false),
        (Method::PATCH, false),
        (Method::OPTIONS, false),
        (Method::from_bytes(b"get").unwrap(), false),
    ] {
        let answer = ask(&access, Sent { method: method.clone(), ..Sent::get() }.token("Bearer r"));
        assert_eq!(answer.is_ok(), allowed, "{method}");
    }
}

#[test]
fn a_name_that_leads_here_is_refused() {
    let (access, _dir) = with_tokens(false);
    for bad in ["evil.example", "evil.example:6070", "10.0.0.7:6070", "0.0.0.0:6070", "", "a b"] {
        assert_eq!(ask(&access, Sent::get().with(HOST, bad)), Err(403), "{bad}");
        // A token does not help: the page may have been given one.
        assert_eq!(ask(&access, Sent::get().with(HOST, bad).token("Bearer w")), Err(403), "{bad}");
    }
    for good in ["localhost", "127.0.0.1:6070", "[::1]:6070", "weir.example:443", "WEIR.example"] {
        assert_eq!(ask(&access, Sent::get().with(HOST, good)), Ok("loopback"), "{good}");
    }
    let twice = Sent::get().and(HOST, "localhost:6070");
    assert_eq!(ask(&access, twice), Err(403));
    let none = Sent { headers: Vec::new(), ..Sent::get() };
    assert_eq!(ask(&access, none), Err(403));
    let by_url = Sent::get().to("http://evil.example/v1/top");
    assert_eq!(ask(&access, by_url), Err(403));
    let own_url = Sent::get().to("http://localhost:6070/v1/top");
    assert_eq!(ask(&access, own_url), Ok("loopback"));
}

#[test]
fn pages_of_other_origins_are_refused() {
    let (access, _dir) = with_tokens(false);
    let own = Sent::put().with(ORIGIN, "http://localhost:6070");
    assert_eq!(ask(&access, own), Ok("loopback"));
    let behind_tls = Sent::put().with(HOST, "weir.example").with(ORIGIN, "https://weir.example");
    assert_eq!(ask(&access, behind_tls), Ok("loopback"));
    for foreign in [
        "http://evil.example",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:6070",
        "http://weir.example",
        "file://localhost:6070",
        "null",
        "",
    ] {
        assert_eq!(ask(&access, Sent::put().with(ORIGIN, foreign)), Err(403), "{foreign}");
        assert_eq!(ask(&access, Sent::get().with(ORIGIN, foreign)), Err(403), "{foreign}");
    }
    let both = Sent::put().with(ORIGIN, "http://localhost:6070").and(ORIGIN, "http://evil.example");
    assert_eq!(ask(&access, both), Err(403));
    // An image or a script of another page has no `Origin`.
    let site =
        |site| ask(&access, Sent::get().with(HeaderName::from_static("sec-fetch-site"), site));
    assert_eq!([site("same-origin"), site("none")], [Ok("loopback"); 2]);
    assert_eq!([site("cross-site"), site("same-site")], [Err(403); 2]);
}

#[test]
fn a_token_in_the_url_is_refused_even_if_it_is_right() {
    let (access, _dir) = with_tokens(false);
    for uri in [
        "/top?token=w",
        "/top?by=hits&access_token=w",
        "/top?Token=w",
        "/top?%74oken=w",
        "/top?token",
    ] {
        assert_eq!(ask(&access, Sent::get().to(uri)), Err(400), "{uri}");
        assert_eq!(ask(&access, Sent::get().to(uri).token("Bearer w")), Err(400), "{uri}");
    }
    let value = Sent::get().to("/state?descriptor=token=w");
    assert_eq!(ask(&access, value), Ok("loopback"));
}

#[test]
fn cookies_mean_nothing() {
    let (access, _dir) = with_tokens(true);
    for cookie in ["token=w", "access_token=w", "Authorization=Bearer w", "w"] {
        assert_eq!(ask(&access, Sent::get().with(COOKIE, cookie)), Err(401), "{cookie}");
    }
}

#[test]
fn a_changed_file_has_the_new_token_and_an_unusable_one_leaves_the_last() {
    let (access, dir) = with_tokens(true);
    let file = dir.path().join("write");
    let put = |header| ask(&access, Sent::put().token(header));
    access.poll();
    fs::write(&file, "new\n").unwrap();
    assert_eq!(put("Bearer w"), Ok("write token"), "until the file is read");
    access.poll();
    assert_eq!([put("Bearer w"), put("Bearer new")], [Err(401), Ok("write token")]);
    let spoil: [fn(&std::path::Path); 4] = [
        |file| fs::write(file, " \n").unwrap(),
        |file| fs::write(file, "a b").unwrap(),
        |file| fs::write(file, "x".repeat(5_000)).unwrap(),
        |file| fs::remove_file(file).unwrap(),
    ];
    for spoil in spoil {
        spoil(&file);
        access.poll();
        assert_eq!(
            [put("Bearer new"), put("Bearer "), put("Bearer a b")],
            [Ok("write token"), Err(401), Err(401)]
        );
    }
    fs::write(&file, "w").unwrap();
    access.poll();
    assert_eq!([put("Bearer w"), put("Bearer new")], [Ok("write token"), Err(401)]);
}

/// As Kubernetes replaces a secret: a link to a directory is swapped.
#[test]
fn a_swapped_link_has_the_new_token() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("..data");
    for (name, token) in [("one", "first"), ("two", "second")] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("token"), token).unwrap();
    }
    std::os::unix::fs::symlink("one", &link).unwrap();
    let write_token_file = Some(link.join("token"));
    let access =
        Access::load(AccessOptions { write_token_file, ..AccessOptions::default() }).unwrap();
    assert_eq!(access.kind_of(b"first"), Some(TokenKind::Write));
    std::os::unix::fs::symlink("two", dir.path().join("new")).unwrap();
    fs::rename(dir.path().join("new"), &link).unwrap();
    access.poll();
    assert_eq!(
        ["first", "second"].map(|token| access.kind_of(token.as_bytes())),
        [None, Some(TokenKind::Write)]
    );
}

#[test]
fn an_unusable_file_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let load = || {
        let options =
            AccessOptions { read_token_file: Some(file.clone()), ..AccessOptions::default() };
        Access::load(options).unwrap_err().to_string()
    };
    assert!(load().contains("No such file"), "{}", load());
    for (text, cause) in [("", "empty"), ("\n \n", "empty"), ("a b", "spaces"), ("ä", "ASCII")] {
        fs::write(&file, text).unwrap();
        let error = load();
        assert!(error.starts_with("debug.read_token_file: "), "{error}");
        assert!(error.contains(cause) && error.contains("openssl"), "{error}");
    }
    fs::write(&file, "x".repeat(5_000)).unwrap();
    assert!(load().contains("larger than 4096 bytes"), "{}", load());
}

#[test]
fn the_debug_output_has_no_token() {
    let (access, _dir) = with_tokens(false);
    let text = format!("{access:?}");
    assert!(text.contains("debug.read_token_file") && !text.contains("Hash"), "{text}");
}
