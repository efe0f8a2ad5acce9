//! A client of `/v1` that checks every answer against the document.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::http;
use super::openapi::OpenApi;
use super::weir::Weir;

/// A client with headers of its own.
pub struct ControlApi {
    debug: SocketAddr,
    document: OpenApi,
    headers: Vec<(String, String)>,
}

impl ControlApi {
    pub fn new(weir: &Weir) -> ControlApi {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = vec![header("host", "localhost"), header("content-type", "application/json")];
        ControlApi { debug: weir.debug, document: OpenApi::read(), headers }
    }

    /// Sets a header of all requests.
    pub fn with(mut self, name: &str, value: &str) -> ControlApi {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends a request. Returns the status and the answer.
    pub fn ask(&self, method: &str, uri: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = headers.collect();
        let answer = http::ask(self.debug, method, uri, &headers, body.as_bytes()).expect("HTTP");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
        assert_eq!(answer.header("set-cookie"), None);
        let (status, json) = (answer.status, answer.json());
        if let Err(error) = self.document.check(method, uri, status, &json) {
            panic!("{method} {uri}: {status} {json:#}: {error}");
        }
        (status, json)
    }

    pub fn get(&self, uri: &str) -> (u16, Value) {
        self.ask("GET", uri, &Value::Null)
    }

    /// Returns an answer that is to be good.
    pub fn good(&self, uri: &str) -> Value {
        let (status, json) = self.get(uri);
        assert_eq!(status, 200, "{uri}: {json}");
        json
    }

    pub fn put(&self, id_and_query: &str, body: &Value) -> (u16, Value) {
        self.ask("PUT", &format!("/v1/controls/{id_and_query}"), body)
    }

    /// Posts a control, which gets a computed id.
    pub fn post(&self, query: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", &format!("/v1/controls{query}"), body)
    }

    /// Puts a control that is good.
    pub fn put_good(&self, id: &str, body: &Value) -> Value {
        let (status, json) = self.put(id, body);
        assert_eq!(status, 200, "{body}: {json}");
        json
    }

    pub fn delete(&self, uri: &str) -> (u16, Value) {
        self.ask("DELETE", uri, &Value::Null)
    }
}

/// A control of one user of the domain `shop`, with these members.
pub fn of_user(user: &str, members: &Value) -> Value {
    let mut control = json!({ "domain": "shop", "entries": [{ "key": "user", "value": user }] });
    for (name, value) in members.as_object().expect("members") {
        control[name] = value.clone();
    }
    control
}
