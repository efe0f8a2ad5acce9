//! One connection: who it is, and the commands that need no store.

use super::Password;
use super::commands::Command;
use super::parser::read_integer;
use super::reply::{Replies, Version};
use crate::version;

/// What a connection has said about itself.
#[derive(Debug)]
pub struct Session {
    id: u64,
    name: Vec<u8>,
    is_authenticated: bool,
}

/// What to do after a request was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Continue,
    Close,
    /// The request is HTTP: close, so that no web page makes a browser send commands.
    Http,
    /// Nothing is replied yet.
    Run(Command),
}

/// The longest name that a client may give itself.
const MAX_NAME_BYTES: usize = 256;

/// Longer names are no command.
const MAX_COMMAND_BYTES: usize = 32;

/// How much of an unknown name is repeated.
const MAX_ECHOED_BYTES: usize = 128;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl Session {
    pub fn new(id: u64, password: &Password) -> Session {
        Session { id, name: Vec::new(), is_authenticated: !password.is_needed() }
    }

    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Returns what to do about a request: `replies` has the reply, unless it takes the store.
    pub fn answer(&mut self, words: &[&[u8]], password: &Password, replies: &mut Replies) -> After {
        // An empty request gets no reply.
        let [given_name, arguments @ ..] = words else { return After::Continue };
        let mut upper = [0; MAX_COMMAND_BYTES];
        let name = upper_case(given_name, &mut upper);
        match (name, arguments) {
            ("QUIT", _) => {
                replies.simple("OK");
                return After::Close;
            }
            ("POST" | "HOST:", _) => return After::Http,
            ("HELLO", _) => self.hello(arguments, password, replies),
            ("AUTH", [given]) => self.auth(None, given, password, replies),
            ("AUTH", [user, given]) => self.auth(Some(user), given, password, replies),
            ("RESET", []) => {
                *self = Session::new(self.id, password);
                replies.version = Version::Two;
                replies.simple("RESET");
            }
            ("AUTH" | "RESET", _) => wrong_count(name, replies),
            (_, _) if !self.is_authenticated => {
                replies.error("NOAUTH Authentication required.");
            }
            ("PING", []) => replies.simple("PONG"),
            ("PING" | "ECHO", [text]) => replies.bulk(text),
            ("SELECT", [b"0"]) => replies.simple("OK"),
            ("SELECT", [_]) => replies.error("ERR DB index is out of range"),
            ("CLIENT", [subcommand, rest @ ..]) => self.client(subcommand, rest, replies),
            ("COMMAND", []) => replies.array(0),
            ("COMMAND", [subcommand, ..]) => command(subcommand, replies),
            ("INFO", _) => replies.bulk(info().as_bytes()),
            ("PING" | "ECHO" | "SELECT" | "CLIENT", _) => wrong_count(name, replies),
            _ => match Command::named(name) {
                Some(command) => return After::Run(command),
                None => unknown(given_name, replies),
            },
        }
        After::Continue
    }

    fn auth(
        &mut self,
        user: Option<&[u8]>,
        given: &[u8],
        password: &Password,
        replies: &mut Replies,
    ) {
        if user.is_none() && !password.is_needed() {
            return replies.error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            );
        }
        if self.is_right(user.unwrap_or(b"default"), given, password) {
            replies.simple("OK");
        } else {
            replies.error(WRONG_PASSWORD);
        }
    }

    fn is_right(&mut self, user: &[u8], given: &[u8], password: &Password) -> bool {
        let is_right = user == b"default" && password.is(given);
        self.is_authenticated |= is_right;
        is_right
    }

    /// `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
    fn hello(&mut self, arguments: &[&[u8]], password: &Password, replies: &mut Replies) {
        let (version, mut rest) = match arguments {
            [] => (replies.version, arguments),
            [number, rest @ ..] => match read_integer(number) {
                Some(2) => (Version::Two, rest),
                Some(3) => (Version::Three, rest),
                Some(_) => return replies.error("NOPROTO unsupported protocol version"),
                None => {
                    return replies.error("ERR Protocol version is not an integer or out of range");
                }
            },
        };
        let mut name = None;
        loop {
            rest = match rest {
                [] => break,
                [option, user, given, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    if !self.is_right(user, given, password) {
                        return replies.error(WRONG_PASSWORD);
                    }
                    rest
                }
                [option, given, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(given);
                    rest
                }
                _ => return replies.error("ERR Syntax error in HELLO"),
            };
        }
        if !self.is_authenticated {
            return replies.error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                 AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                 version at the same time",
            );
        }
        if let Some(name) = name
            && !self.set_name(name, replies)
        {
            return;
        }
        replies.version = version;
        replies.map(7);
        for (key, value) in [("server", "weir"), ("version", version::VERSION)] {
            replies.bulk(key.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"proto");
        replies.integer(if version == Version::Two { 2 } else { 3 });
        replies.bulk(b"id");
        replies.integer(self.id.cast_signed());
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(key.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"modules");
        replies.array(0);
    }

    fn client(&mut self, subcommand: &[u8], arguments: &[&[u8]], replies: &mut Replies) {
        match (&*subcommand.to_ascii_uppercase(), arguments) {
            (b"ID", []) => replies.integer(self.id.cast_signed()),
            (b"GETNAME", []) if self.name.is_empty() => replies.null(),
            (b"GETNAME", []) => replies.bulk(&self.name),
            (b"SETNAME", [name]) => {
                if self.set_name(name, replies) {
                    replies.simple("OK");
                }
            }
            (b"SETINFO", [_, _]) => replies.simple("OK"),
            (b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO", _) => {
                wrong_count("client", replies);
            }
            _ => replies
                .error("ERR unknown subcommand of CLIENT: use ID, GETNAME, SETNAME or SETINFO"),
        }
    }

    /// Sets the name, or replies why it cannot be set.
    fn set_name(&mut self, name: &[u8], replies: &mut Replies) -> bool {
        let is_good = |byte: &u8| (b'!'..=b'~').contains(byte);
        if name.len() > MAX_NAME_BYTES || !name.iter().all(is_good) {
            replies
                .error("ERR Client names cannot contain spaces, newlines or special characters.");
            return false;
        }
        self.name = name.to_vec();
        true
    }
}

