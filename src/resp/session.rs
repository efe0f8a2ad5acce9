//! The session of a Redis client's connection, and the commands that need no store: `AUTH`, `HELLO`, `PING` and others.

use std::borrow::Cow;

use super::command::Command;
use super::parser::read_integer;
use super::reply::{Replies, Version};
use crate::VERSION;
use crate::net::token_file::TokenFile;

/// The state of one connection: its name, and whether it has sent the password.
#[derive(Debug)]
pub struct Session {
    id: u64,
    name: Vec<u8>,
    pub is_authenticated: bool,
}

/// What the connection has to do after [`Session::answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Continue,
    Close,
    /// The request is HTTP: close, so that no web page makes a browser send commands.
    Http,
    /// The password or the user name is wrong, as was replied.
    WrongPassword,
    /// Run this command, which needs the store: nothing is replied yet.
    Run(Command),
}

const MAX_NAME_BYTES: usize = 256;

/// The longest name of a command.
const MAX_COMMAND_BYTES: usize = 32;

/// How much of an unknown name an error repeats.
const MAX_ECHOED_BYTES: usize = 128;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl Session {
    pub fn new(id: u64, password: Option<&TokenFile>) -> Session {
        Session { id, name: Vec::new(), is_authenticated: password.is_none() }
    }

    /// Returns what to do about a request: `replies` has the reply, unless it takes the store.
    pub fn answer(
        &mut self,
        words: &[&[u8]],
        password: Option<&TokenFile>,
        replies: &mut Replies,
    ) -> After {
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
            ("HELLO", _) => return self.hello(arguments, password, replies),
            ("AUTH", [given]) => return self.auth(None, given, password, replies),
            ("AUTH", [user, given]) => return self.auth(Some(user), given, password, replies),
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
            ("SELECT", [index]) => replies.error(match read_integer(index) {
                Some(_) => "ERR DB index is out of range",
                None => "ERR value is not an integer or out of range",
            }),
            ("CLIENT", [subcommand, rest @ ..]) => self.client(subcommand, rest, replies),
            ("COMMAND", []) => replies.array(0),
            ("COMMAND", [subcommand, rest @ ..]) => command(subcommand, rest, replies),
            ("INFO", _) => replies.bulk(info().as_bytes()),
            ("PING" | "ECHO" | "SELECT" | "CLIENT", _) => wrong_count(name, replies),
            _ => match Command::named(name) {
                Some(command) => return After::Run(command),
                None => replies.error(&format!("ERR unknown command '{}'", echoed(given_name))),
            },
        }
        After::Continue
    }

    fn auth(
        &mut self,
        user: Option<&[u8]>,
        given: &[u8],
        password: Option<&TokenFile>,
        replies: &mut Replies,
    ) -> After {
        if user.is_none() && password.is_none() {
            replies.error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            );
            return After::Continue;
        }
        if !self.authenticate(user.unwrap_or(b"default"), given, password) {
            replies.error(WRONG_PASSWORD);
            return After::WrongPassword;
        }
        replies.simple("OK");
        After::Continue
    }

    fn authenticate(&mut self, user: &[u8], given: &[u8], password: Option<&TokenFile>) -> bool {
        let is_right = user == b"default" && password.is_none_or(|file| file.has(given));
        self.is_authenticated |= is_right;
        is_right
    }

    /// `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
    fn hello(
        &mut self,
        arguments: &[&[u8]],
        password: Option<&TokenFile>,
        replies: &mut Replies,
    ) -> After {
        match self.read_hello(arguments, password, replies.version) {
            Ok(version) => {
                replies.version = version;
                self.introduce(replies);
                After::Continue
            }
            Err(error) => {
                replies.error(error);
                if error == WRONG_PASSWORD { After::WrongPassword } else { After::Continue }
            }
        }
    }

    /// Reads the arguments of `HELLO`, and applies all but the version, which it returns.
    fn read_hello(
        &mut self,
        arguments: &[&[u8]],
        password: Option<&TokenFile>,
        version: Version,
    ) -> Result<Version, &'static str> {
        let (version, mut rest) = match arguments {
            [] => (version, arguments),
            [number, rest @ ..] => match read_integer(number) {
                Some(2) => (Version::Two, rest),
                Some(3) => (Version::Three, rest),
                Some(_) => return Err("NOPROTO unsupported protocol version"),
                None => return Err("ERR Protocol version is not an integer or out of range"),
            },
        };
        let mut name = None;
        loop {
            rest = match rest {
                [] => break,
                [option, user, given, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    if !self.authenticate(user, given, password) {
                        return Err(WRONG_PASSWORD);
                    }
                    rest
                }
                [option, given, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(given);
                    rest
                }
                _ => return Err("ERR Syntax error in HELLO"),
            };
        }
        if !self.is_authenticated {
            return Err(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                 AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                 version at the same time",
            );
        }
        name.map_or(Ok(()), |name| self.set_name(name))?;
        Ok(version)
    }

    fn introduce(&self, replies: &mut Replies) {
        replies.map(7);
        for (key, value) in [("server", "weir"), ("version", VERSION)] {
            replies.bulk(key.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"proto");
        replies.integer(if replies.version == Version::Two { 2 } else { 3 });
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
            (b"SETNAME", [name]) => match self.set_name(name) {
                Ok(()) => replies.simple("OK"),
                Err(error) => replies.error(error),
            },
            (b"SETINFO", [attribute, _]) => match &*attribute.to_ascii_lowercase() {
                b"lib-name" | b"lib-ver" => replies.simple("OK"),
                _ => replies.error(&format!("ERR Unrecognized option '{}'", echoed(attribute))),
            },
            (b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO", _) => {
                wrong_count("client", replies);
            }
            _ => replies
                .error("ERR unknown subcommand of CLIENT: use ID, GETNAME, SETNAME or SETINFO"),
        }
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), &'static str> {
        if name.len() > MAX_NAME_BYTES || !name.iter().all(u8::is_ascii_graphic) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        self.name = name.to_vec();
        Ok(())
    }
}

/// `COMMAND`, which lists nothing: clients that look commands up send them even if they are not listed.
fn command(subcommand: &[u8], names: &[&[u8]], replies: &mut Replies) {
    match &*subcommand.to_ascii_uppercase() {
        b"COUNT" => replies.integer(0),
        b"DOCS" => replies.map(0),
        b"INFO" => {
            replies.array(names.len());
            names.iter().for_each(|_| replies.null());
        }
        b"LIST" => replies.array(0),
        _ => replies.error("ERR unknown subcommand of COMMAND: use COUNT, DOCS, INFO or LIST"),
    }
}

/// Writes a name in upper case. Returns an empty text if it cannot be the name of a command.
fn upper_case<'b>(name: &[u8], upper: &'b mut [u8; MAX_COMMAND_BYTES]) -> &'b str {
    let Some(upper) = upper.get_mut(..name.len()) else { return "" };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    std::str::from_utf8(upper).unwrap_or("")
}

/// Returns what an error repeats of a text that a client has sent.
fn echoed(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text.get(..MAX_ECHOED_BYTES).unwrap_or(text))
}

fn info() -> String {
    format!(
        "# Server\r\nserver_name:weir\r\nweir_version:{}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n\
         # Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n",
        VERSION,
        std::process::id(),
    )
}

fn wrong_count(name: &str, replies: &mut Replies) {
    let name = name.to_ascii_lowercase();
    replies.error(&format!("ERR wrong number of arguments for '{name}' command"));
}
