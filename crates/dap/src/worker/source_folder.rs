//! Mapping of the worker's files to the client's, changed during the session.

use serde_json::Value;

use super::ActiveSession;
use super::evaluating::{Evaluating, FilesAsker, FilesRequest};
use crate::source_folder::{done, holds, put_into};
use ray_relay_base::wire::dap::mappings::ClientFiles;
use ray_relay_base::wire::dap::message::succeeded;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::peer_stream::PeerStream;

/// Pending evaluations in the worker's debugger; more are refused.
const MAX_EVALUATING: usize = 64;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Sets the file mapping in the worker's debugger, as `asker` requests.
    pub(super) fn map_to(&mut self, asker: FilesAsker, files: Result<ClientFiles, &'static str>) {
        let attached = self.splice.worker().is_attached() && !self.live.is_leaving();
        let is_ready =
            self.resumption.is_none() && self.questions.evaluating.len() < MAX_EVALUATING;
        let refusal = match files {
            Err(usage) => usage,
            Ok(_) if !attached || !is_ready => {
                "the session is not ready for that; ask again in a moment"
            }
            Ok(files) => {
                let evaluate = Command::Evaluate.as_str().as_bytes();
                self.splice.capture_answers(Side::Worker, evaluate);
                self.splice.worker_mut().maps();
                self.request(Command::Evaluate, files.setting());
                let request = FilesRequest { asker, files };
                self.questions
                    .evaluating
                    .push_back(Evaluating::Files(request));
                return;
            }
        };
        self.answer_files(asker, Err(refusal));
    }

    /// Answers that `files` are mapped, or why not.
    fn answer_files(&mut self, asker: FilesAsker, files: Result<&ClientFiles, &str>) {
        match (asker, files) {
            (FilesAsker::Client(request), Ok(files)) => self.send_to_client(&done(&request, files)),
            (FilesAsker::Client(request), Err(why)) => self.send_to_client(&request.failure(why)),
            (FilesAsker::Lead(answer), files) => {
                // The lead may be gone.
                let _ = answer.send(files.map(holds).map_err(str::to_owned));
            }
        }
    }

    /// Handles the debugger's answer. If the folder has changed, the client is shown the current stop again, and
    /// fetches its files anew; a client that reported missing files does so on its own.
    pub(super) fn mapped(&mut self, request: FilesRequest, answer: &Value) {
        let FilesRequest { asker, files } = request;
        if !succeeded(answer) {
            let sentence = "the worker's debugger knows no such thing; attach again with another rayRelay.localRoot";
            return self.answer_files(asker, Err(sentence));
        }
        self.answer_files(asker, Ok(&files));
        let ClientFiles::Below(folder) = files else {
            return;
        };
        let mut own = serde_json::from_str(&self.attached).unwrap_or_default();
        put_into(&mut own, &folder);
        self.attached = own.to_string().into();
        if let Some(stop) = self.stands.last().map(<[u8]>::to_vec) {
            self.pass_to_client(&stop);
        }
    }
}