/// `COMMAND` without anything in it: clients that look for commands there send them all the same.
fn command(subcommand: &[u8], replies: &mut Replies) {
    match &*subcommand.to_ascii_uppercase() {
        b"COUNT" => replies.integer(0),
        b"DOCS" => replies.map(0),
        b"INFO" | b"LIST" => replies.array(0),
        _ => replies.error("ERR unknown subcommand of COMMAND: use COUNT or DOCS"),
    }
}

/// Writes a name in upper case; what is no name becomes a text that is no command.
fn upper_case<'b>(name: &[u8], upper: &'b mut [u8; MAX_COMMAND_BYTES]) -> &'b str {
    let Some(upper) = upper.get_mut(..name.len()) else { return "" };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    std::str::from_utf8(upper).unwrap_or("")
}

fn unknown(name: &[u8], replies: &mut Replies) {
    let name = name.get(..MAX_ECHOED_BYTES).unwrap_or(name);
    replies.error(&format!("ERR unknown command '{}'", String::from_utf8_lossy(name)));
}

fn info() -> String {
    format!(
        "# Server\r\nserver_name:weir\r\nweir_version:{}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n\
         # Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n",
        version::VERSION,
        std::process::id(),
    )
}

/// Replies that a command has another number of arguments.
fn wrong_count(name: &str, replies: &mut Replies) {
    let name = name.to_ascii_lowercase();
    replies.error(&format!("ERR wrong number of arguments for '{name}' command"));
}
