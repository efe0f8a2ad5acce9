//! An HTTP service that limits its own requests by weir's rules: in memory, or in Redis beside weir.
//!
//! `cargo run -p library-example -- examples/library/rules.yaml 127.0.0.1:8000 [127.0.0.1:6379]`

use std::{error::Error, sync::Arc, time::Duration};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use weir_library::rules::{self, Loaded, RuleSet, Selection};
use weir_library::store::redis::{self, Endpoint, RedisStore, Topology};
use weir_library::store::{MemoryStore, Store};
use weir_library::{Descriptor, Holds, Limiter, LimiterOptions, Request as Question, SystemClock};

/// How long a request may wait for the store.
const STORE_TIMEOUT: Duration = Duration::from_millis(100);

struct Limits<S> {
    rules: RuleSet,
    limiter: Limiter<S>,
}

type Shared<S> = State<Arc<Limits<S>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, at, server @ ..] = &args[..] else {
        return Err("usage: library-example RULES ADDRESS [REDIS_HOST:PORT]".into());
    };
    let loaded = Loaded::read(&Selection::of(path), &rules::RuleOptions::default(), None);
    if !loaded.is_good() {
        return Err(loaded.render_errors().into());
    }
    let Some(server) = server.first() else {
        let store = MemoryStore::new(SystemClock::new(), 1_000_000);
        return serve(at, loaded.rules, store).await;
    };
    let (host, port) = server.rsplit_once(':').ok_or("write Redis's address as HOST:PORT")?;
    let topology = Topology::Single(Endpoint::Tcp(host.to_owned(), port.parse()?));
    let store = RedisStore::new(redis::RedisOptions::new(topology));
    store.answered().await;
    serve(at, loaded.rules, store).await
}

async fn serve<S: Store + 'static>(
    at: &str,
    rules: RuleSet,
    store: S,
) -> Result<(), Box<dyn Error>> {
    let limits =
        Arc::new(Limits { rules, limiter: Limiter::new(store, LimiterOptions::default()) });
    let limit = from_fn_with_state(limits, limit);
    let routes = Router::new().route("/", get(|| async { "welcome\n" })).layer(limit);
    let listener = tokio::net::TcpListener::bind(at).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, routes).await?)
}

/// Asks for one hit of the user in `x-user`, and releases what it took of concurrency limits.
async fn limit<S: Store + 'static>(limits: Shared<S>, request: Request, next: Next) -> Response {
    let user = request.headers().get("x-user").and_then(|it| it.to_str().ok()).unwrap_or_default();
    let descriptors = &[Descriptor { entries: &[("user", user)], ..Descriptor::default() }];
    let question = Question { domain: "shop", descriptors, ..Question::default() };
    let (Limits { rules, limiter }, mut holds) = (&**limits, Holds::default());
    let response = match limiter.decide(Some(rules), &question, STORE_TIMEOUT, &mut holds).await {
        Ok(decision) if decision.over_limit => {
            // In whole seconds. Without one, waiting does not help.
            let wait = decision.retry_after().map(|wait| wait.as_secs_f64().ceil().to_string());
            (StatusCode::TOO_MANY_REQUESTS, wait.map(|wait| [(RETRY_AFTER, wait)]), ())
                .into_response()
        }
        Ok(_) => next.run(request).await,
        // Without an answer from Redis. A service may prefer to let requests pass.
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    };
    // A request that is cancelled keeps its hold until `hold_timeout`.
    if let Some(taken) = holds {
        taken.release(limiter.store()).await;
    }
    response
}
