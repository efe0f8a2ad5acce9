//! The listener for Redis clients, which ask for decisions in the Redis protocol (RESP): its socket and its threads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::listeners::{Bound, Opening, RESP, Serving};
use super::stores::ConfiguredStore;
use crate::net::token_file::{SecretKind, TokenFile};
use crate::net::{ConnectionHandle, Connections, Stream, Workers, bind};
use crate::resp::Resp;
use crate::rls::service::RateLimit;
use crate::settings::Settings;
use weir_common::error::SetupError;
use weir_common::threads;
use weir_limiter::Limiter;
use weir_redis::ClockSource;
use weir_store::Operations;

/// How long a client whose host is gone keeps its connection.
const KEEP_ALIVE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct RespListener {
    pub bound: Bound,
    pub resp: Arc<Resp<ConfiguredStore>>,
}

impl RespListener {
    /// Binds the listener; none unless the setting `resp.address` names its address.
    pub async fn bind(
        settings: &Settings,
        rate_limit: RateLimit<ConfiguredStore>,
    ) -> Result<Option<RespListener>, SetupError> {
        let Some(address) = &*settings.resp.address else { return Ok(None) };
        let password = settings.resp.password_file.value.clone();
        let password = password
            .map(|path| TokenFile::load("resp.password_file", SecretKind::Password, path))
            .transpose()?;
        let mut resp = Resp::new(rate_limit, settings.resp_limits(), password);
        if settings.redis_options().is_some_and(|(redis, _)| redis.clock == ClockSource::Server) {
            resp = resp.refusing_at();
        }
        Ok(Some(RespListener {
            bound: Bound::new(&RESP, settings, bind(address, "resp.address")).await?,
            resp: Arc::new(resp),
        }))
    }

    pub fn start_workers(
        &self,
        threads: usize,
        limiter: &Arc<Limiter<ConfiguredStore>>,
        draining: &watch::Receiver<bool>,
    ) -> anyhow::Result<Workers> {
        let opener = self.bound.opener(threads)?;
        let (resp, limiter, draining) = (self.resp.clone(), limiter.clone(), draining.clone());
        Workers::start("weir-resp", threads, move || {
            let (resp, draining, opener) = (resp.clone(), draining.clone(), opener.clone());
            let serve = move |socket: Stream, handle: Arc<ConnectionHandle>| {
                let (resp, mut draining, opener) = (resp.clone(), draining.clone(), opener.clone());
                async move {
                    if let Err(error) = socket.keep_alive(KEEP_ALIVE) {
                        tracing::debug!(%error, "connection closed before it was served");
                        return;
                    }
                    let peer = socket.peer();
                    let stream = opener.open(socket, &handle, &mut draining).await;
                    let Some(stream) = stream else { return };
                    resp.serve(stream, &handle, peer, draining).await;
                }
            };
            let limiter = limiter.clone();
            (async move { limiter.store().connect().await }, serve)
        })
    }

    pub fn serve(
        self,
        workers: Workers,
        connections: Arc<Connections>,
        opening: &Opening,
    ) -> Serving {
        let (closed, resp) = (opening.closed.clone(), self.resp);
        self.bound.serve_requests(opening, |bound| {
            Ok(threads::start("weir-resp", move || async move {
                tokio::spawn(resp.follow_password());
                bound.accept_for(workers, connections, closed, || ()).await;
            })?)
        })
    }
}
