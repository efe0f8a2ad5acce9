//! Large pages that are the same for every client, such as `/metrics`: rendered once for concurrent requests.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::sync::Mutex;
use tokio::time::Instant;

use weir_common::threads::run_for_client;

/// A rendering that is still being sent is shared with other clients up to this age.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Renderings of one page in memory at a time. While that many are being sent, the newest is shared
/// whatever its age.
const MAX_RENDERINGS: usize = 4;

pub(super) struct Page {
    content_type: &'static str,
    /// Changes with what the page shows. A rendering of another version is not shared.
    version: Box<dyn Fn() -> u64 + Send + Sync>,
    render: Arc<dyn Fn() -> String + Send + Sync>,
    /// The renderings that are being sent, the newest last.
    renderings: Mutex<Vec<Weak<Rendering>>>,
}

struct Rendering {
    text: String,
    version: u64,
    rendered_at: Instant,
}

/// Keeps a rendering alive until it is sent.
struct SharedBody(Arc<Rendering>);

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        self.0.text.as_bytes()
    }
}

impl Page {
    pub fn new(
        content_type: &'static str,
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> Arc<Page> {
        Page::versioned(content_type, || 0, render)
    }

    /// Returns a page that a client must not see as it was before a change.
    pub fn versioned(
        content_type: &'static str,
        version: impl Fn() -> u64 + Send + Sync + 'static,
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> Arc<Page> {
        let (version, render) = (Box::new(version), Arc::new(render));
        Arc::new(Page { content_type, version, render, renderings: Mutex::default() })
    }

    /// Returns a new rendering, or a recent one that is being sent to another client. None if
    /// rendering fails.
    async fn get(&self) -> Option<Arc<Rendering>> {
        // Held while rendering: concurrent requests wait for one rendering and share it.
        let mut renderings = self.renderings.lock().await;
        renderings.retain(|rendering| rendering.strong_count() > 0);
        let version = (self.version)();
        let is_recent = |rendering: &Rendering| {
            rendering.version == version && rendering.rendered_at.elapsed() < SHARED_FOR
        };
        if let Some(newest) = renderings.last().and_then(Weak::upgrade)
            && (is_recent(&newest) || renderings.len() >= MAX_RENDERINGS)
        {
            return Some(newest);
        }
        let render = self.render.clone();
        let rendered_at = Instant::now();
        let mut text = run_for_client(move || render()).await.ok()?;
        text.shrink_to_fit();
        let rendering = Arc::new(Rendering { text, version, rendered_at });
        renderings.push(Arc::downgrade(&rendering));
        Some(rendering)
    }
}

pub(super) async fn answer(State(page): State<Arc<Page>>) -> Response {
    match page.get().await {
        Some(rendering) => {
            let body = Bytes::from_owner(SharedBody(rendering));
            ([(CONTENT_TYPE, page.content_type)], body).into_response()
        }
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    fn counted() -> Arc<Page> {
        let count = AtomicUsize::new(0);
        Page::new("text/plain", move || count.fetch_add(1, Ordering::Relaxed).to_string())
    }

    async fn text(page: &Page) -> (String, Arc<Rendering>) {
        let rendering = page.get().await.unwrap();
        (rendering.text.clone(), rendering)
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_rendered_for_each_request_unless_it_is_being_sent() {
        let page = counted();
        assert_eq!(text(&page).await.0, "0");
        let (first, _sent) = text(&page).await;
        assert_eq!(first, "1");
        assert_eq!(text(&page).await.0, "1");
        tokio::time::advance(SHARED_FOR).await;
        assert_eq!(text(&page).await.0, "2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rendering_from_before_a_change_is_not_shared() {
        let version = Arc::new(AtomicU64::new(0));
        let now = move |version: &AtomicU64| version.load(Ordering::Relaxed);
        let (current, shown) = (version.clone(), version.clone());
        let page =
            Page::versioned("text/plain", move || now(&current), move || now(&shown).to_string());
        let (_, _sent) = text(&page).await;
        version.store(1, Ordering::Relaxed);
        assert_eq!(text(&page).await.0, "1");
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_do_not_read_hold_a_bounded_number_of_renderings() {
        let page = counted();
        let mut sent = Vec::new();
        for _ in 0..100 {
            sent.push(text(&page).await.1);
            tokio::time::advance(SHARED_FOR).await;
        }
        let mut texts: Vec<_> = sent.iter().map(|rendering| rendering.text.as_str()).collect();
        texts.dedup();
        assert_eq!(texts, ["0", "1", "2", "3"]);
        // Once the oldest has been sent there is room for a new one.
        sent.remove(0);
        assert_eq!(text(&page).await.0, "4");
    }

    #[test]
    fn renderings_of_clients_that_have_gone_are_skipped() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
        let (release, released) = mpsc::sync_channel::<()>(1);
        let released = parking_lot::Mutex::new(released);
        let count = AtomicUsize::new(0);
        let page = Page::new("text/plain", move || {
            let _ = released.lock().recv();
            count.fetch_add(1, Ordering::Relaxed).to_string()
        });
        runtime.block_on(async {
            for _ in 0..100 {
                let mut gone = pin!(page.get());
                assert!(gone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            // Every rendering goes on.
            drop(release);
            let rendered = text(&page).await.0.parse::<usize>().unwrap();
            assert!(rendered <= 1, "{rendered} renderings for clients that have gone");
        });
    }
}
