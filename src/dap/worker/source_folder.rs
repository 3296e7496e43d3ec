//! Another folder for the worker's files, which the client has asked for in the session.

use serde_json::Value;
use tokio::sync::oneshot;

use super::{ActiveSession, Evaluating};
use crate::dap::source_folder::{done, holds, put_into};
use crate::session::family::Answer;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::Request;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::peer_stream::PeerStream;

/// What was asked for, while the worker's debugger is told of it.
#[derive(Debug)]
pub(super) struct FolderRequest {
    asker: FolderAsker,
    folder: String,
}

/// The client of the session, or the lead of its family for all tasks.
#[derive(Debug)]
pub(super) enum FolderAsker {
    Client(Request),
    Lead(oneshot::Sender<Answer>),
}

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Has the worker's debugger tell the files anew, as `asker` asks for.
    pub(super) fn map_to(&mut self, asker: FolderAsker, folder: Result<String, &'static str>) {
        let attached = self.splice.worker().is_attached() && !self.live.is_leaving();
        let refusal = match folder {
            Err(usage) => usage,
            Ok(_) if !attached || self.resumption.is_some() || self.evaluating.is_some() => {
                "the session is not ready for that; ask again in a moment"
            }
            Ok(folder) => {
                let evaluate = Command::Evaluate.as_str().as_bytes();
                self.splice.capture_answers(Side::Worker, evaluate);
                self.splice.worker_mut().maps();
                self.request(Command::Evaluate, mappings::setting(&folder));
                let asked = FolderRequest { asker, folder };
                self.evaluating = Some(Box::new(Evaluating::Folder(asked)));
                return;
            }
        };
        self.answer_folder(asker, Err(refusal));
    }

    /// Answers that `folder` holds, or why it does not.
    fn answer_folder(&mut self, asker: FolderAsker, folder: Result<&str, &str>) {
        match (asker, folder) {
            (FolderAsker::Client(request), Ok(folder)) => self.tell(&done(&request, folder)),
            (FolderAsker::Client(request), Err(why)) => self.tell(&request.failure(why)),
            (FolderAsker::Lead(answer), folder) => {
                // The lead may no longer wait for it.
                let _ = answer.send(folder.map(holds).map_err(str::to_owned));
            }
        }
    }

    /// The debugger has answered what the relay had it evaluate. The client is shown the place where the program stands once
    /// more, and asks for its files anew.
    pub(super) fn mapped(&mut self, asked: FolderRequest, answer: &Value) {
        let FolderRequest { asker, folder } = asked;
        if answer["success"] != true {
            let sentence = "the worker's debugger knows no such thing; attach again with another rayRelay.localRoot";
            return self.answer_folder(asker, Err(sentence));
        }
        let mut own = serde_json::from_str(&self.attached).unwrap_or_default();
        put_into(&mut own, &folder);
        self.attached = own.to_string().into();
        self.answer_folder(asker, Ok(&folder));
        if let Some(stop) = self.stands.last().map(<[u8]>::to_vec) {
            self.pass_to_client(&stop);
        }
    }
}
