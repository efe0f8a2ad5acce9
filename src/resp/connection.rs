//! Serves one connection of a Redis client, from its first request to its close.
//!
//! A connection reads a few kilobytes at a time, answers the requests in them, writes the replies, and yields to other
//! connections. Nothing more is read until the client has read the replies, so it can keep neither the thread nor much
//! memory busy. The memory for a partly received request, for unread replies, and for requests that wait for the store
//! counts against a limit of all connections. Replies are in the order of the requests. If the store does not answer at
//! once, the requests that were read together go to it together.

use std::future::{poll_fn, ready};
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_util::future::{FutureExt, OptionFuture};
use futures_util::stream::{FuturesOrdered, StreamExt};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use super::command::Command;
use super::parser::{Parser, ProtocolError, RespRequest};
use super::reply::Replies;
use super::server::Resp;
use super::session::{After, Session};
use crate::net::{ConnectionHandle, ConnectionMemory, HeldMemory};
use weir_store::{States, Store};

const READ_BYTES: usize = 16 << 10;

/// Replies are sent when they are longer, even if more requests were read.
const WRITE_BYTES: usize = 16 << 10;

/// The largest request of a client that has not sent the password yet.
const MAX_UNAUTHENTICATED_BYTES: usize = 16 << 10;

const MEMORY_REFUSAL: &str =
    "ERR buffered requests and replies use too much memory (setting clients.max_buffered)";

/// Requests of one connection that wait for the store at a time.
const MAX_WAITING: usize = 256;

/// What an argument of a waiting request takes: in its descriptor, the look-up, and the answer.
const ARGUMENT_BYTES: usize = 300;

/// The copies of a waiting request: its keys, the command to Redis, and the pipeline that it is sent in.
const LENGTH_FACTOR: usize = 4;

/// What a waiting request takes in the queues of its connection and of the store.
const QUEUE_BYTES: usize = 512;

/// The only request of a connection that waits need not be counted if it is not larger.
const MAX_UNCOUNTED_BYTES: usize = 28 << 10;

enum Closed {
    /// The connection closes after the replies: the client sent QUIT, broke the protocol, or was evicted.
    AfterReplies,
    /// The connection closes at once: a write failed, and another would only take as long.
    Now,
}

struct Connection<'a, S, Stream> {
    resp: &'a Resp<S>,
    stream: Stream,
    handle: &'a ConnectionHandle,
    peer: Option<SocketAddr>,
    session: Session,
    replies: Replies,
    /// The memory of a partly received request.
    partial: HeldMemory,
    /// The memory of replies that the client has not read yet.
    unread: HeldMemory,
    /// The memory of requests that wait for the store.
    waiting: HeldMemory,
    /// Bytes read since other connections had their turn.
    turn: usize,
}

/// A request that waits for the store.
type Running<'a> = Pin<Box<dyn Future<Output = Option<Replies>> + Send + 'a>>;

/// Requests that wait for the store, in order.
type Waiting<'a> = FuturesOrdered<Running<'a>>;

/// The name of a command, and its arguments.
type Words<'a> = SmallVec<[&'a [u8]; 16]>;

impl<S: Store + States + 'static> Resp<S> {
    /// Serves a connection until it is closed, or `shutdown` turns true and what was read is answered.
    pub async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        handle: &ConnectionHandle,
        peer: Option<SocketAddr>,
        shutdown: watch::Receiver<bool>,
    ) {
        let memory = ConnectionMemory::new(&self.client_memory);
        let mut connection = Connection {
            resp: self,
            stream,
            handle,
            peer,
            session: Session::new(self.next_id(), self.password.as_ref()),
            replies: Replies::default(),
            partial: memory.reservation(),
            unread: memory.reservation(),
            waiting: ConnectionMemory::without_free(&self.client_memory).reservation(),
            turn: 0,
        };
        if connection.serve_requests(shutdown).await.is_err() {
            return;
        }
        handle.set_busy(false);
        // With TLS, the client learns that nothing is missing.
        tokio::select! {
            _ = timeout(self.limits.timeout, connection.stream.shutdown()) => {}
            () = handle.evicted() => {}
        }
    }
}

