//! The requests of a relay on its link that run in tasks of their own.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info_span};

use super::{AgentLink, LinkEnded};
use crate::{arm, inspect, stream};
use ray_relay_base::wire::tunnel::messages::{
    Arm, FromAgent, Hex, Inspect, Open, Refusal, StreamId, Text,
};

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

    /// Runs `serving` in a task of the agent. At its end the stream is `done`, and its `slot` is free.
    fn spawn(
        &self,
        serving: impl Future<Output = ()> + Send + 'static,
        slot: OwnedSemaphorePermit,
        done: CancellationToken,
    ) {
        self.agent.tasks.spawn(async move {
            serving.await;
            done.cancel();
            drop(slot);
        });
    }

    pub(super) async fn open(&mut self, open: Open) -> Result<(), LinkEnded> {
        let Some((slot, cancelled)) = self.admit(open.stream).await? else {
            return Ok(());
        };
        let span = info_span!("stream", cluster = %open.cluster, worker = %open.worker_id);
        let (agent, answers) = (Arc::clone(&self.agent), self.answers.clone());
        let (requester, done) = (self.requester(), cancelled.clone());
        let serving = stream::serve(agent, requester, open, cancelled, answers);
        self.spawn(serving.instrument(span), slot, done);
        Ok(())
    }

    fn requester(&self) -> stream::Requester {
        stream::Requester {
            dialler: self.dialler.clone(),
            replica: self.replica,
            lost: self.lost.clone(),
        }
    }

    pub(super) async fn arm(&mut self, request: Arm) -> Result<(), LinkEnded> {
        let Some((slot, cancelled)) = self.admit(request.stream).await? else {
            return Ok(());
        };
        let span = info_span!("arm", job = %request.job_id);
        let (agent, answers) = (Arc::clone(&self.agent), self.answers.clone());
        let (requester, done) = (self.requester(), cancelled.clone());
        let serving = arm::serve(agent, requester, request, cancelled, answers);
        self.spawn(serving.instrument(span), slot, done);
        Ok(())
    }

    pub(super) async fn inspect(&mut self, request: Inspect) -> Result<(), LinkEnded> {
        let Some((slot, cancelled)) = self.admit(request.stream).await? else {
            return Ok(());
        };
        let span = info_span!("inspect", worker = %request.worker_id, pid = request.pid);
        let (agent, answers) = (Arc::clone(&self.agent), self.answers.clone());
        let (dialler, done) = (self.dialler.clone(), cancelled.clone());
        let serving = inspect::serve(agent, dialler, request, cancelled, answers);
        self.spawn(serving.instrument(span), slot, done);
        Ok(())
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
