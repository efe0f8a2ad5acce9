//! Placeholders for TLS in builds without it. No value of them can exist.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Certificate, Options, TlsMetrics};
use crate::connections::ConnectionHandle;
use crate::sockets::Socket;
use weir_common::client_tls::RejectedFiles;
use weir_common::setup_error::SetupError;

#[derive(Debug)]
pub struct Certificates(Infallible);

#[derive(Debug)]
pub struct Handshakes(Infallible);

#[derive(Debug)]
pub struct TlsStream(Infallible);

impl Certificates {
    /// # Errors
    ///
    /// Always.
    pub fn load(options: Options) -> Result<Arc<Certificates>, SetupError> {
        let group = options.group;
        Err(SetupError::Invalid(format!(
            "{group}.enabled is true, but this program was built without TLS; \
             build it with the feature tls, or remove {group}.enabled"
        )))
    }

    pub fn options(&self) -> &Options {
        match self.0 {}
    }

    pub fn metrics(&self) -> &TlsMetrics {
        match self.0 {}
    }

    pub(super) fn certificate(&self) -> Option<Certificate> {
        match self.0 {}
    }

    pub(super) fn rejected(&self) -> Option<RejectedFiles> {
        match self.0 {}
    }

    pub async fn follow(self: Arc<Self>) {
        match self.0 {}
    }
}

impl Handshakes {
    /// # Errors
    ///
    /// None: there are no certificates.
    pub fn start(
        certificates: Arc<Certificates>,
        _serving_threads: usize,
    ) -> anyhow::Result<Arc<Handshakes>> {
        match certificates.0 {}
    }

    pub(super) async fn run(&self, _: Socket, _: Arc<ConnectionHandle>) -> Option<TlsStream> {
        match self.0 {}
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}