impl<'a, S: Store + States, Stream: AsyncRead + AsyncWrite + Unpin> Connection<'a, S, Stream> {
    /// Returns an error if the client can be sent nothing more.
    async fn serve_requests(&mut self, mut shutdown: watch::Receiver<bool>) -> Result<(), Closed> {
        let (mut input, mut parser) = (Vec::new(), Parser::default());
        // When the rest of a request has to be there.
        let mut deadline: Option<Instant> = None;
        loop {
            let (handle, is_idle, is_last) = (self.handle, input.is_empty(), *shutdown.borrow());
            let read = tokio::select! {
                biased;
                read = self.read(&mut input, deadline) => read,
                () = handle.evicted() => return Err(Closed::Now),
                // The rest of a request is waited for.
                _ = shutdown.wait_for(|shutdown| *shutdown), if is_idle => return Ok(()),
            };
            // 0: closed by the client, or too slow.
            let Ok(1..) = read else { return Ok(()) };
            if !self.partial.resize(input.capacity()) {
                self.resp.stats.memory_refusals.inc();
                self.replies.error(MEMORY_REFUSAL);
                return self.write().await;
            }
            let answered = match self.answer_all(&input, &mut parser, &shutdown).await {
                Ok(answered) => answered,
                // Such as the reply to QUIT.
                Err(Closed::AfterReplies) => return self.write().await,
                Err(closed) => return Err(closed),
            };
            self.handle.set_busy(false);
            if answered > 0 {
                // With no more memory than the rest needs: none while the connection is idle.
                input = input.split_off(answered);
                self.partial.resize(input.capacity());
            }
            if input.is_empty() {
                deadline = None;
                if *shutdown.borrow() {
                    return Ok(());
                }
            } else if is_last && answered > 0 {
                // The request that was incomplete is answered. A client that never pauses would be served forever.
                return Ok(());
            } else if answered > 0 || deadline.is_none() {
                deadline = Instant::now().checked_add(self.resp.limits.timeout);
            }
            if self.turn >= READ_BYTES {
                // There may be more to read, so that this connection would not wait by itself.
                self.turn = 0;
                yield_now().await;
            }
        }
    }

