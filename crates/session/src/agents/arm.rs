//! Armed lines in the workers of a job, through the agent of each node. The caller checks the permission.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::inspect::NotInspected;
use super::{Agents, Tunnel};
use ray_relay_base::wire::tunnel::messages::{
    Arm, ArmReport, ArmedLine, FromRelay, MAX_REPORT_BYTES, read,
};

/// The time for an agent to open the stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a report with the agent's words around it.
const MAX_LINE_BYTES: usize = MAX_REPORT_BYTES + 1024;

/// The lease of lines that are armed in the workers of one job on one node. Dropping it disarms them.
pub struct ArmedNode {
    reports: FramedRead<Tunnel, LinesCodec>,
}

impl ArmedNode {
    /// The next report of a worker there; `None`: the agent or the connection to it has gone, and the lines are
    /// disarmed. Cancel safe.
    ///
    /// # Errors
    /// [`NotInspected::Garbage`]: the agent breaks the protocol.
    pub async fn next(&mut self) -> Result<Option<ArmReport>, NotInspected> {
        match self.reports.next().await {
            // A stream that breaks is an agent that has gone.
            None | Some(Err(LinesCodecError::Io(_))) => Ok(None),
            Some(line) => {
                let line = line.map_err(|_| NotInspected::Garbage)?;
                read(&line).map(Some).map_err(|_| NotInspected::Garbage)
            }
        }
    }
}

impl Agents {
    /// Arms `lines` in all workers of the job `job_id` on that node, now and later, until the result is dropped. The
    /// caller has checked the permission and put it on record.
    ///
    /// # Errors
    /// [`NotInspected`]; takes at most 10 s. Cancel safe: the agent is notified.
    pub async fn arm(
        &self,
        cluster: &str,
        node_id: &str,
        job_id: &str,
        lines: &[ArmedLine],
    ) -> Result<ArmedNode, NotInspected> {
        let link = self
            .speaks_for(cluster, node_id)
            .map_err(NotInspected::NoAgent)?;
        if !link.about.arms {
            return Err(NotInspected::Older);
        }
        let ask = |stream, secret| {
            FromRelay::Arm(Arm {
                stream,
                secret,
                node_id: node_id.into(),
                job_id: job_id.into(),
                lines: lines.to_vec(),
            })
        };
        let tunnel = self.streamed(&link, None, ask, OPEN_TIMEOUT).await?;
        let codec = LinesCodec::new_with_max_length(MAX_LINE_BYTES);
        Ok(ArmedNode {
            reports: FramedRead::new(tunnel, codec),
        })
    }
}
