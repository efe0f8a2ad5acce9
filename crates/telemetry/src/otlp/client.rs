//! Sends messages of OTLP over HTTP or gRPC, with retries.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use prost::Message;
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::connections::Connections;
use super::{Destination, Protocol, tls};
use weir_common::causes::with_causes;
use weir_common::interim_responses::{self, TooMany};
use weir_common::metrics::Counter;
use weir_common::random::random;
use weir_common::setup_error::SetupError;
use weir_common::throttle::Throttle;

/// The part of a response that is kept; the rest is discarded.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The wait before the first retry; each further wait is twice as long, up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// How long one message is retried.
const MAX_RETRYING: Duration = Duration::from_secs(60);

/// The shortest interval between two log lines about one destination.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

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
    tls: Arc<ClientConfig>,
    failures: Counter,
}

/// A client with its connections, which belong to the runtime of its thread.
pub(super) struct Connected {
    to: Destination,
    tls: Arc<ClientConfig>,
    connections: Connections,
    failures: Counter,
    log: Throttle,
}

/// Why a message was not accepted.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Transport(String),
    #[error("status {0}: {1}")]
    Http(StatusCode, String),
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
            SendError::Http(status, _) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
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
}

impl Client {
    /// Reads the certificates of a destination.
    ///
    /// # Errors
    ///
    /// A file cannot be used.
    pub fn new(to: Destination, failures: Counter) -> Result<Client, SetupError> {
        let tls = tls::config(&to)?;
        Ok(Client { to, tls: Arc::new(tls), failures })
    }

    /// Prepares connections on the current runtime.
    pub fn connect(self) -> Connected {
        let Client { to, tls, failures } = self;
        let connections = Connections::new(&to, tls.clone());
        Connected { to, tls, connections, failures, log: Throttle::new(LOG_INTERVAL) }
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
        let give_up = Instant::now() + give_up.min(MAX_RETRYING);
        let mut backoff = MIN_BACKOFF;
        loop {
            let Err(error) = self.send_once::<S>(message.clone()).await else { return true };
            self.failures.inc();
            if error.is_of_connection() {
                // Whatever the server still sends must not keep a core busy.
                self.connections = Connections::new(&self.to, self.tls.clone());
            }
            // Replicas do not retry at the same time.
            let wait = backoff.mul_f64(0.5 + random() / 2.0);
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

    fn log_failure(&self, signal: &str, error: &SendError, retry: bool) {
        if let Some(suppressed) = self.log.pass() {
            let collector = &self.to.url;
            tracing::warn!(signal, %collector, %error, retry, suppressed, "cannot export telemetry");
        }
    }

    /// Returns the body of a request.
    fn encode(&self, message: &impl Message) -> Bytes {
        let length = message.encoded_len();
        let mut body = BytesMut::with_capacity(length + 5);
        if self.to.protocol == Protocol::Grpc {
            body.put_u8(0);
            body.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        }
        body.put_slice(&message.encode_to_vec());
        body.freeze()
    }

    async fn send_once<S: Signal>(&self, body: Bytes) -> Result<(), SendError> {
        let answered = tokio::time::timeout(self.to.timeout, self.request(S::METHOD, body)).await;
        let answer = answered.map_err(|_| SendError::TimedOut(self.to.timeout))??;
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
    async fn request(&self, method: &'static str, body: Bytes) -> Result<Vec<u8>, SendError> {
        let grpc = self.to.protocol == Protocol::Grpc;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = self.to.headers.clone();
        let content_type = if grpc { "application/grpc" } else { "application/x-protobuf" };
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let url = self.to.uri().map_err(|error| transport(&error))?;
        *request.uri_mut() = match grpc {
            true => with_path(url, method).map_err(|error| transport(&error))?,
            false => url,
        };
        if grpc {
            request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        }
        let too_many = interim_responses::exceeded(&mut request);
        let response = tokio::select! {
            response = self.connections.request(request) => response,
            () = too_many => return Err(transport(&TooMany)),
        };
        let response = response.map_err(|error| transport(&error))?;
        let (head, body) = response.into_parts();
        let (body, trailers) = read(body).await.map_err(|error| transport(&error))?;
        if !head.status.is_success() {
            let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            return Err(SendError::Http(head.status, text));
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

/// Returns the URL of a gRPC method.
fn with_path(url: Uri, method: &'static str) -> Result<Uri, http::uri::InvalidUriParts> {
    let mut parts = url.into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(method));
    Uri::from_parts(parts)
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