    /// Reads what the client has sent, at most [`READ_BYTES`]. Returns how much; 0 after the deadline too.
    async fn read(&mut self, input: &mut Vec<u8>, deadline: Option<Instant>) -> io::Result<usize> {
        let read = poll_fn(|cx| {
            // On the stack: a connection that waits has no buffer.
            let mut bytes = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut bytes = ReadBuf::uninit(&mut bytes);
            let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, &mut bytes) else {
                self.turn = 0;
                return Poll::Pending;
            };
            read?;
            self.turn += bytes.filled().len();
            input.extend_from_slice(bytes.filled());
            Ok(bytes.filled().len()).into()
        });
        match deadline {
            Some(deadline) => timeout_at(deadline, read).await.unwrap_or(Ok(0)),
            None => read.await,
        }
    }

    /// Answers all complete requests, and writes the replies. Returns the length of the requests.
    async fn answer_all<'b>(
        &mut self,
        input: &'b [u8],
        parser: &mut Parser,
        shutdown: &watch::Receiver<bool>,
    ) -> Result<usize, Closed>
    where
        'a: 'b,
    {
        let (resp, peer) = (self.resp, self.peer);
        // One command after the other runs in one place. One that waits stays there.
        let mut spare: Option<Pin<Box<OptionFuture<_>>>> = None;
        let mut run = |command: Command, words: Words<'b>, mut replies: Replies| {
            let running = async move {
                command.run(resp, peer, &words[1..], &mut replies).await;
                replies
            };
            let mut place = spare.take().unwrap_or_else(|| Box::pin(None.into()));
            place.set(Some(running).into());
            match place.as_mut().now_or_never() {
                Some(Some(replies)) => {
                    place.set(None.into());
                    spare = Some(place);
                    Ok(replies)
                }
                _ => Err(place as Running<'b>),
            }
        };
        let (mut waiting, mut start) = (Waiting::new(), 0);
        loop {
            let (rest, is_authenticated) = (&input[start..], self.session.is_authenticated);
            let max = self.resp.limits.max_request;
            let max = if is_authenticated { max } else { max.min(MAX_UNAUTHENTICATED_BYTES) };
            match parser.read(rest, max) {
                Ok(Some(request)) => {
                    self.handle.set_busy(true);
                    start += request.length;
                    let answered =
                        self.answer(rest, &request, &mut waiting, &mut run, shutdown).await;
                    if self.session.is_authenticated {
                        // Others are evicted first.
                        self.handle.count_request();
                    }
                    answered?;
                }
                Ok(None) => break,
                Err(error) => {
                    self.resp.stats.protocol_errors.inc();
                    if error != ProtocolError::TooLarge {
                        self.resp.rate_limit.count_unreadable(self.peer, &error);
                    }
                    self.wait_for(&mut waiting).await;
                    let error = match error {
                        ProtocolError::TooLarge if !is_authenticated => {
                            ProtocolError::Unauthenticated
                        }
                        error => error,
                    };
                    self.replies.error(&format!("ERR {error}"));
                    return Err(Closed::AfterReplies);
                }
            }
        }
        self.wait_for(&mut waiting).await;
        self.write().await?;
        Ok(start)
    }

    /// Answers a request, or adds it to those that wait for the store.
    async fn answer<'b>(
        &mut self,
        input: &'b [u8],
        request: &RespRequest,
        waiting: &mut Waiting<'b>,
        run: &mut impl FnMut(Command, Words<'b>, Replies) -> Result<Replies, Running<'b>>,
        shutdown: &watch::Receiver<bool>,
    ) -> Result<(), Closed>
    where
        'a: 'b,
    {
        let words = request.arguments.iter().map(|range| input.get(range.clone()));
        let words: Words<'b> = words.map(Option::unwrap_or_default).collect();
        let before = self.replies.len();
        let after = self.session.answer(&words, self.resp.password.as_ref(), &mut self.replies);
        let (mut may_wait, mut runs_alone) = (!matches!(after, After::Close | After::Http), false);
        match after {
            After::Run(command) => {
                runs_alone = command.runs_alone();
                if runs_alone {
                    may_wait = false;
                    self.wait_for(waiting).await;
                }
                let bytes = size_of_val(&command.run(self.resp, None, &[], &mut self.replies))
                    + ARGUMENT_BYTES * words.len()
                    + LENGTH_FACTOR * request.length;
                if !waiting.is_empty() {
                    self.make_room(bytes, waiting).await?;
                } else if bytes > MAX_UNCOUNTED_BYTES {
                    // It may be refused, and they are not.
                    self.write().await?;
                }
                let is_first = waiting.is_empty();
                let mut replies = Replies::new(self.replies.version);
                if is_first {
                    // It follows those that are not sent yet.
                    mem::swap(&mut replies, &mut self.replies);
                }
                match run(command, words, replies) {
                    Ok(replies) if is_first => self.replies = replies,
                    Ok(replies) => waiting.push_back(Box::pin(ready(Some(replies)))),
                    Err(running) => {
                        if is_first {
                            self.make_room(bytes, waiting).await?;
                        }
                        waiting.push_back(running);
                    }
                }
            }
            _ if waiting.is_empty() => {}
            _ => {
                let replies = self.replies.split_off(before);
                self.make_room(size_of_val(&replies) + replies.len(), waiting).await?;
                waiting.push_back(Box::pin(ready(Some(replies))));
            }
        }
        if !may_wait || waiting.len() >= MAX_WAITING {
            self.wait_for(waiting).await;
        }
        match after {
            After::Http => {
                self.resp.count_http(self.peer);
                return Err(Closed::AfterReplies);
            }
            After::Close => return Err(Closed::AfterReplies),
            After::WrongPassword => self.resp.count_wrong_password(self.peer),
            After::Continue | After::Run(_) => {}
        }
        if runs_alone {
            // A pipeline of them may take long. Only writing shows whether the client has disconnected.
            self.write().await?;
            self.handle.set_busy(false);
            if *shutdown.borrow() || self.handle.evicted().now_or_never().is_some() {
                return Err(Closed::AfterReplies);
            }
        }
        if waiting.is_empty() && self.replies.len() >= WRITE_BYTES {
            self.write().await?;
        }
        Ok(())
    }

    /// Waits until the store has answered all requests. Nothing is sent meanwhile, so all replies count as unread.
    async fn wait_for(&mut self, waiting: &mut Waiting<'_>) {
        while let Some(replies) = waiting.next().await {
            replies.iter().for_each(|replies| self.replies.append(replies));
        }
        self.waiting.resize(0);
    }

    /// Counts the memory of one more waiting request. If there is no room, waits for the others first: a connection may
    /// always have one.
    async fn make_room(&mut self, bytes: usize, waiting: &mut Waiting<'_>) -> Result<(), Closed> {
        let bytes = bytes + QUEUE_BYTES;
        if self.waiting.try_grow(bytes) {
            return Ok(());
        }
        self.wait_for(waiting).await;
        // Only writing shows whether the client has disconnected, and its requests need no more work.
        self.write().await?;
        if bytes > MAX_UNCOUNTED_BYTES && !self.waiting.resize(bytes) {
            self.resp.stats.memory_refusals.inc();
            self.replies.error(MEMORY_REFUSAL);
            return Err(Closed::AfterReplies);
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), Closed> {
        if self.replies.len() == 0 {
            return Ok(());
        }
        let replies = self.replies.take();
        let mut write = pin!(async {
            self.stream.write_all(&replies).await?;
            self.stream.flush().await
        });
        // Nearly always, the socket takes them at once.
        let written = match (&mut write).now_or_never() {
            Some(written) => written.is_ok(),
            None if !self.unread.resize(replies.capacity()) => {
                self.resp.stats.memory_refusals.inc();
                false
            }
            None => {
                // Then it may be evicted although it is busy.
                self.handle.set_stalled(true);
                let written = tokio::select! {
                    written = timeout(self.resp.limits.timeout, write) => matches!(written, Ok(Ok(()))),
                    () = self.handle.evicted() => false,
                };
                self.handle.set_stalled(false);
                written
            }
        };
        drop(replies);
        self.unread.resize(0);
        if written { Ok(()) } else { Err(Closed::Now) }
    }
}
