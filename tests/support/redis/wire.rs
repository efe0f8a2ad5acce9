//! The subset of the Redis protocol that the tests use.

use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One connection.
#[derive(Debug)]
pub struct Client(BufReader<TcpStream>);

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Error(String),
}

impl Client {
    /// Takes the server side of a connection.
    pub fn serve(stream: TcpStream) -> Client {
        Client(BufReader::new(stream))
    }

    /// Reads the words of the next command.
    pub fn command(&mut self) -> Result<Vec<String>> {
        Ok(self.read()?.list().iter().map(Reply::text).collect())
    }

    pub fn reply(&mut self, reply: &str) -> Result<()> {
        self.0.get_mut().write_all(reply.as_bytes())
    }

    pub fn connect(port: u16) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    pub fn send(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Reply> {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&command)?;
        self.read()
    }

    fn read(&mut self) -> Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(Error::other("the connection was closed"));
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| Error::other("an empty line"))?;
        let number = || rest.parse::<i64>().map_err(Error::other);
        Ok(match kind {
            "+" => Reply::Text(rest.into()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(len) => {
                    let mut text = vec![0; len + 2];
                    self.0.read_exact(&mut text)?;
                    text.truncate(len);
                    Reply::Text(text)
                }
            },
            "*" => Reply::List((0..number()?).map(|_| self.read()).collect::<Result<_>>()?),
            _ => return Err(Error::other(format!("not a reply: {line}"))),
        })
    }
}

impl Reply {
    pub fn text(&self) -> String {
        match self {
            Reply::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Reply::Int(number) => number.to_string(),
            other => panic!("not a text: {other:?}"),
        }
    }

    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(number) => *number,
            Reply::Text(_) => self.text().parse().unwrap(),
            other => panic!("not a number: {other:?}"),
        }
    }

    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(list) => list,
            other => panic!("not a list: {other:?}"),
        }
    }
}
