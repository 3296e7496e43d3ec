//! One watch of RayClusters: a list, then every change of it.
//!
//! The API server ends a watch after a while, and forgets versions older than some minutes (410): then everything is
//! listed anew. While listing fails, the last result is kept.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::discovery::api::{ApiError, RayClusterChange, Scope};
use crate::discovery::pace::{BACKOFF, FIRST_BACKOFF, MAX_BACKOFF};
use crate::discovery::{Discovery, MAX_CLUSTERS_PER_WATCH, NARROWED, SeenClusters};

/// Interval of full listings, in addition to the watches.
const RESYNC_PERIOD: Duration = Duration::from_secs(600);

impl Discovery {
    /// Runs watch number `number`. Never returns.
    pub(super) async fn watch(&self, number: usize) {
        if let Some(namespace) = self.settings.namespaces.get(number) {
            let scope = Scope::Namespace(namespace.clone());
            return self.keep(&scope, number, &mut true).await;
        }
        let mut has_seen_all = false;
        loop {
            self.keep(&Scope::All, number, &mut has_seen_all).await;
            // Listing all was refused, and has never succeeded. An API server that is starting may refuse wrongly, and
            // permissions may be granted later. So watch the own namespace meanwhile, and keep retrying all.
            self.known.is_narrowed(true);
            let own_namespace = Scope::Namespace(self.api.namespace().to_owned());
            tracing::warn!(
                namespace = self.api.namespace(),
                "only the RayClusters of the relay's own namespace are found until it may list all: {NARROWED}"
            );
            let mut is_one = true;
            tokio::select! {
                () = self.keep(&own_namespace, number, &mut is_one) => {}
                () = self.until_all() => {}
            }
            tracing::info!("the relay may list the RayClusters of all namespaces now");
            self.known.is_narrowed(false);
        }
    }

    /// Resolves as soon as the RayClusters of all namespaces can be listed.
    async fn until_all(&self) {
        let selector = self.settings.label_selector.as_deref();
        let mut backoff = BACKOFF;
        loop {
            self.pause(backoff.pause()).await;
            let page = self.api.page(&Scope::All, selector, None, true).await;
            if page.is_ok() {
                return;
            }
        }
    }

    /// Runs watch number `number` for `scope`. Returns if all namespaces are refused before they were ever seen;
    /// `has_seen` records that they were. A later refusal is a failure like any other: the last result is kept.
    async fn keep(&self, scope: &Scope, number: usize, has_seen: &mut bool) {
        let mut backoff = BACKOFF;
        loop {
            let began = Instant::now();
            let error = match self.list(scope).await {
                Ok((all, version)) => {
                    tracing::debug!(%scope, found = all.len(), "RayClusters were listed");
                    *has_seen = true;
                    self.known.replace(number, all);
                    match self.follow(scope, number, version).await {
                        Ok(()) => {
                            backoff.reset();
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(ApiError::Refused { why, .. }) if why.status == Some(403) && !*has_seen => {
                    return;
                }
                Err(error) => error,
            };
            // A failure after a long success starts with a fresh backoff.
            if began.elapsed() > MAX_BACKOFF {
                backoff.reset();
            }
            if backoff.is_fresh() {
                tracing::warn!(%scope, %error, "cannot watch RayClusters; known ones stay listed");
            }
            // A single broken connection is not reported.
            if !backoff.is_fresh() || !self.known.has_seen(number) {
                self.known.is_blind(number, error.to_string());
            }
            self.pause(backoff.pause()).await;
        }
    }

    /// Waits for `pause`, or until another task gets an answer from the API server again.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.answers_again.notified() => {}
        }
    }

    /// Lists all RayClusters of `scope`, with the version of that list.
    async fn list(&self, scope: &Scope) -> Result<(SeenClusters, String), ApiError> {
        let selector = self.settings.label_selector.as_deref();
        let mut all = SeenClusters::new();
        let (mut next, mut singly) = (None, false);
        loop {
            let page = match self
                .api
                .page(scope, selector, next.as_deref(), singly)
                .await
            {
                // A single object always fits.
                Err(ApiError::TooLarge { .. }) if !singly => {
                    singly = true;
                    continue;
                }
                page => page?,
            };
            for one in page.clusters {
                if all.len() >= MAX_CLUSTERS_PER_WATCH {
                    tracing::warn!(%scope, most = MAX_CLUSTERS_PER_WATCH, "there are more RayClusters than the relay can keep; name namespaces or labels in [discovery]");
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

    /// Follows changes since `version`. `Ok`: everything has to be listed anew.
    async fn follow(
        &self,
        scope: &Scope,
        number: usize,
        mut version: String,
    ) -> Result<(), ApiError> {
        let selector = self.settings.label_selector.as_deref();
        let until = Instant::now() + RESYNC_PERIOD;
        let mut backoff = BACKOFF;
        while Instant::now() < until {
            let began = Instant::now();
            let ended = self
                .follow_once(scope, selector, number, &mut version)
                .await;
            match ended {
                Ok(()) => {}
                Err(ApiError::Refused { why, .. }) if why.status == Some(410) => return Ok(()),
                // The connection broke, perhaps in the middle of a change, which will be sent again.
                Err(ApiError::Unreachable { .. }) if backoff.is_fresh() => {}
                Err(error) => return Err(error),
            }
            // Pause if the watch ended at once.
            match began.elapsed() < FIRST_BACKOFF {
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
                RayClusterChange::Changed(one) => {
                    let name = one.to_string();
                    if !self.known.put(number, one) {
                        tracing::debug!(%name, "there are more RayClusters than the relay can keep");
                    }
                }
                RayClusterChange::Deleted(one) => self.known.remove(number, &one),
                RayClusterChange::Bookmark => {}
            }
            if let Some(now) = now {
                *version = now;
            }
        }
        Ok(())
    }
}
