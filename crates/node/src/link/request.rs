//! The requests of a relay on its link that run in tasks of their own.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, info_span};

use super::{AgentLink, LinkEnded};
use crate::agent::Agent;
use crate::stream::Requester;
use crate::{arm, inspect, stream};
use ray_relay_base::wire::tunnel::messages::{
    Arm, FromAgent, Hex, Inspect, Open, Refusal, StreamId, Text,
};

/// Queues messages for the relay.
type Answers = mpsc::Sender<FromAgent>;

impl<S: AsyncRead + AsyncWrite + Unpin> AgentLink<S> {
    /// Acquires a slot for a stream that the relay may cancel. `None`: it is refused, and the relay is notified.
    async fn admit(
        &mut self,
        stream: StreamId,
    ) -> Result<Option<(OwnedSemaphorePermit, CancellationToken)>, LinkEnded> {
        self.opening.retain(|_, opening| !opening.is_cancelled());
        let slot = Arc::clone(&self.agent.stream_slots).try_acquire_owned();
        let detail = match slot {
            _ if self.nodes.is_none() => "the link is not accepted yet",
            Err(_) => "the agent is at its limit of streams",
            _ if self.opening.contains_key(&stream) => "that stream is open already",
            Ok(slot) => {
                let cancelled = CancellationToken::new();
                self.opening.insert(stream, cancelled.clone());
                return Ok(Some((slot, cancelled)));
            }
        };
        let refused = FromAgent::Refused {
            stream,
            kind: Refusal::Busy,
            detail: detail.into(),
            holder: None,
        };
        self.wire.say(&refused).await?;
        Ok(None)
    }

    /// Runs what `serve` returns in a task of the agent, in `span`, if there is a slot for `stream`. Its end frees the
    /// slot.
    async fn start<F>(
        &mut self,
        stream: StreamId,
        span: Span,
        serve: impl FnOnce(Arc<Agent>, Requester, CancellationToken, Answers) -> F,
    ) -> Result<(), LinkEnded>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some((slot, cancelled)) = self.admit(stream).await? else {
            return Ok(());
        };
        let requester = Requester {
            dialler: self.dialler.clone(),
            replica: self.replica,
            lost: self.lost.clone(),
        };
        let (agent, answers) = (Arc::clone(&self.agent), self.answers.clone());
        let serving = serve(agent, requester, cancelled.clone(), answers);
        let serving = async move {
            serving.await;
            cancelled.cancel();
            drop(slot);
        };
        self.agent.tasks.spawn(serving.instrument(span));
        Ok(())
    }

    pub(super) async fn open(&mut self, open: Open) -> Result<(), LinkEnded> {
        let span = info_span!("stream", cluster = %open.cluster, worker = %open.worker_id);
        self.start(open.stream, span, |agent, requester, cancelled, answers| {
            stream::serve(agent, requester, open, cancelled, answers)
        })
        .await
    }

    pub(super) async fn arm(&mut self, request: Arm) -> Result<(), LinkEnded> {
        let span = info_span!("arm", job = %request.job_id);
        self.start(
            request.stream,
            span,
            |agent, requester, cancelled, answers| {
                arm::serve(agent, requester, request, cancelled, answers)
            },
        )
        .await
    }

    pub(super) async fn inspect(&mut self, request: Inspect) -> Result<(), LinkEnded> {
        let span = info_span!("inspect", worker = %request.worker_id, pid = request.pid);
        self.start(
            request.stream,
            span,
            |agent, requester, cancelled, answers| {
                inspect::serve(agent, requester.dialler, request, cancelled, answers)
            },
        )
        .await
    }

    /// Answers on which node a process with `title` listens on `port`. Without a free slot there is no answer.
    pub(super) fn locate(&self, query: Hex<8>, port: u16, title: Text<256>) {
        let (agent, answers) = (Arc::clone(&self.agent), self.answers.clone());
        let Ok(slot) = Arc::clone(&self.agent.stream_slots).try_acquire_owned() else {
            return;
        };
        let locating = async move {
            let node_id = agent.verifier.locate(port, &title).await;
            let located = FromAgent::Located {
                query,
                found: node_id.is_some(),
                node_id: node_id.as_deref().map(Into::into),
            };
            _ = answers.send(located).await;
            drop(slot);
        };
        self.agent.tasks.spawn(locating.in_current_span());
    }
}
