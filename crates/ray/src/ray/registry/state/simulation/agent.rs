//! An agent: its links and streams, around the real [table](super::table).

use std::sync::Arc;
use std::time::Duration;

use super::reports::Row;
use super::table::{Agent, AgentPark, AgentStream, Deadlines, Entry, ReceivedTerms};
use super::world::{Cause, Channel, Connection, Message, USERS, World, user_named};
use crate::hold::HoldId;
use ray_relay_base::wire::tunnel::messages::{LetRun, Open};

impl World {
    pub(super) fn can_link(&self, agent: usize, relay: usize) -> bool {
        let is_reachable = self.relays[relay].is_alive && !self.cuts.contains_key(&(relay, agent));
        let links = &self.agents[agent].links;
        is_reachable && self.agents[agent].is_alive && !links.contains_key(&relay)
    }

    pub(super) fn connect(&mut self, agent: usize, relay: usize) {
        let number = self.next_number();
        self.record(|| format!("agent {agent} links with relay {relay}"));
        self.agents[agent].links.insert(relay, number);
        self.link_at_relay(relay, agent, number);
        let (held, rows) = self.agents[agent].sent.clone();
        self.send(
            Channel::ToRelay(relay, agent, number),
            Message::Report(held, rows),
        );
    }

    /// Sends the report to every linked relay, if it has changed.
    fn tell_relays(&mut self, agent: usize) {
        let Some((held, rows)) = self.agents[agent].changed_report() else {
            return;
        };
        for (relay, number) in self.agents[agent].links.clone() {
            let channel = Channel::ToRelay(relay, agent, number);
            let report = Message::Report(Arc::clone(&held), Arc::clone(&rows));
            self.send(channel, report);
        }
    }

    /// Handles `message` from the link `number` with `relay`.
    pub(super) fn receive_at_agent(
        &mut self,
        agent: usize,
        relay: usize,
        number: u64,
        message: Message,
    ) {
        if self.agents[agent].links.get(&relay) != Some(&number) {
            return;
        }
        match message {
            Message::Open(open, stream) => {
                if !self.open(agent, &open, stream) {
                    let link = Channel::ToRelay(relay, agent, number);
                    self.send(link, Message::Refused(stream));
                }
            }
            Message::Resume(let_run, row, cause) => {
                self.resume_kept_task(agent, &let_run, row, cause)
            }
            Message::Closed => {
                self.agents[agent].links.remove(&relay);
            }
            other => panic!("{other:?} to an agent"),
        }
        self.tell_relays(agent);
    }

    /// Opens the debugger that `open` names. Returns `false` if the request is refused.
    fn open(&mut self, agent: usize, open: &Open, stream: u64) -> bool {
        let info = self.streams[&stream];
        let row = Row {
            worker: info.worker,
            user: info.user,
            relay: info.relay,
            session: info.claim,
            stop: self.workers[info.worker].stop,
            parked: None,
        };
        if open.resume.is_some() {
            return self.resume(agent, open, stream, row);
        }
        let state = &mut self.agents[agent];
        let Some(hold) = state.acquire(open, row, self.ms) else {
            return false;
        };
        if !self.arrives(stream) {
            self.agents[agent].release(hold);
            return false;
        }
        if !self.dial(info.worker, info.user, Connection::Agent) {
            self.agents[agent].release(hold);
            self.send(Channel::Down(stream), Message::Closed);
            return true;
        }
        self.connect_further(agent, open, stream, row);
        let opened = AgentStream {
            hold,
            worker: info.worker,
            terms: None,
        };
        self.agents[agent].streams.insert(stream, opened);
        self.send(Channel::Down(stream), Message::Connected(None));
        true
    }

