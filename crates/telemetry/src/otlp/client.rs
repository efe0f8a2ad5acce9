//! Sends messages of OTLP over HTTP or gRPC, with retries.

use std::fmt::Debug;
use std::future::poll_fn;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, TE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use prost::Message;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{Destination, Protocol, retry_after};
use weir_common::causes::with_causes;
use weir_common::client_tls::ClientCertificates;
use weir_common::clock::WallClock;
use weir_common::http_client::{Body, HttpClient, Target, Version};
use weir_common::metrics::Counter;
use weir_common::random::random;
use weir_common::setup_error::SetupError;
use weir_common::throttle::Throttle;

/// The part of a response that is kept; the rest is discarded.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The wait before the first retry; each further wait is twice as long, up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The longest wait that a collector can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The longest time for which a message of any signal is retried.
const MAX_RETRY_TIME: Duration = Duration::from_secs(60);

/// The shortest interval between two log lines about one destination.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The header of gRPC for the compression of messages.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// A kind of telemetry.
pub(super) trait Signal {
    const NAME: &'static str;
    /// The path of the gRPC method.
    const METHOD: &'static str;
    type Request: Message;
    type Response: Message + Default;

    /// Returns how many items the collector rejected, and why.
    fn rejected(response: Self::Response) -> Option<(i64, String)>;
}

/// Where messages are sent to, without connections yet.
#[derive(Clone, Debug)]
pub(super) struct Client {
    to: Destination,
    target: Target,
    certificates: Arc<ClientCertificates>,
    failures: Counter,
}

/// A client with its connection, which belongs to the runtime of its thread.
pub(super) struct Connected {
    to: Destination,
    path: Uri,
    http: HttpClient,
    failures: Counter,
    log: Throttle,
    /// No request is sent before: the collector asked to wait.
    not_before: Option<Instant>,
}

/// Why a message was not accepted.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Transport(String),
    #[error("status {status}: {text}")]
    Http { status: StatusCode, text: String, retry_after: Option<Duration> },
    #[error("gRPC status {:?}: {}", .0.code(), .0.message())]
    Grpc(Box<Status>),
}

impl SendError {
    /// Whether the connection failed, or may be in use for longer than the call.
    fn is_of_connection(&self) -> bool {
        matches!(self, SendError::TimedOut(_) | SendError::Transport(_))
    }

    /// Whether to send the message again, as OTLP's specification says.
    fn is_transient(&self) -> bool {
        match self {
            SendError::TimedOut(_) | SendError::Transport(_) => true,
            SendError::Http { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            SendError::Grpc(status) => matches!(
                status.code(),
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::ResourceExhausted
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
            ),
        }
    }

    /// Returns how long the collector asks to wait before the next request.
    fn retry_after(&self) -> Option<Duration> {
        if !self.is_transient() {
            return None;
        }
        match self {
            SendError::TimedOut(_) | SendError::Transport(_) => None,
            SendError::Http { retry_after, .. } => *retry_after,
            SendError::Grpc(status) => retry_after::of_grpc(status.details()),
        }
    }
}

impl Client {
    /// Checks the certificates of a destination with TLS.
    ///
    /// # Errors
    ///
    /// The URL or a file cannot be used.
    pub fn new(
        to: Destination,
        certificates: &Arc<ClientCertificates>,
        failures: Counter,
    ) -> Result<Client, SetupError> {
        let target = to.target().map_err(SetupError::Invalid)?;
        if target.is_tls {
            certificates.read()?;
        }
        Ok(Client { to, target, certificates: certificates.clone(), failures })
    }

