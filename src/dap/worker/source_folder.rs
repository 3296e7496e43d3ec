//! Another folder for the worker's files, which the client has asked for in the session.

use serde_json::Value;

use super::ActiveSession;
use crate::dap::source_folder::{done, put_into};
use crate::wire::dap::mappings;
use crate::wire::dap::message::Request;
use crate::wire::dap::names::Command;
use crate::wire::dap::splice::Side;
use crate::wire::peer_stream::PeerStream;

/// What was asked for, while the worker's debugger is told of it.
#[derive(Debug)]
pub(super) struct FolderRequest {
    request: Request,
    folder: String,
}

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Has the worker's debugger tell the files anew, as `request` asks for.
    pub(super) fn map_to(&mut self, request: Request, folder: Result<String, &'static str>) {
        let attached = self.splice.worker().is_attached() && !self.live.is_leaving();
        let answer = match folder {
            Err(usage) => request.failure(usage),
            Ok(_) if !attached || self.resumption.is_some() || self.source_folder.is_some() => {
                request.failure("the session is not ready for that; ask again in a moment")
            }
            Ok(folder) => {
                let evaluate = Command::Evaluate.as_str().as_bytes();
                self.splice.capture_answers(Side::Worker, evaluate);
                self.splice.worker_mut().maps();
                self.request(Command::Evaluate, mappings::setting(&folder));
                self.source_folder = Some(Box::new(FolderRequest { request, folder }));
                return;
            }
        };
        self.tell(&answer);
    }

    /// The debugger has answered what the relay had it evaluate. The client is shown the place where the program stands once
    /// more, and asks for its files anew.
    pub(super) fn mapped(&mut self, answer: &Value) {
        let Some(asked) = self.source_folder.take() else {
            return;
        };
        let FolderRequest { request, folder } = *asked;
        if answer["success"] != true {
            let sentence = "the worker's debugger knows no such thing; attach again with another rayRelay.localRoot";
            return self.tell(&request.failure(sentence));
        }
        let mut own = serde_json::from_str(&self.attached).unwrap_or_default();
        put_into(&mut own, &folder);
        self.attached = own.to_string().into();
        self.tell(&done(&request, &folder));
        if let Some(stop) = self.stands.last().map(<[u8]>::to_vec) {
            self.pass_to_client(&stop);
        }
    }
}