    fn resume(&mut self, agent: usize, open: &Open, stream: u64, row: Row) -> bool {
        let state = &self.agents[agent];
        let is_parked = |entry: &(&HoldId, &Entry)| entry.1.row.parked.is_some();
        let expected = state.of_worker(row.worker).find(is_parked);
        let expected = expected.map(|(_, entry)| USERS[entry.row.user]);
        let owner = state.holds.kept(&open.worker_id, open.port, open.process);
        let owner = owner.map(|(owner, ())| &**owner);
        assert_eq!(owner, expected);
        // The park may have expired while its debugger is still being detached.
        let is_there = state.parks.iter().any(|park| park.worker == row.worker);
        if !is_there || owner != open.resume.as_deref() || !self.arrives(stream) {
            return false;
        }
        let (ms, state) = (self.ms, &mut self.agents[agent]);
        let Some(AgentPark { hold, terms, .. }) = state.remove_park(row.worker) else {
            return false;
        };
        state.resume(hold, open, row, ms);
        state.transfer_subprocesses(row.worker, row.user);
        let message = terms
            .message
            .renewed(Duration::from_millis(ms - terms.received_ms));
        let deadlines = terms.deadlines;
        let lasts = message.lasts(Duration::ZERO);
        assert_eq!(
            (lasts, message.lasted_ms),
            (
                Duration::from_millis(deadlines.until(ms) - ms),
                ms - deadlines.started
            )
        );
        let lasted = message.lasted_ms;
        let opened = AgentStream {
            hold,
            worker: row.worker,
            terms: Some(ReceivedTerms {
                message,
                received_ms: ms,
                deadlines,
            }),
        };
        state.streams.insert(stream, opened);
        self.connect_further(agent, open, stream, row);
        self.workers[row.worker].owner = Some(row.user);
        self.send(Channel::Down(stream), Message::Connected(Some(lasted)));
        true
    }

    /// Opens a second connection for some of the sessions; it is released later.
    fn connect_further(&mut self, agent: usize, open: &Open, stream: u64, row: Row) {
        if stream.is_multiple_of(4) {
            let further = Open {
                holder: None,
                ..open.clone()
            };
            let state = &mut self.agents[agent];
            let hold = state.acquire(&further, row, self.ms);
            state.detaching.extend(hold);
        }
        self.agents[agent].open_subprocess(open, stream, row, self.ms);
    }

    fn resume_kept_task(&mut self, agent: usize, let_run: &LetRun, row: Row, cause: Cause) {
        let state = &mut self.agents[agent];
        let is_session =
            |entry: &Entry| (entry.row.relay, entry.row.session) == (row.relay, row.session);
        let is_expected = state
            .of_worker(row.worker)
            .any(|(_, entry)| is_session(entry) && entry.row.parked.is_some());
        let is_found = state.holds.to_let_run(let_run).is_some();
        assert_eq!(is_found, is_expected, "{row:?} is to resume");
        if let Some(park) = is_found.then(|| state.remove_park(row.worker)).flatten() {
            state.detaching.push(park.hold);
            self.resume_task(park.worker, cause);
        }
    }

    /// Releases the holds whose debuggers have been detached.
    pub(super) fn finish_detaching(&mut self, agent: usize) {
        for hold in std::mem::take(&mut self.agents[agent].detaching) {
            self.agents[agent].release(hold);
        }
        self.tell_relays(agent);
    }

    /// Handles `message` from the relay's end of `stream`.
    pub(super) fn receive_upstream(&mut self, stream: u64, message: Message) {
        let agent = self.streams[&stream].agent;
        let ms = self.ms;
        let state = &mut self.agents[agent];
        let Some(info) = state.streams.get_mut(&stream) else {
            return;
        };
        match message {
            Message::Terms(message, promised) => {
                let worker = &mut self.workers[info.worker];
                worker.promised_until = promised.or(worker.promised_until);
                let deadlines = Deadlines::of(&message, ms);
                info.terms = Some(ReceivedTerms {
                    message: *message,
                    received_ms: ms,
                    deadlines,
                });
            }
            Message::Detach(cause) => {
                let worker = info.worker;
                state.detaching.push(info.hold);
                state.streams.remove(&stream);
                state.close_subprocess(stream, None);
                self.resume_task(worker, cause);
                self.send(Channel::Down(stream), Message::Closed);
            }
            Message::Closed => self.lose_relay(stream),
            other => panic!("{other:?} on a stream"),
        }
    }