    /// Prepares a connection on the current runtime.
    pub fn connect(self) -> Connected {
        let Client { to, target, certificates, failures } = self;
        let version = match to.protocol {
            Protocol::Http => Version::Http1,
            Protocol::Grpc => Version::Http2,
        };
        let path = target.path().parse().unwrap_or_default();
        let http = HttpClient::new(target, version, certificates);
        Connected { to, path, http, failures, log: Throttle::new(LOG_INTERVAL), not_before: None }
    }
}

impl Connected {
    /// Sends a message, again if it may help: until `give_up`, or until the exporter is stopped.
    /// Returns whether the collector accepted it.
    pub async fn send<S: Signal>(
        &mut self,
        message: &S::Request,
        give_up: Duration,
        stop: &mut watch::Receiver<Option<Instant>>,
    ) -> bool {
        let message = self.encode(message);
        let mut backoff = MIN_BACKOFF;
        // The wait for an earlier message does not count.
        let mut deadline = None;
        loop {
            if !self.wait_as_asked(stop).await {
                return false;
            }
            let give_up =
                *deadline.get_or_insert_with(|| Instant::now() + give_up.min(MAX_RETRY_TIME));
            let Err(error) = self.send_once::<S>(message.clone()).await else { return true };
            self.failures.inc();
            if error.is_of_connection() {
                self.http.disconnect();
            }
            // Replicas do not retry at the same time.
            let mut wait = backoff.mul_f64(0.5 + random() / 2.0);
            if let Some(asked) = error.retry_after() {
                let asked = asked.min(MAX_RETRY_AFTER);
                self.not_before = Some(Instant::now() + asked);
                wait = wait.max(asked);
            }
            let retry = error.is_transient() && Instant::now() + wait < give_up;
            self.log_failure(S::NAME, &error, retry);
            if !retry || stop.borrow().is_some() {
                return false;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // One more attempt.
                _ = stop.wait_for(Option::is_some) => {}
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Waits for as long as the collector asked to. Returns false if the exporter ends before.
    async fn wait_as_asked(&self, stop: &mut watch::Receiver<Option<Instant>>) -> bool {
        let Some(until) = self.not_before else { return true };
        tokio::select! {
            () = tokio::time::sleep_until(until) => return true,
            _ = stop.wait_for(Option::is_some) => {}
        }
        let is_in_time = stop.borrow().is_some_and(|end| until < end);
        if is_in_time {
            tokio::time::sleep_until(until).await;
        }
        is_in_time
    }

    fn log_failure(&self, signal: &str, error: &SendError, retry: bool) {
        if let Some(suppressed) = self.log.pass() {
            let collector = &self.to.url;
            tracing::warn!(signal, %collector, %error, retry, suppressed, "cannot export telemetry");
        }
    }

    /// Returns the body of a request.
    fn encode(&self, message: &impl Message) -> Bytes {
        let mut message = message.encode_to_vec();
        if self.to.gzip {
            message = gzip(&message);
        }
        let mut body = BytesMut::with_capacity(message.len() + 5);
        if self.to.protocol == Protocol::Grpc {
            body.put_u8(u8::from(self.to.gzip));
            body.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        }
        body.put_slice(&message);
        body.freeze()
    }

    async fn send_once<S: Signal>(&mut self, body: Bytes) -> Result<(), SendError> {
        let timeout = self.to.timeout;
        let answered = tokio::time::timeout(timeout, self.request(S::METHOD, body)).await;
        let answer = answered.map_err(|_| SendError::TimedOut(timeout))??;
        let response = S::Response::decode(answer.as_slice()).unwrap_or_default();
        if let Some((rejected, message)) = S::rejected(response)
            && let Some(suppressed) = self.log.pass()
        {
            let signal = S::NAME;
            tracing::warn!(signal, rejected, %message, suppressed, "the collector rejected telemetry");
        }
        Ok(())
    }

    /// Sends a request. Returns the message of the response.
    async fn request(&mut self, method: &'static str, body: Bytes) -> Result<Vec<u8>, SendError> {
        let grpc = self.to.protocol == Protocol::Grpc;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = self.to.headers.clone();
        let content_type = if grpc { "application/grpc" } else { "application/x-protobuf" };
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if self.to.gzip {
            let name = if grpc { GRPC_ENCODING } else { CONTENT_ENCODING };
            request.headers_mut().insert(name, HeaderValue::from_static("gzip"));
        }
        *request.uri_mut() = match grpc {
            true => Uri::from_static(method),
            false => self.path.clone(),
        };
        if grpc {
            request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        }
        let response = self.http.send(request).await;
        let response = response.map_err(|error| SendError::Transport(error.to_string()))?;
        let (head, body) = response.into_parts();
        let (body, trailers) = read(body).await.map_err(|error| transport(&error))?;
        if !head.status.is_success() {
            let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            let retry_after = retry_after::of_http(&head.headers, &WallClock);
            return Err(SendError::Http { status: head.status, text, retry_after });
        }
        if !grpc {
            return Ok(body);
        }
        let status = Status::from_header_map(trailers.as_ref().unwrap_or(&head.headers));
        match status {
            Some(status) if status.code() == Code::Ok => {
                Ok(body.get(5..).unwrap_or_default().to_vec())
            }
            Some(status) => Err(SendError::Grpc(Box::new(status))),
            None => Err(SendError::Transport("the answer has no gRPC status".to_owned())),
        }
    }
}

/// Compresses a message.
fn gzip(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(message);
    encoder.finish().unwrap_or_default()
}

/// Reads a response to its end, which has the trailers. Returns the start of a long one.
async fn read<B: http_body::Body<Data = Bytes>>(
    body: B,
) -> Result<(Vec<u8>, Option<HeaderMap>), B::Error> {
    let mut body = pin!(body);
    let (mut read, mut trailers) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        match frame?.into_data() {
            Ok(data) => read.extend(data.into_iter().take(MAX_RESPONSE_BYTES - read.len())),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((read, trailers))
}

/// Describes an error by its causes: that of hyper says little itself.
fn transport(error: &(dyn std::error::Error + 'static)) -> SendError {
    SendError::Transport(with_causes(error))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    struct Frames(VecDeque<Frame<Bytes>>);

    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    #[tokio::test]
    async fn a_long_response_is_read_up_to_its_trailers() {
        let long = Bytes::from(vec![1; MAX_RESPONSE_BYTES - 1]);
        let status = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("x"))]);
        let data = [long.clone(), long, Bytes::from_static(&[2])].map(Frame::data);
        let frames = data.into_iter().chain([Frame::trailers(status.clone())]).collect();
        let Ok((body, trailers)) = read(Frames(frames)).await;
        assert_eq!(body, [1; MAX_RESPONSE_BYTES]);
        assert_eq!(trailers, Some(status));
    }
}
