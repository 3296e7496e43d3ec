//! One watch of RayClusters: a list, and then every change of it.
//!
//! The API server ends a watch after a while, and forgets versions that are older than some minutes (410): then all are
//! listed anew. As long as nothing can be listed, what was seen last counts.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::discovery::api::{ApiError, Event, Scope};
use crate::discovery::{Discovery, MAX_KNOWN, Seen};
use crate::wire::backoff::Backoff;

/// How long one watch lasts, by the API server's clock.
pub(super) const WATCH: Duration = Duration::from_secs(120);

/// All are listed anew after this, whatever the watches said.
const RESYNC: Duration = Duration::from_secs(600);

/// First and longest pause after a failure.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// After a failure.
pub(super) const BACKOFF: Backoff = Backoff::new(FIRST, LONGEST);

impl Discovery {
    /// Keeps what the watch number `number` sees, for ever.
    pub(super) async fn watch(&self, number: usize) {
        let mut scope = match self.settings.namespaces.get(number) {
            Some(namespace) => Scope::Namespace(namespace.clone()),
            None => Scope::All,
        };
        let mut backoff = BACKOFF;
        loop {
            let began = Instant::now();
            let error = match self.list(&scope).await {
                Ok((all, version)) => {
                    tracing::debug!(%scope, found = all.len(), "RayClusters were listed");
                    self.known.replace(number, all);
                    match self.follow(&scope, number, version).await {
                        Ok(()) => {
                            backoff.reset();
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(ApiError::Refused { status: 403, .. }) if matches!(scope, Scope::All) => {
                    let own = self.api.namespace();
                    tracing::warn!(
                        namespace = own,
                        "the relay may not list the RayClusters of all namespaces: only those of its own are found; bind its ServiceAccount to the ClusterRole of docker/kubernetes/components/discovery, or give discovery.namespaces"
                    );
                    scope = Scope::Namespace(own.to_owned());
                    continue;
                }
                Err(error) => error,
            };
            // What had worked for a while is a failure of its own.
            if began.elapsed() > LONGEST {
                backoff.reset();
            }
            if backoff.is_fresh() {
                tracing::warn!(%scope, %error, "cannot follow RayClusters; those that are known stay");
            }
            // A connection that breaks once is no news.
            if !backoff.is_fresh() || !self.known.has_seen(number) {
                self.known.is_blind(number, error.to_string());
            }
            sleep(backoff.pause()).await;
        }
    }

    /// All RayClusters of `scope`, and the version of that list.
    async fn list(&self, scope: &Scope) -> Result<(Seen, String), ApiError> {
        let selector = self.settings.label_selector.as_deref();
        let mut all = Seen::new();
        let (mut next, mut singly) = (None, false);
        loop {
            let page = match self
                .api
                .page(scope, selector, next.as_deref(), singly)
                .await
            {
                // One object always fits.
                Err(ApiError::TooLarge { .. }) if !singly => {
                    singly = true;
                    continue;
                }
                page => page?,
            };
            for one in page.clusters {
                if all.len() >= MAX_KNOWN {
                    tracing::warn!(%scope, most = MAX_KNOWN, "there are more RayClusters than can be kept in mind; name namespaces or labels in [discovery]");
                    return Ok((all, page.version));
                }
                all.insert((one.namespace.clone(), one.name.clone()), one);
            }
            match page.next {
                Some(token) => next = Some(token),
                None => return Ok((all, page.version)),
            }
        }
    }

    /// Follows what changes since `version`. `Ok`: all are to be listed anew.
    async fn follow(
        &self,
        scope: &Scope,
        number: usize,
        mut version: String,
    ) -> Result<(), ApiError> {
        let selector = self.settings.label_selector.as_deref();
        let until = Instant::now() + RESYNC;
        let mut backoff = BACKOFF;
        while Instant::now() < until {
            let began = Instant::now();
            let ended = self
                .follow_once(scope, selector, number, &mut version)
                .await;
            match ended {
                Ok(()) => {}
                Err(ApiError::Refused { status: 410, .. }) => return Ok(()),
                // The connection broke, perhaps in the middle of a change: that one comes again.
                Err(ApiError::Unreachable { .. }) if backoff.is_fresh() => {}
                Err(error) => return Err(error),
            }
            // A watch that ends at once is not asked for again at once.
            match began.elapsed() < FIRST {
                true => sleep(backoff.pause()).await,
                false => backoff.reset(),
            }
        }
        Ok(())
    }

    async fn follow_once(
        &self,
        scope: &Scope,
        selector: Option<&str>,
        number: usize,
        version: &mut String,
    ) -> Result<(), ApiError> {
        let mut watch = self.api.watch(scope, selector, version).await?;
        while let Some((event, now)) = watch.next().await? {
            match event {
                Event::Changed(one) => {
                    let name = one.to_string();
                    if !self.known.put(number, one) {
                        tracing::debug!(%name, "there are more RayClusters than can be kept in mind");
                    }
                }
                Event::Deleted(one) => self.known.remove(number, &one),
                Event::Bookmark => {}
            }
            if let Some(now) = now {
                *version = now;
            }
        }
        Ok(())
    }
}