    /// The relay of `stream` is lost: parks the task by the last terms received, or resumes it.
    pub(super) fn lose_relay(&mut self, stream: u64) {
        let agent = self.streams[&stream].agent;
        let ms = self.ms;
        let state = &mut self.agents[agent];
        let Some(AgentStream {
            hold,
            worker,
            terms,
        }) = state.streams.remove(&stream)
        else {
            return;
        };
        let until = |terms: &ReceivedTerms| {
            let lasts = terms
                .message
                .lasts(Duration::from_millis(ms - terms.received_ms));
            let until = ms + u64::try_from(lasts.as_millis()).unwrap();
            assert_eq!(until, terms.deadlines.until(ms), "{:?}", terms.deadlines);
            until
        };
        match terms.map(|terms| (until(&terms), terms)) {
            Some((until, terms)) if until > ms => {
                // An administrator who took the session over has no park before their terms arrive.
                let user = user_named(&terms.message.owner);
                self.workers[worker].owner = Some(user);
                state.park(hold, &terms.message, until);
                state.close_subprocess(stream, Some((&terms.message, until)));
                state.transfer_subprocesses(worker, user);
                let park = AgentPark {
                    hold,
                    worker,
                    user,
                    until,
                    terms,
                };
                let deadlines = park.terms.deadlines;
                state.parks.push(park);
                self.record(|| {
                    format!("        agent {agent} parks worker {worker} by {deadlines:?}")
                });
            }
            _ => {
                state.detaching.push(hold);
                state.close_subprocess(stream, None);
                self.resume_task(worker, Cause::Died);
            }
        }
        self.tell_relays(agent);
    }

    /// The agent notices that `relay` is silent.
    pub(super) fn agent_notices(&mut self, relay: usize, agent: usize) {
        self.agents[agent].links.remove(&relay);
        let streams: Vec<u64> = self.agents[agent].streams.keys().copied().collect();
        for stream in streams {
            if self.streams[&stream].relay == relay {
                self.lose_relay(stream);
            }
        }
    }

    pub(super) fn end_agent_parks(&mut self) {
        for agent in 0..self.agents.len() {
            let (ms, state) = (self.ms, &mut self.agents[agent]);
            let over = state.parks.extract_if(.., |park| park.until <= ms);
            for park in over.collect::<Vec<_>>() {
                self.agents[agent].detaching.push(park.hold);
                self.resume_task(park.worker, Cause::Expired(park.user, park.until));
            }
        }
    }

    /// Ends the agent, by a crash or `in_order`.
    pub(super) fn end_agent(&mut self, agent: usize, in_order: bool) {
        let ended = std::mem::replace(&mut self.agents[agent], Agent::new(false));
        for (stream, open) in ended.streams {
            self.resume_task(open.worker, Cause::Died);
            self.send(Channel::Down(stream), Message::Closed);
        }
        for park in ended.parks {
            self.resume_task(park.worker, Cause::Died);
        }
        for (relay, number) in ended.links {
            let end = if in_order {
                Message::Shutdown
            } else {
                Message::Closed
            };
            self.send(Channel::ToRelay(relay, agent, number), end);
        }
    }

    /// Closes the streams and parks of `worker`, which has died.
    pub(super) fn worker_died(&mut self, worker: usize) {
        let state = &mut self.agents[worker % 2];
        let park = state.parks.extract_if(.., |park| park.worker == worker);
        let mut holds: Vec<HoldId> = park.map(|park| park.hold).collect();
        let ended: Vec<u64> = {
            let own_streams = state
                .streams
                .iter()
                .filter(|(_, info)| info.worker == worker);
            own_streams.map(|(stream, _)| *stream).collect()
        };
        for stream in &ended {
            state.close_subprocess(*stream, None);
            holds.extend(state.streams.remove(stream).map(|info| info.hold));
        }
        for hold in holds {
            state.release(hold);
        }
        for stream in ended {
            self.send(Channel::Down(stream), Message::Closed);
        }
        self.tell_relays(worker % 2);
    }
}
