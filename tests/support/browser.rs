//! A headless Chromium, driven through a pipe by the DevTools protocol.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::tools::chromium;

/// The longest wait for an answer or an event.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest wait for the end of the browser.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub width: u32,
    pub dark: bool,
}

/// What happened while a page was loaded, or since.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Errors and warnings of the console, violations of the content security policy, exceptions.
    pub problems: Vec<String>,
    /// The URLs that were requested.
    pub requests: Vec<String>,
}

/// A running Chromium with one tab.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
    /// Removed when the browser has ended.
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts Chromium; none without one.
    pub fn start() -> Option<Browser> {
        let program = chromium()?;
        let profile = tempfile::tempdir().expect("a directory");
        // It reads commands from descriptor 3 and writes messages to descriptor 4.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#])
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            // The pages are the project's own, and the sandbox needs what containers lack.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let commands = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = sync_channel(10_000);
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                let text = message.strip_suffix(b"\0").unwrap_or(&message);
                let Ok(value) = serde_json::from_slice(text) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Browser {
            child,
            commands,
            messages,
            events: Vec::new(),
            session: None,
            last_id: 0,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Opens a file, and waits until it is loaded.
    #[allow(dead_code, reason = "not every test uses it")]
    pub fn open(&mut self, file: &Path, view: View) -> Loaded {
        self.visit(&format!("file://{}", file.display()), view)
    }

    /// Opens a URL, and waits until it is loaded.
    pub fn visit(&mut self, url: &str, view: View) -> Loaded {
        self.show_as(view);
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive("the page");
            self.events.push(event);
        }
        // Whatever the page reported before this is reported now.
        self.evaluate("document.fonts.ready.then(() => 1)");
        self.happened()
    }

    /// Changes how the page is looked at.
    pub fn show_as(&mut self, view: View) {
        let metrics = json!({"width": view.width, "height": 844, "deviceScaleFactor": 1, "mobile": view.width < 500});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if view.dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media);
    }

    /// Returns what has happened since the page was opened, or since this was called.
    pub fn happened(&mut self) -> Loaded {
        let mut loaded = Loaded::default();
        for event in self.events.drain(..) {
            let parameters = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Log.entryAdded" | "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" => {
                    loaded.problems.push(parameters.to_string());
                }
                "Network.requestWillBeSent" => {
                    let url = parameters["request"]["url"].as_str().unwrap_or_default();
                    loaded.requests.push(url.to_owned());
                }
                _ => {}
            }
        }
        loaded
    }

    /// Returns the value of an expression in the page, or of the promise that it returns.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let options =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.answer("Runtime.evaluate", options.clone());
        // A page that was just left does not answer any more; the one after it does.
        if answer["error"]["message"] == "Inspected target navigated or closed" {
            answer = self.answer("Runtime.evaluate", options);
        }
        assert!(answer["error"].is_null(), "{expression}: {answer}");
        let result = &answer["result"];
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Presses and releases a key, by its name: `Tab`, `Enter`, `Escape`, `ArrowLeft`.
    #[allow(dead_code, reason = "not every test uses it")]
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            _ => panic!("no code of the key {key}"),
        };
        let event = |kind: &str| json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        self.call(
            "Input.dispatchKeyEvent",
            event(if text.is_empty() { "rawKeyDown" } else { "keyDown" }),
        );
        self.call("Input.dispatchKeyEvent", event("keyUp"));
    }

    /// Types a text where the focus is.
    #[allow(dead_code, reason = "not every test uses it")]
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Returns the whole page as PNG, in Base64.
    #[allow(dead_code, reason = "not every test uses it")]
    pub fn screenshot(&mut self) -> String {
        let options = json!({"format": "png", "captureBeyondViewport": true});
        self.call("Page.captureScreenshot", options)["data"].as_str().expect("a picture").to_owned()
    }

    /// Calls a method of the protocol, and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.answer(method, parameters);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn answer(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        let command = format!("{command}\0");
        self.commands.write_all(command.as_bytes()).expect("Chromium reads commands");
        loop {
            let message = self.receive(method);
            if message["id"] == id {
                return message;
            }
            self.events.push(message);
        }
    }

    fn receive(&self, what: &str) -> Value {
        let received = self.messages.recv_timeout(TIMEOUT);
        received.unwrap_or_else(|error| panic!("no answer of Chromium to {what}: {error}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends by itself, so that none of its processes writes to the profile when that is removed.
        let _ = self.commands.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        while self.messages.recv_timeout(CLOSE_TIMEOUT).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
